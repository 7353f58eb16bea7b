"""Canonical form of Bedrock Converse requests: equal for two requests that the provider does not tell apart.

Two requests mean the same when these forms are equal.  Each line of this file is a claim about the
provider, taken from its documentation:

  - neighbouring messages of one role are one message
  - null, empty lists and empty objects at the top are the same as nothing, and so are settings without any
  - the status `success` of a result and the type `tool_use` of a call are the default
  - the choice `auto` is the default; a choice without tools is none
  - five minutes is how long a cache point lasts
  - the path names the model; that the body names the same one says nothing more
  - a tool that only stands in for one that is gone offers nothing

It is used by checks, never on the way to the provider.
"""

from itertools import groupby
from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.bedrock.decode_request import parse_path
from bridle.providers.bedrock.parts import Block
from bridle.providers.bedrock.tools import is_placeholder_tool
from bridle.providers.wire.json import loads

_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")


def canonical_request(request: HttpRequest) -> object:
    model, streams = parse_path(request.path)
    body = _drop_nulls(loads(request.body))
    if body.get("modelId") == model:
        del body["modelId"]
    body["messages"] = _canonical_messages(body.get("messages", []))
    body["system"] = [_canonical_block(block) for block in body.get("system", [])]
    body["toolConfig"] = _canonical_tools(body.get("toolConfig", {}))
    body["inferenceConfig"] = _drop_empty(body.get("inferenceConfig", {}))
    said = {name: value for name, value in body.items() if value not in _EMPTY_VALUES}
    return {"model": model, "streams": streams, **said}


def _canonical_messages(messages: list[Block]) -> list[Block]:
    turns = []
    for role, group in groupby(messages, lambda message: message["role"]):
        content = [_canonical_block(block) for message in group for block in message.get("content") or ()]
        if content:
            turns.append({"role": role, "content": content})
    return turns


def _canonical_block(block: Block) -> Block:
    plain = _drop_nulls(block)
    for kind, default in (("toolResult", ("status", "success")), ("toolUse", ("type", "tool_use"))):
        if isinstance(plain.get(kind), dict):
            inner = _drop_nulls(plain[kind])
            name, value = default
            plain[kind] = {each: inner[each] for each in inner if (each, inner[each]) != (name, value)}
    if isinstance(plain.get("cachePoint"), dict):
        plain["cachePoint"] = {"ttl": "5m", **_drop_nulls(plain["cachePoint"])}
    return plain


def _canonical_tools(config: Any) -> Any:
    plain = _drop_nulls(config)
    tools = [_canonical_tool(tool) for tool in plain.get("tools", []) if not is_placeholder_tool(tool)]
    choice = plain.get("toolChoice")
    auto = choice is None or not tools or (isinstance(choice, dict) and "auto" in choice)
    plain["toolChoice"] = None if auto else choice
    return _drop_empty({**plain, "tools": tools})


def _canonical_tool(tool: Block) -> Block:
    plain = _canonical_block(tool)
    if isinstance(plain.get("toolSpec"), dict):
        plain["toolSpec"] = {
            name: value for name, value in plain["toolSpec"].items() if value not in (None, "")
        }
    return plain


def _drop_empty(members: Block) -> Block:
    return {name: value for name, value in members.items() if value not in _EMPTY_VALUES}


def _drop_nulls(members: Block) -> Block:
    return {name: value for name, value in members.items() if value is not None}
