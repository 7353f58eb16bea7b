"""Beside the Messages API: counting tokens, the list of models, and threads."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from ..ports.codec import HttpReply
from ..values.errors import Failure
from ..values.model import Model
from ..values.request import Request
from ._side_anthropic_threads import fill_in_thread, keep_thread
from .side import Caller, Door, House, Json, Knock, Side, page

COUNTED_WITH_TOKENS = 4_096
"""Counting takes no `max_tokens`, which the rules of messages ask for."""
VERSION = "anthropic-version"
THINKING = ("adaptive", "enabled", "disabled", "between_tools")
PAGE_DEFAULT, PAGE_MAX = 20, 1000
OK = 200
USAGE, TIER = b'"usage":{', b'"service_tier":"standard"'
FAMILIES = ("anthropic",)


def count(house: House, knock: Knock) -> Json | Failure:
    caller = Caller(headers=knock.headers, path="", now=knock.now)
    whole = fill_in_thread(house.keeping, knock.body, caller)
    if isinstance(whole, Failure):
        return whole
    budget = whole.get("thinking")
    room = budget.get("budget_tokens") if isinstance(budget, dict) else None
    body: Json = {**whole, "max_tokens": (room if isinstance(room, int) else 0) + COUNTED_WITH_TOKENS}
    body.pop("stream", None)
    request = house.read("/v1/messages", body, knock.headers)
    return {"input_tokens": house.count(request)} if isinstance(request, Request) else request


def models(house: House, knock: Knock) -> Json:
    listed = [_about(model) for model in house.models_of(*FAMILIES)]
    found, more = page(listed, knock.query, default=PAGE_DEFAULT, most=PAGE_MAX, after="after_id")
    return {
        "data": found,
        "has_more": more,
        "first_id": found[0]["id"] if found else None,
        "last_id": found[-1]["id"] if found else None,
    }


def model(house: House, knock: Knock) -> Json | Failure:
    name = knock.found["model"]
    found = next((each for each in house.models_of(*FAMILIES) if each.id == name), None)
    if found is None:
        return Failure(kind="not_found", message=f"model: {name}", status=404, code="not_found_error")
    return _about(found)


def _about(model: Model) -> Json:
    abilities = model.abilities
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id.replace("-", " ").title(),
        "created_at": "2026-01-01T00:00:00Z",
        "max_input_tokens": abilities.context_tokens,
        "max_tokens": abilities.output_tokens,
        "capabilities": {
            "thinking": {
                "supported": bool(abilities.thinking),
                "types": {kind: {"supported": kind in abilities.thinking} for kind in THINKING},
            },
            "effort": {
                "supported": bool(abilities.efforts),
                **{level: {"supported": True} for level in abilities.efforts},
            },
            "compaction": {
                "supported": abilities.compaction,
                "summarize": {"supported": abilities.compaction},
            },
            "image_input": {"supported": abilities.images},
            "pdf_input": {"supported": abilities.documents},
            "structured_outputs": {"supported": abilities.structured_output == "native"},
        },
    }


def dressed(reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str]) -> HttpReply:
    """The reply with the tier it was served on, beside the counts of its prompt."""
    first, *rest = reply.frames
    if TIER in first or reply.status != OK:
        return reply
    # The counts stand after the content, which may hold a member of the same name; they may be empty.
    before, found, after = first.rpartition(USAGE)
    tier = TIER if after.startswith(b"}") else TIER + b","
    return replace(reply, frames=(before + found + tier + after, *rest)) if found else reply


DOORS = (
    Door(method="POST", pattern=re.compile(r".*/messages/count_tokens"), open=count),
    Door(method="GET", pattern=re.compile(r".*/models"), open=models, header=VERSION),
    Door(method="GET", pattern=re.compile(r".*/models/(?P<model>[^/:]+)"), open=model, header=VERSION),
)

SIDE = Side(
    doors=DOORS,
    home=lambda path, headers: VERSION in headers or "/messages" in path,
    stamp="request-id",
    unfolded=fill_in_thread,
    kept=keep_thread,
    reply_id=lambda digest: f"msg_sim{digest[:24]}",
    call_prefix="toolu_",
    dressed=dressed,
    unsimulated=re.compile(r"/v1/(?:messages/batches|files|skills|environments|agents|sessions)(?:/.*)?"),
)
