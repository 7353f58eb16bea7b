"""Every recorded request, imported: its system prompt, calls and results are kept, or their loss is listed.

The plain readings below take these from the recorded JSON and know nothing of the codecs.
"""

import json

import pytest

from bridle.sessions import import_history
from bridle.testing.wire.check_recording import find_codec
from tests.suite.campaign import IS_WHOLE, SCALE
from tests.wire.wire import corpus

STEP = 1 if SCALE > 1 else 5 if IS_WHOLE else 25


def texts_of(content):
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if isinstance(part, dict) and part.get("text")]


def read_anthropic(body):
    system, calls, results = texts_of(body.get("system")), [], []
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else ()
        calls += [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        results += [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return system, calls, results


def read_bedrock(body):
    system, calls, results = texts_of(body.get("system")), [], []
    for message in body["messages"]:
        used = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        calls += [(block["name"], block["input"]) for block in used if block.get("type") != "server_tool_use"]
        results += [b["toolResult"]["toolUseId"] for b in message["content"] if "toolResult" in b]
    return system, calls, results


def read_chat(body):
    system, calls, results, at_head = [], [], [], True
    for message in body["messages"]:
        at_head = at_head and message["role"] in ("system", "developer")
        system += texts_of(message["content"]) if at_head else []
        for call in message.get("tool_calls") or ():
            if call.get("type", "function") == "function":
                calls.append((call["function"]["name"], call["function"]["arguments"]))
        results += [message.get("tool_call_id")] if message["role"] == "tool" else []
    return system, calls, results


def read_responses(body):
    system, calls, results, at_head = texts_of(body.get("instructions")), [], [], True
    for item in body["input"] if isinstance(body["input"], list) else ():
        at_head = at_head and item.get("role") in ("system", "developer")
        system += texts_of(item["content"]) if at_head else []
        if item.get("type") == "function_call":
            calls.append((item["name"], item["arguments"]))
        results += [item["call_id"]] if item.get("type") == "function_call_output" else []
    return system, calls, results


def read_gemini(body):
    instruction = body.get("systemInstruction") or body.get("system_instruction")
    parts = instruction.get("parts") if isinstance(instruction, dict) else instruction
    system, calls, results = texts_of(parts if isinstance(parts, list) else [parts or {}]), [], []
    contents = body["contents"] if isinstance(body["contents"], list) else [body["contents"]]
    for content in contents:
        for part in content.get("parts") or ():
            call = part.get("functionCall") or part.get("function_call")
            result = part.get("functionResponse") or part.get("function_response")
            calls += [(call["name"], call.get("args") or {})] if call else []
            results += [result["name"]] if result else []
    return system, calls, results


READINGS = {
    "anthropic": read_anthropic,
    "bedrock-converse": read_bedrock,
    "gemini": read_gemini,
    "openai-chat": read_chat,
    "openai-responses": read_responses,
}


def as_data(arguments):
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}") or {}
    except ValueError:
        return arguments


@pytest.mark.parametrize("family", READINGS)
def test_recorded_requests_keep_system_prompt_calls_and_results(family):
    compared = with_calls = with_system = 0
    for recording in corpus(family)[::STEP]:
        if recording.request is None or recording.unreadable_reason or not 200 <= recording.status < 300:
            continue
        codec = find_codec(recording)
        body = json.loads(recording.request.body)
        if codec is None or not isinstance(body, dict) or codec.messages_field not in body:
            continue
        system, calls, results = READINGS[family](body)
        history = import_history(codec.family, body)
        compared, with_calls = compared + 1, with_calls + bool(calls)
        with_system += bool(system)
        assert history.family == codec.family, recording.id
        kept = [(call.name, as_data(call.arguments)) for m in history.messages for call in m.calls]
        losses = [note for note in history.repairs if not note.startswith("not kept, because")]
        answered = [each for message in history.messages for each in message.results]
        for text in system:
            assert text.strip() in history.instructions, recording.id
        for name, arguments in calls:
            assert (name, as_data(arguments)) in kept or losses, (recording.id, name)
        assert len(answered) == len(kept), recording.id  # every call has one result
        if len(answered) != len(results) or len(kept) != len(calls):
            assert losses or len(kept) > len(calls), recording.id
    assert compared and with_calls and with_system
    print(f"{family}: {compared} requests, {with_calls} with calls, {with_system} with a system prompt")
