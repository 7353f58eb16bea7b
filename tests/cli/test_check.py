"""`bridle check waiting`: what a deployment learns about the sessions that wait, and `bridle approvals approve -a`."""

import json

import pytest

from bridle.cli.main import main

CODE = """
from bridle import Agent, tool

@tool({options})
def {name}({arguments}) -> str:
    '''Pay back.'''
    return "paid"

desk = Agent("sim:", tools=[{name}], name="desk", store="log.db")
"""
FIRST = {"options": 'effect="write", approve=True', "name": "refund", "arguments": "order: str, amount: int"}
PROMPT = '!call refund {"order": "17", "amount": 5}\n!then\n!say settled'


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, changes in VERSIONS.items():
        (tmp_path / f"{name}.py").write_text(CODE.format(**{**FIRST, **changes}))
    namespace = {}
    exec((tmp_path / "first.py").read_text(), namespace)
    made = namespace["desk"]
    for session in ("a", "b"):
        assert made.run_sync(PROMPT, session=session).stop == "waiting"
    assert made.run_sync("!say hello", session="done").stop == "done"
    return tmp_path


VERSIONS = {
    "first": {},
    "timeout": {"options": 'effect="write", approve=True, timeout=5'},
    "effect": {"options": 'effect="exclusive", approve=True'},
    "renamed": {"name": "pay_back"},
    "alias": {"name": "pay_back", "options": 'effect="write", approve=True, aliases=["refund"]'},
    "argument": {"arguments": "order_id: str, amount: int"},
}


def check(capsys, version, *more):
    code = main(["check", "waiting", "-a", f"{version}.py", *more])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("first", []),
        ("timeout", []),
        ("alias", []),
        ("effect", []),
        ("renamed", ["tool"]),
        ("argument", ["arguments"]),
    ],
)
def test_sessions_that_the_code_would_strand_fail_the_check(place, capsys, version, kinds):
    code, out = check(capsys, version, "--json")
    report = json.loads(out)
    assert code == (1 if kinds else 0)
    assert (report["waiting"], report["refused"]) == (2, 2 if kinds else 0)
    refused = [each for each in report["sessions"] if each["obstacles"]]
    assert sorted(each["session"] for each in refused) == (["a", "b"] if kinds else [])
    assert [[obstacle["kind"] for obstacle in each["obstacles"]] for each in refused] == [kinds] * len(
        refused
    )
    asked = [each["session"] for each in report["sessions"] if each["asked_again"]]
    assert sorted(asked) == (["a", "b"] if version == "effect" else [])


def test_lines_of_the_check_say_why_and_what_to_type(place, capsys):
    code, out = check(capsys, "renamed")
    assert code == 1
    assert "needs the tool 'refund'" in out
    assert "@tool(aliases=['refund'])" in out
    assert out.endswith(
        "2 sessions wait and 0 are unfinished otherwise; this code cannot continue 2 of them\n"
    )


def test_agent_that_is_not_in_the_file_strands_its_sessions(place, capsys):
    (place / "clerk.py").write_text('from bridle import Agent\n\nclerk = Agent("sim:", name="clerk")\n')
    code, out = check(capsys, "clerk")
    assert code == 1
    assert "it belongs to the agent 'desk', which is not in this code" in out


def test_check_without_code_is_refused(place, capsys):
    assert main(["check", "waiting"]) == 2
    assert "bridle check waiting -a FILE.py" in capsys.readouterr().err


def test_approving_with_a_file_that_cannot_honour_it_records_nothing(place, capsys):
    assert main(["approvals", "a", "--json"]) == 0
    question = json.loads(capsys.readouterr().out)[0]["id"]
    assert main(["approvals", "approve", question, "-a", "renamed.py"]) == 2
    assert "needs the tool 'refund'" in capsys.readouterr().err
    assert main(["approvals", "approve", question, "-a", "alias.py"]) == 0
    assert main(["resume", "a", "-a", "alias.py"]) == 0, capsys.readouterr().err
    assert "settled" in capsys.readouterr().out
