"""Prompts kept by name (`cachedContents`): made, listed, shown, kept for longer, dropped; and leaned on.

What is kept is for one account and one model, has a least size, and is gone when its time is up.  A
request that names one says nothing of it again.  Whoever asks for one that is not there, or is another's,
is told the same.  Storage is counted by token and second (`stored_token_seconds`), as it is billed.
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


def create_cached_content(house: ServerState, knock: EndpointCall) -> Json | Failure:
    body = {SNAKE_NAMES.get(name, name): value for name, value in knock.body.items()}
    wanted = str(body.get("model", ""))
    model = _find_model(house, wanted)
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
    kept = CachedContent(
        name="cachedContents/" + house.stored.new_id("c").removeprefix("c_")[:40],
        account=find_account(knock.headers),
        model=f"models/{model.id}",
        prompt_head=front,
        tokens=tokens,
        created_at=knock.now,
        updated_at=knock.now,
        expires_at=knock.now + seconds,
        display_name=str(body.get("displayName", "")),
    )
    house.stored.store_prompt(kept)
    return _describe_cached_content(kept)


def get_cached_content(house: ServerState, knock: EndpointCall) -> Json | Failure:
    kept = _find_cached_content(house.stored, knock)
    return NOT_FOUND_FAILURE if kept is None else _describe_cached_content(kept)


def list_cached_contents(house: ServerState, knock: EndpointCall) -> Json:
    mine = (
        kept
        for kept in house.stored.prompts.values()
        if kept.account == find_account(knock.headers) and kept.expires_at > knock.now
    )
    return {"cachedContents": [_describe_cached_content(kept) for kept in mine]}


def extend_cached_content(house: ServerState, knock: EndpointCall) -> Json | Failure:
    kept = _find_cached_content(house.stored, knock)
    if kept is None:
        return NOT_FOUND_FAILURE
    seconds = _parse_ttl(knock.body)
    if isinstance(seconds, Failure):
        return seconds
    paid = kept.stored_token_seconds + kept.tokens * (knock.now - kept.updated_at)
    later = replace(kept, updated_at=knock.now, expires_at=knock.now + seconds, stored_token_seconds=paid)
    house.stored.store_prompt(later)
    return _describe_cached_content(later)


def delete_cached_content(house: ServerState, knock: EndpointCall) -> Json | Failure:
    kept = _find_cached_content(house.stored, knock)
    if kept is None:
        return NOT_FOUND_FAILURE
    del house.stored.prompts[kept.name]
    return {}


def expand_request(
    keeping: StoredObjects, body: Mapping[str, object], caller: CallerContext
) -> Mapping[str, object] | Failure:
    name = _requested_name(body)
    if not name or any(member in body for member in REPEATED_FIELDS):
        return body
    if not isinstance(name, str) or not CACHED_CONTENT_NAME.fullmatch(name):
        return _invalid_argument(f"Invalid CachedContent name: {name}.")
    kept = keeping.prompts.get(name)
    if kept is None or kept.account != find_account(caller.headers) or kept.expires_at <= caller.now:
        return NOT_FOUND_FAILURE
    asked = MODEL_IN_PATH.search(caller.path)
    if asked is not None and asked["model"] != kept.model:
        return _invalid_argument(
            f"Model used by GenerateContent request ({asked['model']}) and CachedContent ({kept.model})"
            " has to be the same."
        )
    rest = {
        member: value for member, value in body.items() if member not in ("cachedContent", "cached_content")
    }
    before, now = kept.prompt_head.get("contents"), rest.get("contents")
    contents = [*(before if isinstance(before, list) else []), *(now if isinstance(now, list) else [now])]
    return {**kept.prompt_head, **rest, "contents": contents}


def named_prompt_tokens(keeping: StoredObjects, body: Mapping[str, object]) -> int:
    kept = keeping.prompts.get(str(_requested_name(body)))
    return kept.tokens if kept is not None else 0


def billed_token_seconds(keeping: StoredObjects, now: float) -> float:
    """What storage would be billed for until now, of everything that is still there."""
    return sum(
        kept.stored_token_seconds + kept.tokens * (min(now, kept.expires_at) - kept.updated_at)
        for kept in keeping.prompts.values()
    )


def _requested_name(body: Mapping[str, object]) -> object:
    return body.get("cachedContent") or body.get("cached_content")


def _find_model(house: ServerState, wanted: str) -> Model | None:
    return next((each for each in house.models_of("gemini") if f"models/{each.id}" == wanted), None)


def _find_cached_content(keeping: StoredObjects, knock: EndpointCall) -> CachedContent | None:
    kept = keeping.prompts.get(f"cachedContents/{knock.path_params['id']}")
    mine = kept is not None and kept.account == find_account(knock.headers) and kept.expires_at > knock.now
    return kept if mine else None


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


def _describe_cached_content(kept: CachedContent) -> Json:
    label = {"displayName": kept.display_name} if kept.display_name else {}
    return {
        "name": kept.name,
        "model": kept.model,
        "createTime": _format_time(kept.created_at),
        "updateTime": _format_time(kept.updated_at),
        "expireTime": _format_time(kept.expires_at),
        **label,
        "usageMetadata": {"totalTokenCount": kept.tokens},
    }


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
