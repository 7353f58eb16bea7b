"""No part of a client's request reaches the provider without the gateway's input hooks, on any wire."""

import base64

import pytest

from bridle.run.archive.sessions import list_sessions
from tests.serve.raw_http import send
from tests.serve.served import serving_gateway

MAIL = "ann@example.org"
ENCODED = base64.b64encode(MAIL.encode()).decode()
RULES = """
from bridle.hooks import RedactPii, guard_input
redact = RedactPii()
refuse = RedactPii(input="refuse")

@guard_input()
def guard(run, text):
    return "an address" if "ann@example.org" in text else None
"""
PARTS = (
    "system", "description", "schema", "earlier user", "assistant", "arguments", "result", "document", "tail", "prompt",
)  # fmt: skip
PLAIN = {
    "system": "Be brief.", "description": "Looks.", "schema": "A name.", "earlier user": "hello", "assistant": "hi",
    "arguments": "Ann", "result": "found", "document": "a text", "tail": "one more", "prompt": "!say ok",
}  # fmt: skip


def make_schema(given):
    return {"type": "object", "properties": {"name": {"type": "string", "description": given["schema"]}}}


def make_chat(given):
    call = {"name": "look", "arguments": f'{{"name": "{given["arguments"]}"}}'}
    data = base64.b64encode(given["document"].encode()).decode()
    document = {"type": "file", "file": {"filename": "n.txt", "file_data": f"data:text/plain;base64,{data}"}}
    return "/openai/v1/chat/completions", {
        "model": "any",
        "messages": [
            {"role": "system", "content": given["system"]},
            {"role": "user", "content": given["earlier user"]},
            {"role": "assistant", "content": given["assistant"], "tool_calls": [
                {"id": "c1", "type": "function", "function": call},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": given["result"]},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": [{"type": "text", "text": given["tail"]}, document]},
            {"role": "user", "content": given["prompt"]},
        ],
        "tools": [{"type": "function", "function": {
            "name": "look", "description": given["description"], "parameters": make_schema(given),
        }}],
    }  # fmt: skip


def make_responses(given):
    data = base64.b64encode(given["document"].encode()).decode()
    return "/openai/v1/responses", {
        "model": "any",
        "instructions": given["system"],
        "input": [
            {"role": "user", "content": given["earlier user"]},
            {"role": "assistant", "content": given["assistant"]},
            {"type": "function_call", "call_id": "c1", "name": "look",
             "arguments": f'{{"name": "{given["arguments"]}"}}'},
            {"type": "function_call_output", "call_id": "c1", "output": given["result"]},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": [
                {"type": "input_text", "text": given["tail"]},
                {"type": "input_file", "filename": "n.txt", "file_data": f"data:text/plain;base64,{data}"},
            ]},
            {"role": "user", "content": given["prompt"]},
        ],
        "tools": [{"type": "function", "name": "look", "description": given["description"],
                   "parameters": make_schema(given)}],
    }  # fmt: skip


def make_messages(given):
    document = {"type": "text", "media_type": "text/plain", "data": given["document"]}
    return "/anthropic/v1/messages", {
        "model": "any",
        "max_tokens": 500,
        "system": given["system"],
        "messages": [
            {"role": "user", "content": given["earlier user"]},
            {"role": "assistant", "content": [
                {"type": "text", "text": given["assistant"]},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"name": given["arguments"]}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": given["result"]},
            ]},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": [
                {"type": "text", "text": given["tail"]}, {"type": "document", "source": document},
                {"type": "text", "text": given["prompt"]},
            ]},
        ],
        "tools": [{"name": "look", "description": given["description"], "input_schema": make_schema(given)}],
    }  # fmt: skip


def make_gemini(given):
    data = base64.b64encode(given["document"].encode()).decode()
    return "/gemini/v1beta/models/any:generateContent", {
        "systemInstruction": {"parts": [{"text": given["system"]}]},
        "contents": [
            {"role": "user", "parts": [{"text": given["earlier user"]}]},
            {"role": "model", "parts": [
                {"text": given["assistant"]},
                {"functionCall": {"name": "look", "args": {"name": given["arguments"]}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "look", "response": {"output": given["result"]}}},
            ]},
            {"role": "model", "parts": [{"text": "done"}]},
            {"role": "user", "parts": [
                {"text": given["tail"]}, {"inlineData": {"mimeType": "text/plain", "data": data}},
                {"text": given["prompt"]},
            ]},
        ],
        "tools": [{"functionDeclarations": [
            {"name": "look", "description": given["description"], "parameters": make_schema(given)},
        ]}],
    }  # fmt: skip


REQUESTS = {
    "openai_chat": make_chat,
    "openai_responses": make_responses,
    "anthropic": make_messages,
    "gemini": make_gemini,
}


def read_sent(served):
    """The bodies of all requests to the provider, from the log."""

    async def read():
        store, bodies = served.host.store, []
        for info in await list_sessions(store, 100):
            for record in await store.read(info.id):
                raw = getattr(record.event, "raw", None)
                if raw is not None and raw.request:
                    bodies.append((await store.get_blob(raw.request)).decode())
        return bodies

    return served.run(read())


@pytest.fixture(scope="module", params=["", "redact", "refuse", "guard"])
def gateway(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "rules.py").write_text(RULES)
    hooks = [f"rules.py:{request.param}"] if request.param else []
    settings = {"models": {"any": {"chain": ["sim:"]}}, "keep_raw": True, "hooks": hooks}
    with serving_gateway(settings, folder=folder) as served:
        yield request.param, served


@pytest.mark.parametrize("wire", REQUESTS)
@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_a_request_passes_the_hooks(gateway, wire, part):
    kind, served = gateway
    word = f"w{abs(hash((wire, part, kind))) % 10**8}"
    text = f"{MAIL} {word}" if part != "prompt" else f"!say {MAIL} {word}"
    path, body = REQUESTS[wire]({**PLAIN, part: text, "prompt": text if part == "prompt" else f"!say {word}"})
    before = len(read_sent(served))
    reply = send(served.url + path, body)
    sent = read_sent(served)[before:]
    leaks = [each for each in sent if MAIL in each or ENCODED in each]
    if not kind:
        assert reply.status == 200, reply.body
        assert leaks, "the part does not reach the provider, so nothing is tested"
        return
    assert not leaks
    if kind == "redact":
        assert reply.status == 200, reply.body
        assert sent
    else:
        assert not sent
