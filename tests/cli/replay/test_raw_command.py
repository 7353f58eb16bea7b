"""`bridle show --as raw`: what was sent, without any credential."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent
from bridle.cli.main import main
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import ProviderSim
from bridle.values.events import Configured
from bridle.values.model import Endpoint
from bridle.values.record import GENESIS, seal_record
from tests.suite.patience import PATIENCE_SECONDS

KEY = "sk-ant-very-secret-0123456789abcdef"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BRIDLE_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)


def run(capsys, *words):
    code = main([*words])
    out, err = capsys.readouterr()
    return code, out, err


def record(capsys, *words):
    code, out, err = run(capsys, "run", "!say well", "--json", *words)
    assert code == 0, err
    return json.loads(out)["session"]


def test_calls_are_listed_and_shown(capsys):
    session = record(capsys, "-i", "Be kind.")
    record(capsys, "--session", session)
    code, out, _ = run(capsys, "show", "--as", "raw", session)
    assert code == 0
    assert out.count("proven") == 3
    assert "2 model calls, 2 proven by digest" in out
    code, out, _ = run(capsys, "show", "--as", "raw", session, "--call", "last")
    assert code == 0
    for words in (
        "POST ",
        "Be kind.",
        "difference to call 1: history",
        "reply: model_replied",
        '"type": "model_replied"',
    ):
        assert words in out
    code, out, _ = run(capsys, "show", "--as", "raw", session, "--call", "2", "--json")
    shown = json.loads(out)
    assert (code, shown["is_proven"], shown["body"]["system"][0]["text"]) == (0, True, "Be kind.")
    assert shown["event"]["type"] == "model_replied"
    lines = [
        json.loads(line) for line in run(capsys, "show", "--as", "raw", session, "--json")[1].splitlines()
    ]
    assert [line["number"] for line in lines] == [1, 2]
    assert "+++ now" in run(capsys, "show", "--as", "raw", session, "--call", "2", "--diff")[1]


def test_wrong_calls_are_refused_in_one_line(capsys):
    session = record(capsys)
    for words, told in (
        (["--call", "9"], "no model call 9"),
        (["--call", "x"], "number of a model call"),
        (["--curl"], "needs the number"),
        (["--call", "1", "--reply"], "not kept"),
        (["--call", "1", "--curl"], "no address"),
    ):
        code, _, err = run(capsys, "show", "--as", "raw", session, *words)
        assert code == 2
        assert told in err


def test_a_curl_command_sends_the_request_and_never_shows_the_key(capsys, monkeypatch):
    with ProviderSim() as provider:
        for name, value in provider.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        session = record(capsys, "-m", "anthropic:claude-sonnet-5-5")
        seen = [
            run(capsys, "show", "--as", "raw", session, *words)
            for words in (["--call", "1"], ["--call", "1", "--json"], ["--call", "1", "--curl"], [])
        ]
        assert all(code == 0 and KEY not in out + err for code, out, err in seen)
        command = seen[2][1]
        assert '-H "authorization: Bearer $ANTHROPIC_API_KEY"' in command
        sent = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert "well" in sent.stdout, sent.stderr


ATTACKS = (
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "\n touch pwned\n",
    "x & touch pwned #",
    "$x",
    "\\",
)
PROGRAM = """#!/bin/sh
printf '%s\\0' "$@" > arguments
"""


async def write_log(endpoint, model_id="m", prompt="!say well"):
    """Write a log that names another endpoint than the one that was used, as a log from elsewhere may."""
    made, head = MemoryStore(), GENESIS
    await Agent("sim:openai-chat/gpt-6.1-sol", store=made).run(prompt, "s")
    store = open_store(os.environ["BRIDLE_STORE"])
    for record in await made.read("s"):
        event = record.event
        if isinstance(event, Configured):
            model = replace(event.settings.model, id=model_id, endpoint=endpoint)
            event = replace(event, settings=replace(event.settings, model=model))
        sealed = seal_record(record.seq, record.at, event, head)
        await store.append("s", record.seq - 1, (sealed,))
        head = sealed.hash
    await store.close()


def run_curl(command, **variables):
    """Run the command with a program in place of curl that writes its arguments to a file; returns them."""
    Path("bin").mkdir(exist_ok=True)
    Path("bin/curl").write_text(PROGRAM)
    Path("bin/curl").chmod(0o700)
    Path("bin/touch").unlink(missing_ok=True)
    Path("bin/touch").symlink_to(shutil.which("touch"))  # type: ignore[arg-type]
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": str(Path("bin").resolve()), **variables},
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), command
    assert not Path("pwned").exists()
    return Path("arguments").read_text().split("\0")[:-1]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    "place", ["name", "value", "key", "credential", "url", "body", "model", "signing", "user"]
)
def test_a_log_from_elsewhere_runs_nothing_through_a_curl_command(capsys, place, attack):
    def at(*places, otherwise=""):
        return attack if place in places else otherwise

    signed: Any = {
        "signing": f"sv{at('signing')}/re{at('signing')}",
        "signing_env": (at("user", otherwise="ID"), "SECRET"),
    }
    endpoint = Endpoint(
        name="my",
        family="openai_chat",
        base_url=f"https://example.com/v1{at('url')}",
        key_env=() if place in ("signing", "user") else (at("key", otherwise="KEY"),),
        headers=(
            (f"x-one{at('name')}", f"1{at('value')}"),
            ("x-other-key", at("credential", otherwise="$HOME")),
        ),
        **(signed if place in ("signing", "user") else {}),
    )
    asyncio.run(write_log(endpoint, f"m{at('model')}", f"!say well\n{at('body')}"))
    _, command, err = run(capsys, "show", "--as", "raw", "s", "--call", "1", "--curl")
    assert not err
    given = run_curl(command, KEY="the-key", ID="the-id", SECRET="the-secret", HOME="the-home")
    assert "the-home" not in given
    assert json.loads(given[given.index("--data-raw") + 1])["model"] == f"m{at('model')}"
    assert f"x-one{at('name')}: 1{at('value')}" in given
    assert "x-other-key: [hidden]" in given
    assert f"https://example.com/v1{at('url')}/chat/completions" in given
    if place == "signing":
        assert (f"aws:amz:re{attack}:sv{attack}" in given, "the-id:the-secret" in given) == (True, True)
    elif place == "user":
        assert f"${attack}:$SECRET" in given
    else:
        assert f"authorization: Bearer {f'${attack}' if place == 'key' else 'the-key'}" in given


def test_brackets_of_an_address_are_no_patterns(capsys):
    asyncio.run(write_log(Endpoint(name="my", family="openai_chat", base_url="https://example.com/[1-9]")))
    assert run_curl(run(capsys, "show", "--as", "raw", "s", "--call", "1", "--curl")[1])[2] == "--globoff"


def test_a_file_is_no_address(capsys):
    asyncio.run(write_log(Endpoint(name="my", family="openai_chat", base_url="file://host/etc")))
    assert run(capsys, "show", "--as", "raw", "s", "--call", "1", "--curl")[0] == 2


def test_credentials_of_an_endpoint_that_a_log_holds_are_not_shown(capsys):
    endpoint = Endpoint(
        name="my",
        family="openai_chat",
        base_url="http://user:pw-secret@127.0.0.1:9/v1",
        headers=(
            ("x-api-key", "header-secret"),
            ("Cookie", "sid=a1"),
            ("x-tenant", "acme"),
            ("x-trace", "b7f3c9d2e8a1460f9c3d"),
        ),
    )
    asyncio.run(write_log(endpoint))
    for words in (["--call", "1"], ["--call", "1", "--json"], ["--call", "1", "--curl"], []):
        _, out, err = run(capsys, "show", "--as", "raw", "s", *words)
        for secret in ("pw-secret", "user:", "header-secret", "sid=", "b7f3c9d2"):
            assert secret not in out + err
    out = run(capsys, "show", "--as", "raw", "s", "--call", "1")[1]
    for line in (
        "POST http://127.0.0.1:9/v1/chat/completions",
        "x-api-key: [hidden]",
        "cookie: [hidden]",
        "x-tenant: acme",
        "x-trace: [hidden]",
    ):
        assert line in out.splitlines()
