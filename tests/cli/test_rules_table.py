"""`bridle sim rules`, for people and for programs."""

import json

import pytest

from bridle.cli.main import main
from bridle.sim.families import list_families, list_profiles, list_rules


def test_every_rule_is_printed_under_its_family_and_profile(capsys):
    assert main(["sim", "rules"]) == 0
    printed = capsys.readouterr().out
    for family in list_families():
        for profile in list_profiles(family):
            assert f"{family}, {profile.name}: {profile.description}" in printed
            assert all(f"| `{rule.id}` |" in printed for rule in list_rules(family, profile.name))


@pytest.mark.parametrize("family", list_families())
def test_programs_get_every_rule_once_with_the_profiles_that_have_it(family, capsys):
    assert main(["sim", "rules", "--family", family, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    expected: dict[str, list[str]] = {}
    for profile in list_profiles(family):
        for rule in list_rules(family, profile.name):
            expected.setdefault(rule.id, []).append(profile.name)
    assert {row["id"]: row["profiles"] for row in rows} == expected
    assert len(rows) == len(expected)
    assert {row["family"] for row in rows} == {family}


def test_one_profile_can_be_asked_for(capsys):
    assert main(["sim", "rules", "--profile", "must-echo", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {profile for row in rows for profile in row["profiles"]} == {"must-echo"}
    assert any("reasoning_content" in row["message"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--family", "nobody"], "unknown wire family 'nobody'"),
        (["--profile", "rude"], "unknown profile 'rude'"),
    ],
)
def test_what_there_is_not_is_said(arguments, says, capsys):
    assert main(["sim", "rules", *arguments]) == 2
    assert says in capsys.readouterr().err
