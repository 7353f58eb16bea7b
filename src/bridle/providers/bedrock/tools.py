"""Encodes and decodes tools and the tool choice of Bedrock Converse.

A conversation with tool calls is refused without tools, even if none is to be called any more. For such a
conversation each tool that was called is declared by a placeholder whose description says that it cannot be
used. Decoding recognises placeholders and omits them.

The wire has no tool choice "none". If the model has a switch of its own, it is used. Otherwise the tools stay
declared, so that the cached prompt and signed reasoning stay valid; the model may call one, and the call is
answered without being run.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.schema.tool_schema import compile_for_wire, is_sent_unchanged, native_definition
from bridle.providers.wire.json import drop_nulls, dumps
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.request import Breakpoint, Request, ToolChoice, ToolSpec

from .dialect import FAMILY
from .parts import CACHE_POINT, Block

TOOL_DIALECT, OUTPUT_DIALECT = "bedrock", "bedrock_output"
"""The JSON Schema dialects of this wire, for tools and for answers."""

UNAVAILABLE_TOOL_TEXT = "Used earlier in this conversation; it is not available now and must not be called."
_OPEN_SCHEMA = {"type": "object"}


def encode_cache_point(ttl: str) -> Block:
    return {CACHE_POINT: {"type": "default"} if ttl == "5m" else {"type": "default", "ttl": ttl}}


def encode_tool_config(request: Request, tools: bytes, called: Sequence[str]) -> Block | None:
    """Encode the tools and the tool choice of a request; None if there is nothing to send.

    `tools` is the list as `encode_tools` writes it; `called` names the tools that were called before.
    """
    choice = request.tool_choice
    if not request.tools:
        stand_ins = [_placeholder_tool(name) for name in called]
        return {"tools": stand_ins} if stand_ins else None
    config: Block = {"tools": Raw(tools)}
    if choice.mode == "any":
        config["toolChoice"] = {"any": {}}
    elif choice.mode == "tool":
        config["toolChoice"] = {"tool": {"name": NAMES_64.encode_name(choice.name)}}
    return config


def encode_tools(specs: Sequence[ToolSpec], ttl: str | None) -> bytes:
    tools = [_encode_tool(spec) for spec in specs]
    return dumps(tools if ttl is None else [*tools, encode_cache_point(ttl)])


def decode_tools(config: Block, marks: list[Breakpoint]) -> tuple[ToolSpec, ...]:
    """Decode the declared tools without placeholders; a cache point after the last one becomes a breakpoint."""
    listed = config.get("tools")
    tools = [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    if tools and (ttl := cache_point_ttl(tools[-1])) is not None:
        marks.append(Breakpoint(position="tools", ttl=cast("Any", ttl)))
        tools.pop()
    return tuple(_decode_tool(tool) for tool in tools if not is_placeholder_tool(tool))


def decode_tool_choice(choice: object) -> ToolChoice | None:
    """Decode a tool choice; None if `ToolChoice` cannot represent it."""
    match choice:
        case None:
            return ToolChoice()
        case {"auto": auto, **others} if not auto and not others:
            return ToolChoice()
        case {"any": any_, **others} if not any_ and not others:
            return ToolChoice(mode="any")
        case {"tool": {"name": str(name), **more}, **others} if not more and not others:
            return ToolChoice(mode="tool", name=name)
    return None


def cache_point_ttl(block: Block) -> str | None:
    """Return the TTL of a plain cache point; None if the block is not one."""
    match block:
        case {"cachePoint": {"type": "default", **rest}, **others} if not others and rest.keys() <= {"ttl"}:
            ttl = rest.get("ttl") or "5m"
            return ttl if ttl in ("5m", "1h") else None
    return None


def is_placeholder_tool(tool: Block) -> bool:
    spec = tool.get("toolSpec")
    return isinstance(spec, dict) and spec.get("description") == UNAVAILABLE_TOOL_TEXT


def _placeholder_tool(name: str) -> Block:
    return {
        "toolSpec": {
            "name": name,
            "description": UNAVAILABLE_TOOL_TEXT,
            "inputSchema": {"json": _OPEN_SCHEMA},
        }
    }


def _encode_tool(spec: ToolSpec) -> Block | Raw:
    if (native := native_definition(spec, FAMILY)) is not None:
        return native
    tool: Block = {"name": NAMES_64.encode_name(spec.name)}
    if spec.description.strip():
        tool["description"] = spec.description
    tool["inputSchema"] = {"json": compile_for_wire(spec.parameters, TOOL_DIALECT)}
    return {"toolSpec": tool}


def _decode_tool(tool: Block) -> ToolSpec:
    kind, said = next(((name, value) for name, value in tool.items() if value is not None), ("", None))
    said = drop_nulls(said) if isinstance(said, dict) else {}
    name, description, schema = said.get("name"), said.get("description"), said.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    plain = kind == "toolSpec" and isinstance(schema.get("json"), dict)
    spec = ToolSpec(
        name=name if isinstance(name, str) else kind,
        description=description if isinstance(description, str) else "",
    )
    if plain:
        spec = replace(spec, parameters=dumps(schema["json"]).decode())
    known = _has_only(said, "name", "description", "inputSchema") and _has_only(schema, "json")
    beside = [name for name, value in tool.items() if value is not None and name != kind]
    if not plain or not known or beside or not is_sent_unchanged(spec.parameters, TOOL_DIALECT):
        spec = replace(spec, native=dumps(tool).decode())
    return spec


def _has_only(members: Iterable[str], *names: str) -> bool:
    return set(members) <= set(names)
