"""Combinations that the vendors' documents forbid and that no type can say, written from the documents alone.

Nothing here is shared with the simulator's rules: where both know a rule, they are two readings of it.  Each function
takes a body and yields sentences.
"""

import re
from collections import Counter
from itertools import pairwise

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CALL_ID_MAX = 64
MARKERS_MAX = 4
BUDGET_MIN = 1024
GEMINI_STOPS_MAX = 5
DATA_MEMBERS = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
)  # fmt: skip


def broken_rules(family, body):
    return list(RULES[family](body)) if family in RULES else []


def blocks_of(message):
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def find_repeated(names):
    return [name for name, count in Counter(names).items() if count > 1]


def anthropic(body):
    messages, tools = body.get("messages", []), body.get("tools", [])
    yield from anthropic_pairs(messages)
    for message in messages:
        for block in blocks_of(message):
            if block.get("type") == "text" and not block["text"].strip():
                yield "text content blocks must be non-empty"
    if messages and messages[0]["role"] != "user":
        yield "the first message must be a user's"
    thinking, choice = body.get("thinking") or {}, body.get("tool_choice") or {}
    if thinking.get("type") == "enabled":
        if not BUDGET_MIN <= thinking["budget_tokens"] < body["max_tokens"]:
            yield "budget_tokens must be at least 1024 and less than max_tokens"
        if choice.get("type") in ("any", "tool"):
            yield "forced tool_choice with thinking enabled"
    if choice and not tools:
        yield "tool_choice without tools"
    names = [tool["name"] for tool in tools if "name" in tool]
    if find_repeated(names):
        yield "tool names must be unique"
    if choice.get("type") == "tool" and choice["name"] not in names:
        yield "tool_choice names a tool that is not there"
    yield from (f"tool name {name!r}" for name in names if not TOOL_NAME.fullmatch(name))
    yield from anthropic_markers(body)
    if tools and all(tool.get("defer_loading") for tool in tools):
        yield "all tools have defer_loading"


def anthropic_pairs(messages):
    """Every call is answered in the next message, results first, once each, and nothing else is answered."""
    turns = merge_turns([message for message in messages if message["role"] != "system"])
    open_calls = []
    for role, blocks in turns:
        results = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        if role == "user":
            if sorted(results) != sorted(open_calls):
                yield f"calls {open_calls} are answered by {results}"
            if any(block.get("type") != "tool_result" for block in blocks[: len(results)]):
                yield "tool results must stand first"
        elif results:
            yield "a result in an assistant message"
        if role == "assistant" and open_calls:
            yield f"calls {open_calls} are not answered"
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        if find_repeated(calls):
            yield "call ids must be unique"
        open_calls = calls if role == "assistant" else []
    if open_calls:
        yield f"calls {open_calls} are not answered"


def merge_turns(messages):
    """Neighbours of one role are one turn."""
    turns = []
    for message in messages:
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks_of(message))
        else:
            turns.append((message["role"], list(blocks_of(message))))
    return turns


def anthropic_markers(body):
    system = body.get("system") if isinstance(body.get("system"), list) else []
    blocks = [block for message in body.get("messages", []) for block in blocks_of(message)]
    places = [*body.get("tools", []), *system, *blocks, body]
    found = [place["cache_control"] for place in places if place.get("cache_control")]
    if len(found) > MARKERS_MAX:
        yield f"{len(found)} cache_control markers"
    ttls = [mark.get("ttl", "5m") for mark in found[:-1] if mark]
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        yield "a ttl of 1h after one of 5m"


