"""Canonical form of Responses requests: equal for two requests that the provider treats alike.

Each rule is a claim about the provider, taken from its documentation or recorded traffic:

  - input that is a string equals one user message; content or tool output that is a string equals one text
  - null, `stream: false`, empty lists and empty instructions equal an absent field, at every depth
  - defaults equal an absent field: stored replies, parallel calls, tool choice `auto`, image detail `auto`
  - a call without arguments has an empty object
  - the type of a text is `output_text` from the model and `input_text` otherwise; either is read everywhere
  - blank texts and messages without content are ignored
  - the status of a reasoning item is ignored in requests
  - the order of `include` has no effect

Only checks use these forms; requests are never sent in them.
"""

from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.openai_responses.content import Block
from bridle.providers.openai_responses.parts import item_type
from bridle.providers.wire.json import drop_nulls, loads

_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")


def canonical_request(request: HttpRequest) -> object:
    body = drop_nulls(loads(request.body))
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
            body[name] = drop_nulls(body[name])
    return {name: value for name, value in body.items() if value not in _EMPTY_VALUES}


def _canonical_items(given: Any) -> list[Block]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _canonical_item(item: Block) -> Block | None:
    plain = drop_nulls(item)
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
    plain = drop_nulls(piece)
    if plain.get("type") in ("input_text", "output_text", "text"):
        plain["type"] = words
    if plain.get("annotations") == []:
        del plain["annotations"]
    if plain.get("type") == "input_image" and plain.get("detail") == "auto":
        del plain["detail"]
    text = plain.get("text")
    return None if isinstance(text, str) and not text.strip() else plain


def _canonical_tool(tool: Block) -> Block:
    plain = drop_nulls(tool)
    if plain.get("description") == "":
        del plain["description"]
    return plain
