"""Keys never reach what is kept: replies, errors, recordings and the simulator's log, however they are spelled."""

import asyncio
import gzip
import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from urllib.request import Request, urlopen

import pytest

from bridle import Agent, tool
from bridle.ports.transport import OutgoingRequest
from bridle.run.model_connection import connect_model, find_model_by_name
from bridle.testing import recording, scripted
from bridle.transports.recorded import RecordedReply, encode_exchange, scrub_exchange
from bridle.values.errors import Failure, MisuseError
from bridle.values.events import ModelReplied

WIRES = ("anthropic/claude-sonnet-5-5", "openai/gpt-6.1-sol", "openai-chat/gpt-6.1-sol")
LONG, SHORT = "sk-local-0123456789", "k9-x"


def line_with(key, wire=WIRES[2]):
    return replace(
        connect_model(find_model_by_name(f"sim:{wire}")), headers=(("authorization", f"Bearer {key}"),)
    )


def replies(agent, session):
    records = asyncio.run(agent.store.read(session))
    return [record.data.decode() for record in records if isinstance(record.event, ModelReplied)]


@pytest.mark.refusals("sealed-part")
def test_a_signature_over_a_call_that_held_the_key_is_given_up():
    agent = Agent(line_with(LONG, "gemini/gemini-3.8-flash"), tools=[tool(look_up)])
    assert agent.run_sync(f'!call look_up {{"word": "{LONG}"}}', session="s").stop == "done"
    assert not any(LONG in each for each in replies(agent, "s"))


@pytest.mark.parametrize("key", [LONG, SHORT])
@pytest.mark.parametrize("wire", WIRES)
def test_a_key_that_a_reply_repeats_is_not_kept(wire, key):
    seen = []

    @tool
    def look(word: str) -> str:
        """Look."""
        seen.append(word)
        return "seen"

    agent = Agent(line_with(key, wire), tools=[look])
    assert agent.run_sync(f"!say Your key is {key}.", session="said").text == "Your key is [key]."
    agent.run_sync(f'!call look {{"word": "{key}"}}', session="called")
    assert seen == ["[key]"]
    kept = [*replies(agent, "said"), *replies(agent, "called")]
    assert len(kept) == 3
    assert not any(key in each for each in kept)


@pytest.mark.parametrize("key", [LONG, SHORT, "none"])
def test_an_error_that_repeats_the_key_is_kept_without_it(key, tmp_path):
    refusal = Failure(kind="unauthorized", message=f"Incorrect API key provided: {key}.", status=401)
    script = scripted(refusal, model=f"sim:{WIRES[2]}")
    connection = replace(line_with(key), model=script.model, transport=script.transport)
    agent = Agent(connection, store=tmp_path / "log.db")
    result = agent.run_sync("go", session="s")
    asyncio.run(agent.store.close())
    assert (result.stop, "provided: [key]" in result.reason) == ("failed", True)
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert f"provided: {key}".encode() not in kept


def test_a_key_spelled_with_escapes_is_not_kept():
    escaped = "".join(f"\\u{ord(each):04X}" for each in LONG)
    agent = Agent(line_with(LONG), tools=[tool(look_up)])
    agent.run_sync(f'!call look_up {{"word": "{escaped}"}}', session="s")
    assert not any(
        LONG in each or escaped in each or escaped.replace("\\", "\\\\") in each
        for each in replies(agent, "s")
    )


def look_up(word: str) -> str:
    """Look."""
    assert word == "[key]"
    return word


def test_the_word_that_a_local_server_is_given_for_a_key_stays_a_word():
    agent = Agent(line_with("none"))
    assert agent.run_sync("!say There are none.").text == "There are none."


QUOTED = "".join(f"%{ord(each):02x}" for each in LONG)
ESCAPED = "".join(f"\\u{ord(each):04x}" for each in LONG)


@pytest.mark.parametrize(
    ("url", "headers", "body"),
    [
        (f"https://h/v1?subscription-key={LONG}", {}, b"{}"),
        (f"https://h/v1?api%5Fkey={LONG}", {}, b"{}"),
        (f"https://h/v1?x={QUOTED}", {"x-api-key": LONG}, b"{}"),
        ("https://h/v1", {"x-api-key": LONG}, f'{{"said":"{ESCAPED}"}}'.encode()),
        ("https://h/v1", {"x-api-key": LONG}, gzip.compress(f'{{"said":"{LONG}"}}'.encode(), mtime=0)),
        ("https://h/v1", {"x-api-key": SHORT}, f'{{"said":"{SHORT}"}}'.encode()),
    ],
)
def test_a_recording_has_no_key_in_any_spelling(url, headers, body):
    asked = OutgoingRequest(method="POST", url=url, headers=tuple(headers.items()), body=body)
    answer = RecordedReply(status=200, body=gzip.compress(f"your key {LONG} {SHORT}".encode()))
    kept = scrub_exchange(asked, answer)
    line = encode_exchange(kept, 1).decode()
    spelled = (
        [LONG, QUOTED, ESCAPED, ESCAPED.replace("\\", "\\\\")] if SHORT not in headers.values() else [SHORT]
    )
    assert not any(each in line for each in spelled)
    assert "[secret]" in line
    assert not kept.body.startswith(b"\x1f\x8b")


def test_numbers_of_other_headers_stay_in_the_body():
    headers = (("x-max-tokens", "1024"), ("x-api-key", LONG))
    asked = OutgoingRequest(
        method="POST", url="https://h/v1?max_tokens=1024", headers=headers, body=b'{"n":1024}'
    )
    assert scrub_exchange(asked, RecordedReply(status=200)).body == b'{"n":1024}'


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_recording_is_for_its_owner_only(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("old")
    path.chmod(0o644)
    with recording(path) as recorded:
        Agent(recorded("sim:")).run_sync("!say Hello.")
    assert mode(path) == 0o600
    assert "Hello." in path.read_text()


def test_a_recording_that_is_full_says_so_and_the_run_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    with (
        pytest.raises(MisuseError, match="1 exchanges were not written"),
        recording(path, bytes_max=10) as made,
    ):
        assert Agent(made("sim:")).run_sync("!say Hello.").stop == "done"
    assert path.stat().st_size <= 10


@pytest.mark.usefixtures("open_umask")
def test_the_log_of_the_simulator_is_for_its_owner_only_and_has_no_keys(tmp_path):
    path = tmp_path / "sim.jsonl"
    program = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json", "--log", path]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        url = json.loads(server.stdout.readline())["url"]
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": f"!say {LONG}"}]}]}).encode()
        headers = {"content-type": "application/json"}
        asked = f"{url}/v1beta/models/gemini-3.8-flash:generateContent?key={LONG}"
        with urlopen(Request(asked, body, headers)) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        server.communicate()
    assert mode(path) == 0o600
    assert LONG not in path.read_text()
    assert "[secret]" in path.read_text()
