"""An answer given in one process counts in the next one, wherever that one runs."""

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.suite.command import bridle, start_bridle
from tests.suite.patience import PATIENCE_SECONDS

TOOLS = '''
from pathlib import Path
from bridle import tool

@tool(effect="write"{more})
def pay(amount: int) -> str:
    """Pay."""
    with Path({paid!r}).open("a") as file:
        file.write(f"{{amount}} ")
    return "paid"
'''
LIBRARY = """
import sys
sys.path.insert(0, {home!r})
from paying import pay
from bridle import Agent
agent = Agent("sim:", tools=[pay], store={store!r})
{then}
"""
PROMPT = '!call pay {"amount": 7}\n!then\n!say done'
RULES = '[[rules]]\ndecision = "ask"\nname = "boss"\n'


@pytest.fixture
def home(tmp_path, monkeypatch):
    return prepare_home(tmp_path, monkeypatch, str(tmp_path / "log.db"))


@pytest.fixture
def any_home(tmp_path, monkeypatch, shared_log):
    """The same, on every store that processes share."""
    return prepare_home(tmp_path, monkeypatch, shared_log)


def prepare_home(tmp_path, monkeypatch, store):
    monkeypatch.setenv("BRIDLE_STORE", store)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


def write_tools(home, more=""):
    (home / "paying.py").write_text(TOOLS.format(more=more, paid=str(home / "paid")))
    return str(home / "paying.py")


def read_payments(home):
    return (home / "paid").read_text().split() if (home / "paid").exists() else []


def bridle_on_terminal(typed, *words):
    """One command with a person at the keyboard, who types this."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed.encode())
        running = start_bridle(*words, stdin=theirs, stderr=theirs)
        out, _ = running.communicate(timeout=PATIENCE_SECONDS)
        return running.returncode, out
    finally:
        os.close(ours)
        os.close(theirs)


def library(home, then):
    code = LIBRARY.format(home=str(home), store=os.environ["BRIDLE_STORE"], then=then)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    ).stdout


def waiting_session():
    (question,) = json.loads(bridle("approvals", "--json").out)
    return question["session"], question["id"]


def ask(home, where):
    if where == "library":
        write_tools(home, ", approve=True")
        assert library(home, f"print(agent.run_sync({PROMPT!r}).stop)") == "waiting\n"
        return waiting_session()
    tools = write_tools(home)
    if where == "terminal":
        assert bridle_on_terminal("w\n", "run", PROMPT, "--tools", tools)[0] == 1
        return waiting_session()
    (home / "rules.toml").write_text(RULES)
    assert bridle("run", PROMPT, "--tools", tools, "--policy", str(home / "rules.toml")).code == 1
    return waiting_session()


@pytest.mark.parametrize("answer", ["approve", "reject"])
@pytest.mark.parametrize("where", ["library", "terminal", "policy"])
def test_an_answer_counts_when_the_run_goes_on_in_a_pipe(any_home, where, answer):
    session, question = ask(any_home, where)
    assert bridle("approvals", answer, question).code == 0
    done = bridle("resume", session, "--tools", str(any_home / "paying.py"))
    assert (done.code, done.out) == (0, "done\n"), done.err
    assert read_payments(any_home) == (["7"] if answer == "approve" else [])


def test_an_answer_given_on_the_command_line_counts_in_the_library(home):
    session, question = ask(home, "terminal")
    assert bridle("approvals", "reject", question).code == 0
    resume = f"import asyncio; print(asyncio.run(agent.resume({session!r})).text)"
    assert library(home, resume) == "done\n"
    assert read_payments(home) == []


def test_a_question_stays_open_when_a_pipe_comes_by_before_the_answer(home):
    session, question = ask(home, "terminal")
    early = bridle("resume", session, "--tools", str(home / "paying.py"))
    assert (early.code, "waiting for an answer about pay" in early.err) == (1, True), early.err
    assert waiting_session() == (session, question)
    assert bridle("approvals", "approve", question).code == 0
    assert bridle("resume", session, "--tools", str(home / "paying.py")).out == "done\n"
    assert read_payments(home) == ["7"]


def test_rules_of_a_session_hold_when_it_goes_on_without_naming_them(home):
    """`--policy` is not said again: the rules are the session's own, like its model."""
    tools = write_tools(home)
    rules = home / "rules.toml"
    rules.write_text('[[rules]]\ndecision = "deny"\nname = "closed"\n')
    first = bridle("run", PROMPT, "--tools", tools, "--policy", str(rules), "--json")
    session = json.loads(first.out)["session"]
    again = bridle("run", PROMPT, "--tools", tools, "--session", session, "--yes")
    assert again.code == 0, again.err
    assert read_payments(home) == []
