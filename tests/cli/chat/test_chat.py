"""`bridle chat` as a person or a program drives it: through a pipe, and on a terminal."""

import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridle.cli.chat.slash_commands import CHAT_COMMANDS
from tests.suite.command import bridle
from tests.suite.terminal import open_terminal

DEMO_TOOLS = str(Path(__file__).parents[3] / "examples" / "demo_tools.py")
SESSION = re.compile(r"to continue: bridle chat (\S+)")
INTERRUPT = "\x03\r"
"""Ctrl-C and Enter: Python sees a signal that arrives just before it waits for a key only after the line."""
HANGING_TOOLS = """
import asyncio
from bridle import tool

@tool(effect="read")
async def hang() -> str:
    '''Wait for ever.'''
    print("HANGING", flush=True)
    await asyncio.Event().wait()

@tool(effect="read")
async def wait_for_file(path: str) -> str:
    '''Wait until there is a file.'''
    from pathlib import Path
    print("LOOKING", flush=True)
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "found"

@tool(effect="read")
async def linger() -> str:
    '''Take long to stop.'''
    try:
        print("BEGINNING", flush=True)
        await asyncio.Event().wait()
    finally:
        print("ENDING", flush=True)
        await asyncio.Event().wait()

@tool(effect="read")
def block() -> str:
    '''Sleep in a thread.'''
    import time
    print("BLOCKING", flush=True)
    time.sleep(3600)

@tool
def pay(usd: int) -> str:
    '''Pay.'''
    return f"paid {usd}"
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "hang.py").write_text(HANGING_TOOLS)
    return tmp_path


def surroundings(place):
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
        "BRIDLE_STORE": str(place / "log.db"),
        "TERM": "dumb",  # Python's own line editing
    }


def piped(place, lines, *arguments):
    return bridle("chat", *arguments, text="\n".join(lines), cwd=place, environment=surroundings(place))


def read_saved_texts(place, session):
    done = bridle("show", "--as", "log", session, "--json", cwd=place, environment=surroundings(place))
    return [row["text"] for row in json.loads(done.out)]


@contextmanager
def on_terminal(place, *arguments, **variables):
    with open_terminal("chat", *arguments, cwd=place, env={**surroundings(place), **variables}) as terminal:
        yield terminal


def test_a_pipe_has_a_prompt_per_line_and_no_colours(place):
    done = piped(place, ["!say one", "", "What is 17 * 23?"], "--tools", DEMO_TOOLS)
    assert done.code == 0, done.err
    assert done.out == "one\n17 * 23 = 391 (simulated model)\n"
    assert "\x1b" not in done.err
    assert len(re.findall(r"\$[\d.]+ · chat \$[\d.]+ \(simulated\) · \d+% cached", done.err)) == 2


def test_a_session_is_continued_with_its_conversation(place):
    (session,) = SESSION.findall(piped(place, ["!say one"]).err)
    again = piped(place, ["!say two"], session)
    assert "you: !say one" in again.err
    assert "assistant: one" in again.err
    assert SESSION.findall(again.err) == [session]
    assert [text for text in read_saved_texts(place, session) if text in ("one", "two")] == ["one", "two"]


def test_a_backslash_continues_the_line(place):
    assert piped(place, ["!say one\\", "!say two"]).out == "one\ntwo\n"


def test_json_is_one_object_per_turn(place):
    rows = [json.loads(line) for line in piped(place, ["!say one", "!say two"], "--json").out.splitlines()]
    assert [row["text"] for row in rows] == ["one", "two"]
    assert rows[0]["session"] == rows[1]["session"]


def test_help_lists_every_command_within_80_columns(place):
    shown = piped(place, ["/help"]).out
    for row in CHAT_COMMANDS:
        assert re.search(rf"^  /{row.name}\b.*{re.escape(row.meaning)}$", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_model_can_be_changed_between_turns(place):
    done = piped(
        place, ["!say one", "/model sim:gemini/gemini-3.8-flash", "!say two", "/model no:such", "/cost"]
    )
    assert "model: sim:gemini-3.8-flash" in done.err
    assert "'no:such' names no known vendor" in done.err
    costs = done.out.partition("two\n")[2]
    assert "sim:claude-sonnet-5-5" in costs
    assert "sim:gemini-3.8-flash" in costs
    assert "total" in costs


def test_tools_are_listed_with_their_effects(place):
    shown = piped(place, ["/tools"], "--tools", DEMO_TOOLS).out
    assert re.search(r"^  calculate +read +Work out", shown, re.MULTILINE)
    assert "no tools" in piped(place, ["/tools"]).err


def test_undo_goes_back_in_a_copy_and_leaves_the_old_session_alone(place):
    (first,) = SESSION.findall(piped(place, ["!say one", "!say two"]).err)
    undone = piped(place, ["/undo", "!say three"], first)
    (second,) = SESSION.findall(undone.err)
    assert "taken back: !say two" in undone.err
    assert second != first
    assert [text for text in read_saved_texts(place, second) if text in ("one", "two", "three")] == [
        "one",
        "three",
    ]
    assert [text for text in read_saved_texts(place, first) if text in ("one", "two", "three")] == [
        "one",
        "two",
    ]


def test_undoing_the_first_prompt_starts_a_new_session(place):
    done = piped(place, ["!say one", "/undo", "/undo", "!say two"])
    (session,) = SESSION.findall(done.err)
    assert "nothing to undo" in done.err
    assert "one" not in read_saved_texts(place, session)


def test_undo_names_the_calls_that_it_does_not_undo(place):
    done = piped(
        place,
        ["!say one", '!call pay {"usd": 7}\\', "!then\\", "!say paid", "/undo"],
        "--tools",
        "hang.py",
        "--yes",
    )
    assert "did this afterwards; the fork does not undo it" in done.err
    assert 'pay({"usd": 7})' in done.err


def test_fork_continues_in_a_copy(place):
    done = piped(place, ["!say one", "!say two", "/fork m2", "!say three"])
    (session,) = SESSION.findall(done.err)
    assert [text for text in read_saved_texts(place, session) if text in ("one", "two", "three")] == [
        "one",
        "three",
    ]
    assert "has 2 messages and no m9" in piped(place, ["!say one", "/fork m9"]).err


def test_compact_shortens_the_conversation_before_the_next_prompt(place):
    (place / "agent.toml").write_text('model = "sim:"\ncontext_tokens = 50000\n')
    long = " ".join(["word"] * 6_000)
    lines = [f"!say {long}", f"!say {long}", "!say short", "/compact", "!say after"]
    done = piped(place, lines, "-a", "agent.toml")
    before, after = map(
        int,
        re.search(r"compacted from ([\d,]+) to ([\d,]+)", done.err).expand(r"\1 \2").replace(",", "").split(),
    )
    assert after < before * 0.6
    assert done.err.count("compacted from") == 1
    assert "not compacted" in piped(place, ["!say one", "/compact", "!say two"]).err


def test_mistakes_are_one_line_and_the_chat_goes_on(place):
    done = piped(place, ["/hlep", "/exit now", " /etc", "!say after", "!error 401", "/exit", "!say never"])
    assert "unknown command /hlep; did you mean /help?" in done.err
    assert "/exit takes no argument" in done.err
    assert "ended: failed" in done.err
    assert done.out.endswith("after\n")
    assert "never" not in done.out
    assert done.code == 2
    assert "Traceback" not in done.err


def test_control_characters_of_a_model_do_not_reach_the_terminal(place):
    done = piped(place, ["!say a\x1b[2Jb", "/model \x1b[31mx"])
    assert "\x1b" not in done.out + done.err


def interrupt_and_leave(terminal):
    """Interrupt the turn with Ctrl-C, have one more, and leave; returns the session."""
    terminal.type("\x03")
    terminal.wait_for("interrupted; what was said is kept")
    terminal.wait_for("> ")
    terminal.type("!say after\r")
    terminal.wait_for("after\r\n")
    terminal.wait_for("cached")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.wait_for_end() == 0
    (session,) = SESSION.findall(terminal.seen)
    return session


def test_ctrl_c_interrupts_the_turn_and_the_chat_goes_on(place):
    with on_terminal(place, "--tools", "hang.py") as terminal:
        terminal.wait_for("> ")
        terminal.type("!say Let me see.\\\r")
        terminal.wait_for(". ")
        terminal.type("!call hang {}\r")
        terminal.wait_for("HANGING")
        session = interrupt_and_leave(terminal)
    texts = read_saved_texts(place, session)
    assert any("Let me see." in text and "!say" not in text for text in texts)
    assert "after" in texts


def test_text_typed_while_the_model_works_is_sent_to_it(place):
    with on_terminal(place, "--tools", "hang.py") as terminal:
        terminal.wait_for("> ")
        terminal.type('!call wait_for_file {"path": "go"}\\\r')
        terminal.wait_for(". ")
        terminal.type("!then\\\r")
        terminal.wait_for(". ")
        terminal.type("!say found it\r")
        terminal.wait_for("LOOKING")
        terminal.type("/cost\r")
        terminal.wait_for("/cost follows after this turn")
        terminal.type("!say and then\\\r!say stop\r")
        terminal.wait_for("message added: !say and then !say stop")
        (place / "go").touch()
        terminal.wait_for("cached")
        terminal.wait_for("total")
        terminal.wait_for("> ")
        terminal.type(INTERRUPT)
        terminal.wait_for("Ctrl-C again")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    (session,) = SESSION.findall(terminal.seen)
    assert any("and then\n!say stop" in text for text in read_saved_texts(place, session))


def test_approvals_are_asked_inline(place):
    with on_terminal(place, "--tools", "hang.py") as terminal:
        for number, (answer, shown) in enumerate((("y", "paid 0"), ("w", "/resume asks again"))):
            terminal.wait_for("> ")
            terminal.type(f'!call pay {{"usd": {number}}}\r')
            terminal.wait_for("leave it open and stop here: ")
            terminal.type(f"{answer}\r")
            terminal.wait_for(shown)
            terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type("/resume\r")
        terminal.wait_for("leave it open and stop here: ")
        terminal.type("y\r")
        terminal.wait_for("paid 1")
        terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type("/exit\r")
        assert terminal.wait_for_end() == 0


def test_with_prompt_toolkit_commands_are_offered_and_the_history_is_kept(place):
    editor = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    with on_terminal(place, **editor) as terminal:
        terminal.wait_for(">")
        terminal.type("/too")
        terminal.wait_for("list the tools")  # the menu
        terminal.type("ls\r")
        terminal.wait_for("no tools")
        terminal.wait_for(">")
        terminal.type("!say one\\\r!say two\x1b\r!say three\r")
        terminal.wait_for("one\r\ntwo\r\nthree\r\n")
        terminal.wait_for("cached")
        terminal.wait_for(">")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    history = place / ".local" / "share" / "bridle" / "chat_history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+!say three" in history.read_text()
    with on_terminal(place, **editor) as terminal:
        terminal.wait_for(">")
        terminal.type("text")
        terminal.wait_for("text")
        terminal.type("\x03")  # drops the text
        terminal.wait_for("Ctrl-C again")
        terminal.wait_for(">")
        terminal.type("\x03")
        assert terminal.wait_for_end() == 0


def test_without_prompt_toolkit_one_line_says_what_to_install(place):
    (place / "prompt_toolkit.py").write_text("raise ModuleNotFoundError('none', name='prompt_toolkit')")
    with on_terminal(place, TERM="xterm", PYTHONPATH=str(place)) as terminal:
        terminal.wait_for("pip install 'bridle[cli]'")
        terminal.wait_for("> ")
        terminal.type("/exit\r")
        assert terminal.wait_for_end() == 0


def test_ctrl_c_at_the_prompt_drops_the_line_and_twice_leaves(place):
    with on_terminal(place) as terminal:
        terminal.wait_for("> ")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        terminal.type(INTERRUPT)
        terminal.wait_for("Ctrl-C again, or Ctrl-D, leaves")
        terminal.wait_for("> ")
        terminal.type("!say whole\r")
        terminal.wait_for("cached")
        for _ in range(2):
            terminal.wait_for("> ")
            terminal.type(INTERRUPT)
        assert terminal.wait_for_end() == 0
    assert "Traceback" not in terminal.seen
    assert SESSION.findall(terminal.seen), "the session can be continued"


def test_lines_are_kept_without_prompt_toolkit(place):
    history = place / ".local" / "share" / "bridle" / "chat_lines"
    with on_terminal(place) as terminal:
        terminal.wait_for("> ")
        terminal.type("!say one\r")
        terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.read_text() == "!say one\n"
    with on_terminal(place) as terminal:
        terminal.wait_for("> ")
        terminal.type("\x10\r")  # the line before
        terminal.wait_for("!say one")
        terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0


def test_a_tool_that_cannot_be_stopped_does_not_hold_the_chat(place):
    with on_terminal(place, "--tools", "hang.py") as terminal:
        terminal.wait_for("> ")
        terminal.type("!say Wait.\\\r")
        terminal.wait_for(". ")
        terminal.type("!call block {}\r")
        terminal.wait_for("BLOCKING")
        session = interrupt_and_leave(terminal)
    assert "Wait. · block({})" in read_saved_texts(place, session)


def test_resuming_counts_no_cost_twice(place):
    lines = ['!call pay {"usd": 3}\n!then\n!say paid'.replace("\n", "\\\n"), "/resume", "/resume", "/cost"]
    (place / "ask.toml").write_text('[[rules]]\ndecision = "ask"\ntools = ["pay"]\n')
    done = piped(place, lines, "--tools", "hang.py", "--policy", "ask.toml")
    turns = re.findall(r"^\$([\d.]+) · chat \$([\d.]+)", done.err, re.MULTILINE)
    assert len(turns) == 3, done.err
    first, *resumed = turns
    assert resumed == [("0.0000", first[0])] * 2, (
        "nothing was answered, so nothing more was asked of the model"
    )


def test_a_finished_run_is_not_resumed(place):
    done = piped(place, ["!say one", "/resume"])
    assert "nothing to resume: the last run is finished" in done.err
    assert done.err.count("cached") == 1


def test_a_second_ctrl_c_ends_a_turn_that_takes_long_to_stop(place):
    with on_terminal(place, "--tools", "hang.py") as terminal:
        terminal.wait_for("> ")
        terminal.type("!call linger {}\r")
        terminal.wait_for("BEGINNING")
        terminal.type("\x03")
        terminal.wait_for("ENDING")
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130
    assert "Traceback" not in terminal.seen
