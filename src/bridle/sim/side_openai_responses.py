"""Beside the Responses API: everything it keeps.

A response is kept unless `store` is false, with all that led to it, so that a later request
need send only what is new (`previous_response_id`), or name a conversation that grows by
itself.  Such a request is filled in before anybody reads it: rules and brain see the whole
conversation, as the provider's model does.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..ports.codec import HttpReply
from ..values.errors import Failure
from ..values.request import Request
from ._rules_openai_responses_talk import PREFIXES
from ._rules_openai_shape import INVALID
from ._side_openai import LOST, STAMP, UNSIMULATED, WRONG_TYPE, blamed, padded, padding_wanted, tier_of
from ._side_openai_conversations import (
    CONVERSATION_DOORS,
    conversation_of,
    listed,
    listing,
    no_conversation,
    prefix_of,
)
from .keeping import Keeping, KeptReply
from .side import Caller, Door, House, Json, Knock, Side

ECHOED = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id",
    "reasoning", "store", "temperature", "text", "tool_choice", "tools", "top_p", "truncation", "user",
)  # fmt: skip
"""What a response repeats of its request."""
ECHO_DEFAULTS: Json = {"store": True, "temperature": 1.0, "top_p": 1.0, "truncation": "disabled"}
RESPONSE = "response"
"""What an answer is; a conversation that was made short is none, and nobody keeps it."""
SSE = re.compile(rb"event: [^\n]*\ndata: (.*)\n\n", re.DOTALL)
NAMELESS = re.compile(rb'"item_id":"item_(\d+)"')
PIECES = (
    (b"function_call", PREFIXES["function_call"]),
    (b"reasoning", PREFIXES["reasoning"]),
    (b"custom_tool_call", PREFIXES["custom_tool_call"]),
)
"""Words in the names of events, and how the ids of the items begin that they are about."""
SPOKEN = re.compile(rb"event: response\.\w+\.delta\n")
TOLD = (b"event: response.created\n", b"event: response.in_progress\n")
ENDS = (b"event: response.completed\n", b"event: response.incomplete\n", b"event: response.failed\n")


def unfolded(
    keeping: Keeping, body: Mapping[str, object], caller: Caller | None = None
) -> Mapping[str, object] | Failure:
    """The request with everything in it that it leans on."""
    previous, conversation = body.get("previous_response_id"), conversation_of(body)
    if previous and conversation:
        return _invalid(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
            " Ensure you are only providing one of: 'previous_response_id' or 'conversation'.",
            "mutually_exclusive_parameters",
        )
    if conversation:
        held = keeping.conversations.get(conversation)
        if held is None:
            return no_conversation(conversation)
        return _filled(body, held.items, "conversation")
    if isinstance(previous, str) and previous:
        kept = keeping.replies.get(previous)
        if kept is None:
            message = f"Previous response with id '{previous}' not found."
            return Failure(kind="forgotten", message=message, status=400, code="previous_response_not_found")
        return _filled(body, kept.line, "previous_response_id")
    return body


def dressed(reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str]) -> HttpReply:
    """The reply with what it repeats of its request."""
    echo = {**ECHO_DEFAULTS, **{name: body[name] for name in ECHOED if body.get(name) is not None}}
    echo["service_tier"] = tier_of(body)
    if conversation := conversation_of(body):
        echo["conversation"] = {"id": conversation}
    if len(reply.frames) == 1:
        whole = msgspec.json.decode(reply.frames[0], type=dict[str, object])
        if whole.get("object") != RESPONSE:
            return reply
        return replace(reply, frames=(msgspec.json.encode({**_named(whole), **echo}),))
    name = str((_told_in(reply.frames[0]) or {}).get("id"))
    frames = [_echoing(frame, echo, name) for frame in reply.frames]
    if padding_wanted(body):
        frames = [padded(frame) if SPOKEN.match(frame) else frame for frame in frames]
    return replace(reply, frames=tuple(frames))


def kept(keeping: Keeping, body: Mapping[str, object], reply: HttpReply, now: float) -> None:
    """Keep the answer to this request, if it may be."""
    response = _response_in(reply)
    if response is None or response.get("object") != RESPONSE:
        return
    conversation = conversation_of(body)
    held = keeping.conversations.get(conversation) if conversation else None
    if held is not None:
        grown = (*listed(body.get("input")), *KeptReply(response=response, given=()).output)
        items = tuple(_kept_as(keeping, item) for item in grown)
        keeping.hold(replace(held, items=(*held.items, *items)))
    if body.get("store") is not False:
        previous = body.get("previous_response_id")
        before = keeping.replies[previous].line if isinstance(previous, str) and previous else ()
        given = tuple(_kept_as(keeping, item) for item in listed(body.get("input")))
        before = held.items if held is not None else before
        keeping.keep(str(response["id"]), KeptReply(response=response, given=given, before=before))


def _kept_as(keeping: Keeping, item: Json) -> Json:
    """With an id; but what was sealed has one inside, and another would break the seal."""
    return item if item.get("type") in ("reasoning", "compaction") else keeping.named(item, prefix_of(item))


def count(house: House, knock: Knock) -> Json | Failure:
    body = unfolded(house.keeping, knock.body)
    request = body if isinstance(body, Failure) else house.read("/v1/responses", dict(body), knock.headers)
    if not isinstance(request, Request):
        return request
    return {"object": "response.input_tokens", "input_tokens": house.count(request)}


def retrieve(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.replies.get(knock.found["id"])
    return found.response if found else _no_response(knock.found["id"])


def delete(house: House, knock: Knock) -> Json | Failure:
    if house.keeping.replies.pop(knock.found["id"], None) is None:
        return _no_response(knock.found["id"])
    return {"id": knock.found["id"], "object": "response", "deleted": True}


def cancel(house: House, knock: Knock) -> Json | Failure:
    if knock.found["id"] not in house.keeping.replies:
        return _no_response(knock.found["id"])
    return _invalid("Cannot cancel a synchronous response.", "invalid_request_error")


def given_items(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.replies.get(knock.found["id"])
    if found is None:
        return _no_response(knock.found["id"])
    items = [*found.before, *found.given]
    if knock.query.get("order", "desc") == "desc":
        items.reverse()
    return listing(items, knock.query)


def _filled(body: Mapping[str, object], before: Sequence[Json], leans_on: str) -> Json:
    whole = {name: value for name, value in body.items() if name != leans_on}
    return {**whole, "input": [*before, *listed(body.get("input"))]}


def _echoing(frame: bytes, echo: Json, name: str) -> bytes:
    head, _, data = frame.partition(b"data: ")
    if frame.startswith((*TOLD, *ENDS)):
        event = msgspec.json.decode(data, type=dict[str, object])
        response = event.get("response")
        told = {**_named(response), **echo} if isinstance(response, dict) else response
        event["response"] = told
    elif frame.startswith(b"event: response.output_item."):
        event = msgspec.json.decode(data, type=dict[str, object])
        item = event["item"]
        event["item"] = _identified(item, name, event["output_index"]) if isinstance(item, dict) else item
    elif found := NAMELESS.search(data):
        made = f"{_prefix_in(head)}_{name}_{int(found[1])}".encode()
        return frame.replace(found[0], b'"item_id":"%b"' % made)
    else:
        return frame
    return b"%bdata: %b\n\n" % (head, msgspec.json.encode(event))


def _named(response: Json) -> Json:
    """The response with an id on every item: clients tell by it which pieces belong together."""
    items, name = response.get("output"), str(response.get("id"))
    if not isinstance(items, list):
        return response
    return {**response, "output": [_identified(item, name, at) for at, item in enumerate(items)]}


def _identified(item: Json, name: str, at: object) -> Json:
    return item if item.get("id") else {"id": f"{prefix_of(item)}_{name}_{at}", **item}


def _prefix_in(head: bytes) -> str:
    """The same for a piece of an item, which only its event tells the kind of."""
    return next((prefix for piece, prefix in PIECES if piece in head), PREFIXES["message"])


def _response_in(reply: HttpReply) -> Json | None:
    """The whole response that an answer ends with; None when it is none."""
    if reply.status >= 300:
        return None
    if len(reply.frames) == 1:
        return msgspec.json.decode(reply.frames[0], type=dict[str, object])
    return _told_in(reply.frames[-1])


def _told_in(frame: bytes) -> Json | None:
    """The response that an event of a stream carries."""
    found = SSE.fullmatch(frame)
    event = msgspec.json.decode(found[1], type=dict[str, object]) if found else {}
    response = event.get("response")
    return response if isinstance(response, dict) else None


def _no_response(name: str) -> Failure:
    return Failure(
        kind="not_found", message=f"Response with id '{name}' not found.", status=404, code="not_found"
    )


def _invalid(message: str, code: str) -> Failure:
    return Failure(kind="invalid", message=message, status=400, code=code)


DOORS = (
    Door(method="POST", pattern=re.compile(r".*/responses/input_tokens"), open=count),
    Door(method="GET", pattern=re.compile(r".*/responses/(?P<id>[^/]+)/input_items"), open=given_items),
    Door(method="POST", pattern=re.compile(r".*/responses/(?P<id>[^/]+)/cancel"), open=cancel),
    Door(method="GET", pattern=re.compile(r".*/responses/(?P<id>[^/]+)"), open=retrieve),
    Door(method="DELETE", pattern=re.compile(r".*/responses/(?P<id>[^/]+)"), open=delete),
    *CONVERSATION_DOORS,
)

SIDE = Side(
    doors=DOORS,
    unfolded=unfolded,
    dressed=dressed,
    kept=kept,
    home=lambda path, headers: path.startswith("/v1/"),
    lost=LOST,
    lost_code=INVALID,
    stamp=STAMP,
    reply_id=lambda digest: f"resp_sim{digest[:40]}",
    undated=b'"created_at":0',
    unsimulated=UNSIMULATED,
    wrong_type=WRONG_TYPE,
    blamed=blamed,
)
