"""`bridle session tail`: the events of a run in another process, as they are recorded."""

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from bridle import Agent, tool
from bridle.cli.main import main
from tests.suite.command import bridle
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.terminal import open_terminal

MODEL = "sim:anthropic/claude-sonnet-5-5"


class Gate:
    """A tool that waits until it is let through."""

    def __init__(self):
        self.opened = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Wait."""
            await self.opened.wait()
            return "let through"

        self.tool = wait


async def start_tail(path, *words):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bridle.cli.main", "session", "tail", "s", "--store", path, *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def read_until(process, text):
    lines = []
    while not lines or text not in lines[-1]:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        assert line, (lines, await process.stderr.read())
        lines.append(line.decode())
    return lines


def follow(path, words, begin, *, prompts=1):
    """Follow a run from the moment at which its tool works; the lines printed before and after it goes on."""

    async def story():
        gate = Gate()
        agent = Agent(MODEL, tools=[gate.tool], store=path)
        await agent.run("!say earlier", session="s")
        run = agent.stream("!call wait {}\n!then\n!say done", "s").start()
        async for item in run.view():
            if type(item).__name__ == "ToolStarted":
                break
        tail = await start_tail(path, *words)
        before = await read_until(tail, begin)
        gate.opened.set()
        await run.result()
        for _ in range(prompts - 1):
            before += await read_until(tail, "ended")
            await agent.run("!say once more", session="s")
            before += await read_until(tail, "once more")
            tail.terminate()
        rest, errors = await asyncio.wait_for(tail.communicate(), PATIENCE_SECONDS)
        await agent.store.close()
        return before, rest.decode().splitlines(keepends=True), errors.decode(), tail.returncode

    return asyncio.run(story())


def test_events_are_printed_as_they_are_recorded_until_the_run_ends(shared_log):
    before, rest, errors, code = follow(shared_log, [], "call")
    assert (code, errors) == (0, "")
    assert not any("earlier" in line for line in before), "it starts with the latest prompt"
    assert any("you  !call wait" in line for line in before)
    assert any("ok (" in line and "let through" in line for line in rest)
    assert any("model  done" in line for line in rest)
    assert rest[-1].rstrip().endswith("· done")


def test_json_lines_are_the_records(tmp_path):
    path = str(tmp_path / "log.db")
    before, rest, _, code = follow(path, ["--json", "--since", "0"], "tool_started")
    assert code == 0
    assert "".join([*before, *rest]) == bridle("show", "s", "--json", "--store", path).out


def test_follow_stays_for_the_next_run(tmp_path):
    before, _, _, _ = follow(str(tmp_path / "log.db"), ["--follow"], "call", prompts=2)
    assert "once more" in before[-1]


@pytest.fixture
def ended(tmp_path):
    path = str(tmp_path / "log.db")

    async def run():
        agent = Agent(MODEL, store=path)
        for word in ("first", "second"):
            await agent.run(f"!say {word}", session="s")
        await agent.store.close()

    asyncio.run(run())
    return path


def test_a_session_that_has_ended_is_printed_and_left(ended, capsys):
    assert main(["session", "tail", "s", "--store", ended]) == 0
    shown = capsys.readouterr().out
    assert "you  !say second" in shown
    assert "!say first" not in shown
    assert main(["session", "tail", "s", "--json", "--since", "5", "--store", ended]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["seq"] == 6


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["session", "tail", "other"], "no session 'other' in this log; `bridle sessions` lists them"),
        (["session", "tail", "s", "--since", "-1"], "--since"),
        (["session", "tail", "s", "--tenant", "acme"], "tenant"),
    ],
    ids=["unknown", "negative", "tenant"],
)
def test_wrong_input_is_one_line(ended, capsys, words, text):
    try:
        code: Any = main([*words, "--store", ended])
    except SystemExit as end:
        code = end.code
    assert code == 2
    shown = capsys.readouterr().err
    assert text in shown
    assert shown.count("\n") == 1


def test_ctrl_c_ends_the_command_and_says_nothing_of_python(ended, tmp_path):
    env = {**os.environ, "TERM": "xterm"}
    with open_terminal(
        "session", "tail", "s", "--follow", "--store", ended, cwd=tmp_path, env=env
    ) as terminal:
        terminal.wait_for("Ctrl-C ends the command")
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130
    assert "Traceback" not in terminal.seen
    assert max(map(len, terminal.screen())) <= 80
