"""Threads of the Messages API: created once, continued with only what is new."""

import asyncio
import json

import pytest

from bridle.ports.transport import OutgoingRequest
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock

BETA = "message-threads-2026-08-12"
TOOLS = [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]
SCRIPT = '!say I look.\n!call look {"at": "left"}\n!then\n!call look {"at": "right"}\n!then\n!say Seen.'
MODELS = [
    ("claude-sonnet-5-5", {}),
    ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
]


class Client:
    """A client that knows only the wire."""

    def __init__(self, model="claude-sonnet-5-5", beta=BETA, **more):
        self.clock = FakeClock()
        self.simulator = Simulator(clock=self.clock)
        self.fields = {"model": model, "max_tokens": 4_000, **more}
        self.headers = [("anthropic-version", "2026-10-21"), ("x-api-key", "k")]
        self.headers += [("anthropic-beta", beta)] if beta else []
        self.bodies = []

    def ask(self, messages, thread, path="/v1/messages", **more):
        body = {**self.fields, **more, "messages": messages, **({"thread": thread} if thread else {})}
        self.bodies.append(body)
        data = json.dumps(body).encode()
        outgoing = OutgoingRequest(method="POST", url=path, headers=tuple(self.headers), body=data)
        reply = asyncio.run(self.simulator.answer(outgoing))
        self.text = reply.body.decode()
        return reply.status, None if body.get("stream") else json.loads(reply.body)

    def create(self, prompt=SCRIPT, **more):
        return self.ask([{"role": "user", "content": prompt}], {"type": "create"}, tools=TOOLS, **more)


def next_of(reply):
    return {"type": "continue", "previous_message_id": reply["id"]}


def results_of(reply):
    calls = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": each, "content": "seen"} for each in calls]
    return [{"role": "user", "content": results}]


@pytest.mark.parametrize(("model", "more"), MODELS)
def test_a_tool_loop_sends_only_its_results(model, more):
    client = Client(model, **more)
    status, reply = client.create(system="Be brief.")
    used = [reply["usage"]["input_tokens"]]
    while reply["stop_reason"] == "tool_use":
        assert status == 200
        status, reply = client.ask(results_of(reply), next_of(reply))
        used.append(reply["usage"]["input_tokens"])
    assert reply["content"] == [{"type": "text", "text": "Seen."}]
    assert [len(body["messages"]) for body in client.bodies] == [1, 1, 1]
    assert used == sorted(used)
    assert used[0] < used[-1]


def test_it_says_the_same_as_the_whole_conversation_would():
    threaded, whole = Client(), Client(beta="")
    _, first = threaded.create()
    _, second = threaded.ask(results_of(first), next_of(first))
    said = [{"role": "user", "content": SCRIPT}]
    _, same = whole.ask(said, None, tools=TOOLS)
    said += [{"role": "assistant", "content": same["content"]}, *results_of(same)]
    _, again = whole.ask(said, None, tools=TOOLS)
    assert (first["content"], second["content"]) == (same["content"], again["content"])
    assert second["usage"] == again["usage"]


@pytest.mark.parametrize(("model", "more"), MODELS)
def test_a_streamed_response_is_continued_too(model, more):
    client, other = Client(model, **more), Client(model, **more)
    _, whole = other.create()
    client.create(stream=True)
    assert whole["id"] in client.text
    status, reply = client.ask(results_of(whole), next_of(whole))
    assert (status, reply["stop_reason"]) == (200, "tool_use")


def test_a_call_that_was_cut_off_is_held_without_its_arguments():
    client = Client()
    client.create('!call look {"at": "left"}\n!truncate', stream=True)
    assert '"stop_reason":"max_tokens"' in client.text
    (held,) = client.simulator.stored.threads.values()
    assert held.messages[-1]["content"][-1]["input"] == {}


def test_a_later_prompt_and_cache_marks_go_on():
    client = Client()
    _, reply = client.create("!say One.")
    for word in ("Two", "Three", "Four", "Five", "Six"):
        marked = {"type": "text", "text": f"!say {word}.", "cache_control": {"type": "ephemeral"}}
        status, reply = client.ask([{"role": "user", "content": [marked]}], next_of(reply))
        assert (status, reply["content"][0]["text"]) == (200, f"{word}.")


def describe_error(answer):
    status, body = answer
    return status, body["error"].get("details", {}).get("error_code"), body["error"]["message"]


@pytest.mark.refusals
def test_what_is_not_held_is_not_continued():
    client = Client()
    say = [{"role": "user", "content": "!say Hello."}]
    assert describe_error(client.ask(say, {"type": "continue", "previous_message_id": "msg_x"}))[:2] == (
        404,
        "thread_not_found",
    )
    _, first = client.create("!say One.")
    assert client.ask(say, next_of(first))[0] == 200
    assert describe_error(client.ask(say, next_of(first)))[:2] == (400, "thread_already_continued")
    _, unheld = client.ask(say, None)
    assert describe_error(client.ask(say, next_of(unheld)))[:2] == (404, "thread_not_found")


@pytest.mark.refusals
def test_a_thread_is_forgotten_after_five_minutes():
    client = Client()
    _, first = client.create("!say One.")
    client.clock.advance(299)
    _, second = client.ask([{"role": "user", "content": "!say Two."}], next_of(first))
    client.clock.advance(301)
    again = client.ask([{"role": "user", "content": "!say Three."}], next_of(second))
    assert describe_error(again)[:2] == (404, "thread_not_found")


@pytest.mark.refusals
def test_what_belongs_to_the_thread_is_neither_repeated_nor_changed():
    client = Client()
    say = [{"role": "user", "content": "!say Two."}]
    _, first = client.create("!say One.")
    assert describe_error(client.ask(say, next_of(first), tools=TOOLS))[2].startswith("tools: ")
    assert describe_error(client.ask(say, next_of(first), system="Be brief."))[2].startswith("system: ")
    assert (
        describe_error(client.ask(say, next_of(first), model="claude-opus-5-5"))[1]
        == "thread_fingerprint_mismatch"
    )
    assert client.ask(say, next_of(first))[0] == 200
    beside = client.ask(
        say, {"type": "create"}, context_management={"edits": [{"type": "clear_tool_uses_20250919"}]}
    )
    assert describe_error(beside)[0] == 400


@pytest.mark.refusals("preview-fields")
def test_without_the_preview_there_are_no_threads():
    status, _, message = describe_error(Client(beta="").create("!say One."))
    assert (status, message) == (400, "thread: Extra inputs are not permitted")


def test_tokens_are_counted_with_what_is_held():
    client = Client()
    _, first = client.create("!say One.")
    say = [{"role": "user", "content": "!say Two."}]
    path = "/v1/messages/count_tokens"
    _, held = client.ask(say, next_of(first), path)
    _, alone = client.ask(say, None, path)
    assert held["input_tokens"] > alone["input_tokens"]
