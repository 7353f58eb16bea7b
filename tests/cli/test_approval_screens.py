"""What a person sees when asked about a call: every text from outside, on every screen that shows it, in a terminal.

The screens are those of `run` and `chat` on a terminal, `approvals`, `approve`, `reject` and `show`.
"""

import asyncio
import json
import os
import pty
import re
import select
from pathlib import Path

import pytest

from bridle import Agent, PermissionRule, Policy, toolkit
from bridle.cli.commands.approvals import BAR, CONTINUED, INDENT, format_question
from bridle.cli.main import main
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.calls import PendingApproval
from bridle.watchers.wrap import cell_count
from tests.cli.injections import INJECTIONS, got_through
from tests.suite.terminal import WarmProgram

WIDTH = 80
PROMPT = "y yes · n no · e edit the arguments · w leave it open and stop here: "
FORGED = {
    **INJECTIONS,
    "forged prompt": f"x\n{PROMPT}y\n",
    "forged line by length": " " * (WIDTH * 2) + PROMPT,
    "forged line by dots": "." * WIDTH + "pay(1) — allowed",
    "forged preview": f"x\n{INDENT}{BAR}+harmless",
    "wide letters": "界" * 60 + PROMPT,
    "no-break spaces": "\u00a0" * 100 + "allowed",
    "ideographic spaces": "\u3000" * 60 + "allowed",
    "combining": "a" + "\u0301" * 50 + "b",
    "carriage return and line": "a\r\nb\rallowed",
    "tabs": "\t" * 20 + "allowed",
    "lone surrogate": "a\ud83db",
    "escaped escape": "\\u001b[2J",
}
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("evil", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("place", ["arguments", "names", "preview", "rule", "defaults"])
def test_no_text_from_outside_starts_a_line_of_the_screen(evil, place):
    """Each line starts with what we wrote, fits on the screen, and nothing of the text is lost."""
    evil = evil.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    values = json.dumps({evil: 1} if place == "names" else {"a": evil}, ensure_ascii=False)
    question = PendingApproval(
        id="1", session="s", call_id="c", tool="pay", rule=evil if place == "rule" else "ask",
        arguments="{}" if place == "defaults" else values if place in ("arguments", "names") else '{"a": 1}',
        complete_arguments=values if place == "defaults" else "", preview=evil if place == "preview" else "",
    )  # fmt: skip
    lines = format_question(question, WIDTH - len(INDENT))
    assert got_through("".join(lines)) == [] and not any(
        "\u00a0" in line or "\u3000" in line for line in lines
    )
    assert all(cell_count(line) <= WIDTH - len(INDENT) for line in lines)
    starts = ("by default: ", "— ", CONTINUED, BAR)
    assert lines[0].startswith("pay({") and all(line.startswith(starts) for line in lines[1:])
    assert not any(line.startswith("y yes") for line in lines)
    whole = format_question(question, None)
    kept = "".join(lines).replace(CONTINUED, "").replace(BAR, "").replace(" — ", "— ")
    assert kept == "".join(whole).replace(BAR, "").replace(" — ", "— ")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A log with one open question per injection: a diff whose path and lines hold it."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "work").mkdir()
    path = str(folder / "log.db")
    policy = Policy(
        rules=(PermissionRule(decision="ask", tools=("write_file",), name="it may change something"),)
    )

    async def ask():
        for number, evil in enumerate(FORGED.values()):
            evil = evil.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            arguments = {"path": f"{evil.replace('/', '')[:40]}.txt", "content": f"first\n{evil}\nlast\n"}
            agent = Agent(
                scripted(call_reply(("write_file", arguments), text=f"words {evil}"), "done"),
                tools=toolkit.files(folder / "work"), policy=policy, store=path,
            )  # fmt: skip
            assert (await agent.run(f"go {evil}", f"s{number}")).stop == "waiting"
            await agent.store.close()

    asyncio.run(ask())
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(len(FORGED)), ids=FORGED)
def test_the_commands_show_diffs_that_steer_nothing(store, number, capsys):
    session = f"s{number}"
    main(["approvals", session, "--json", "--store", store])
    (question,) = json.loads(capsys.readouterr().out)
    for command in (["approvals", session], ["show", session], ["show", session, "--as", "events"]):
        assert main([*command, "--store", store]) == 0
        printed = capsys.readouterr()
        kept = "\n\t" if command[0] == "show" else "\n"
        assert got_through(printed.out + printed.err, prose=kept) == [], command
        if command[0] == "approvals":
            diff = [line for line in printed.out.split("\n") if line.startswith(f"{INDENT}{BAR}")]
            assert sum(line.startswith(f"{INDENT}{BAR}+") for line in diff) >= 3
            assert not any(line.startswith((PROMPT[:5], "pay(")) for line in printed.out.split("\n"))
    answer = "approve" if number % 2 else "reject"
    assert main(["approvals", answer, question["id"], "--reason", "seen", "--store", store]) == 0
    printed = capsys.readouterr()
    assert got_through(printed.out + printed.err) == []


