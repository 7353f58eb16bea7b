"""What the Responses wire does not tell apart: requests brought to one form, to be compared.

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

from ..ports.codec import HttpRequest
from ._json import loads
from ._openai_responses_content import Block
from ._openai_responses_items import kind_of

_EMPTY: tuple[object, ...] = (None, [], {}, "")


def meaning(request: HttpRequest) -> object:
    body = _said(loads(request.body))
    body["stream"] = body.get("stream") is True
    body["stored"] = body.pop("store", True) is not False
    body["input"] = [plain for item in _items(body.get("input", [])) if (plain := _item(item)) is not None]
    body["tools"] = [_tool(tool) for tool in body.get("tools", [])]
    body["include"] = sorted(map(str, body.get("include", [])))
    for name, default in (("tool_choice", "auto"), ("parallel_tool_calls", True), ("instructions", "")):
        if body.get(name) == default:
            del body[name]
    for name in ("reasoning", "text"):
        if isinstance(body.get(name), dict):
            body[name] = _said(body[name])
    return {name: value for name, value in body.items() if value not in _EMPTY}


def _items(given: Any) -> list[Block]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _item(item: Block) -> Block | None:
    plain = _said(item)
    kind = plain["type"] = kind_of(plain)
    match kind:
        case "message":
            words = "output_text" if plain.get("role") == "assistant" else "input_text"
            plain["content"] = _content(plain.get("content"), words)
            return plain if plain["content"] else None
        case "reasoning":
            plain.pop("status", None)
            if plain.get("content") == []:
                del plain["content"]
        case "function_call":
            plain["arguments"] = plain.get("arguments") or "{}"
        case "function_call_output" | "custom_tool_call_output":
            plain["output"] = _content(plain.get("output"), "input_text")
    return plain


def _content(content: Any, words: str) -> list[Block]:
    pieces = [{"type": words, "text": content}] if isinstance(content, str) else content or []
    return [plain for piece in pieces if (plain := _piece(piece, words)) is not None]


def _piece(piece: Block, words: str) -> Block | None:
    plain = _said(piece)
    if plain.get("type") in ("input_text", "output_text", "text"):
        plain["type"] = words
    if plain.get("annotations") == []:
        del plain["annotations"]
    if plain.get("type") == "input_image" and plain.get("detail") == "auto":
        del plain["detail"]
    text = plain.get("text")
    return None if isinstance(text, str) and not text.strip() else plain


def _tool(tool: Block) -> Block:
    plain = _said(tool)
    if plain.get("description") == "":
        del plain["description"]
    return plain


def _said(members: Block) -> Block:
    return {name: value for name, value in members.items() if value is not None}
