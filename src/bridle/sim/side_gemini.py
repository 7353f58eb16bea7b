"""Beside generateContent: counting tokens, the models, prompts kept by name, and streams that are lists.

Asked for a stream without `alt=sse`, the provider sends one JSON array, item by item.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from msgspec.structs import replace

from ..ports.codec import HttpReply
from ..values.errors import Failure
from ..values.model import Model
from ..values.request import Request
from ._side_gemini_named import create, drop, every, named_tokens, prolong, show, unfolded
from .choices import Listing, repeat_answers
from .side import Door, House, Json, Knock, Side, page

KEY = "x-goog-api-key"
LISTING = Listing("candidates", "usageMetadata", "candidatesTokenCount", "totalTokenCount")
SSE_DATA = b"data: "
METHODS = ("generateContent", "countTokens")
NAMING = "createCachedContent"
FAMILIES = ("gemini",)
ONE_KEPT = r".*/v1beta\w*/cachedContents/(?P<id>[^/:]+)"
PAGE_DEFAULT, PAGE_MAX = 50, 1000


def count(house: House, knock: Knock) -> Json | Failure:
    inner = knock.body.get("generateContentRequest")
    body: Json = dict(inner if isinstance(inner, dict) else knock.body)
    body.pop("model", None)
    request = house.read(f"/v1beta/models/{knock.found['model']}:generateContent", body, knock.headers)
    if not isinstance(request, Request):
        return request
    total = house.count(request)
    return {"totalTokens": total, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": total}]}


def models(house: House, knock: Knock) -> Json:
    """A page at a time; the name of the last one leads to the next."""
    listed = [{"id": model.id, **_about(model)} for model in house.models_of(*FAMILIES)]
    asked = {"limit": knock.query.get("pageSize", ""), "after": knock.query.get("pageToken", "")}
    found, more = page(listed, asked, default=PAGE_DEFAULT, most=PAGE_MAX)
    onward: Json = {"nextPageToken": found[-1]["id"]} if more else {}
    return {"models": [_without_id(each) for each in found], **onward}


def _without_id(about: Json) -> Json:
    return {name: value for name, value in about.items() if name != "id"}


def model(house: House, knock: Knock) -> Json | Failure:
    name = unquote(knock.found["model"])
    found = next((each for each in house.models_of(*FAMILIES) if each.id == name), None)
    if found is None:
        message = f"models/{name} is not found for API version v1beta."
        return Failure(kind="not_found", message=message, status=404, code="NOT_FOUND")
    return _about(found)


def dressed(reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str]) -> HttpReply:
    config = body.get("generationConfig") or body.get("generation_config")
    wanted = config.get("candidateCount", config.get("candidate_count")) if isinstance(config, dict) else 1
    reply = repeat_answers(reply, wanted, LISTING)
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


def _about(model: Model) -> Json:
    return {
        "name": f"models/{model.id}",
        "version": model.id,
        "displayName": model.id.replace("-", " ").title(),
        "inputTokenLimit": model.abilities.context_tokens,
        "outputTokenLimit": model.abilities.output_tokens,
        "supportedGenerationMethods": [*METHODS, *([NAMING] if model.abilities.cache_named else [])],
        "thinking": bool(model.abilities.thinking),
    }


DOORS = (
    Door(method="POST", pattern=re.compile(r".*/models/(?P<model>[^/:]+):countTokens"), open=count),
    Door(method="GET", pattern=re.compile(r".*/v1beta\w*/models"), open=models),
    Door(method="GET", pattern=re.compile(r".*/v1beta\w*/models/(?P<model>[^/:]+)"), open=model),
    Door(method="POST", pattern=re.compile(r".*/v1beta\w*/cachedContents"), open=create),
    Door(method="GET", pattern=re.compile(r".*/v1beta\w*/cachedContents"), open=every),
    Door(method="GET", pattern=re.compile(rf"{ONE_KEPT}"), open=show),
    Door(method="PATCH", pattern=re.compile(rf"{ONE_KEPT}"), open=prolong),
    Door(method="DELETE", pattern=re.compile(rf"{ONE_KEPT}"), open=drop),
    Door(method="GET", pattern=re.compile(r".*/v1/models"), open=models, header=KEY),
    Door(method="GET", pattern=re.compile(r".*/v1/models/(?P<model>[^/:]+)"), open=model, header=KEY),
)

SIDE = Side(
    doors=DOORS,
    unfolded=unfolded,
    dressed=dressed,
    reply_id=lambda digest: f"sim{digest[:20]}",
    named_tokens=named_tokens,
    home=lambda path, headers: KEY in headers or "/v1beta" in path,
    lost="Method not found.",
    unsimulated=re.compile(
        r"(?:/upload)?/v1(?:beta\w*)?/(?:files|batches|fileSearchStores|interactions|tunedModels)(?:[/:].*)?"
        r"|.*:(?:batch\w+|embedContent|predict\w*|asyncBatchEmbedContent|bidiGenerateContent)"
    ),
)