def openai_responses(body):
    if body.get("previous_response_id") and body.get("conversation"):
        yield "previous_response_id with conversation"
    items = body.get("input") if isinstance(body.get("input"), list) else []
    continued = body.get("previous_response_id") or body.get("conversation")
    for call, output in (
        ("function_call", "function_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
    ):
        calls = [item["call_id"] for item in items if item.get("type") == call]
        outputs = [item["call_id"] for item in items if item.get("type") == output]
        if find_repeated(outputs) or find_repeated(calls):
            yield "a call id twice"
        if set(calls) - set(outputs):
            yield "no output found for a call"
        if set(outputs) - set(calls) and not continued:
            yield "no call found for an output"
    if any(not 1 <= len(item["call_id"]) <= CALL_ID_MAX for item in items if "call_id" in item):
        yield "a call_id must have 1 to 64 characters"
    tools = body.get("tools", [])
    names = [tool["name"] for tool in tools if tool.get("type") == "function"]
    yield from (f"tool name {name!r}" for name in names if not TOOL_NAME.fullmatch(name))
    if find_repeated(names):
        yield "tool names must be unique"
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function" and choice["name"] not in names:
        yield "tool_choice names a tool that is not there"


def openai_chat(body):
    open_calls = []
    for message in body.get("messages", []):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                yield "a tool message that answers no call before it"
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            yield f"calls {open_calls} are not answered"
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        if message["role"] == "assistant" and not any(
            message.get(member) for member in ("content", "tool_calls", "refusal", "audio", "function_call")
        ):
            yield "an assistant message with neither content nor calls"
    if open_calls:
        yield f"calls {open_calls} are not answered"
    tools = body.get("tools", [])
    if tools == [] and "tools" in body:
        yield "an empty list of tools"
    if not tools and ("tool_choice" in body or "parallel_tool_calls" in body):
        yield "tool_choice or parallel_tool_calls without tools"
    names = [tool["function"]["name"] for tool in tools if tool.get("type") == "function"]
    if find_repeated(names):
        yield "tool names must be unique"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens with max_completion_tokens"
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options without stream"


def gemini(body):
    contents = body.get("contents", [])
    yield from gemini_pairs(contents)
    for content in contents:
        if not content.get("parts"):
            yield "a content without parts"
        for part in content.get("parts", []):
            if sum(member in part for member in DATA_MEMBERS) > 1:
                yield "a part with more than one kind of data"
            if part == {"text": ""}:
                yield "an empty part"
    for tool in body.get("tools", []):
        for function in tool.get("functionDeclarations", []):
            if "parameters" in function and "parametersJsonSchema" in function:
                yield "parameters with parametersJsonSchema"
    config = body.get("generationConfig", {})
    if {"thinkingLevel", "thinkingBudget"} <= set(config.get("thinkingConfig", {})):
        yield "thinkingLevel with thinkingBudget"
    if {"responseSchema", "responseJsonSchema"} <= set(config):
        yield "responseSchema with responseJsonSchema"
    if len(config.get("stopSequences", [])) > GEMINI_STOPS_MAX:
        yield "more than five stop sequences"
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if calling.get("allowedFunctionNames") and calling.get("mode") not in ("ANY", "VALIDATED"):
        yield "allowedFunctionNames in another mode than ANY"
    if body.get("cachedContent") and {"systemInstruction", "tools", "toolConfig"} & set(body):
        yield "cachedContent with system, tools or toolConfig"


def gemini_pairs(contents):
    """Calls stand after a user's turn or after responses; their responses are the next content, as many of them."""
    before = None
    for content in contents:
        parts = content.get("parts", [])
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        asked = before[1] if before else []
        if responses and (not before or not asked):
            yield "a function response turn must come immediately after a function call turn"
        if asked and len(responses) != len(asked):
            yield "as many function responses as function calls"
        if [call["name"] for call in asked] != [each["name"] for each in responses] and len(asked) == len(
            responses
        ):
            yield "function responses are named as their calls"
        if calls and (before is None or before[0] != "user"):
            yield "a function call turn must come after a user turn or a function response turn"
        before = (content.get("role", "user"), calls)
    if before and before[1]:
        yield "function calls without responses"


def bedrock_converse(body):
    messages, open_calls, uses_tools = body.get("messages", []), [], False
    for message in messages:
        blocks = message["content"]
        calls = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        results = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        uses_tools = uses_tools or bool(calls or results)
        if sorted(results) != sorted(open_calls):
            yield f"calls {open_calls} are answered by {results}"
        if any("text" in block and not block["text"].strip() for block in blocks):
            yield "a text field that is blank"
        if not blocks:
            yield "a message without content"
        open_calls = calls
    if open_calls:
        yield f"calls {open_calls} are not answered"
    if any(one["role"] == other["role"] for one, other in pairwise(messages)):
        yield "roles must alternate"
    if messages and messages[0]["role"] != "user":
        yield "a conversation must start with a user message"
    if uses_tools and "toolConfig" not in body:
        yield "toolConfig is missing where the history has calls"
    names = [
        tool["toolSpec"]["name"] for tool in body.get("toolConfig", {}).get("tools", []) if "toolSpec" in tool
    ]
    if find_repeated(names):
        yield "tool names must be unique"


RULES = {
    "anthropic": anthropic,
    "openai_responses": openai_responses,
    "openai_chat": openai_chat,
    "gemini": gemini,
    "bedrock_converse": bedrock_converse,
}
