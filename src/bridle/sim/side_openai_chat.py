"""Beside Chat Completions: the list of models, and counts only for those who ask for them.

A stream has its counts in a piece without choices, which breaks every client that does not
expect it; so it is sent only when `stream_options` ask for it.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from msgspec.structs import replace

from ..ports.codec import HttpReply
from ..values.errors import Failure
from ..values.model import Model
from ._side_openai import LOST, STAMP, UNSIMULATED, WRONG_TYPE, blamed, padded, padding_wanted, tier_of
from .choices import Listing, repeat_answers
from .side import Door, House, Json, Knock, Side

SPOKEN = b'"delta":'
COUNTS_ONLY = b'"choices":[],'
CREATED = 1_767_225_600
DATED, TIER = re.compile(rb'"created":\d+(?=,)'), b'"service_tier":'
LISTING = Listing("choices", "usage", "completion_tokens", "total_tokens")
FAMILIES = (
    "openai_responses",
    "openai_chat",
)


def models(house: House, knock: Knock) -> Json:
    return {"object": "list", "data": [_about(model) for model in house.models_of(*FAMILIES)]}


def model(house: House, knock: Knock) -> Json | Failure:
    name = unquote(knock.found["model"])
    found = next((each for each in house.models_of(*FAMILIES) if each.id == name), None)
    if found is None:
        message = f"The model '{name}' does not exist"
        return Failure(kind="not_found", message=message, status=404, code="model_not_found")
    return _about(found)


def dressed(reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str]) -> HttpReply:
    reply = repeat_answers(_tiered(reply, body), body.get("n"), LISTING)
    if len(reply.frames) == 1:
        return reply
    options = body.get("stream_options")
    counts = isinstance(options, dict) and options.get("include_usage")
    frames = [frame for frame in reply.frames if counts or COUNTS_ONLY not in frame]
    if padding_wanted(body):
        frames = [padded(frame) if SPOKEN in frame else frame for frame in frames]
    return replace(reply, frames=tuple(frames))


def _tiered(reply: HttpReply, body: Mapping[str, object]) -> HttpReply:
    """The reply with the tier it was served on, unless it names one."""
    tier = b',"service_tier":"%b"' % tier_of(body).encode()
    frames = (DATED.sub(rb"\g<0>" + tier, frame, count=1) for frame in reply.frames)
    return reply if TIER in reply.frames[0] else replace(reply, frames=tuple(frames))


def _about(model: Model) -> Json:
    return {"id": model.id, "object": "model", "created": CREATED, "owned_by": model.endpoint.name}


DOORS = (
    Door(method="GET", pattern=re.compile(r".*/models"), open=models),
    Door(method="GET", pattern=re.compile(r".*/models/(?P<model>.+)"), open=model),
)

SIDE = Side(
    doors=DOORS,
    dressed=dressed,
    lost=LOST,
    stamp=STAMP,
    reply_id=lambda digest: f"chatcmpl-sim{digest[:24]}",
    undated=b'"created":0',
    unsimulated=UNSIMULATED,
    wrong_type=WRONG_TYPE,
    blamed=blamed,
)
