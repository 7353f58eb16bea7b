"""Extra endpoints of the Messages API: token counting, the list of models, and threads."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.sim.endpoints import (
    CallerContext,
    EndpointCall,
    EndpointRoute,
    ExtraEndpoints,
    Json,
    ServerState,
    page_items,
)
from bridle.values.errors import Failure
from bridle.values.model import Model
from bridle.values.request import Request

from .threads import expand_thread, store_thread

COUNTING_MAX_TOKENS = 4_096
"""Token counting takes no `max_tokens`, which the rules for messages require."""
VERSION_HEADER = "anthropic-version"
THINKING = ("adaptive", "enabled", "disabled", "between_tools")
PAGE_DEFAULT, PAGE_MAX = 20, 1000
OK = 200
USAGE, TIER = b'"usage":{', b'"service_tier":"standard"'
FAMILIES = ("anthropic",)


def count_tokens(state: ServerState, call: EndpointCall) -> Json | Failure:
    caller = CallerContext(headers=call.headers, path="", now=call.now)
    expanded = expand_thread(state.stored, call.body, caller)
    if isinstance(expanded, Failure):
        return expanded
    budget = expanded.get("thinking")
    room = budget.get("budget_tokens") if isinstance(budget, dict) else None
    body: Json = {**expanded, "max_tokens": (room if isinstance(room, int) else 0) + COUNTING_MAX_TOKENS}
    body.pop("stream", None)
    request = state.read_request("/v1/messages", body, call.headers)
    return {"input_tokens": state.count_tokens(request)} if isinstance(request, Request) else request


def list_models(state: ServerState, call: EndpointCall) -> Json:
    listed = [_describe_model(model) for model in state.models_of(*FAMILIES)]
    found, more = page_items(listed, call.query, default=PAGE_DEFAULT, page_max=PAGE_MAX, after="after_id")
    return {
        "data": found,
        "has_more": more,
        "first_id": found[0]["id"] if found else None,
        "last_id": found[-1]["id"] if found else None,
    }


def get_model(state: ServerState, call: EndpointCall) -> Json | Failure:
    name = call.path_params["model"]
    found = next((each for each in state.models_of(*FAMILIES) if each.id == name), None)
    if found is None:
        return Failure(kind="not_found", message=f"model: {name}", status=404, code="not_found_error")
    return _describe_model(found)


def _describe_model(model: Model) -> Json:
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


def add_service_tier(
    reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str], profile: str
) -> HttpReply:
    """Add the service tier to the usage of a reply."""
    first, *rest = reply.frames
    if TIER in first or reply.status != OK:
        return reply
    # The usage follows the content, which may have a member of the same name; it may be empty.
    before, found, after = first.rpartition(USAGE)
    tier = TIER if after.startswith(b"}") else TIER + b","
    return replace(reply, frames=(before + found + tier + after, *rest)) if found else reply


ROUTES = (
    EndpointRoute("POST", r".*/messages/count_tokens", count_tokens),
    EndpointRoute("GET", r".*/models", list_models, VERSION_HEADER),
    EndpointRoute("GET", r".*/models/(?P<model>[^/:]+)", get_model, VERSION_HEADER),
)

EXTRA_ENDPOINTS = ExtraEndpoints(
    routes=ROUTES,
    is_own_request=lambda path, headers: VERSION_HEADER in headers or "/messages" in path,
    request_id_header="request-id",
    expand_request=expand_thread,
    store_reply=store_thread,
    reply_id=lambda digest: f"msg_sim{digest[:24]}",
    call_prefix="toolu_",
    adapt_reply=add_service_tier,
    unsimulated_paths=re.compile(
        r"/v1/(?:messages/batches|files|skills|environments|agents|sessions)(?:/.*)?"
    ),
)
