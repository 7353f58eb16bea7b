"""Prompt layout and cache settings that the two OpenAI wires share.

Any setting that is written into the start of the prompt changes all of it; the table lists them with their
defaults.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from bridle.sim.cache.prompt_layout import (
    Body,
    PromptBlock,
    PromptText,
    as_text,
    hash_value,
    media_block,
    place_blocks,
    to_json,
)
from bridle.sim.rules.raw_request import as_mapping

BREAKPOINT = "prompt_cache_breakpoint"
TTL_DEFAULT = "30m"
IN_MEMORY = "in_memory"
DEVELOPER_ROLES = ("developer", "system")
MEDIA = {
    "input_image": "image",
    "image_url": "image",
    "input_file": "file",
    "file": "file",
    "input_audio": "file",
}
PromptSetting = tuple[Callable[[Body], object], object]


def find_account(headers: Mapping[str, str]) -> str:
    names = ("authorization", "api-key", "openai-organization", "openai-project")
    return " ".join(headers.get(name, "") for name in names).strip()


def make_prompt(
    body: Body,
    head: Sequence[PromptBlock],
    messages: Sequence[tuple[str, Sequence[PromptBlock]]],
    settings: Mapping[str, str],
) -> PromptText:
    """Make the prompt of a request; each of the `messages` is its role and its blocks."""
    ends = _implicit_breakpoints([role for role, _ in messages])
    marked = [
        [*blocks[:-1], replace(blocks[-1], is_implicit_breakpoint=True)] if at in ends and blocks else blocks
        for at, (_, blocks) in enumerate(messages)
    ]
    return PromptText(
        blocks=place_blocks([head, *marked]),
        cache_salts={"tools": hash_value(settings)},
        settings=settings,
        retention=find_retention(body),
        allows_implicit_cache=as_mapping(body.get("prompt_cache_options")).get("mode") != "explicit",
    )


def _implicit_breakpoints(roles: Sequence[str]) -> set[int]:
    """Positions where input that the model did not write ends, up to which the provider caches by itself."""
    ends = set()
    for place, role in enumerate(roles):
        following = roles[place + 1] if place + 1 < len(roles) else ""
        leading = all(other in DEVELOPER_ROLES for other in roles[: place + 1])
        ends_group = (role == "tool" and following != "tool") or (
            leading and following not in DEVELOPER_ROLES
        )
        if role == "user" or ends_group:
            ends.add(place)
    return ends


def changed_settings(body: Body, settings: Mapping[str, PromptSetting]) -> Mapping[str, str]:
    """Return the settings that differ from their defaults, as hashes."""
    values = [(name, find(body)) for name, (find, _) in settings.items()]
    return {
        name: hash_value(value)
        for name, value in values
        if value is not None and value not in (settings[name][1], "")
    }


def find_retention(body: Body) -> str:
    """Return the requested lifetime of the prompt; empty for the model's default."""
    wanted = as_text(as_mapping(body.get("prompt_cache_options")).get("ttl"))
    retention = as_text(body.get("prompt_cache_retention"))
    return wanted or ("" if retention == IN_MEMORY else retention)


def part_block(who: str, part: Body, body: Body) -> PromptBlock:
    kind = as_text(part.get("type"))
    bare = {name: value for name, value in part.items() if name not in (BREAKPOINT, "cache_control")}
    mark = _breakpoint_ttl(part, body)
    if kind in MEDIA:
        return media_block("messages", MEDIA[kind], who, bare, mark=mark)
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return PromptBlock(section="messages", kind="text", key=who, text=text, breakpoint_ttl=mark)
    return PromptBlock(section="messages", kind="other", key=who, text=to_json(bare), breakpoint_ttl=mark)


def _breakpoint_ttl(part: Body, body: Body) -> str:
    point, control = as_mapping(part.get(BREAKPOINT)), as_mapping(part.get("cache_control"))
    if point:
        return as_text(point.get("ttl")) or find_retention(body) or TTL_DEFAULT
    return as_text(control.get("ttl")) or "5m" if control else ""
