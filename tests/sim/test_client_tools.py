"""Tools of coding agents, as their own clients send them: free text, namespaces, tools that come later."""

import asyncio
import json
from typing import Any

import pytest

from bridle.ports.codec import HttpRequest
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.sim.simulator import Simulator
from bridle.values.message import Message, Text, ToolCall, ToolResult
from bridle.values.request import Request, ToolChoice, ToolSpec
from tests.sim.sim_families import decode_answer, make_outgoing, send_request

PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
NAMESPACE = {
    "type": "namespace",
    "name": "mcp__files",
    "description": "Files.",
    "tools": [
        {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}},
        {"type": "custom", "name": "write", "description": "Write."},
    ],
}
CHAT_PATCH = {"type": "custom", "custom": {"name": "apply_patch", "description": "Edit files."}}
SCRIPT = '!call apply_patch {"input": "*** Begin Patch\\n+{\\"a\\": 1}\\n"}\n!then\n!say Done.'
WORDS = '*** Begin Patch\n+{"a": 1}\n'


def ask(simulator: Simulator, path: str, body: dict[str, Any], *, stream: bool) -> list[dict[str, Any]]:
    """The JSON of an answer, or of every event of a streamed one."""
    sent = {**body, "stream": stream}
    asked = OutgoingRequest(
        method="POST",
        url=path,
        headers=(("authorization", "Bearer sim"), ("content-type", "application/json")),
        body=json.dumps(sent).encode(),
    )
    timeline = asyncio.run(simulator.answer(asked))
    text = timeline.body.decode()
    assert timeline.status == 200, text
    if not stream:
        return [json.loads(text)]
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def items_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = events[-1]
    return last.get("response", last)["output"]


def respond(simulator, prompt, tools, more=(), *, stream):
    body = {
        "model": "gpt-5.6-sol",
        "input": [{"role": "user", "content": prompt}, *more],
        "tools": tools,
        "store": False,
    }
    return ask(simulator, "/v1/responses", body, stream=stream)


@pytest.mark.parametrize("stream", [True, False])
def test_a_free_text_tool_is_called_and_answered_on_responses(stream):
    simulator = Simulator()
    events = respond(simulator, SCRIPT, [PATCH], stream=stream)
    said = items_of(events)
    call = next(item for item in said if item["type"] == "custom_tool_call")
    assert (call["name"], call["input"]) == ("apply_patch", WORDS)
    assert call["id"].startswith("ctc_")
    if stream:
        pieces = [e for e in events if e["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(piece["delta"] for piece in pieces) == WORDS
        assert {piece["item_id"] for piece in pieces} == {call["id"]}
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "patched"}
    after = items_of(respond(simulator, SCRIPT, [PATCH], [*said, output], stream=stream))
    assert after[-1]["content"][0]["text"] == "Done."
    assert simulator.refusals == []


@pytest.mark.parametrize("stream", [True, False])
def test_tools_of_a_namespace_are_called_with_it(stream):
    simulator = Simulator()
    prompt = '!call read {}\n!call write {"input": "hello"}\n!call mcp__files.read {}\n!then\n!say Done.'
    said = items_of(respond(simulator, prompt, [NAMESPACE], stream=stream))
    calls = [item for item in said if item["type"] != "reasoning"]
    assert [(call["type"], call["name"], call["namespace"]) for call in calls] == [
        ("function_call", "read", "mcp__files"),
        ("custom_tool_call", "write", "mcp__files"),
        ("function_call", "read", "mcp__files"),
    ]
    outputs = [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "seen"} for call in calls
    ]
    after = items_of(respond(simulator, prompt, [NAMESPACE], [*said, *outputs], stream=stream))
    assert after[-1]["content"][0]["text"] == "Done."


def test_tools_that_come_with_the_input_can_be_asked_for():
    later = {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE]}
    said = items_of(respond(Simulator(), "Please use the tool read.", [PATCH], [later], stream=False))
    assert [item.get("namespace") for item in said if item["type"] == "function_call"] == ["mcp__files"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_free_text_tool_is_called_and_answered_on_chat(stream):
    simulator = Simulator()
    user = {"role": "user", "content": SCRIPT}
    body = {"model": "gpt-5.5", "messages": [user], "tools": [CHAT_PATCH], "reasoning_effort": "none"}
    events = ask(simulator, "/v1/chat/completions", body, stream=stream)
    if stream:
        pieces = [
            piece
            for event in events
            for choice in event["choices"]
            for piece in choice["delta"].get("tool_calls", ())
        ]
        assert "".join(piece["custom"]["input"] for piece in pieces) == WORDS
        call = {**pieces[0], "custom": {"name": pieces[0]["custom"]["name"], "input": WORDS}}
        del call["index"]
    else:
        (call,) = events[0]["choices"][0]["message"]["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "apply_patch", "input": WORDS})
    more = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "patched"},
    ]
    after = ask(simulator, "/v1/chat/completions", {**body, "messages": [user, *more]}, stream=False)
    assert after[0]["choices"][0]["message"]["content"] == "Done."
    assert simulator.refusals == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["openai_responses/gpt-5.6-sol", "openai_chat/gpt-5.5"])
def test_our_client_reads_a_free_text_call_and_sends_it_back(name, stream):
    model = find_model(f"sim:{name}", environ={})
    native = PATCH if model.endpoint.family == "openai_responses" else CHAT_PATCH
    tool = ToolSpec(name="apply_patch", native=json.dumps(native))
    asked = Message(role="user", parts=(Text(text=SCRIPT),), id="m1")
    request = Request(model=model, messages=(asked,), tools=(tool,), stream=stream, max_tokens=500)
    simulator = Simulator()
    reply = decode_answer(request, send_request(simulator, request))
    (call,) = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert json.loads(call.arguments) == {"input": WORDS}
    numbered = tuple(
        ToolCall(id="c1", wire_id=p.wire_id, name=p.name, arguments=p.arguments, native=p.native)
        if isinstance(p, ToolCall)
        else p
        for p in reply.parts
    )
    said = Message(role="assistant", parts=numbered, id="m2", origin=reply.origin, stop=reply.stop)
    done = Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="patched"),)),), id="m3")
    again = Request(model=model, messages=(asked, said, done), tools=(tool,), stream=stream, max_tokens=500)
    assert (
        b"custom_tool_call_output" in make_outgoing(again).body or b'"custom":{' in make_outgoing(again).body
    )
    final = decode_answer(again, send_request(simulator, again))
    assert "".join(part.text for part in final.parts if isinstance(part, Text)) == "Done."


def test_a_forced_free_text_tool_is_named_as_what_it_is():
    model = find_model("sim:openai_chat/gpt-5.5", environ={})
    tools = (ToolSpec(name="other"), ToolSpec(name="apply_patch", native=json.dumps(CHAT_PATCH)))
    asked = Message(role="user", parts=(Text(text="Edit the file."),), id="m1")
    forced = ToolChoice(mode="tool", name="apply_patch")
    request = Request(model=model, messages=(asked,), tools=tools, tool_choice=forced, max_tokens=500)
    sent = make_outgoing(request)
    assert json.loads(sent.body)["tool_choice"] == {"type": "custom", "custom": {"name": "apply_patch"}}
    read = load_codec("openai_chat").decode_request(
        HttpRequest(path="/v1/chat/completions", body=sent.body, headers=())
    )
    assert read.tool_choice == forced
    reply = decode_answer(request, send_request(Simulator(), request))
    assert [part.name for part in reply.parts if isinstance(part, ToolCall)] == ["apply_patch"]