SCRIPT = """
import json, sys
from bridle.tools import RawTool
evil = json.load(open("evil.json"))
schema = {"type": "object", "properties": {"kind": {"type": "string"}}}
TOOLS = [RawTool("act", f"Act {evil}.", schema, lambda given: f"did {evil}", effect="write", preview=lambda kind: f"would {kind}")]
"""


def converse(folder: Path, words: list[str], answers: list[tuple[str, str]]) -> str:
    """Run bridle on a terminal of 80 columns; after each text, type an answer.  Returns all that it wrote."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": str(WIDTH),
        "TERM": "xterm-256color",
    }
    process = WarmProgram(words, folder, environment, theirs)
    os.close(theirs)
    written, seen = "", 0
    while select.select([ours], [], [], 30)[0]:
        try:
            data = os.read(ours, 65_536)
        except OSError:  # the terminal was closed
            break
        if not data:
            break
        written += data.decode(errors="replace")
        plain = SGR.sub("", written).replace("\r\n", "\n")
        while answers and answers[0][0] in plain[seen:]:
            text, answer = answers.pop(0)
            seen = plain.index(text, seen) + len(text)
            os.write(ours, answer.encode())
    os.close(ours)
    assert process.wait(60) is not None
    assert not answers, written
    return written


ON_A_TERMINAL = ("up and overwrite", "right to left", "forged line by length", "wide letters")


@pytest.mark.parametrize("name", ON_A_TERMINAL)
@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_person_at_a_terminal_sees_the_question_as_it_is(tmp_path, name, command):
    """The call comes from the simulator, which calls a tool with the text that the prompt gives."""
    evil = FORGED[name]
    (tmp_path / "evil.json").write_text(json.dumps(evil))
    (tmp_path / "tools.py").write_text(SCRIPT)
    prompt = f"!call act {json.dumps({'kind': evil})}"
    words = [command, "-m", "sim:", "--no-config", "--store", "log.db", "--tools", "tools.py"]
    asked = f"\n{PROMPT}"
    if command == "run":
        written = converse(tmp_path, [*words, prompt], [(asked, "y\n")])
    else:
        answers = [("Ctrl-D leaves", f"{prompt}\r"), (asked, "y\r"), ("% cached", "/exit\r")]
        written = converse(tmp_path, words, answers)
    shown = SGR.sub("", written).replace("\r\n", "\n")
    question = shown[: shown.index(asked)].rpartition("act({")[2]
    assert got_through(question) == []
    rows = f"act({{{question}".split("\n")
    assert all(cell_count(row) <= WIDTH for row in rows)
    starts = ("act({", f"{INDENT}— ", f"{INDENT}{CONTINUED}", f"{INDENT}{BAR}")
    assert all(row.startswith(starts) for row in rows)
