"""Extra endpoints of Chat Completions: the list of models, and streamed counts on request.

In a stream the counts are in a chunk without choices, which breaks clients that do not expect it; so it is
sent only if `stream_options` asks for it.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.sim.choices import ChoiceFields, repeat_answers
from bridle.sim.endpoints import EndpointCall, EndpointRoute, ExtraEndpoints, Json, ServerState
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
from bridle.sim.rules.profiles import SHORT_IDS
from bridle.values.errors import Failure
from bridle.values.model import Model

DELTA_FIELD = b'"delta":'
USAGE_CHUNK = b'"choices":[],'
SSE_DATA, FRAME_END = b"data: ", b"\n\n"
FINISHED = b'"finish_reason":"'
CREATED = 1_767_225_600
CREATED_FIELD, TIER_FIELD = re.compile(rb'"created":\d+(?=,)'), b'"service_tier":'
CHOICE_FIELDS = ChoiceFields("choices", "usage", "completion_tokens", "total_tokens")
FAMILIES = (
    "openai_responses",
    "openai_chat",
)


def list_models(state: ServerState, call: EndpointCall) -> Json:
    return {"object": "list", "data": [_describe_model(model) for model in state.models_of(*FAMILIES)]}


def get_model(state: ServerState, call: EndpointCall) -> Json | Failure:
    name = unquote(call.path_params["model"])
    found = next((each for each in state.models_of(*FAMILIES) if each.id == name), None)
    if found is None:
        message = f"The model '{name}' does not exist"
        return Failure(kind="not_found", message=message, status=404, code="model_not_found")
    return _describe_model(found)


def adapt_reply(
    reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str], profile: str
) -> HttpReply:
    reply = repeat_answers(_add_service_tier(reply, body), body.get("n"), CHOICE_FIELDS)
    if len(reply.frames) == 1:
        return reply
    options = body.get("stream_options")
    counts = isinstance(options, dict) and options.get("include_usage")
    frames = [frame for frame in reply.frames if counts or USAGE_CHUNK not in frame]
    if profile == SHORT_IDS:
        frames = _move_counts(reply.frames)
    if wants_padding(body):
        frames = [pad_frame(frame) if DELTA_FIELD in frame else frame for frame in frames]
    return replace(reply, frames=tuple(frames))


def _move_counts(frames: Sequence[bytes]) -> list[bytes]:
    """The frames of a server that sends the counts unasked, in the chunk with the finish reason."""
    kept = [frame for frame in frames if USAGE_CHUNK not in frame]
    counted = [frame for frame in frames if USAGE_CHUNK in frame]
    finished = [at for at, frame in enumerate(kept) if FINISHED in frame]
    if counted and finished:
        counts, last = (
            msgspec.json.decode(each.removeprefix(SSE_DATA)) for each in (counted[0], kept[finished[-1]])
        )
        kept[finished[-1]] = SSE_DATA + msgspec.json.encode({**last, "usage": counts["usage"]}) + FRAME_END
    return kept


def _add_service_tier(reply: HttpReply, body: Mapping[str, object]) -> HttpReply:
    """Add the service tier to a reply that has none."""
    tier = b',"service_tier":"%b"' % find_tier(body).encode()
    frames = (CREATED_FIELD.sub(rb"\g<0>" + tier, frame, count=1) for frame in reply.frames)
    return reply if TIER_FIELD in reply.frames[0] else replace(reply, frames=tuple(frames))


def _describe_model(model: Model) -> Json:
    return {"id": model.id, "object": "model", "created": CREATED, "owned_by": model.endpoint.name}


ROUTES = (
    EndpointRoute("GET", r".*/models", list_models),
    EndpointRoute("GET", r".*/models/(?P<model>.+)", get_model),
)

EXTRA_ENDPOINTS = ExtraEndpoints(
    routes=ROUTES,
    adapt_reply=adapt_reply,
    not_found_message=NOT_FOUND_MESSAGE,
    request_id_header=REQUEST_ID_HEADER,
    reply_id=lambda digest: f"chatcmpl-sim{digest[:24]}",
    created_field=b'"created":0',
    unsimulated_paths=UNSIMULATED_PATHS,
    wrong_content_type=WRONG_CONTENT_TYPE,
    add_rejected_field=add_rejected_field,
)
