"""Converts parts of a request that clients may express in several forms into the one the responder reads.

Answer schemas: a codec reads the form that this library writes. Other clients send older forms, and JSON
modes without a schema; a family's `find_schema` reads those, so that the responder answers them too.

Client tools: a family may offer tools other than functions with parameters, such as tools that take free
text, tools inside a namespace, or tools added in the middle of a conversation. The responder only knows
functions, so the request it receives lists every callable tool as one, and its calls are converted back.

Split replies: a client may send every chunk of a streamed reply back as its own message. Where a family reads
them as one turn, they are joined, so that the responder counts its replies correctly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from bridle.ports.served_wire import ClientTool
from bridle.values.message import Message, Part, Reply, ToolCall
from bridle.values.request import OutputSpec, Request

ANY_OBJECT: Mapping[str, object] = {"type": "object"}
"""Schema of a JSON mode without a schema."""
SchemaReader = Callable[[Mapping[str, object]], object]


def add_answer_schema(
    find_schema: SchemaReader | None, body: Mapping[str, object], request: Request
) -> Request:
    """Add the answer schema from the body to the request if the codec did not read one."""
    if request.output is not None or find_schema is None:
        return request
    schema = find_schema(body)
    if not isinstance(schema, Mapping):
        return request
    return replace(request, output=OutputSpec(name="output", parameters=msgspec.json.encode(schema).decode()))


def convert_client_tools(
    list_client_tools: Callable[[Request], Iterator[ClientTool]] | None, request: Request
) -> tuple[Request, Mapping[str, ClientTool]]:
    """Return the request with every callable tool as a function, and the tools of other forms by name."""
    if list_client_tools is None:
        return request, {}
    offers = tuple(list_client_tools(request))
    native_tools: dict[str, ClientTool] = {}
    for offer in offers:
        if offer.call_native is not None:
            native_tools.setdefault(offer.spec.name, offer)
            native_tools.setdefault(offer.qualified_name or offer.spec.name, offer)
    tools = {offer.spec.name: offer.spec for offer in reversed(offers)}
    unchanged = tuple(offer.spec for offer in offers) == request.tools
    return request if unchanged else replace(request, tools=tuple(reversed(tools.values()))), native_tools


def convert_calls(offers: Mapping[str, ClientTool], reply: Reply) -> Reply:
    """Return the reply with each call in the form of its tool."""
    if not offers or not reply.calls:
        return reply
    return replace(reply, parts=tuple(_convert_call(part, offers) for part in reply.parts))


def _convert_call(part: Part, offers: Mapping[str, ClientTool]) -> Part:
    offer = offers.get(part.name) if isinstance(part, ToolCall) and part.native is None else None
    if offer is None or not isinstance(part, ToolCall):
        return part
    return replace(part, name=offer.spec.name, native=offer.call_native)


MessageJoiner = Callable[[Sequence[Message]], tuple[Message, ...]]


def join_fragments(join: MessageJoiner | None, request: Request) -> Request:
    """Return the request with every reply of its conversation in one message."""
    return replace(request, messages=join(request.messages)) if join else request
