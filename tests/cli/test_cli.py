"""The `bridle` command end to end, with right and wrong arguments."""

import asyncio
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget
from bridle.cli.command_table import list_command_names
from bridle.cli.log_access import fold_state
from bridle.cli.main import main
from bridle.config.tool_loader import load_tools
from bridle.run.model_connection import resolve_model
from bridle.stores import open_store
from bridle.values.events import Configured
from bridle.values.record import GENESIS, seal_record
from tests.suite.command import start_bridle
from tests.suite.patience import PATIENCE_SECONDS

DEMO_TOOLS = str(Path(__file__).parents[2] / "examples" / "demo_tools.py")
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "BRIDLE_MODEL", "BRIDLE_MODELS")


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_output(capsys):
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_first_run_says_that_the_model_is_simulated(capsys):
    assert main(["run", "What is 17 * 23 minus 100?", "--tools", DEMO_TOOLS]) == 0
    out, err = read_output(capsys)
    assert "291" in out
    assert "simulated" in err
    assert "calculate(" in err
    assert "session" in err


def test_the_answer_alone_goes_to_standard_output(capsys):
    assert main(["run", "!say forty-two"]) == 0
    assert read_output(capsys)[0] == "forty-two\n"


def test_parallel_calls(capsys):
    assert main(["run", "Is it warmer in Tokyo or New York?", "--tools", DEMO_TOOLS, "--json"]) == 0
    result = json.loads(read_output(capsys)[0])
    assert result["stop"] == "done"
    assert len([part for part in result["messages"][1]["parts"] if part["type"] == "tool_call"]) == 2
    assert result["simulated"] is True
    assert set(result["usage"]) == {"input", "cache_read", "cache_write", "output", "reasoning"}


