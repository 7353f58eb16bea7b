"""Programs as tools: arguments stay single words, and every kind of end is reported."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from bridle import Agent, Budget
from bridle.cli.main import main
from bridle.errors import BadTool
from bridle.ports.run_context import RunContext
from bridle.testing import check_tool, scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import CommandTool
from bridle.tools.process.run_process import CapturedOutput
from bridle.values.result import Progress
from tests.suite.patience import allow_longer

CONTEXT = RunContext(context=None, session="s", call_id="c", idempotency_key="k")
SHOW = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]


def run(made, **arguments):
    return asyncio.run(made.run(arguments, CONTEXT))[0].text


def result_of(made, **options):
    """What the model is told."""
    name = made.spec.name
    agent = Agent(scripted(call_reply((name, {})), "went on"), tools=[made], **options)
    ended = agent.run_sync("?")
    return ended, ended.messages[2].results[0]


def test_arguments_of_any_text_are_single_words():
    made = CommandTool("show", "Show.", [*SHOW, "--", "{text}", "-m={text}"])
    for text in ("a b", "$(id)", "; rm -rf /", "'\"", "{text}", "-x", "\n", ""):
        assert run(made, text=text) == f"{['--', text, f'-m={text}']}\n"


def test_every_name_is_a_text_that_must_be_given():
    made = CommandTool("show", "Show.", [*SHOW, "{first}", "{second}"])
    asyncio.run(
        check_tool(
            made, good=[{"first": "a", "second": "b"}], bad=[{}, {"first": "a"}, {"first": 1, "second": "b"}]
        )
    )


def test_lists_numbers_defaults_and_nothing():
    made = CommandTool(
        "show", "Show.", [*SHOW, "{count}", "--deep={deep}", "--", "{paths}", "{last}"],
        parameters={
            "type": "object",
            "properties": {
                "count": {"type": "integer", "default": 3},
                "deep": {"type": "boolean", "default": False},
                "paths": {"type": "array", "items": {"type": "string"}},
                "last": {"type": "string"},
            },
        },
    )  # fmt: skip
    assert run(made, paths=["a", "-b c"]) == "['3', '--deep=false', '--', 'a', '-b c']\n"
    assert run(made, paths=[], count=1, last="z", deep=True) == "['1', '--deep=true', '--', 'z']\n"


@pytest.mark.parametrize("words", [["{path}"], ["{path}.txt"], ["-n", "{path}"]])
def test_text_that_would_be_read_as_an_option_is_refused(words):
    made = CommandTool("show", "Show.", [*SHOW, *words])
    with pytest.raises(ValueError, match="would read as an option; nothing was run"):
        run(made, path="--output=/etc/passwd")
    assert "'a" in run(made, path="a")


@pytest.mark.parametrize(
    ("argv", "options", "why"),
    [
        ("ls -l", {}, "list of strings"),
        ([], {}, "list of strings"),
        (["{program}"], {}, "program cannot depend"),
        (["ls", "{"], {}, "write {{"),
        (["ls", "{a.b}"], {}, "not a valid parameter name"),
        (["ls", "{}"], {}, "not a valid parameter name"),
        (["ls", "{x}"], {"parameters": {"type": "object", "properties": {}}}, "{x} in its command"),
        (["ls"], {"parameters": {"type": "array"}}, "its schema"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_when_it_is_made(argv, options, why):
    with pytest.raises(BadTool, match=why):
        CommandTool("show", "Show.", argv, **options)


def test_what_is_read_comes_from_the_arguments_too():
    assert run(CommandTool("cat", "Echo.", ["cat"], stdin="<{text}>"), text="ä\n") == "<ä\n>"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo out", "out\n"),
        ("true", "[exit code 0, no output]"),
        ("echo out; echo warn >&2", "out\n\n[stderr]\nwarn\n"),
        ("echo warn >&2", "[stderr]\nwarn\n"),
        ("exit 1", "[exit code 1, no output]"),
        ("echo none; exit 1", "[exit code 1]\nnone\n"),
    ],
)
def test_what_the_model_reads(script, said):
    _, result = result_of(CommandTool("sh", "Run.", ["sh", "-c", script], exits=(0, 1)))
    assert (result.outcome, result.text) == ("ok", said)


def test_a_failure_is_an_error_with_the_end_of_what_it_wrote():
    script = "yes out | head -c 5000; yes err | head -c 5000 >&2; echo 'fatal: no' >&2; exit 3"
    ended, result = result_of(CommandTool("sh", "Run.", ["sh", "-c", script]))
    assert (ended.text, result.outcome) == ("went on", "error")
    assert result.text.startswith("ChildProcessError: `sh` ended with exit code 3\n[the end of stderr]\n")
    assert "fatal: no\n[the end of stdout]" in result.text
    assert result.text.endswith("out")
    _, result = result_of(CommandTool("sh", "Run.", ["sh", "-c", "kill -9 $$"]))
    assert result.text == "ChildProcessError: `sh` was ended by SIGKILL"
    _, result = result_of(CommandTool("none", "Run.", ["no-such-program"]))
    assert "no-such-program" in result.text


def test_a_program_out_of_time_is_a_timeout_with_what_it_had_said():
    script = "echo 'step 1'; echo careful >&2; exec sleep 1000"

    def check(seconds):
        ended, result = result_of(CommandTool("sh", "Run.", ["sh", "-c", script], timeout=seconds))
        assert (ended.text, result.outcome) == ("went on", "timeout")
        first, _, rest = result.text.partition("\n")
        assert first == (
            f"no result within {seconds:g} seconds; `sh` and all it started were stopped;"
            " what it had done by then stays done"
        )
        assert rest == "[stderr]\ncareful\n[stdout]\nstep 1"

    allow_longer(check, 0.1)


def test_the_runs_time_ends_a_program_too():
    made = CommandTool("sh", "Run.", ["sleep", "1000"], timeout=None)

    def check(seconds):
        agent = Agent(
            scripted(call_reply(("sh", {})), "went on"), tools=[made], budget=Budget(seconds=seconds)
        )
        ended = agent.run_sync("?")
        results = [result for message in ended.messages for result in message.results]
        assert (ended.stop, [result.outcome for result in results]) == ("seconds", ["timeout"])
        assert "were stopped" in results[0].text

    allow_longer(check, 0.1)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_what_is_captured_keeps_whole_characters(size):
    text = "aä€🐎" * 40
    data = text.encode()
    captured = CapturedOutput(100)
    for start in range(0, len(data), size):
        captured.take(data[start : start + size])
    kept = captured.text()
    head, tail = kept.split("\n")[0], kept.split("\n")[-1]
    assert "\ufffd" not in kept
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 94 <= len(head.encode()) + len(tail.encode()) <= 100
    assert f"{len(data) - len(head.encode()) - len(tail.encode())} bytes left out" in kept
    exact = CapturedOutput(len(data))
    exact.take(data)
    assert exact.text() == text


def test_the_example_works(capsys, tmp_path):
    example = Path(__file__).parents[3] / "examples" / "commands.py"
    prompt = '!call search {"word": "library"}\n!call count_words {"note": "library.txt"}\n!then\n!say done'
    command = ["run", prompt, "--tools", str(example), "--store", str(tmp_path / "log.db"), "--json"]
    assert main([*command, "--model", "sim:"]) == 0
    told = json.loads(capsys.readouterr().out)
    found, counted = (part for part in told["messages"][2]["parts"] if part["type"] == "tool_result")
    assert "notes/library.txt:" in found["parts"][0]["text"]
    assert int(counted["parts"][0]["text"]) > 10


def test_viewers_see_the_latest_line_of_output_while_the_program_runs(tmp_path):
    """The program ends only after its line has been seen."""
    wait = "until [ -e go ]; do sleep 0.01; done"
    script = f"printf 'first\\rsecond\\033[2J %0300d' 1; {wait}; printf '\\nend\\n'"
    made = CommandTool("build", "Build.", ["sh", "-c", script], cwd=tmp_path, effect="read")
    seen = []

    async def watch():
        agent = Agent(scripted(call_reply(("build", {})), "done"), tools=[made])
        async for item in agent.stream("?"):
            if isinstance(item, Progress):
                seen.append(item)
                (tmp_path / "go").touch()

    asyncio.run(watch())
    assert all(item.is_output and item.name == "build" and item.call_id for item in seen)
    assert seen[0].message.startswith("second\\u001b[2J 000")
    assert max(len(item.message) for item in seen) == 200
