"""Cached contents: create, list, get, extend and delete them, and expand requests that name one.

A cached content belongs to one account and one model, has a minimum size, and expires. A request that names
one must not repeat its fields. A missing one and one of another account give the same error. Storage is
counted in token seconds (`stored_token_seconds`), as it is billed.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from bridle.sim.endpoints import CallerContext, EndpointCall, Json, ServerState
from bridle.sim.stored_objects import CachedContent, StoredObjects
from bridle.values.errors import Failure
from bridle.values.model import Model

from .prompt import find_account, lay_out_prompt

HEAD_FIELDS = ("systemInstruction", "tools", "toolConfig", "contents")
SNAKE_NAMES = {
    "system_instruction": "systemInstruction",
    "tool_config": "toolConfig",
    "display_name": "displayName",
}
REPEATED_FIELDS = ("systemInstruction", "tools", "toolConfig", "system_instruction", "tool_config")
CACHED_CONTENT_NAME = re.compile(r"cachedContents/[a-z0-9]{1,64}")
DURATION = re.compile(r"(\d+(?:\.\d{1,9})?)s")
MODEL_IN_PATH = re.compile(r"/(?P<model>models/[^/:]+):")
SECONDS_DEFAULT = 3_600.0
NOT_FOUND_FAILURE = Failure(
    kind="forgotten",
    message="CachedContent not found (or permission denied)",
    status=403,
    code="PERMISSION_DENIED",
)


def create_cached_content(state: ServerState, call: EndpointCall) -> Json | Failure:
    body = {SNAKE_NAMES.get(name, name): value for name, value in call.body.items()}
    wanted = str(body.get("model", ""))
    model = _find_model(state, wanted)
    if model is None or not model.abilities.cache_named:
        why = f"{wanted} is not found for API version v1beta, or is not supported for createCachedContent."
        return Failure(kind="not_found", message=why, status=404, code="NOT_FOUND")
    seconds = _parse_ttl(body)
    if isinstance(seconds, Failure):
        return seconds
    front = {name: body[name] for name in HEAD_FIELDS if body.get(name)}
    tokens, least = lay_out_prompt(front, model.abilities).tokens, model.abilities.cache_minimum_tokens
    if tokens < least:
        return _invalid_argument(
            f"Cached content is too small. total_token_count={tokens}, min_total_token_count={least}"
        )
    content = CachedContent(
        name="cachedContents/" + state.stored.new_id("c").removeprefix("c_")[:40],
        account=find_account(call.headers),
        model=f"models/{model.id}",
        prompt_head=front,
        tokens=tokens,
        created_at=call.now,
        updated_at=call.now,
        expires_at=call.now + seconds,
        display_name=str(body.get("displayName", "")),
    )
    state.stored.store_prompt(content)
    return _describe_cached_content(content)


def get_cached_content(state: ServerState, call: EndpointCall) -> Json | Failure:
    content = _find_cached_content(state.stored, call)
    return NOT_FOUND_FAILURE if content is None else _describe_cached_content(content)


def list_cached_contents(state: ServerState, call: EndpointCall) -> Json:
    mine = (
        content
        for content in state.stored.prompts.values()
        if content.account == find_account(call.headers) and content.expires_at > call.now
    )
    return {"cachedContents": [_describe_cached_content(content) for content in mine]}


def extend_cached_content(state: ServerState, call: EndpointCall) -> Json | Failure:
    content = _find_cached_content(state.stored, call)
    if content is None:
        return NOT_FOUND_FAILURE
    seconds = _parse_ttl(call.body)
    if isinstance(seconds, Failure):
        return seconds
    paid = content.stored_token_seconds + content.tokens * (call.now - content.updated_at)
    later = replace(content, updated_at=call.now, expires_at=call.now + seconds, stored_token_seconds=paid)
    state.stored.store_prompt(later)
    return _describe_cached_content(later)


def delete_cached_content(state: ServerState, call: EndpointCall) -> Json | Failure:
    content = _find_cached_content(state.stored, call)
    if content is None:
        return NOT_FOUND_FAILURE
    del state.stored.prompts[content.name]
    return {}


def expand_request(
    stored: StoredObjects, body: Mapping[str, object], caller: CallerContext
) -> Mapping[str, object] | Failure:
    name = _requested_name(body)
    if not name or any(member in body for member in REPEATED_FIELDS):
        return body
    if not isinstance(name, str) or not CACHED_CONTENT_NAME.fullmatch(name):
        return _invalid_argument(f"Invalid CachedContent name: {name}.")
    content = stored.prompts.get(name)
    if content is None or content.account != find_account(caller.headers) or content.expires_at <= caller.now:
        return NOT_FOUND_FAILURE
    model_in_path = MODEL_IN_PATH.search(caller.path)
    if model_in_path is not None and model_in_path["model"] != content.model:
        return _invalid_argument(
            f"Model used by GenerateContent request ({model_in_path['model']}) and CachedContent ({content.model})"
            " has to be the same."
        )
    rest = {
        member: value for member, value in body.items() if member not in ("cachedContent", "cached_content")
    }
    before, now = content.prompt_head.get("contents"), rest.get("contents")
    contents = [*(before if isinstance(before, list) else []), *(now if isinstance(now, list) else [now])]
    return {**content.prompt_head, **rest, "contents": contents}


def named_prompt_tokens(stored: StoredObjects, body: Mapping[str, object]) -> int:
    content = stored.prompts.get(str(_requested_name(body)))
    return content.tokens if content is not None else 0


def billed_token_seconds(stored: StoredObjects, now: float) -> float:
    """Return the token seconds billed so far for everything that is still stored."""
    return sum(
        content.stored_token_seconds + content.tokens * (min(now, content.expires_at) - content.updated_at)
        for content in stored.prompts.values()
    )


def _requested_name(body: Mapping[str, object]) -> object:
    return body.get("cachedContent") or body.get("cached_content")


def _find_model(state: ServerState, wanted: str) -> Model | None:
    return next((each for each in state.models_of("gemini") if f"models/{each.id}" == wanted), None)


def _find_cached_content(stored: StoredObjects, call: EndpointCall) -> CachedContent | None:
    content = stored.prompts.get(f"cachedContents/{call.path_params['id']}")
    mine = (
        content is not None
        and content.account == find_account(call.headers)
        and content.expires_at > call.now
    )
    return content if mine else None


def _parse_ttl(body: Mapping[str, object]) -> float | Failure:
    ttl = body.get("ttl")
    if ttl is None:
        return SECONDS_DEFAULT
    found = DURATION.fullmatch(str(ttl))
    if found is None or float(found[1]) <= 0:
        return _invalid_argument(
            f"Invalid value at 'cached_content.ttl' (type.googleapis.com/google.protobuf.Duration): {ttl}"
        )
    return float(found[1])


def _invalid_argument(message: str) -> Failure:
    return Failure(kind="invalid", message=message, status=400, code="INVALID_ARGUMENT")


def _describe_cached_content(content: CachedContent) -> Json:
    label = {"displayName": content.display_name} if content.display_name else {}
    return {
        "name": content.name,
        "model": content.model,
        "createTime": _format_time(content.created_at),
        "updateTime": _format_time(content.updated_at),
        "expireTime": _format_time(content.expires_at),
        **label,
        "usageMetadata": {"totalTokenCount": content.tokens},
    }


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
