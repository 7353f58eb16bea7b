"""Reads a raw Responses request without trusting its shape."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bridle.sim.endpoints import Json
from bridle.sim.request_forms import ANY_OBJECT, FREE_TEXT_PARAMETERS, ClientTool
from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field
from bridle.values.message import Opaque
from bridle.values.request import Request, ToolSpec


def items(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "input"))]


def requested_effort(request: RawRequest) -> object:
    return as_mapping(field(request, "reasoning")).get("effort")


def is_reasoning(request: RawRequest) -> bool:
    """True if the model reasons for this request; with effort `none` it accepts what other models accept."""
    return bool(request.abilities and request.abilities.thinking) and requested_effort(request) != "none"


# `text.format`: a schema, or any JSON object.


def find_schema(body: Mapping[str, object]) -> object:
    wanted = as_mapping(as_mapping(body.get("text")).get("format"))
    return ANY_OBJECT if wanted.get("type") == "json_object" else wanted.get("schema")


# Custom tools, namespaces, and tools in the middle of the input.


LATER_TOOL_ITEMS = ("additional_tools", "tool_search_output")
"""Items that add tools."""
CUSTOM_CALL = "custom_tool_call"


def list_client_tools(request: Request) -> Iterator[ClientTool]:
    for spec in request.tools:
        native = _decode_native(spec.native)
        if native.get("type") in ("custom", "namespace"):
            yield from _expand_tool(native)
        else:
            yield ClientTool(spec=spec)
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Opaque) and part.kind in LATER_TOOL_ITEMS:
                yield from _list_tools(_decode_native(part.native).get("tools"))


def _list_tools(tools: object, namespace: str = "") -> Iterator[ClientTool]:
    for tool in tools if isinstance(tools, Sequence) else ():
        if isinstance(tool, dict):
            yield from _expand_tool(tool, namespace)


def _expand_tool(tool: Json, namespace: str = "") -> Iterator[ClientTool]:
    name, kind = str(tool.get("name", "")), tool.get("type")
    members: Json = {"namespace": namespace} if namespace else {}
    qualified = f"{namespace}.{name}" if namespace else ""
    if kind == "namespace":
        yield from _list_tools(tool.get("tools"), name)
    elif kind == "custom":
        spec = ToolSpec(
            name=name, description=str(tool.get("description", "")), parameters=FREE_TEXT_PARAMETERS
        )
        yield ClientTool(
            spec=spec, call_native=_encode_native({"type": CUSTOM_CALL, **members}), qualified_name=qualified
        )
    elif kind == "function":
        spec = ToolSpec(name=name, description=str(tool.get("description", "")))
        if isinstance(tool.get("parameters"), dict):
            spec = msgspec.structs.replace(spec, parameters=_encode_native(tool["parameters"]))
        yield ClientTool(
            spec=spec, call_native=_encode_native(members) if members else None, qualified_name=qualified
        )


def _decode_native(native: str | None) -> Json:
    return msgspec.json.decode(native, type=dict[str, object]) if native else {}


def _encode_native(value: object) -> str:
    return msgspec.json.encode(value).decode()
