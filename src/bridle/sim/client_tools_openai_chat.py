"""Custom tools of the Chat Completions wire."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ..values.request import Request
from .client_tools import FREE_TEXT, Offer

CUSTOM = "custom"
NATIVE = msgspec.json.encode({"call": {"type": CUSTOM}}).decode()


def list_offers(request: Request) -> Iterator[Offer]:
    for spec in request.tools:
        native = msgspec.json.decode(spec.native, type=dict[str, object]) if spec.native else {}
        if native.get("type") == CUSTOM:
            yield Offer(spec=replace(spec, parameters=FREE_TEXT, native=None), native=NATIVE)
        else:
            yield Offer(spec=spec)
