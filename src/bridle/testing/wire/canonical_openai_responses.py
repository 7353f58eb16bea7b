"""Canonical form of Responses requests: equal for two requests that the provider does not tell apart.

Two requests mean the same when these forms are equal.  Each line is a claim about the provider, taken from
its documentation or from recorded traffic:

  - a string as input is one message of the user; a string as content or as a tool's output is one text
  - null, `stream: false`, empty lists and empty instructions are the same as nothing, also inside
  - replies are stored unless the request says no; calls may be parallel unless it says no; the choice
    is `auto`; a picture's detail is `auto`; a call without arguments has an empty object of them
  - words have one name in what the model said and another in what it was told, and are read under both
  - blank words say nothing, and neither does a message without content
  - the status of a reasoning item is for reading only
  - the order of what to include has no meaning

It is used by checks, never on the way to the provider.
"""

from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.openai_responses.content import Block
from bridle.providers.openai_responses.parts import item_type
from bridle.providers.wire.json import loads

_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")


def canonical_request(request: HttpRequest) -> object:
    body = _drop_nulls(loads(request.body))
    body["stream"] = body.get("stream") is True
    body["stored"] = body.pop("store", True) is not False
    body["input"] = [
        plain
        for item in _canonical_items(body.get("input", []))
        if (plain := _canonical_item(item)) is not None
    ]
    body["tools"] = [_canonical_tool(tool) for tool in body.get("tools", [])]
    body["include"] = sorted(map(str, body.get("include", [])))
    for name, default in (("tool_choice", "auto"), ("parallel_tool_calls", True), ("instructions", "")):
        if body.get(name) == default:
            del body[name]
    for name in ("reasoning", "text"):
        if isinstance(body.get(name), dict):
            body[name] = _drop_nulls(body[name])
    return {name: value for name, value in body.items() if value not in _EMPTY_VALUES}


def _canonical_items(given: Any) -> list[Block]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _canonical_item(item: Block) -> Block | None:
    plain = _drop_nulls(item)
    kind = plain["type"] = item_type(plain)
    match kind:
        case "message":
            words = "output_text" if plain.get("role") == "assistant" else "input_text"
            plain["content"] = _canonical_content(plain.get("content"), words)
            return plain if plain["content"] else None
        case "reasoning":
            plain.pop("status", None)
            if plain.get("content") == []:
                del plain["content"]
        case "function_call":
            plain["arguments"] = plain.get("arguments") or "{}"
        case "function_call_output" | "custom_tool_call_output":
            plain["output"] = _canonical_content(plain.get("output"), "input_text")
    return plain


def _canonical_content(content: Any, words: str) -> list[Block]:
    pieces = [{"type": words, "text": content}] if isinstance(content, str) else content or []
    return [plain for piece in pieces if (plain := _canonical_piece(piece, words)) is not None]


def _canonical_piece(piece: Block, words: str) -> Block | None:
    plain = _drop_nulls(piece)
    if plain.get("type") in ("input_text", "output_text", "text"):
        plain["type"] = words
    if plain.get("annotations") == []:
        del plain["annotations"]
    if plain.get("type") == "input_image" and plain.get("detail") == "auto":
        del plain["detail"]
    text = plain.get("text")
    return None if isinstance(text, str) and not text.strip() else plain


def _canonical_tool(tool: Block) -> Block:
    plain = _drop_nulls(tool)
    if plain.get("description") == "":
        del plain["description"]
    return plain


def _drop_nulls(members: Block) -> Block:
    return {name: value for name, value in members.items() if value is not None}
