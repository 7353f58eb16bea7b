"""Runs that are recorded, scrubbed and replayed; whole and streamed, on every wire."""

import asyncio

import pytest

from bridle import Agent
from bridle.ports.transport import OutgoingRequest
from bridle.providers.sigv4 import signed_headers
from bridle.sim.responder.alternatives import load_recorded_responder
from bridle.sim.simulator import Simulator
from bridle.testing import ProviderSim, recording, replaying
from bridle.transports.recorded import RecordedReply, encode_exchange, read_exchanges, scrub_exchange
from bridle.values.errors import MisuseError
from tests.sim.sim_families import FAMILIES, MODELS, decode_answer, question, send_request

PROMPT = '!say Let me add.\n!call add {"a": 1, "b": 2}\n!then\n!say Three.'


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def run(line, *, stream, prompt=PROMPT):
    agent = Agent(line, tools=[add])
    if not stream:
        return await agent.run(prompt)
    events = [event async for event in agent.stream(prompt)]
    return events[-1].result


def recorded_run(path, model, *, stream):
    with ProviderSim() as provider, recording(path) as recorded:
        return asyncio.run(run(recorded(provider.model(model)), stream=stream))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_recorded_run_is_replayed_without_a_server(tmp_path, family, stream):
    path, model = tmp_path / "run.jsonl", MODELS[family]
    first = recorded_run(path, model, stream=stream)
    line = replaying(path, model, slice_bytes=7)
    again = asyncio.run(run(line, stream=stream))
    assert again.text == first.text == "Three."
    assert [message.parts for message in again.messages] == [message.parts for message in first.messages]
    assert line.transport.remaining == 0  # type: ignore[attr-defined]


def test_what_was_never_recorded_is_told_with_the_difference(tmp_path):
    path = tmp_path / "run.jsonl"
    recorded_run(path, MODELS["anthropic"], stream=False)
    with pytest.raises(MisuseError, match=r"never recorded; nearest is line 1, where .*Let me add.* became"):
        asyncio.run(run(replaying(path, MODELS["anthropic"]), stream=False, prompt="Something else"))


def test_the_difference_is_shown_where_it_is_however_long_a_prompt_begins_alike(tmp_path):
    path, model = tmp_path / "run.jsonl", MODELS["anthropic"]
    recorded_run(path, model, stream=False)
    longer = f"{PROMPT}\n{'as before ' * 50}"
    with pytest.raises(
        MisuseError, match=r"…\S*.{1,20}!say Three\.\" became \"….{1,20}!say Three\.\\nas before"
    ):
        asyncio.run(run(replaying(path, model), stream=False, prompt=longer))


SECRET = "sk-0123/456789"


@pytest.mark.parametrize(
    ("url", "headers", "body"),
    [
        ("https://h/v1/x?tenant=sk-0123%2F456789", {"authorization": f"Bearer {SECRET}"}, "{}"),
        (f"https://h/v1/{SECRET}/x", {"x-api-key": SECRET}, "{}"),
        ("https://h/v1/x?alt=sse&key=sk-0123%2F456789", {}, f'{{"said":"{SECRET}"}}'),
        (f"https://h/v1/x?X-Amz-Security-Token={SECRET}", {}, "{}"),
        ("https://h/v1/x", {"x-api-key": SECRET}, '{"said":"sk-0123\\/456789"}'),
    ],
)
def test_a_secret_is_removed_wherever_it_stands(url, headers, body):
    asked = OutgoingRequest(method="POST", url=url, headers=tuple(headers.items()), body=body.encode())
    line = encode_exchange(
        scrub_exchange(asked, RecordedReply(status=200, body=f"your key {SECRET}".encode())), 1
    )
    assert b"456789" not in line
    assert b"[secret]" in line


def test_what_every_client_says_is_no_secret():
    headers = (
        ("Host", "api.example.com"),
        ("Connection", "keep-alive"),
        ("X-Amzn-Bedrock-Accept", "text/plain"),
    )
    body = b'{"said":"api.example.com may keep-alive text/plain"}'
    asked = OutgoingRequest(
        method="POST", url="https://api.example.com/v1?key=sim", headers=headers, body=body
    )
    assert scrub_exchange(asked, RecordedReply(status=200)).body == body


def test_words_of_a_json_header_stay_in_the_body_and_its_credentials_go():
    headers = (
        (
            "x-gateway-config",
            '{"model":"claude-sonnet-5","retry":{"on":"overloaded"},"api_key":"sk-hidden-1"}',
        ),
        ("x-tenant", "production"),
    )
    body = b'{"model":"claude-sonnet-5","said":"overloaded in production, not sk-hidden-1"}'
    asked = OutgoingRequest(method="POST", url="https://h/v1/messages", headers=headers, body=body)
    kept = scrub_exchange(asked, RecordedReply(status=200))
    assert kept.body == body.replace(b"sk-hidden-1", b"[secret]")
    assert kept.model == "claude-sonnet-5"


def test_a_signed_request_leaves_its_binary_stream_as_it_came():
    request = question("bedrock_converse", "!say Credential, Signature and content-type are words.")
    streamed = send_request(Simulator(), request)
    proof = signed_headers(
        "POST",
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse-stream",
        b"{}",
        service="bedrock",
        region="eu-west-1",
        access_key="AKIDEXAMPLEEXAMPLEKEY",
        secret_key="hidden",
        now=0.0,
        headers=(("content-type", "application/json"),),
    )
    asked = OutgoingRequest(
        method="POST", url="https://h/x", headers=proof, body=b'{"said":"AKIDEXAMPLEEXAMPLEKEY"}'
    )
    kept = scrub_exchange(asked, RecordedReply(status=200, headers=streamed.headers, body=streamed.body))
    assert b":content-type" in streamed.body
    assert kept.answer.body == streamed.body
    assert kept.body == b'{"said":"[secret]"}'


def test_a_recording_answers_on_another_wire(tmp_path):
    path = tmp_path / "run.jsonl"
    recorded_run(path, MODELS["anthropic"], stream=True)
    with ProviderSim(responder=load_recorded_responder(path)) as provider:
        result = asyncio.run(run(provider.model(MODELS["openai_chat"]), stream=False))
    assert result.text == "Three."


def test_a_miss_of_a_recorded_mind_is_told_with_the_difference(tmp_path):
    path = tmp_path / "run.jsonl"
    recorded_run(path, MODELS["gemini"], stream=False)
    request = question("gemini", "Something else")
    failure = decode_answer(request, send_request(Simulator(load_recorded_responder(path)), request))
    assert "never recorded; nearest is recording 1" in failure.message
    assert "Something else" in failure.message


def test_something_else_than_a_recording_is_misuse(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"what": 1}\n')
    with pytest.raises(MisuseError, match="is not a recording: KeyError"):
        read_exchanges(tmp_path / "other.jsonl")
    with pytest.raises(MisuseError, match="cannot read"):
        read_exchanges(tmp_path / "missing.jsonl")
