"""Extra endpoints of generateContent: token counting, models, cached contents, and streams as JSON arrays.

A stream requested without `alt=sse` is one JSON array, sent item by item.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.sim.choices import ChoiceFields, repeat_answers
from bridle.sim.endpoints import EndpointCall, EndpointRoute, ExtraEndpoints, Json, ServerState, page_items
from bridle.values.errors import Failure
from bridle.values.model import Model
from bridle.values.request import Request

from .cached_contents import (
    create_cached_content,
    delete_cached_content,
    expand_request,
    extend_cached_content,
    get_cached_content,
    list_cached_contents,
    named_prompt_tokens,
)

API_KEY_HEADER = "x-goog-api-key"
CHOICE_FIELDS = ChoiceFields("candidates", "usageMetadata", "candidatesTokenCount", "totalTokenCount")
SSE_DATA = b"data: "
METHODS = ("generateContent", "countTokens")
CREATE_CACHED_CONTENT = "createCachedContent"
FAMILIES = ("gemini",)
ONE_CACHED_CONTENT = r".*/v1beta\w*/cachedContents/(?P<id>[^/:]+)"
PAGE_DEFAULT, PAGE_MAX = 50, 1000


def count_tokens(state: ServerState, call: EndpointCall) -> Json | Failure:
    inner = call.body.get("generateContentRequest")
    body: Json = dict(inner if isinstance(inner, dict) else call.body)
    body.pop("model", None)
    request = state.read_request(
        f"/v1beta/models/{call.path_params['model']}:generateContent", body, call.headers
    )
    if not isinstance(request, Request):
        return request
    total = state.count_tokens(request)
    return {"totalTokens": total, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": total}]}


def list_models(state: ServerState, call: EndpointCall) -> Json:
    """List the models in pages; the name of the last one is the token of the next page."""
    listed = [{"id": model.id, **_describe_model(model)} for model in state.models_of(*FAMILIES)]
    page_query = {"limit": call.query.get("pageSize", ""), "after": call.query.get("pageToken", "")}
    found, more = page_items(listed, page_query, default=PAGE_DEFAULT, page_max=PAGE_MAX)
    onward: Json = {"nextPageToken": found[-1]["id"]} if more else {}
    return {"models": [_drop_id(each) for each in found], **onward}


def _drop_id(about: Json) -> Json:
    return {name: value for name, value in about.items() if name != "id"}


def get_model(state: ServerState, call: EndpointCall) -> Json | Failure:
    name = unquote(call.path_params["model"])
    found = next((each for each in state.models_of(*FAMILIES) if each.id == name), None)
    if found is None:
        message = f"models/{name} is not found for API version v1beta."
        return Failure(kind="not_found", message=message, status=404, code="NOT_FOUND")
    return _describe_model(found)


def adapt_reply(
    reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str], profile: str
) -> HttpReply:
    config = body.get("generationConfig") or body.get("generation_config")
    wanted = config.get("candidateCount", config.get("candidate_count")) if isinstance(config, dict) else 1
    reply = repeat_answers(reply, wanted, CHOICE_FIELDS)
    streamed = any("event-stream" in value for _, value in reply.headers)
    if not streamed or query.get("alt") == "sse":
        return reply
    items = [frame.removeprefix(SSE_DATA).strip() for frame in reply.frames]
    frames = [(b"[" if not at else b",\r\n") + item for at, item in enumerate(items)]
    return replace(
        reply,
        headers=(("content-type", "application/json; charset=UTF-8"),),
        frames=(*frames, b"]"),
    )


def _describe_model(model: Model) -> Json:
    return {
        "name": f"models/{model.id}",
        "version": model.id,
        "displayName": model.id.replace("-", " ").title(),
        "inputTokenLimit": model.abilities.context_tokens,
        "outputTokenLimit": model.abilities.output_tokens,
        "supportedGenerationMethods": [
            *METHODS,
            *([CREATE_CACHED_CONTENT] if model.abilities.cache_named else []),
        ],
        "thinking": bool(model.abilities.thinking),
    }


ROUTES = (
    EndpointRoute("POST", r".*/models/(?P<model>[^/:]+):countTokens", count_tokens),
    EndpointRoute("GET", r".*/v1beta\w*/models", list_models),
    EndpointRoute("GET", r".*/v1beta\w*/models/(?P<model>[^/:]+)", get_model),
    EndpointRoute("POST", r".*/v1beta\w*/cachedContents", create_cached_content),
    EndpointRoute("GET", r".*/v1beta\w*/cachedContents", list_cached_contents),
    EndpointRoute("GET", ONE_CACHED_CONTENT, get_cached_content),
    EndpointRoute("PATCH", ONE_CACHED_CONTENT, extend_cached_content),
    EndpointRoute("DELETE", ONE_CACHED_CONTENT, delete_cached_content),
    EndpointRoute("GET", r".*/v1/models", list_models, API_KEY_HEADER),
    EndpointRoute("GET", r".*/v1/models/(?P<model>[^/:]+)", get_model, API_KEY_HEADER),
)

EXTRA_ENDPOINTS = ExtraEndpoints(
    routes=ROUTES,
    expand_request=expand_request,
    adapt_reply=adapt_reply,
    reply_id=lambda digest: f"sim{digest[:20]}",
    named_prompt_tokens=named_prompt_tokens,
    is_own_request=lambda path, headers: API_KEY_HEADER in headers or "/v1beta" in path,
    not_found_message="Method not found.",
    unsimulated_paths=re.compile(
        r"(?:/upload)?/v1(?:beta\w*)?/(?:files|batches|fileSearchStores|interactions|tunedModels)(?:[/:].*)?"
        r"|.*:(?:batch\w+|embedContent|predict\w*|asyncBatchEmbedContent|bidiGenerateContent)"
    ),
)
