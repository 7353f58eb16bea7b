"""Streamed replies that a client sends back chunk by chunk, as Google's own SDK does when it calls functions itself."""

import asyncio
import json

import pytest

from bridle.ports.transport import OutgoingRequest
from bridle.sim.simulator import Simulator

SCRIPT = '!say I look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n!say Rome it is.'
MODEL = "gemini-3.8-flash"
TOOLS = [{"functionDeclarations": [{"name": "look", "description": "Look."}]}]


def ask(simulator, contents):
    """Send a streamed request; return the status and the contents of its chunks."""
    outgoing = OutgoingRequest(
        method="POST",
        url=f"https://generativelanguage.googleapis.com/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
        headers=(("x-goog-api-key", "sim"), ("content-type", "application/json")),
        body=json.dumps({"contents": contents, "tools": TOOLS}).encode(),
    )
    answer = asyncio.run(simulator.answer(outgoing))
    lines = [
        line.removeprefix("data: ") for line in answer.body.decode().splitlines() if line.startswith("data: ")
    ]
    return answer.status, [json.loads(line)["candidates"][0]["content"] for line in lines]


def results(count):
    response = {"functionResponse": {"name": "look", "response": {"result": "fine"}}}
    return {"role": "user", "parts": [response] * count}


def test_a_reply_that_comes_back_chunk_by_chunk_is_one_reply():
    simulator = Simulator()
    prompt = {"role": "user", "parts": [{"text": SCRIPT}]}
    _, chunks = ask(simulator, [prompt])
    assert len(chunks) > 2
    status, answer = ask(simulator, [prompt, *chunks, results(2)])
    assert status == 200
    assert "".join(part.get("text", "") for chunk in answer for part in chunk["parts"]) == "Rome it is."


@pytest.mark.refusals
def test_the_first_call_of_a_turn_is_signed_wherever_it_stands():
    simulator = Simulator()
    prompt = {"role": "user", "parts": [{"text": SCRIPT}]}
    _, chunks = ask(simulator, [prompt])
    for chunk in chunks:
        for part in chunk["parts"]:
            part.pop("thoughtSignature", None)
    status, _ = ask(simulator, [prompt, *chunks, results(2)])
    assert status == 400
