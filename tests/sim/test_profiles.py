"""The server profile that a simulated model uses."""

import pytest

from bridle.providers.tables import load_tables
from bridle.sim.families import list_profiles
from bridle.sim.rules.profiles import FIRST_PARTY, ServerProfile, find_server_profile

ROWS = load_tables().endpoints


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.profile])
def test_endpoints_name_profiles_that_their_family_has(name):
    row = ROWS[name]
    assert row.profile in {profile.name for profile in list_profiles(row.family)}


@pytest.mark.parametrize(
    ("reasoning", "manners"), [("must_echo", {"must-echo"}), ("strip", {"", "strip", "short-ids"})]
)
def test_what_we_do_with_reasoning_is_what_the_server_wants_done(reasoning, manners):
    """A table that echoes to a server that refuses it, or strips where it is wanted, would fail in life."""
    assert {row.profile for row in ROWS.values() if row.reasoning == reasoning} <= manners
    wanting = [row for row in ROWS.values() if row.profile in manners - {""}]
    assert {row.reasoning for row in wanting} == {reasoning}


@pytest.mark.parametrize(
    ("family", "model", "profile"),
    [
        ("openai_chat", "deepseek-v4-pro", "must-echo"),
        ("openai_chat", "mistral-large-4", "short-ids"),
        ("openai_chat", "gpt-5.4", FIRST_PARTY),
        ("openai_chat", "nobody-knows", FIRST_PARTY),
        ("openai_responses", "gpt-5.4", FIRST_PARTY),
        ("anthropic", "claude-sonnet-5-5", FIRST_PARTY),
    ],
)
def test_a_model_is_played_with_the_manners_of_whoever_serves_it(family, model, profile):
    assert find_server_profile(family, model) == profile


def test_a_file_of_ones_own_may_give_other_manners(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text('[endpoints.deepseek]\nprofile = "alternation"\n')
    assert find_server_profile("openai_chat", "deepseek-v4-pro", str(path)) == "alternation"


def test_a_profile_has_what_it_lists_or_all_but_what_it_leaves_out():
    assert ServerProfile(name="a", description="", only=("x",)).includes("x")
    assert not ServerProfile(name="a", description="", only=("x",)).includes("y")
    assert ServerProfile(name="a", description="", without=("x",)).includes("y")
    assert not ServerProfile(name="a", description="", without=("x",)).includes("x")
