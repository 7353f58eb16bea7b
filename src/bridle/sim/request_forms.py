"""The shape an answer must have, in every form in which clients ask for it.

A codec reads the form that this library writes.  Other clients send older forms, and JSON modes without a
schema: a family finds those in `answer_shape_<family>.py`, so that the responder answers them too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.message import Message, Part, Reply, ToolCall
from bridle.values.request import OutputSpec, Request, ToolSpec

ANY_OBJECT: Mapping[str, object] = {"type": "object"}
"""What a JSON mode without a schema asks for."""
SchemaReader = Callable[[Mapping[str, object]], object]


def add_answer_schema(
    find_schema: SchemaReader | None, body: Mapping[str, object], request: Request
) -> Request:
    """The request with the shape its body asks for, where the codec did not read one."""
    if request.output is not None or find_schema is None:
        return request
    schema = find_schema(body)
    if not isinstance(schema, Mapping):
        return request
    return replace(request, output=OutputSpec(name="output", parameters=msgspec.json.encode(schema).decode()))


# Tools that the client runs, in the forms that only one family has.
#
# A family may offer the client's tools in other forms than a function with parameters: tools that take free
# text, tools inside a namespace, tools that come in the middle of a conversation.  The responder knows
# functions only.  So the request it is given lists every callable tool as a function, and a call it makes
# gets the form that the family's wire has for that tool.


FREE_TEXT_PARAMETERS = (
    '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],'
    '"additionalProperties":false}'
)
"""The parameters of a tool that takes free text, as our calls carry it."""


class ClientTool(Value):
    """A tool that can be called, and what a call of it has beyond a name and arguments."""

    spec: ToolSpec
    call_native: str | None = None
    """The `ToolCall.native` of a call of this tool; None for a plain function."""
    qualified_name: str = ""
    """Another name a script may use, for a tool whose own name is in several namespaces."""


def convert_client_tools(
    list_client_tools: Callable[[Request], Iterator[ClientTool]] | None, request: Request
) -> tuple[Request, Mapping[str, ClientTool]]:
    """The request with every callable tool as a function, and the tools of other forms by name."""
    if list_client_tools is None:
        return request, {}
    offers = tuple(list_client_tools(request))
    formed: dict[str, ClientTool] = {}
    for offer in offers:
        if offer.call_native is not None:
            formed.setdefault(offer.spec.name, offer)
            formed.setdefault(offer.qualified_name or offer.spec.name, offer)
    tools = {offer.spec.name: offer.spec for offer in reversed(offers)}
    unchanged = tuple(offer.spec for offer in offers) == request.tools
    return request if unchanged else replace(request, tools=tuple(reversed(tools.values()))), formed


def convert_calls(offers: Mapping[str, ClientTool], reply: Reply) -> Reply:
    """The reply with each call in the form of its tool."""
    if not offers or not reply.calls:
        return reply
    return replace(reply, parts=tuple(_convert_call(part, offers) for part in reply.parts))


def _convert_call(part: Part, offers: Mapping[str, ClientTool]) -> Part:
    offer = offers.get(part.name) if isinstance(part, ToolCall) and part.native is None else None
    if offer is None or not isinstance(part, ToolCall):
        return part
    return replace(part, name=offer.spec.name, native=offer.call_native)


# Replies that came back in pieces.
#
# A client may send every chunk of a streamed reply back as a message of its own.  Where a family reads such
# neighbours as one turn, the simulated model does too, so that it counts its replies as it gave them.


MessageJoiner = Callable[[Sequence[Message]], tuple[Message, ...]]


def join_fragments(join: MessageJoiner | None, request: Request) -> Request:
    """Return the request with every reply of its conversation in one message."""
    return replace(request, messages=join(request.messages)) if join else request
