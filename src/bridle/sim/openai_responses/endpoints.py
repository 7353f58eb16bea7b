"""Extra endpoints of the Responses API: stored responses and conversations.

A response is stored unless `store` is false, with everything that led to it, so that a later request sends
only what is new (`previous_response_id`) or names a conversation that grows by itself. Such a request is
expanded before it is decoded: rules and responder see the whole conversation, as the provider's model does.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.sim.endpoints import CallerContext, EndpointCall, EndpointRoute, ExtraEndpoints, Json, ServerState
from bridle.sim.openai.endpoints import (
    NOT_FOUND_MESSAGE,
    REQUEST_ID_HEADER,
    UNSIMULATED_PATHS,
    WRONG_CONTENT_TYPE,
    add_rejected_field,
    find_tier,
    pad_frame,
    wants_padding,
)
from bridle.sim.openai.error_style import INVALID
from bridle.sim.stored_objects import StoredObjects, StoredReply
from bridle.values.errors import Failure
from bridle.values.request import Request

from .conversations import (
    CONVERSATION_ROUTES,
    as_items,
    conversation_not_found,
    find_conversation_id,
    id_prefix,
    list_page,
)
from .rules_item_links import ID_PREFIXES

ECHOED_FIELDS = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id",
    "reasoning", "store", "temperature", "text", "tool_choice", "tools", "top_p", "truncation", "user",
)  # fmt: skip
"""Fields of the request that a response repeats."""
ECHO_DEFAULTS: Json = {"store": True, "temperature": 1.0, "top_p": 1.0, "truncation": "disabled"}
RESPONSE_OBJECT = "response"
"""Type of an answer; a compacted conversation has another one and is not stored."""
SSE_EVENT = re.compile(rb"event: [^\n]*\ndata: (.*)\n\n", re.DOTALL)
PLACEHOLDER_ITEM_ID = re.compile(rb'"item_id":"item_(\d+)"')
EVENT_PREFIXES = (
    (b"function_call", ID_PREFIXES["function_call"]),
    (b"reasoning", ID_PREFIXES["reasoning"]),
    (b"custom_tool_call", ID_PREFIXES["custom_tool_call"]),
)
"""Words in event names, with the id prefixes of their items."""
DELTA_EVENT = re.compile(rb"event: response\.\w+\.delta\n")
START_EVENTS = (b"event: response.created\n", b"event: response.in_progress\n")
END_EVENTS = (b"event: response.completed\n", b"event: response.incomplete\n", b"event: response.failed\n")


def expand_request(
    stored: StoredObjects, body: Mapping[str, object], caller: CallerContext | None = None
) -> Mapping[str, object] | Failure:
    """Return the request with every stored object that it refers to."""
    previous, conversation = body.get("previous_response_id"), find_conversation_id(body)
    if previous and conversation:
        return _invalid_request(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
            " Ensure you are only providing one of: 'previous_response_id' or 'conversation'.",
            "mutually_exclusive_parameters",
        )
    if conversation:
        held = stored.conversations.get(conversation)
        if held is None:
            return conversation_not_found(conversation)
        return _prepend_items(body, held.items, "conversation")
    if isinstance(previous, str) and previous:
        kept = stored.replies.get(previous)
        if kept is None:
            message = f"Previous response with id '{previous}' not found."
            return Failure(kind="forgotten", message=message, status=400, code="previous_response_not_found")
        return _prepend_items(body, kept.conversation_items, "previous_response_id")
    return body


def adapt_reply(
    reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str], profile: str
) -> HttpReply:
    """Add the fields of its request that a reply repeats."""
    echo = {**ECHO_DEFAULTS, **{name: body[name] for name in ECHOED_FIELDS if body.get(name) is not None}}
    echo["service_tier"] = find_tier(body)
    if conversation := find_conversation_id(body):
        echo["conversation"] = {"id": conversation}
    if len(reply.frames) == 1:
        whole = msgspec.json.decode(reply.frames[0], type=dict[str, object])
        if whole.get("object") != RESPONSE_OBJECT:
            return reply
        return replace(reply, frames=(msgspec.json.encode({**_name_output_items(whole), **echo}),))
    name = str((_response_in_event(reply.frames[0]) or {}).get("id"))
    frames = [_echo_in_frame(frame, echo, name) for frame in reply.frames]
    if wants_padding(body):
        frames = [pad_frame(frame) if DELTA_EVENT.match(frame) else frame for frame in frames]
    return replace(reply, frames=tuple(frames))


def store_reply(stored: StoredObjects, body: Mapping[str, object], reply: HttpReply, now: float) -> None:
    """Store the answer to this request, if that is allowed."""
    response = _read_response(reply)
    if response is None or response.get("object") != RESPONSE_OBJECT:
        return
    conversation = find_conversation_id(body)
    held = stored.conversations.get(conversation) if conversation else None
    if held is not None:
        grown = (*as_items(body.get("input")), *StoredReply(response=response, input_items=()).output)
        items = tuple(_with_stored_id(stored, item) for item in grown)
        stored.store_conversation(replace(held, items=(*held.items, *items)))
    if body.get("store") is not False:
        previous = body.get("previous_response_id")
        before = stored.replies[previous].conversation_items if isinstance(previous, str) and previous else ()
        given = tuple(_with_stored_id(stored, item) for item in as_items(body.get("input")))
        before = held.items if held is not None else before
        stored.store_reply(
            str(response["id"]), StoredReply(response=response, input_items=given, earlier_items=before)
        )


def _with_stored_id(stored: StoredObjects, item: Json) -> Json:
    """Add an id, except to encrypted items: their id is part of the signature."""
    return item if item.get("type") in ("reasoning", "compaction") else stored.with_id(item, id_prefix(item))


def count_tokens(state: ServerState, call: EndpointCall) -> Json | Failure:
    body = expand_request(state.stored, call.body)
    request = (
        body if isinstance(body, Failure) else state.read_request("/v1/responses", dict(body), call.headers)
    )
    if not isinstance(request, Request):
        return request
    return {"object": "response.input_tokens", "input_tokens": state.count_tokens(request)}


def get_response(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.replies.get(call.path_params["id"])
    return found.response if found else _response_not_found(call.path_params["id"])


def delete_response(state: ServerState, call: EndpointCall) -> Json | Failure:
    if state.stored.replies.pop(call.path_params["id"], None) is None:
        return _response_not_found(call.path_params["id"])
    return {"id": call.path_params["id"], "object": "response", "deleted": True}


def cancel_response(state: ServerState, call: EndpointCall) -> Json | Failure:
    if call.path_params["id"] not in state.stored.replies:
        return _response_not_found(call.path_params["id"])
    return _invalid_request("Cannot cancel a synchronous response.", "invalid_request_error")


def list_input_items(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.replies.get(call.path_params["id"])
    if found is None:
        return _response_not_found(call.path_params["id"])
    items = [*found.earlier_items, *found.input_items]
    if call.query.get("order", "desc") == "desc":
        items.reverse()
    return list_page(items, call.query)


def _prepend_items(body: Mapping[str, object], before: Sequence[Json], leans_on: str) -> Json:
    whole = {name: value for name, value in body.items() if name != leans_on}
    return {**whole, "input": [*before, *as_items(body.get("input"))]}


def _echo_in_frame(frame: bytes, echo: Json, name: str) -> bytes:
    head, _, data = frame.partition(b"data: ")
    if frame.startswith((*START_EVENTS, *END_EVENTS)):
        event = msgspec.json.decode(data, type=dict[str, object])
        response = event.get("response")
        told = {**_name_output_items(response), **echo} if isinstance(response, dict) else response
        event["response"] = told
    elif frame.startswith(b"event: response.output_item."):
        event = msgspec.json.decode(data, type=dict[str, object])
        item = event["item"]
        event["item"] = _with_item_id(item, name, event["output_index"]) if isinstance(item, dict) else item
    elif found := PLACEHOLDER_ITEM_ID.search(data):
        made = f"{_event_prefix(head)}_{name}_{int(found[1])}".encode()
        return frame.replace(found[0], b'"item_id":"%b"' % made)
    else:
        return frame
    return b"%bdata: %b\n\n" % (head, msgspec.json.encode(event))


def _name_output_items(response: Json) -> Json:
    """Add an id to every item of a response; clients use it to group events."""
    items, name = response.get("output"), str(response.get("id"))
    if not isinstance(items, list):
        return response
    return {**response, "output": [_with_item_id(item, name, at) for at, item in enumerate(items)]}


def _with_item_id(item: Json, name: str, at: object) -> Json:
    return item if item.get("id") else {"id": f"{id_prefix(item)}_{name}_{at}", **item}


def _event_prefix(head: bytes) -> str:
    """Return the id prefix of an item from the name of its event."""
    return next((prefix for piece, prefix in EVENT_PREFIXES if piece in head), ID_PREFIXES["message"])


def _read_response(reply: HttpReply) -> Json | None:
    """Return the final response of an answer, or None."""
    if reply.status >= 300:
        return None
    if len(reply.frames) == 1:
        return msgspec.json.decode(reply.frames[0], type=dict[str, object])
    return _response_in_event(reply.frames[-1])


def _response_in_event(frame: bytes) -> Json | None:
    """Return the response in an event of a stream."""
    found = SSE_EVENT.fullmatch(frame)
    event = msgspec.json.decode(found[1], type=dict[str, object]) if found else {}
    response = event.get("response")
    return response if isinstance(response, dict) else None


def _response_not_found(name: str) -> Failure:
    return Failure(
        kind="not_found", message=f"Response with id '{name}' not found.", status=404, code="not_found"
    )


def _invalid_request(message: str, code: str) -> Failure:
    return Failure(kind="invalid", message=message, status=400, code=code)


ROUTES = (
    EndpointRoute("POST", r".*/responses/input_tokens", count_tokens),
    EndpointRoute("GET", r".*/responses/(?P<id>[^/]+)/input_items", list_input_items),
    EndpointRoute("POST", r".*/responses/(?P<id>[^/]+)/cancel", cancel_response),
    EndpointRoute("GET", r".*/responses/(?P<id>[^/]+)", get_response),
    EndpointRoute("DELETE", r".*/responses/(?P<id>[^/]+)", delete_response),
    *CONVERSATION_ROUTES,
)

EXTRA_ENDPOINTS = ExtraEndpoints(
    routes=ROUTES,
    expand_request=expand_request,
    adapt_reply=adapt_reply,
    store_reply=store_reply,
    is_own_request=lambda path, headers: path.startswith("/v1/"),
    not_found_message=NOT_FOUND_MESSAGE,
    not_found_code=INVALID,
    request_id_header=REQUEST_ID_HEADER,
    reply_id=lambda digest: f"resp_sim{digest[:40]}",
    created_field=b'"created_at":0',
    unsimulated_paths=UNSIMULATED_PATHS,
    wrong_content_type=WRONG_CONTENT_TYPE,
    add_rejected_field=add_rejected_field,
)
