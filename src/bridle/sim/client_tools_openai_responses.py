"""Custom tools, namespaces, and tools that come in the middle of the input of the Responses wire."""

from collections.abc import Iterator, Sequence

import msgspec

from ..values.parts import Opaque
from ..values.request import Request, ToolSpec
from .client_tools import FREE_TEXT, Offer
from .side import Json

LATER = ("additional_tools", "tool_search_output")
"""Items that bring tools."""
CUSTOM_CALL = "custom_tool_call"


def list_offers(request: Request) -> Iterator[Offer]:
    for spec in request.tools:
        native = _decode(spec.native)
        if native.get("type") in ("custom", "namespace"):
            yield from _offers_in(native)
        else:
            yield Offer(spec=spec)
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Opaque) and part.kind in LATER:
                yield from _offers_of(_decode(part.native).get("tools"))


def _offers_of(tools: object, namespace: str = "") -> Iterator[Offer]:
    for tool in tools if isinstance(tools, Sequence) else ():
        if isinstance(tool, dict):
            yield from _offers_in(tool, namespace)


def _offers_in(tool: Json, namespace: str = "") -> Iterator[Offer]:
    name, kind = str(tool.get("name", "")), tool.get("type")
    members: Json = {"namespace": namespace} if namespace else {}
    qualified = f"{namespace}.{name}" if namespace else ""
    if kind == "namespace":
        yield from _offers_of(tool.get("tools"), name)
    elif kind == "custom":
        spec = ToolSpec(name=name, description=str(tool.get("description", "")), parameters=FREE_TEXT)
        yield Offer(spec=spec, native=_encode({"type": CUSTOM_CALL, **members}), qualified=qualified)
    elif kind == "function":
        spec = ToolSpec(name=name, description=str(tool.get("description", "")))
        if isinstance(tool.get("parameters"), dict):
            spec = msgspec.structs.replace(spec, parameters=_encode(tool["parameters"]))
        yield Offer(spec=spec, native=_encode(members) if members else None, qualified=qualified)


def _decode(native: str | None) -> Json:
    return msgspec.json.decode(native, type=dict[str, object]) if native else {}


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
