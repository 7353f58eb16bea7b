"""`--code-mode` and the key `code_mode` of agent files."""

import json

import pytest

from bridle import MisuseError, load_agent
from tests.suite.command import bridle

TOOLS = '''
from bridle import tool

def unsave(text: str) -> str:
    return "removed"

@tool(effect="read")
def population(city: str) -> int:
    """Number of people in a city."""
    return {"Rome": 2_800_000, "Oslo": 720_000}[city]

@tool(effect="write", compensate=unsave)
def save(text: str) -> str:
    """Save a text."""
    return f"saved {text}"
'''
CODE = "total = population('Rome') + population('Oslo')\nprint(save(str(total)))"
PROMPT = f"!call run_code {json.dumps({'code': CODE})}\n!then\n!say Done."


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def run(folder, *words):
    return bridle(*words, cwd=folder, BRIDLE_STORE=str(folder / "log.db"))


def test_the_option_runs_programs_and_every_command_shows_their_calls(folder):
    done = run(folder, "run", "-m", "sim:", "--tools", "tools.py", "--code-mode", "--yes", "--json", PROMPT)
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    session, program = shown["session"], shown["subruns"][0]["session"]
    tree = run(folder, "show", session, "--as", "tree").out
    assert tree.count("population(") >= 2 and "save(" in tree and "model python" not in tree
    rows = {
        row["name"]: row["calls"]
        for row in json.loads(run(folder, "cost", session, "--by", "tool", "--json").out)["rows"]
    }
    assert (rows["run_code"], rows["population"], rows["save"]) == (1, 2, 1)
    total = json.loads(run(folder, "cost", session, "--json").out)["total"]
    assert total["calls"] == 2, "replies of a program are no model calls"
    listed = json.loads(run(folder, "session", "compensate", session, "--list", "--json").out)
    assert [(each["tool"], each["session"]) for each in listed] == [("save", program)]
    undone = run(folder, "session", "compensate", session, "--tools", "tools.py", "--yes")
    assert undone.code == 0 and undone.out.startswith("done") and f"{program}/c3_0" in undone.out
    refused = run(folder, "run", "--session", program, "-m", "sim:", "--tools", "tools.py", "Go on.")
    assert refused.code == 2 and "resume the run that started it" in refused.err
    without = run(folder, "resume", session, "--tools", "tools.py")
    assert without.code == 2 and "add --code-mode" in without.err


def test_without_a_terminal_a_program_needs_permission(folder):
    done = run(folder, "run", "-m", "sim:", "--tools", "tools.py", "--code-mode", PROMPT)
    assert "--yes allows it" in done.err and "saved" not in done.err


def test_an_answer_to_a_call_of_a_program_names_the_run_to_resume(folder):
    (folder / "policy.toml").write_text('[[rules]]\ndecision = "ask"\ntools = ["save"]\n')
    options = ("--tools", "tools.py", "--code-mode", "--yes", "--policy", "policy.toml", "--json")
    waiting = json.loads(run(folder, "run", "-m", "sim:", *options, PROMPT).out)
    session, program = waiting["session"], waiting["subruns"][0]["session"]
    assert waiting["stop"] == "waiting"
    for words, tools in (((), "FILE"), (("--tools", "tools.py", "--code-mode"), "tools.py")):
        refused = run(folder, "resume", program, *words)
        assert refused.code == 2
        assert f"bridle resume {session} --tools {tools} --code-mode" in " ".join(refused.err.split())
    (question,) = json.loads(run(folder, "approvals", "--json").out)
    approved = run(folder, "approvals", "approve", question["id"])
    assert approved.out.splitlines()[-1] == f"continue with: bridle resume {session} --tools FILE --code-mode"
    resumed = run(folder, "resume", session, "--tools", "tools.py", "--code-mode", "--yes")
    assert resumed.code == 0 and "Done." in resumed.out, resumed.err


def test_agent_files_have_a_key(folder):
    path = folder / "agent.toml"
    path.write_text('model = "sim:"\ntools = ["tools.py"]\ncode_mode = true\n')
    assert [spec.name for spec in load_agent(path).settings.tools] == ["run_code"]
    path.write_text(
        'model = "sim:"\ntools = ["tools.py"]\n[code_mode]\ntools = ["population"]\nsandbox = false\n'
    )
    agent = load_agent(path)
    assert [spec.name for spec in agent.settings.tools] == ["save", "run_code"]
    path.write_text('model = "sim:"\n[code_mode]\nseconds = 0\n')
    with pytest.raises(MisuseError, match=r"agent\.toml.*CodeMode\(seconds=0.0\) must be a number above 0"):
        load_agent(path)
