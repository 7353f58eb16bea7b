"""Replies that servers of others gave, byte for byte, put to the client.

`tests/foreign_replies` was recorded by `bench/foreign/servers.py` from llama.cpp's own server and from LiteLLM's
proxy in front of the simulator. A plain HTTP server gives the bytes again.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest

from bridle import Agent
from bridle.providers.catalogue import find_model
from tests.transports.local_server import start_server

REPLIES = Path(__file__).parent / "foreign_replies"
LINES = {
    "llamacpp-chat": "llamacpp:tiny@{}/v1",
    "llamacpp-messages": "anthropic:tiny@{}",
    "llamacpp-responses": "openai:tiny@{}/v1",
    "litellm-chat-bedrock": "local:=bedrock-claude@{}/v1",
    "litellm-chat-gemini": "local:=gemini-3.8-flash@{}/v1",
    "litellm-messages-gemini": "anthropic:=gemini-3.8-flash@{}",
    "litellm-responses-gpt": "openai:gpt-6.1-sol@{}/v1",
}
LAST = {"chat": "llamacpp-chat-2", "messages": "llamacpp-messages-2", "responses": "llamacpp-responses-2"}
CITIES = {
    "llamacpp-chat": ["Oslo", "Oslo", "Rome"],
    "llamacpp-messages": ["Rome"],
    "llamacpp-responses": ["Oslo"],
}
"""The arguments of the recorded calls; the gateway's are Oslo and Rome."""
SHARES = {"whole": 1, "cut": 0.6}
CALLS = {
    "chat": r'"tool_calls": ?\[\{[^{}]*?"id": ?"([^"]+)"',
    "messages": r'"content_block": ?\{"type": ?"tool_use", ?"id": ?"([^"]+)"',
    "responses": r'"call_id": ?"([^"]+)"',
}
"""How the wires write the id of a call; the replies are searched for it without our decoders."""


def read_calls(name):
    """Return the ids of the calls in a recorded reply."""
    found = re.findall(CALLS[name.split("-")[1]], (REPLIES / f"{name}-1.sse").read_text())
    return list(dict.fromkeys(found))


def hold_conversation(name, monkeypatch, share="whole"):
    """Run an agent against the recorded replies; return what it looked at, its result and its requests."""
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LLAMA_API_KEY", "LOCAL_API_KEY"):
        monkeypatch.setenv(variable, "sk-of-a-server-of-ones-own")
    first = (REPLIES / f"{name}-1.sse").read_bytes()
    last = (REPLIES / f"{LAST[name.split('-')[1]]}.sse").read_bytes()
    answers = [first, last]
    if share != "whole":
        answers.insert(0, first[: int(len(first) * SHARES[share])])
    looked = []

    def look(city: str) -> str:
        """Look at a city."""
        looked.append(city)
        return f"{city} is fine"

    async def answer(_, writer):
        body = answers.pop(0)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%b\r\n" % (len(body), body))
        if len(answers) > 1:  # it dies in the middle of the stream
            await writer.drain()
            raise ConnectionError
        writer.write(b"0\r\n\r\n")

    async def run(url):
        agent = Agent(LINES[name].format(url), tools=[look], max_tokens=2000)
        events = [event async for event in agent.stream("Look.")]
        return events[-1].result

    with start_server(answer) as server:
        result = asyncio.run(run(f"http://127.0.0.1:{server.port}"))
        requests = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]
    return looked, result, requests


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", LINES)
def test_the_calls_run_as_they_were_made_and_the_answer_is_heard(name, share, monkeypatch):
    looked, result, requests = hold_conversation(name, monkeypatch, share)
    assert sorted(looked) == CITIES.get(name, ["Oslo", "Rome"])
    assert (result.stop, result.text) == ("done", "Rome it is.")
    assert len(requests) == (2 if share == "whole" else 3)


@pytest.mark.parametrize("name", LINES)
def test_the_ids_of_calls_go_back_unchanged(name, monkeypatch):
    _, _, requests = hold_conversation(name, monkeypatch)
    given = read_calls(name)
    assert given
    sent = json.dumps(requests[-1])
    assert [sent.count(f'"{each}"') for each in given] == [2] * len(given)


def test_a_thought_that_came_in_fragments_goes_back_as_one(monkeypatch):
    _, _, requests = hold_conversation("litellm-chat-bedrock", monkeypatch)
    spoken = next(message for message in requests[-1]["messages"] if message["role"] == "assistant")
    assert [block["thinking"] for block in spoken["thinking_blocks"]] == [
        "I should look at two of them first."
    ]
    assert spoken["thinking_blocks"][0]["signature"] in (REPLIES / "litellm-chat-bedrock-1.sse").read_text()


def test_a_signature_kept_in_an_id_reaches_the_server_that_put_it_there(monkeypatch):
    _, _, requests = hold_conversation("litellm-chat-gemini", monkeypatch)
    spoken = next(message for message in requests[-1]["messages"] if message["role"] == "assistant")
    assert len(spoken["tool_calls"][0]["id"]) > 64
    assert f'"id":"{spoken["tool_calls"][0]["id"]}"' in (REPLIES / "litellm-chat-gemini-1.sse").read_text()


@pytest.mark.parametrize(
    ("string", "form"),
    [
        ("anthropic:tiny@http://127.0.0.1:8080", "tool"),
        ("openai:tiny@http://127.0.0.1:8080/v1", "tool"),
        ("llamacpp:tiny@http://127.0.0.1:8080/v1", "native"),
        ("anthropic:claude-sonnet-5-5@http://127.0.0.1:8080", "native"),
        ("anthropic:claude-next-9", "native"),
    ],
)
def test_a_server_s_own_model_is_asked_for_a_shape_by_a_tool(string, form):
    """llama.cpp's server enforces a shape on Chat and passes over it on its two other wires."""
    assert find_model(string, environ={}).abilities.structured_output == form
