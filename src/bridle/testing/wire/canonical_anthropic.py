"""Canonical form of Anthropic requests: equal for two requests that the provider treats alike.

Each rule is a claim about the provider, taken from its documentation:

  - content that is a string equals one text block; a result without content equals one with an empty text
  - adjacent messages of one role equal one message
  - null, `is_error: false`, `stream: false` and empty lists equal an absent field
  - defaults equal an absent field: tool choice `auto`, parallel calls, tool type `custom`, cache marks of 5 minutes
  - a tool choice has no effect without tools
  - the path may name the model or request a stream instead of the body

Only checks use these forms; requests are never sent in them.
"""

from itertools import groupby
from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.anthropic.decode_request import parse_path
from bridle.providers.anthropic.parts import Block
from bridle.providers.wire.json import drop_nulls, loads

_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")


def canonical_request(request: HttpRequest) -> object:
    model_in_path, streams = parse_path(request.path)
    body = drop_nulls(loads(request.body))
    body.setdefault("model", model_in_path)
    body["stream"] = body.get("stream") is True or streams
    body["system"] = [_canonical_block(block) for block in _canonical_blocks(body.get("system"))]
    body["tools"] = [_canonical_tool(tool) for tool in body.get("tools", [])]
    body["messages"] = _canonical_messages(body["messages"])
    body["tool_choice"] = _canonical_choice(body.get("tool_choice")) if body["tools"] else None
    if "cache_control" in body:
        body["cache_control"] = _canonical_breakpoint(body["cache_control"])
    return {name: value for name, value in body.items() if value not in _EMPTY_VALUES}


def _canonical_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    plain = {"type": "auto", **drop_nulls(choice)}
    if plain.get("disable_parallel_tool_use") is False:
        del plain["disable_parallel_tool_use"]
    return plain if plain != {"type": "auto"} else None


def _canonical_messages(messages: list[Block]) -> list[Block]:
    plain = [
        {
            **drop_nulls(message),
            "content": list(map(_canonical_block, _canonical_blocks(message.get("content")))),
        }
        for message in messages
    ]
    turns = []
    for beside, group in groupby(plain, lambda message: {**message, "content": None}):
        content = [block for message in group for block in message["content"]]
        if content or beside.keys() != {"role", "content"}:
            turns.append({**beside, "content": content})
    return turns


def _canonical_blocks(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [content] if isinstance(content, dict) else list(content or ())


def _canonical_block(block: Block) -> Block:
    plain = drop_nulls(block)
    if plain.get("citations") == []:
        del plain["citations"]
    if plain.get("type") == "thinking" and plain.get("signature") == "":
        del plain["signature"]
    if "cache_control" in plain:
        plain["cache_control"] = _canonical_breakpoint(plain["cache_control"])
    if plain.get("type") == "tool_result":
        plain["content"] = [_canonical_block(inner) for inner in _canonical_blocks(plain.get("content"))]
        if plain.get("is_error") is False:
            del plain["is_error"]
    return plain


def _canonical_tool(tool: Block) -> Block:
    plain = _canonical_block(tool)
    if plain.get("type") == "custom":
        del plain["type"]
    if plain.get("description") == "":
        del plain["description"]
    return plain


def _canonical_breakpoint(control: Any) -> Any:
    return {"ttl": "5m", **drop_nulls(control)} if isinstance(control, dict) else control
