"""`bridle run` on a terminal: status lines while it works, and a clean screen afterwards."""

import re

import pytest

from tests.suite.terminal import open_terminal

TOOLS = r'''
import asyncio, sys, threading
from pathlib import Path
from bridle import RunContext, tool
from bridle.tools import CommandTool

build = CommandTool(
    "build", "Build it.", ["sh", "-c", "printf 'compiling\\033[2J main.c\\n'; until [ -e go ]; do sleep 0.01; done; echo built"],
    effect="read",
)

@tool(effect="read")
async def look(context: RunContext, city: str) -> str:
    """Look at a city."""
    context.progress("opening the map", 0.4)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return f"{city} is fine"

@tool(effect="read")
def chatter() -> str:
    """Print from a thread."""
    print("half a line", end="")
    while not Path("go").exists():
        threading.Event().wait(0.01)
    print(" and its end")
    print("to standard error", file=sys.stderr)
    return "ok"

@tool
def pay(usd: int) -> str:
    """Pay."""
    return f"paid {usd}"
'''
STATUS = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def run_on_terminal(place, prompt, *arguments, columns=80, **variables):
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
        "BRIDLE_STORE": "log.db",
        "TERM": "xterm",
        **variables,
    }
    return open_terminal(
        "run", prompt, "-m", "sim:", "--tools", "tools.py", *arguments, cwd=place, env=env, columns=columns
    )


def finish(place, terminal):
    (place / "go").touch()
    code = terminal.wait_for_end()
    return code, [line.rstrip() for line in terminal.screen()]


def test_the_last_line_of_a_program_is_shown_while_it_runs_and_gone_afterwards(place):
    with run_on_terminal(place, "!call build {}\n!then\n!say done") as terminal:
        terminal.wait_for("build({}) · compiling\\u001b[2J main.c")
        code, screen = finish(place, terminal)
    assert code == 0
    assert screen[1].startswith("  build({}) → compiling\\u001b[2J main.c built ")
    assert screen[2] == "done"
    assert not STATUS.search("".join(screen)), "no status line is left"


def test_two_tools_have_a_line_each(place):
    with run_on_terminal(
        place, '!call look {"city": "Oslo"}\n!call build {}\n!then\n!say done', columns=60
    ) as terminal:
        terminal.wait_for("opening the map")
        terminal.wait_for("main.c")
        shown = [line for line in terminal.screen() if STATUS.search(line)]
        code, screen = finish(place, terminal)
    assert [line.split("(")[0].split()[-1] for line in shown] == ["look", "build"]
    assert "40% · opening the map" in shown[0]
    assert (code, STATUS.search("".join(screen))) == (0, None)
    assert max(map(len, screen)) <= 60


def test_what_a_tool_prints_is_not_overwritten(place):
    with run_on_terminal(place, "!call chatter {}\n!then\n!say done") as terminal:
        terminal.wait_for("half a line")
        code, screen = finish(place, terminal)
    assert code == 0
    assert screen[1:3] == ["half a line and its end", "to standard error"]


def test_a_question_has_its_line_for_itself(place):
    with run_on_terminal(
        place, '!call look {"city": "Oslo"}\n!call pay {"usd": 7}\n!then\n!say done'
    ) as terminal:
        terminal.wait_for("stop here: ")
        (place / "go").touch()  # the other tool finishes meanwhile
        terminal.type("y\n")
        code, screen = finish(place, terminal)
    assert code == 0
    (question,) = [line for line in screen if "stop here: " in line]
    assert question.endswith("stop here: y")
    assert any(line.startswith('  pay({"usd": 7}) → paid 7') for line in screen)


def test_an_interrupted_run_leaves_no_status_line(place):
    with run_on_terminal(place, "!call build {}\n!then\n!say done") as terminal:
        terminal.wait_for("main.c")
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130
        screen = terminal.screen()
    assert not STATUS.search("".join(screen))
    assert any(line.startswith("ended: cancelled") for line in screen)


@pytest.mark.parametrize(
    ("arguments", "variables"), [(["--json"], {}), ([], {"TERM": "dumb"})], ids=["json", "dumb"]
)
def test_no_status_line_with_json_or_where_lines_cannot_be_erased(place, arguments, variables):
    (place / "go").touch()
    with run_on_terminal(place, "!call build {}\n!then\n!say done", *arguments, **variables) as terminal:
        assert terminal.wait_for_end() == 0
    assert not STATUS.search(terminal.seen)


def test_no_color_leaves_the_status_line_without_colour(place):
    with run_on_terminal(place, "!call build {}\n!then\n!say done", NO_COLOR="1") as terminal:
        terminal.wait_for("main.c")
        finish(place, terminal)
    assert not re.search(r"\x1b\[[0-9;]*m", terminal.raw)
