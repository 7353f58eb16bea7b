"""Canonical form of Chat Completions requests: equal for two requests that the provider treats alike.

Each rule is a claim about the protocol, taken from its documentation:

  - content that is a string equals one text part; absent content equals an empty text; blank texts are ignored
  - the URL of an image may be inside an object or alone
  - null, `stream: false`, `strict: false`, empty lists and empty members of a message equal an absent field
  - a call without arguments has an empty object; the index of a call is its position in the list
  - an empty description or name equals an absent one
  - tool choice `auto` and parallel calls are the defaults; a tool choice has no effect without tools
  - the tool choice `any` equals `required`: servers that take the first, such as Mistral's, take both
  - the limit on output tokens has two names
  - a single stop sequence need not be in a list
  - the path may name the model instead of the body

`DELIBERATE_CHANGES` lists what the codec changes on purpose, so that a check can distinguish it from a loss.
Only checks use these forms; requests are never sent in them.
"""

from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.openai_chat.calls import encode_call_arguments
from bridle.providers.openai_chat.content import Block
from bridle.providers.openai_chat.decode_request import parse_path
from bridle.providers.openai_chat.encode import NO_OUTPUT_TEXT, NO_RESULT_TEXT
from bridle.providers.wire.json import drop_nulls, loads

_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")
_EMPTY_ARGUMENTS = ("", "null", None)


def canonical_request(request: HttpRequest) -> object:
    body = drop_nulls(loads(request.body))
    body["model"] = body.get("model") or parse_path(request.path) or None
    body["stream"] = body.get("stream") is True or None
    body["messages"] = [
        told for message in body["messages"] if (told := _canonical_message(drop_nulls(message)))
    ]
    body["tools"] = [_canonical_tool(drop_nulls(tool)) for tool in body.get("tools", [])]
    if not body["tools"] or body.get("tool_choice") == "auto":
        body.pop("tool_choice", None)
    if body.get("tool_choice") == "any":
        body["tool_choice"] = "required"
    if not body["tools"] or body.get("parallel_tool_calls") is True:
        body.pop("parallel_tool_calls", None)
    if "max_completion_tokens" not in body and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    shape = body.get("response_format")
    if isinstance(shape, dict) and isinstance(shape.get("json_schema"), dict):
        inner = _canonical_members(shape["json_schema"])
        if inner.get("strict") is False:
            del inner["strict"]
        body["response_format"] = {**shape, "json_schema": inner}
    return {name: value for name, value in body.items() if value is not None and value != []}


def _canonical_message(message: Block) -> Block | None:
    """Return the message in canonical form; None if it is empty."""
    plain = {
        name: value for name, value in message.items() if value not in _EMPTY_VALUES and name != "content"
    }
    if content := _canonical_content(message.get("content")):
        plain["content"] = content
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = [_canonical_call(call) for call in plain["tool_calls"]]
    return plain if plain.keys() - {"role"} else None


def _canonical_content(content: Any) -> list[Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [block for each in blocks if (block := _canonical_block(each)) is not None]


def _canonical_block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    plain = drop_nulls(block)
    if plain.get("type") == "text" and isinstance(plain.get("text"), str) and not plain["text"].strip():
        return None
    if plain.get("type") == "image_url" and isinstance(plain.get("image_url"), str):
        plain["image_url"] = {"url": plain["image_url"]}
    return plain


def _canonical_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    plain = {"type": "function", **drop_nulls(call)}
    plain.pop("index", None)
    function = plain.get("function")
    if isinstance(function, dict) and function.get("arguments") in _EMPTY_ARGUMENTS:
        plain["function"] = {**function, "arguments": "{}"}
    return plain


def _canonical_tool(tool: Block) -> Block:
    function = tool.get("function")
    return {**tool, "function": _canonical_members(function)} if isinstance(function, dict) else tool


def _canonical_members(members: Block) -> Block:
    return {
        name: value
        for name, value in drop_nulls(members).items()
        if value or name not in ("name", "description")
    }


def answer_every_call(body: Any) -> Any:
    """Add missing call ids to results, and results to unanswered calls."""
    messages: list[Block] = []
    waiting: list[str] = []
    for message in body["messages"]:
        if message.get("role") == "tool":
            named = message.get("tool_call_id") or (waiting[0] if waiting else "")
            if named in waiting:
                waiting.remove(named)
                messages.append({**message, "tool_call_id": named})
            continue
        messages += _make_results(waiting)
        messages.append(message)
        waiting = [call.get("id") or "" for call in message.get("tool_calls") or ()]
    return {**body, "messages": [*messages, *_make_results(waiting)]}


def _make_results(waiting: list[str]) -> list[Block]:
    return [{"role": "tool", "tool_call_id": call_id, "content": NO_RESULT_TEXT} for call_id in waiting]


def wrap_arguments_in_objects(body: Any) -> Any:
    """Wrap the arguments of every call that are not an object."""
    messages = [
        {**message, "tool_calls": [_wrap_arguments(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def _wrap_arguments(call: Block) -> Block:
    function = call.get("function")
    if not isinstance(function, dict) or function.get("arguments") in _EMPTY_ARGUMENTS:
        return call
    return {**call, "function": {**function, "arguments": encode_call_arguments(function["arguments"])}}


def fill_empty_results(body: Any) -> Any:
    """Fill empty tool results with the placeholder text."""
    messages = [
        {**message, "content": NO_OUTPUT_TEXT}
        if message.get("role") == "tool" and not _canonical_content(message.get("content"))
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


DELIBERATE_CHANGES = (
    (
        fill_empty_results,
        "a result without a word says so: some servers refuse an empty one",
    ),
    (
        answer_every_call,
        "each call has one result, which names it: anything else is refused by most servers",
    ),
    (
        wrap_arguments_in_objects,
        "arguments are an object: servers that render them fail for ever on anything else",
    ),
)