@pytest.mark.parametrize("stream", [(), ("--no-stream",)])
def test_a_session_goes_on_and_can_be_listed_and_shown(capsys, stream):
    assert main(["run", "!say one", "--json", *stream]) == 0
    session = json.loads(read_output(capsys)[0])["session"]
    assert main(["run", "!say two", "--session", session, "--json", *stream]) == 0
    assert len(json.loads(read_output(capsys)[0])["messages"]) == 4
    assert main(["sessions", "--json"]) == 0
    (row,) = json.loads(read_output(capsys)[0])
    assert (row["session"], row["steps"], row["ended"]) == (session, 2, "done")
    assert main(["sessions"]) == 0
    assert session in read_output(capsys)[0]
    assert main(["show", session]) == 0
    out, _ = read_output(capsys)
    assert "one" in out
    assert "two" in out
    assert main(["show", session, "--json"]) == 0
    records = [json.loads(line) for line in read_output(capsys)[0].splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[1]["prev"] == records[0]["hash"]


def test_limits_end_with_code_one_and_the_reason(capsys):
    assert main(["run", "What is 17 * 23 minus 100?", "--tools", DEMO_TOOLS, "--steps", "1"]) == 1
    assert "ended: steps: 1 of 1 steps taken" in read_output(capsys)[1]


def list_mistakes(tmp_path):
    """What a person may get wrong: the words typed, and what the one line must name."""
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\ny = undefined_name\n")
    syntax = tmp_path / "syntax.py"
    syntax.write_text("def f(:\n")
    signature = tmp_path / "signature.py"
    signature.write_text("from bridle import tool\n\n@tool\ndef f(when, where: str) -> str:\n    return ''\n")
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    rubbish = tmp_path / "rubbish.db"
    rubbish.write_text("this is not a database, whatever its name says" * 100)
    return {
        "no such command": (["rnu"], "bridle run"),
        "unknown option": (["run", "hi", "--modle", "x"], "--help"),
        "no prompt": (["run"], "prompt"),
        "empty prompt": (["run", "  "], "empty"),
        "missing key": (["run", "hi", "-m", "anthropic:claude-sonnet-5-5"], "ANTHROPIC_API_KEY"),
        "unknown vendor": (["run", "hi", "-m", "antropic:x"], "anthropic"),
        "no vendor": (["run", "hi", "-m", "claude"], "vendor"),
        "no tools file": (["run", "hi", "--tools", "nowhere.py"], "nowhere.py"),
        "no tools module": (["run", "hi", "--tools", "no_such_module_here"], "no_such_module_here"),
        "tools file that fails": (["run", "hi", "--tools", str(broken)], "line 2"),
        "tools file that cannot be parsed": (["run", "hi", "--tools", str(syntax)], "line 1"),
        "tool with a bad signature": (["run", "hi", "--tools", str(signature)], "`when`"),
        "tools file without tools": (["run", "hi", "--tools", str(empty)], "@tool"),
        "session not found": (["run", "hi", "--session", "nobody"], "nobody"),
        "nothing to show": (["show", "nobody"], "--store"),
        "negative budget": (["run", "hi", "--usd", "-1"], "usd"),
        "budget that is no number": (["run", "hi", "--usd", "lots"], "usd"),
        "port that is none": (["sim", "--port", "99999"], "at most 65535"),
        "profile that nobody has": (["sim", "--port", "0", "--profile", "rude"], "rude"),
        "script that fails": (["sim", "--port", "0", "--script", str(broken)], "undefined_name"),
        "script that cannot be parsed": (["sim", "--port", "0", "--script", str(syntax)], "line 1"),
        "script without replies": (["sim", "--port", "0", "--script", str(empty)], "REPLIES"),
        "store that is no database": (["run", "hi", "--store", str(rubbish)], "rubbish.db"),
        "store in a place that cannot be": (
            ["run", "hi", "--store", "/proc/nowhere/log.db"],
            "/proc/nowhere",
        ),
    }


with tempfile.TemporaryDirectory() as _folder:
    MISTAKES = list(list_mistakes(Path(_folder)))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line_and_code_two(capsys, monkeypatch, tmp_path, mistake):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    words, named = list_mistakes(tmp_path)[mistake]
    try:
        code: Any = main(words)
    except SystemExit as exit_:
        code = exit_.code
    out, err = read_output(capsys)
    lines = err.splitlines()
    assert code == 2
    assert out == ""
    assert len(lines) == 1, err
    assert lines[0].startswith("bridle: ")
    assert named in lines[0]
    assert "Traceback" not in err


def test_an_unreachable_server_is_named_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert main(["run", "hi", "-m", "anthropic:claude-sonnet-5-5@http://127.0.0.1:9"]) == 2
    out, err = read_output(capsys)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "127.0.0.1:9" in err
    assert "sk-test" not in err


def test_an_address_that_is_none_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert main(["run", "hi", "-m", "anthropic:claude-sonnet-5-5@notaurl"]) == 2
    assert "not a base URL" in read_output(capsys)[1]


async def _messages(path):
    store = open_store(path)
    try:
        (info,) = await store.sessions()
        return fold_state(await store.read(info.id)).conversation.transcript.messages
    finally:
        await store.close()


TOOL_FILES = {
    "a list of plain functions": ("def f(a: int) -> int:\n    'F.'\n    return a\nTOOLS = [f]\n", 0, ""),
    "a sibling": (
        "from beside import x\nfrom bridle import tool\n@tool\ndef f() -> str:\n    'F.'\n    return x\n",
        0,
        "",
    ),
    "it prints": (
        "from bridle import tool\nprint('noise')\n@tool\ndef f() -> str:\n    'F.'\n    return ''\n",
        0,
        "",
    ),
    "a loop of its own": (
        "import asyncio\nfrom bridle import tool\nasyncio.run(asyncio.sleep(0))\n@tool\ndef f() -> str:\n    'F.'\n    return ''\n",
        0,
        "",
    ),
    "TOOLS is no list": ("TOOLS = 5\n", 2, "TOOLS must be a list"),
    "it ends the program": ("import sys\nsys.exit(0)\n", 2, "line 2"),
    "an object that answers to anything": ("from unittest.mock import Mock\nm = Mock()\n", 2, "no tools"),
    "an object that raises for any name": (
        "class C:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\nc = C()\n",
        2,
        "no tools",
    ),
}


@pytest.mark.parametrize("kind", list(TOOL_FILES))
def test_tools_files_of_all_kinds(capsys, home, kind):
    text, code, named = TOOL_FILES[kind]
    (home / "beside.py").write_text("x = 'y'\n")
    (home / "json.py").write_text(text)
    assert main(["run", "!say hi", "--tools", "json.py"]) == code
    out, err = read_output(capsys)
    assert out == ("hi\n" if code == 0 else "")
    assert named in err
    assert "Traceback" not in err
    assert json.loads("{}") == {}


def test_a_module_in_the_current_folder(capsys, home):
    (home / "my_tools_here.py").write_text(
        "from bridle import tool\n@tool\ndef f() -> str:\n    'F.'\n    return ''\n"
    )
    assert main(["run", "!call f {}\n!then\n!say done", "--tools", "my_tools_here"]) == 0
    assert read_output(capsys)[0] == "done\n"


def test_a_pipe_gets_the_answer_and_nothing_else(capsys):
    prompt = '!say Let me think aloud.\n!call calculate {"expression": "1+1"}\n!then\n!say two'
    assert main(["run", prompt, "--tools", DEMO_TOOLS]) == 0
    assert read_output(capsys)[0] == "two\n"


def shell(command, **more):
    bridle = f"{sys.executable} -m bridle.cli.main"
    return subprocess.run(
        ["bash", "-c", command.replace("bridle", bridle)], capture_output=True, env={**os.environ, **more}
    )


def test_output_that_cannot_be_written_is_no_success():
    assert shell("bridle run '!say hi' > /dev/full").returncode == 1
    told = shell("bridle run '!say héllo'", PYTHONIOENCODING="ascii")
    assert (told.returncode, told.stdout) == (0, b"h\\xe9llo\n")
    assert shell("bridle sessions", PYTHONIOENCODING="ascii").returncode == 0


def test_words_that_are_no_words():
    told = shell("bridle run $'!say hi \\xff'")
    assert (told.returncode, b"Traceback" in told.stderr) == (0, False)


def test_a_damaged_session_does_not_hide_the_others(capsys, home):
    for words in ("!say one", "!say two"):
        assert main(["run", words]) == 0
    capsys.readouterr()
    with closing(sqlite3.connect(home / "log.db")) as database, database:
        database.execute("UPDATE events SET data = replace(data, 'one', 'oops') WHERE data LIKE '%!say one%'")
    database.close()
    assert main(["sessions", "--json"]) == 0
    assert sorted(row["ended"] for row in json.loads(read_output(capsys)[0])) == ["corrupt", "done"]


def test_looking_at_a_log_that_is_not_there_makes_none(capsys, home):
    assert main(["sessions", "--store", str(home / "typo.db")]) == 2
    assert not (home / "typo.db").exists()


def test_every_command_explains_itself(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["help", "--all"]) == 0
    overview = read_output(capsys)[0]
    for name in list_command_names():
        assert name.partition(" --as")[0] in overview
        with pytest.raises(SystemExit) as left:
            main([*name.split(), "--help"])
        assert left.value.code == 0
        out = read_output(capsys)[0]
        assert (
            "--json" in out or "check" in out or name in ("completion", "session export")
        )  # a script; lines of JSON
        assert max(map(len, out.splitlines())) <= 80, name


def test_ctrl_c_keeps_what_was_said(home):
    tools = home / "hang.py"
    tools.write_text(
        "import asyncio\nfrom bridle import tool\n\n@tool\nasync def hang() -> str:\n"
        "    '''Wait.'''\n    print('HANGING', flush=True)\n    await asyncio.Event().wait()\n"
    )
    prompt = "!say Let me see.\n!call hang {}\n!then\n!say done"
    running = start_bridle("run", prompt, "--yes", "--tools", str(tools))
    shown = ""
    while "HANGING" not in shown:
        line = running.stderr.readline()
        assert line, running.stdout.read()
        shown += line
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 130, err
    assert "ended: cancelled" in err
    store = asyncio.run(_messages(home / "log.db"))
    assert store[1].text == "Let me see."
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_accident():
    for words in (["models"], ["models", "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "bridle.cli.main", *words]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, ""), words


@pytest.mark.parametrize("words", [["--modle", "x"], ["--modle=x"]])
def test_unknown_option_gets_the_nearest_one(capsys, words):
    with pytest.raises(SystemExit):
        main(["run", *words, "hi"])
    assert "unknown option --modle; did you mean --model?" in read_output(capsys)[1]


PAYING = (
    "from bridle import tool\nPAID = []\n\n@tool(effect='write'{more})\ndef pay(amount: int) -> str:\n"
    "    '''Pay.'''\n    print('PAID', amount)\n    return 'paid'\n"
)
PROMPT = '!call pay {"amount": 7}\n!then\n!say done'


def write_paying_tools(home, more=""):
    tools = home / "paying.py"
    tools.write_text(PAYING.format(more=more))
    return str(tools)


def test_a_writing_tool_is_denied_without_an_approver(capsys, home):
    assert main(["run", PROMPT, "--tools", write_paying_tools(home)]) == 0
    out, err = read_output(capsys)
    assert (out, "PAID" in err) == ("done\n", False)
    assert "there is no terminal to ask on; --yes allows it" in err


@pytest.mark.parametrize("how", ["--yes", "--policy"])
def test_a_policy_or_yes_lets_it_run(capsys, home, how):
    (home / "rules.toml").write_text('[[rules]]\ndecision = "allow"\narguments = { amount = "<= 7" }\n')
    more = ["--yes"] if how == "--yes" else ["--policy", str(home / "rules.toml")]
    assert main(["run", PROMPT, "--tools", write_paying_tools(home), *more]) == 0
    assert "PAID 7" in read_output(capsys)[1]


@pytest.mark.parametrize("answer", ["approve", "edit", "reject"])
def test_ask_answer_and_resume(capsys, home, answer):
    tools = write_paying_tools(home, ", approve=True")
    (home / "rules.toml").write_text('[[rules]]\ndecision = "ask"\nname = "boss"\n')
    rules = ["--policy", str(home / "rules.toml"), "--tools", tools]
    assert main(["run", PROMPT, *rules, "--json"]) == 1
    session = json.loads(read_output(capsys)[0])["session"]
    assert main(["approvals", "--json"]) == 0
    (question,) = json.loads(read_output(capsys)[0])
    assert (question["session"], question["tool"], question["rule"]) == (session, "pay", "boss")
    assert main(["approvals"]) == 0
    assert 'pay({"amount": 7}) — boss' in read_output(capsys)[0]
    words = {
        "approve": ["approvals", "approve", question["id"][:6]],
        "edit": ["approvals", "approve", question["id"], "--arguments", '{"amount": 5}', "--by", "ann"],
        "reject": ["approvals", "reject", question["id"], "--reason", "too much"],
    }[answer]
    assert main(words) == 0
    assert f"bridle resume {session}" in read_output(capsys)[0]
    assert main(words) == 2
    assert "no pending approval matches" in read_output(capsys)[1]
    assert main(["resume", session]) == 2
    assert "--tools" in read_output(capsys)[1]
    assert main(["resume", session, *rules]) == 0
    out, err = read_output(capsys)
    assert out == "done\n"
    assert ("PAID" in err, "PAID 5" in err) == (answer != "reject", answer == "edit")
    assert main(["show", session]) == 0
    shown = read_output(capsys)[0]
    assert "boss" in shown
    assert {"approve": "approve by", "edit": "approve by ann", "reject": "too much"}[answer] in shown


def test_a_long_result_is_named_and_can_be_printed_whole(capsys, home):
    (home / "long.py").write_text(
        "from bridle import tool\n@tool\ndef dump() -> str:\n    'Everything.'\n    return 'a line\\x1b[1m\\n' * 10_000\n"
    )
    assert main(["run", "!call dump {}\n!then\n!say ok", "--tools", "long.py", "--yes", "--json"]) == 0
    session = json.loads(read_output(capsys)[0])["session"]
    assert main(["show", session]) == 0
    shown = read_output(capsys)[0]
    assert "excerpt  of 110,000 characters; --result " in shown
    assert "read_result shown from here on" in shown
    handle = shown.split("--result ")[1].split()[0]
    assert main(["show", session, "--result", handle]) == 0
    assert read_output(capsys)[0] == "a line\x1b[1m\n" * 10_000
    assert main(["show", session, "--result", "0000"]) == 2
    assert handle in read_output(capsys)[1]


def test_the_same_question_in_two_sessions_is_two_questions(capsys, home):
    tools = write_paying_tools(home, ", approve=True")
    (home / "rules.toml").write_text('[[rules]]\ndecision = "ask"\n')
    for _ in range(2):
        main(["run", PROMPT, "--policy", str(home / "rules.toml"), "--tools", tools])
    read_output(capsys)
    main(["approvals", "--json"])
    first, second = json.loads(read_output(capsys)[0])
    main(["show", first["session"]])
    assert f"bridle approvals approve {first['id']}" in read_output(capsys)[0]
    assert main(["approvals", "approve", first["id"]]) == 0
    read_output(capsys)
    main(["approvals", "--json"])
    assert [item["session"] for item in json.loads(read_output(capsys)[0])] == [second["session"]]


def test_who_answers_needs_no_key_of_the_sessions_model(capsys, home):
    tools = write_paying_tools(home, ", approve=True")
    (home / "rules.toml").write_text('[[rules]]\ndecision = "ask"\n')
    main(["run", PROMPT, "--policy", str(home / "rules.toml"), "--tools", tools, "--json"])
    session = json.loads(read_output(capsys)[0])["session"]

    async def as_if_asked_elsewhere():
        """The same session, of a model that needs a key which is not here."""
        store = open_store(str(home / "log.db"))
        before = GENESIS
        for record in await store.read(session):
            event = record.event
            if isinstance(event, Configured):
                model = resolve_model("anthropic:claude-sonnet-5-5")
                event = replace(event, session="other", settings=replace(event.settings, model=model))
            sealed = seal_record(record.seq, record.at, event, before)
            await store.append("other", record.seq - 1, (sealed,))
            before = sealed.hash
        await store.close()

    asyncio.run(as_if_asked_elsewhere())
    main(["approvals", "other", "--json"])
    (question,) = json.loads(read_output(capsys)[0])
    assert main(["approvals", "approve", question["id"]]) == 0


def test_a_person_sees_all_of_what_is_to_be_allowed(capsys, home):
    tools = write_paying_tools(home, ", approve=True")
    (home / "rules.toml").write_text('[[rules]]\ndecision = "ask"\n')
    prompt = PROMPT.replace("7", "7" * 300)
    main(["run", prompt, "--policy", str(home / "rules.toml"), "--tools", tools])
    read_output(capsys)
    main(["approvals"])
    assert "7" * 300 in read_output(capsys)[0]


def test_wrong_answers_are_one_line(capsys, home):
    assert main(["approvals", "approve", "nothing"]) == 2
    assert "no log at" in read_output(capsys)[1]
    main(["run", "!say hi"])
    read_output(capsys)
    for words, why in (
        (["approvals", "approve", "nothing"], "no pending approval matches"),
        (["approvals", "approve", "x", "--arguments", "[1]"], "not a JSON object"),
        (["approvals", "approve", "x", "--arguments", "{}", "--done", "y"], "give only one of them"),
        (["resume", "nobody"], "no session"),
    ):
        assert main(words) == 2
        assert why in read_output(capsys)[1]
    assert main(["approvals"]) == 0
    assert read_output(capsys)[0] == "no pending approvals\n"


@pytest.mark.parametrize("flags", [[], ["-m", "sim:openai/gpt-5.4"]])
def test_resume_keeps_the_options_of_a_run_unless_others_are_given(capsys, home, flags):
    """The model of a run that the agent does not have is taken from the log, or from `-m`."""

    async def stop_early():
        agent = Agent("sim:", store=str(home / "log.db"))
        tools = load_tools([write_paying_tools(home)])
        more = {"tools": tools, "tool_choice": "pay", "budget": Budget(steps=1)}
        ended = await agent.run(PROMPT, "s", model="sim:gemini/gemini-3.5-flash", **more)  # type: ignore[call-overload]
        await agent.store.close()
        return ended

    assert asyncio.run(stop_early()).stop == "steps"
    assert main(["resume", "s", "--steps", "5", *flags]) == 2
    assert "--tools" in read_output(capsys)[1]
    assert main(["resume", "s", "--steps", "5", "--tools", str(home / "paying.py"), *flags]) == 0
    read_output(capsys)
    assert main(["show", "s"]) == 0
    shown = read_output(capsys)[0]
    assert "has its own model, tool_choice, tools" in shown
    assert ("gpt-5.4" in shown) == bool(flags)


def test_interruption_while_modules_are_loaded_prints_no_traceback(home):
    (home / "argparse.py").write_text("raise KeyboardInterrupt\n")
    script = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = script["bridle"].partition(":")
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; sys.exit({module}.{function}())", "serve"],
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.parametrize("more", [", approve=True", ", approve=lambda amount: amount > 5"])
def test_call_whose_tool_requires_approval_waits_without_a_terminal(capsys, home, more):
    assert main(["run", PROMPT, "--tools", write_paying_tools(home, more), "--json"]) == 1
    out, err = read_output(capsys)
    session = json.loads(out)["session"]
    assert (json.loads(out)["stop"], "PAID" in err) == ("waiting", False)
    assert main(["approvals", "--json"]) == 0
    (question,) = json.loads(read_output(capsys)[0])
    assert main(["approvals", "approve", question["id"]]) == 0
    assert main(["resume", session, "--tools", write_paying_tools(home, more)]) == 0
    assert "PAID 7" in read_output(capsys)[1]


def test_call_that_its_tool_does_not_ask_about_is_denied_without_a_terminal(capsys, home):
    assert (
        main(["run", PROMPT, "--tools", write_paying_tools(home, ", approve=lambda amount: amount > 100")])
        == 0
    )
    assert "PAID" not in read_output(capsys)[1]
