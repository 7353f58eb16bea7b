"""Canonical form of Bedrock Converse requests: equal for two requests that the provider treats alike.

Each rule is a claim about the provider, taken from its documentation:

  - adjacent messages of one role equal one message
  - null, empty lists, empty objects at the top level and settings without content equal an absent field
  - defaults equal an absent field: result status `success`, call type `tool_use`, tool choice `auto`, cache points
    of 5 minutes
  - a tool choice has no effect without tools
  - the path names the model, so the same name in the body adds nothing
  - a stand-in for a tool that no longer exists offers no tool

Only checks use these forms; requests are never sent in them.
"""

from itertools import groupby
from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.bedrock.decode_request import parse_path
from bridle.providers.bedrock.parts import Block
from bridle.providers.bedrock.tools import is_placeholder_tool
from bridle.providers.wire.json import drop_nulls, loads

_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")


def canonical_request(request: HttpRequest) -> object:
    model, streams = parse_path(request.path)
    body = drop_nulls(loads(request.body))
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
    plain = drop_nulls(block)
    for kind, default in (("toolResult", ("status", "success")), ("toolUse", ("type", "tool_use"))):
        if isinstance(plain.get(kind), dict):
            inner = drop_nulls(plain[kind])
            name, value = default
            plain[kind] = {each: inner[each] for each in inner if (each, inner[each]) != (name, value)}
    if isinstance(plain.get("cachePoint"), dict):
        plain["cachePoint"] = {"ttl": "5m", **drop_nulls(plain["cachePoint"])}
    return plain


def _canonical_tools(config: Any) -> Any:
    plain = drop_nulls(config)
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
