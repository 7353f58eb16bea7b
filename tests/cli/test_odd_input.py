"""Invalid values on the command line are refused in one line, never with a traceback."""

import asyncio
import json
import sys
from typing import Any

import pytest

from bridle import Agent
from bridle.cli.main import main
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import CommandTool


def read_refusal(capsys, *command):
    """The one line with which a command is refused."""
    try:
        code: Any = main(list(command))
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, ""), (command, said)
    assert said.err.startswith("bridle: "), said.err
    assert said.err.count("\n") == 1, said.err
    return said.err


@pytest.fixture
def store(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    main(["run", "!say hi"])
    capsys.readouterr()


@pytest.mark.parametrize("limit", ["99999999999999999999", "9" * 5000, "-1", "0", "nan", "", "1.5", "\udcff"])
def test_an_invalid_limit(store, capsys, limit):
    assert len(read_refusal(capsys, "sessions", "--limit", limit)) < 300


@pytest.mark.parametrize(
    "text",
    ["[1]", "null", "", "{", '{"a":NaN}', "\udcff", '{"a":' * 5000, '{"a":' + "9" * 5000 + "}"],
)
def test_invalid_arguments(store, capsys, text):
    assert "--arguments is not a JSON object" in read_refusal(
        capsys, "approvals", "approve", "x", "--arguments", text
    )


@pytest.mark.parametrize(
    "command", ["show", "show --as log", "session fork", "resume", "approvals", "cost", "show --as cache"]
)
def test_a_session_id_that_is_not_text(store, capsys, command):
    assert "cannot be encoded as UTF-8" in read_refusal(capsys, *command.split(), "s\udcff")


SCRIPTS = {
    "deep.json": b"[" * 100_000,
    "binary.json": b"\xff\xfe\x00",
    "binary.txt": b"\xff\xfe",
    "null.json": b"null",
    "number.json": b"[1]",
    "nothing.py": b"x = 1",
    "exits.py": b"raise SystemExit(3)",
    "raises.py": b"def g():\n    yield 'a'\n    raise RuntimeError('x')\nREPLIES = g()\n",
    "broken.py": b"(",
    "broken.toml": b"x",
    "recording.jsonl": b"[1]\n",
}


@pytest.mark.parametrize("name", [*SCRIPTS, "missing.json", "."])
def test_an_invalid_script(tmp_path, capsys, name):
    path = tmp_path / name
    if name in SCRIPTS:
        path.write_bytes(SCRIPTS[name])
    read_refusal(capsys, "sim", "--port", "0", "--script", str(path))


ECHO = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
PARAMETERS = {"type": "object", "properties": {"n": {}}, "required": ["n"]}


@pytest.mark.parametrize("value", [-1, -0.5, "-1", [3, -1]])
@pytest.mark.parametrize(
    ("words", "runs"), [(["{n}"], False), (["-n", "{n}"], False), (["--", "{n}"], True), (["--n={n}"], True)]
)
def test_a_negative_number_is_not_an_option(value, words, runs):
    act = CommandTool("act", "Act.", [*ECHO, *words], parameters=PARAMETERS)
    agent = Agent(scripted(call_reply(("act", {"n": value})), "ok"), tools=[act])
    (result,) = asyncio.run(agent.run("go")).messages[2].results
    if runs:
        assert result.outcome == "ok", result.text
        last = value[-1] if isinstance(value, list) else value
        assert str(last) in result.text or json.dumps(last) in result.text
    else:
        assert result.is_error
        assert "would read as an option; nothing was run" in result.text
