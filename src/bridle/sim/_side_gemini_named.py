"""Prompts kept by name (`cachedContents`): made, listed, shown, kept for longer, dropped; and leaned on.

What is kept is for one account and one model, has a least size, and is gone when its time is up.  A
request that names one says nothing of it again.  Whoever asks for one that is not there, or is another's,
is told the same.  Storage is counted by token and second (`stored_token_seconds`), as it is billed.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from ..values.errors import Failure
from ..values.model import Model
from .keeping import Keeping, KeptPrompt
from .prompt_gemini import account, read
from .side import Caller, House, Json, Knock

FRONT = ("systemInstruction", "tools", "toolConfig", "contents")
SNAKE = {
    "system_instruction": "systemInstruction",
    "tool_config": "toolConfig",
    "display_name": "displayName",
}
AGAIN = ("systemInstruction", "tools", "toolConfig", "system_instruction", "tool_config")
NAME = re.compile(r"cachedContents/[a-z0-9]{1,64}")
DURATION = re.compile(r"(\d+(?:\.\d{1,9})?)s")
MODEL_IN_PATH = re.compile(r"/(?P<model>models/[^/:]+):")
SECONDS_DEFAULT = 3_600.0
GONE = Failure(
    kind="forgotten",
    message="CachedContent not found (or permission denied)",
    status=403,
    code="PERMISSION_DENIED",
)


def create(house: House, knock: Knock) -> Json | Failure:
    body = {SNAKE.get(name, name): value for name, value in knock.body.items()}
    wanted = str(body.get("model", ""))
    model = _model(house, wanted)
    if model is None or not model.abilities.cache_named:
        why = f"{wanted} is not found for API version v1beta, or is not supported for createCachedContent."
        return Failure(kind="not_found", message=why, status=404, code="NOT_FOUND")
    seconds = _seconds(body)
    if isinstance(seconds, Failure):
        return seconds
    front = {name: body[name] for name in FRONT if body.get(name)}
    tokens, least = read(front, model.abilities).tokens, model.abilities.cache_minimum_tokens
    if tokens < least:
        return _invalid(
            f"Cached content is too small. total_token_count={tokens}, min_total_token_count={least}"
        )
    kept = KeptPrompt(
        name="cachedContents/" + house.keeping.new_id("c").removeprefix("c_")[:40],
        account=account(knock.headers),
        model=f"models/{model.id}",
        front=front,
        tokens=tokens,
        created_at=knock.now,
        updated_at=knock.now,
        until=knock.now + seconds,
        label=str(body.get("displayName", "")),
    )
    house.keeping.name_prompt(kept)
    return _about(kept)


def show(house: House, knock: Knock) -> Json | Failure:
    kept = _found(house.keeping, knock)
    return GONE if kept is None else _about(kept)


def every(house: House, knock: Knock) -> Json:
    mine = (
        kept
        for kept in house.keeping.prompts.values()
        if kept.account == account(knock.headers) and kept.until > knock.now
    )
    return {"cachedContents": [_about(kept) for kept in mine]}


def prolong(house: House, knock: Knock) -> Json | Failure:
    kept = _found(house.keeping, knock)
    if kept is None:
        return GONE
    seconds = _seconds(knock.body)
    if isinstance(seconds, Failure):
        return seconds
    paid = kept.stored + kept.tokens * (knock.now - kept.updated_at)
    later = replace(kept, updated_at=knock.now, until=knock.now + seconds, stored=paid)
    house.keeping.name_prompt(later)
    return _about(later)


def drop(house: House, knock: Knock) -> Json | Failure:
    kept = _found(house.keeping, knock)
    if kept is None:
        return GONE
    del house.keeping.prompts[kept.name]
    return {}


def unfolded(keeping: Keeping, body: Mapping[str, object], caller: Caller) -> Mapping[str, object] | Failure:
    name = _named(body)
    if not name or any(member in body for member in AGAIN):
        return body
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return _invalid(f"Invalid CachedContent name: {name}.")
    kept = keeping.prompts.get(name)
    if kept is None or kept.account != account(caller.headers) or kept.until <= caller.now:
        return GONE
    asked = MODEL_IN_PATH.search(caller.path)
    if asked is not None and asked["model"] != kept.model:
        return _invalid(
            f"Model used by GenerateContent request ({asked['model']}) and CachedContent ({kept.model})"
            " has to be the same."
        )
    rest = {
        member: value for member, value in body.items() if member not in ("cachedContent", "cached_content")
    }
    before, now = kept.front.get("contents"), rest.get("contents")
    contents = [*(before if isinstance(before, list) else []), *(now if isinstance(now, list) else [now])]
    return {**kept.front, **rest, "contents": contents}


def named_tokens(keeping: Keeping, body: Mapping[str, object]) -> int:
    kept = keeping.prompts.get(str(_named(body)))
    return kept.tokens if kept is not None else 0


def stored_token_seconds(keeping: Keeping, now: float) -> float:
    """What storage would be billed for until now, of everything that is still there."""
    return sum(
        kept.stored + kept.tokens * (min(now, kept.until) - kept.updated_at)
        for kept in keeping.prompts.values()
    )


def _named(body: Mapping[str, object]) -> object:
    return body.get("cachedContent") or body.get("cached_content")


def _model(house: House, wanted: str) -> Model | None:
    return next((each for each in house.models_of("gemini") if f"models/{each.id}" == wanted), None)


def _found(keeping: Keeping, knock: Knock) -> KeptPrompt | None:
    kept = keeping.prompts.get(f"cachedContents/{knock.found['id']}")
    mine = kept is not None and kept.account == account(knock.headers) and kept.until > knock.now
    return kept if mine else None


def _seconds(body: Mapping[str, object]) -> float | Failure:
    ttl = body.get("ttl")
    if ttl is None:
        return SECONDS_DEFAULT
    found = DURATION.fullmatch(str(ttl))
    if found is None or float(found[1]) <= 0:
        return _invalid(
            f"Invalid value at 'cached_content.ttl' (type.googleapis.com/google.protobuf.Duration): {ttl}"
        )
    return float(found[1])


def _invalid(message: str) -> Failure:
    return Failure(kind="invalid", message=message, status=400, code="INVALID_ARGUMENT")


def _about(kept: KeptPrompt) -> Json:
    label = {"displayName": kept.label} if kept.label else {}
    return {
        "name": kept.name,
        "model": kept.model,
        "createTime": _time(kept.created_at),
        "updateTime": _time(kept.updated_at),
        "expireTime": _time(kept.until),
        **label,
        "usageMetadata": {"totalTokenCount": kept.tokens},
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
