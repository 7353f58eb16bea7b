"""File tools in an agent: one file at a time, diffs for the person who approves, changes that can be undone."""

import asyncio
import io

import pytest

import bridle
from bridle import Agent, PermissionRule, Policy
from bridle.cli.main import main
from bridle.cli.terminal_approver import TerminalApprover
from bridle.sessions import ApprovalVerdict
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.watchers.console import Console

ASK = Policy(rules=(PermissionRule(decision="ask", effects=("write",)),))


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"line {at}\n" for at in range(20)))
    return folder


def edit(old, new, path="a.txt"):
    return ("edit_file", {"path": path, "old_text": old, "new_text": new})


def test_edits_of_one_file_in_one_reply_do_not_lose_each_other(root):
    (root / "link.txt").symlink_to("a.txt")
    calls = [
        edit(f"line {at}\n", f"LINE {at}\n", ("a.txt", "./a.txt", "link.txt")[at % 3]) for at in range(20)
    ]
    agent = Agent(scripted(call_reply(*calls), "done"), tools=bridle.toolkit.files(root))
    result = agent.run_sync("all in capitals")
    assert result.stop == "done" and not any(item.is_error for item in result.messages[2].results)
    assert (root / "a.txt").read_text() == "".join(f"LINE {at}\n" for at in range(20))


def test_a_person_sees_a_diff_that_cannot_steer_the_terminal(root, tmp_path, capsys):
    new = "line 7 \x1b[2K\u202e\u200b\u00a0\n+forged"
    shown = io.StringIO()

    async def approve(question):
        async def read_answer():
            return "y\n"

        return await TerminalApprover(Console(None, shown), read_answer).ask(question)

    store = str(tmp_path / "log.db")
    model = scripted(call_reply(edit("line 7\n", f"{new}\n")), "done")
    agent = Agent(model, tools=bridle.toolkit.files(root), policy=ASK, store=store)
    waiting = agent.run_sync("change it", session="s")
    assert waiting.stop == "waiting"
    assert main(["approvals", "--store", store]) == 0
    printed = capsys.readouterr().out
    for line in (
        "--- a.txt", "@@ -5,7 +5,8 @@", " line 6", "-line 7", "+line 7 \\u001b[2K\\u202e\\u200b\\u00a0", "++forged",
    ):  # fmt: skip
        assert f"    │ {line}\n" in printed
    agent = Agent(model, tools=bridle.toolkit.files(root), policy=ASK, store=store, approver=approve)
    assert agent.resume_sync("s").stop == "done"
    assert "+line 7 \\u001b[2K\\u202e\\u200b\\u00a0" in shown.getvalue() and "\x1b[2K" not in shown.getvalue()
    assert f"{new}\n" in (root / "a.txt").read_text()


def test_an_edit_that_cannot_be_previewed_is_still_asked_about(root):
    asked = []

    async def approve(question):
        asked.append(question.preview)
        return ApprovalVerdict(answer="approve")

    model = scripted(
        call_reply(edit("absent", "x"), ("write_file", {"path": "new.txt", "content": "a\nb"})), "done"
    )
    agent = Agent(model, tools=bridle.toolkit.files(root), policy=ASK, approver=approve)
    result = agent.run_sync("?")
    assert asked[0].startswith("no preview: ") and "does not occur" in asked[0]
    assert asked[1].endswith("@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file")
    assert result.messages[2].results[0].is_error


def test_a_run_is_undone_newest_first_and_stops_at_a_file_that_a_person_changed(root, tmp_path):
    first = (root / "a.txt").read_text()
    new = {"path": "sub/new.txt", "content": "x\n"}
    model = scripted(
        call_reply(edit("line 1\n", "one\n")),
        call_reply(("write_file", new)),
        call_reply(("write_file", {"path": "a.txt", "content": "all new\n"})),
        "done",
    )
    agent = Agent(model, tools=bridle.toolkit.files(root), store=str(tmp_path / "log.db"))
    agent.run_sync("?", session="s")
    assert (root / "a.txt").read_text() == "all new\n"
    (root / "sub" / "new.txt").write_text("by a person\n")
    states = [item.state for item in asyncio.run(agent.compensate("s"))]
    assert states.count("done") == 1 and (root / "a.txt").read_text() == first.replace("line 1\n", "one\n")
    (root / "sub" / "new.txt").write_text("x\n")
    assert {item.state for item in asyncio.run(agent.compensate("s"))} == {"done"}
    assert (root / "a.txt").read_text() == first and not (root / "sub" / "new.txt").exists()


def test_a_large_change_is_undone_from_the_stored_receipt(root, tmp_path):
    before = "".join(f"{at} {'x' * 60}\n" for at in range(4_000))
    (root / "big.txt").write_text(before)
    model = scripted(call_reply(("write_file", {"path": "big.txt", "content": "small\n"})), "done")
    agent = Agent(model, tools=bridle.toolkit.files(root), store=str(tmp_path / "log.db"))
    result = agent.run_sync("?", session="s")
    assert len(result.messages[2].results[0].text) < len(before)
    asyncio.run(agent.compensate("s"))
    assert (root / "big.txt").read_text() == before


def test_read_only_tools_change_nothing(root):
    tools = bridle.toolkit.files(root, read_only=True)
    assert {tool.spec.effect for tool in tools} == {"read"}
