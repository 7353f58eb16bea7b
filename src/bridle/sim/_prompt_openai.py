"""What the two OpenAI wires have in common about prompts and their cache.

Any setting that is written into the front of the prompt makes all of it another prompt;
the table has them with the value that is meant when they are left out.
"""

from collections.abc import Callable, Mapping

from .prompt import Block, Body, Section, digest, mapping, media_block, shown, word

BREAKPOINT = "prompt_cache_breakpoint"
KEPT_DEFAULT = "30m"
IN_MEMORY = "in_memory"
MEDIA = {
    "input_image": "image",
    "image_url": "image",
    "input_file": "file",
    "file": "file",
    "input_audio": "file",
}
Setting = tuple[Callable[[Body], object], object]


def account(headers: Mapping[str, str]) -> str:
    names = ("authorization", "api-key", "openai-organization", "openai-project")
    return " ".join(headers.get(name, "") for name in names).strip()


def settings_of(body: Body, settings: Mapping[str, Setting]) -> Mapping[str, str]:
    """What is not as it would be anyway."""
    values = [(name, find(body)) for name, (find, _) in settings.items()]
    return {
        name: digest(value)
        for name, value in values
        if value is not None and value not in (settings[name][1], "")
    }


def kept(body: Body) -> str:
    """How long the request wants its prompt kept; empty for the model's own way."""
    wanted = word(mapping(body.get("prompt_cache_options")).get("ttl"))
    retention = word(body.get("prompt_cache_retention"))
    return wanted or ("" if retention == IN_MEMORY else retention)


def own(body: Body) -> bool:
    return mapping(body.get("prompt_cache_options")).get("mode") != "explicit"


def part_block(section: Section, who: str, part: Body, body: Body) -> Block:
    kind = word(part.get("type"))
    bare = {name: value for name, value in part.items() if name not in (BREAKPOINT, "cache_control")}
    mark = _mark(part, body)
    if kind in MEDIA:
        return media_block(section, MEDIA[kind], who, bare, mark=mark)
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return Block(section=section, kind="text", key=who, text=text, mark=mark)
    return Block(section=section, kind="other", key=who, text=shown(bare), mark=mark)


def _mark(part: Body, body: Body) -> str:
    point, control = mapping(part.get(BREAKPOINT)), mapping(part.get("cache_control"))
    if point:
        return word(point.get("ttl")) or kept(body) or KEPT_DEFAULT
    return word(control.get("ttl")) or "5m" if control else ""
