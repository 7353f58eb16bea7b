"""What Bedrock Converse does not tell apart: requests brought to one form, to be compared.

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

from ..ports.codec import HttpRequest
from ._bedrock_converse_blocks import Block
from ._bedrock_converse_read import place_of
from ._bedrock_converse_tools import is_stand_in
from ._json import loads

_EMPTY: tuple[object, ...] = (None, [], {}, "")


def meaning(request: HttpRequest) -> object:
    model, streams = place_of(request.path)
    body = _said(loads(request.body))
    if body.get("modelId") == model:
        del body["modelId"]
    body["messages"] = _messages(body.get("messages", []))
    body["system"] = [_block(block) for block in body.get("system", [])]
    body["toolConfig"] = _tools(body.get("toolConfig", {}))
    body["inferenceConfig"] = _filled(body.get("inferenceConfig", {}))
    said = {name: value for name, value in body.items() if value not in _EMPTY}
    return {"model": model, "streams": streams, **said}


def _messages(messages: list[Block]) -> list[Block]:
    turns = []
    for role, group in groupby(messages, lambda message: message["role"]):
        content = [_block(block) for message in group for block in message.get("content") or ()]
        if content:
            turns.append({"role": role, "content": content})
    return turns


def _block(block: Block) -> Block:
    plain = _said(block)
    for kind, default in (("toolResult", ("status", "success")), ("toolUse", ("type", "tool_use"))):
        if isinstance(plain.get(kind), dict):
            inner = _said(plain[kind])
            name, value = default
            plain[kind] = {each: inner[each] for each in inner if (each, inner[each]) != (name, value)}
    if isinstance(plain.get("cachePoint"), dict):
        plain["cachePoint"] = {"ttl": "5m", **_said(plain["cachePoint"])}
    return plain


def _tools(config: Any) -> Any:
    plain = _said(config)
    tools = [_tool(tool) for tool in plain.get("tools", []) if not is_stand_in(tool)]
    choice = plain.get("toolChoice")
    auto = choice is None or not tools or (isinstance(choice, dict) and "auto" in choice)
    plain["toolChoice"] = None if auto else choice
    return _filled({**plain, "tools": tools})


def _tool(tool: Block) -> Block:
    plain = _block(tool)
    if isinstance(plain.get("toolSpec"), dict):
        plain["toolSpec"] = {
            name: value for name, value in plain["toolSpec"].items() if value not in (None, "")
        }
    return plain


def _filled(members: Block) -> Block:
    return {name: value for name, value in members.items() if value not in _EMPTY}


def _said(members: Block) -> Block:
    return {name: value for name, value in members.items() if value is not None}
