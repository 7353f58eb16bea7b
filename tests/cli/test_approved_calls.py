"""Approved calls that have not started, on the command line: listed, rejected, and never dropped by a prompt."""

import io
import json

import pytest

from bridle.cli.main import main

CODE = """
from bridle import Agent, tool

@tool(effect="write", approve=True)
def {name}(order: str) -> str:
    '''Pay back.'''
    return "paid"

desk = Agent("sim:", tools=[{name}], name="desk", store="log.db")
"""
PROMPT = '!call refund {"order": "17"}\n!then\n!say settled'


@pytest.fixture
def approval(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("refund", "pay_back"):
        (tmp_path / f"{name}.py").write_text(CODE.format(name=name))
    namespace = {}
    exec((tmp_path / "refund.py").read_text(), namespace)
    assert namespace["desk"].run_sync(PROMPT, session="a").stop == "waiting"
    code, out, _ = call(capsys, "approvals", "a", "--json")
    assert code == 0
    return json.loads(out)[0]["id"]


def call(capsys, *arguments):
    code = main([*arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_answer_without_a_file_says_that_it_is_not_compared(approval, capsys):
    code, out, _ = call(capsys, "approvals", "approve", approval, "--by", "ann")
    assert code == 0
    assert "not compared with an agent" in out
    code, out, _ = call(capsys, "approvals")
    assert "no pending approvals" in out
    assert f"{approval}  approved by ann, not compared with an agent, not run yet: refund" in out
    assert f"bridle resume a, or drop it with bridle approvals reject {approval}" in out
    code, out, _ = call(capsys, "show", "a")
    assert "approve by ann (not compared with an agent)" in out


def test_answer_that_the_code_cannot_honour_is_given_again_or_rejected(approval, capsys):
    assert call(capsys, "approvals", "approve", approval, "--json")[0] == 0
    code, _, err = call(capsys, "resume", "a", "-a", "pay_back.py")
    assert (code, "tools (refund)" in err) == (2, True), err
    code, out, _ = call(capsys, "approvals", "--approved", "--json")
    (listed,) = json.loads(out)
    assert (listed["id"], listed["is_uncompared"]) == (approval, True)
    code, out, _ = call(capsys, "approvals", "approve", approval, "-a", "refund.py")
    assert (code, "not compared" in out) == (0, False)
    code, out, _ = call(capsys, "approvals", "--approved")
    assert "not compared" not in out
    assert (
        call(capsys, "approvals", "reject", approval, "-a", "pay_back.py", "--reason", "the tool is gone")[0]
        == 0
    )
    assert call(capsys, "approvals", "--approved")[1] == "no approved call waits to run\n"
    code, out, err = call(capsys, "run", "!say hello", "--session", "a", "--tools", "pay_back.py")
    assert (code, "hello" in out) == (0, True), err


@pytest.mark.parametrize("command", ["run", "chat"])
def test_prompt_does_not_drop_an_approved_call(approval, capsys, monkeypatch, command):
    assert call(capsys, "approvals", "approve", approval, "-a", "refund.py")[0] == 0
    if command == "run":
        code, _, err = call(capsys, "run", "!say hello", "--session", "a", "--tools", "refund.py")
        assert code == 2
    else:
        monkeypatch.setattr("sys.stdin", io.StringIO("!say hello\n"))
        _, out, err = call(capsys, "chat", "a", "--tools", "refund.py")
        err += out
    text = " ".join(err.split())
    assert "bridle resume a" in text
    assert f"bridle approvals reject {approval}" in text
    assert approval in call(capsys, "approvals", "--approved")[1]
    code, out, _ = call(capsys, "resume", "a", "-a", "refund.py")
    assert "settled" in out
