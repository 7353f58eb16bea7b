"""Tools that the client runs, in the forms that only one family has.

A family may offer the client's tools in other forms than a function with parameters: tools that take free
text, tools inside a namespace, tools that come in the middle of a conversation.  The responder knows
functions only.  So the request it is given lists every callable tool as a function, and a call it makes
gets the form that the family's wire has for that tool.

A family with such forms has a file `client_tools_FAMILY` with one function, `list_offers(request)`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from msgspec.structs import replace

from ..values.message import Reply
from ..values.parts import Part, ToolCall
from ..values.request import Request, ToolSpec
from ..values.value import Value

PREFIX = "client_tools_"
FREE_TEXT = (
    '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],'
    '"additionalProperties":false}'
)
"""The parameters of a tool that takes free text, as our calls carry it."""


class Offer(Value):
    """A tool that can be called, and what a call of it has beyond a name and arguments."""

    spec: ToolSpec
    native: str | None = None
    """The `ToolCall.native` of a call of this tool; None for a plain function."""
    qualified: str = ""
    """Another name a script may use, for a tool whose own name is in several namespaces."""


def list_callable(family: str, request: Request) -> tuple[Request, Mapping[str, Offer]]:
    """The request with every callable tool as a function, and the tools of other forms by name."""
    module = _family(family)
    if module is None:
        return request, {}
    offers: tuple[Offer, ...] = tuple(module.list_offers(request))
    formed: dict[str, Offer] = {}
    for offer in offers:
        if offer.native is not None:
            formed.setdefault(offer.spec.name, offer)
            formed.setdefault(offer.qualified or offer.spec.name, offer)
    tools = {offer.spec.name: offer.spec for offer in reversed(offers)}
    unchanged = tuple(offer.spec for offer in offers) == request.tools
    return request if unchanged else replace(request, tools=tuple(reversed(tools.values()))), formed


def form_calls(offers: Mapping[str, Offer], reply: Reply) -> Reply:
    """The reply with each call in the form of its tool."""
    if not offers or not reply.calls:
        return reply
    return replace(reply, parts=tuple(_formed(part, offers) for part in reply.parts))


def _formed(part: Part, offers: Mapping[str, Offer]) -> Part:
    offer = offers.get(part.name) if isinstance(part, ToolCall) and part.native is None else None
    if offer is None or not isinstance(part, ToolCall):
        return part
    return replace(part, name=offer.spec.name, native=offer.native)


@cache
def _family(family: str) -> ModuleType | None:
    name = f"{__package__}.{PREFIX}{family}"
    return import_module(name) if find_spec(name) else None
