"""Operators in the midst of a conversation: what a message of the role `system` holds, and where it stands.

It goes before an answer or at the end, never at the beginning.  Several in a row are one; only where they
end matters.  One that says nothing and only sets something may stand anywhere.
"""

from msgspec.structs import replace

from ._rules_anthropic_shape import NEWEST, PREFILLS, asked, assistant, blocks, messages, rule, text, user
from ._rules_reading import Block, to
from .rules import Asked, Found

HELD = ("text", "tool_addition", "tool_removal")
_DIRECTIVE = "the directive-only form (content: [] with output_config) is accepted at any position"
_HEAD = f"messages.0: use the top-level 'system' parameter for the initial system prompt; {_DIRECTIVE}"
_PLACE = (
    f"messages.{{index}}: role 'system' must precede an 'assistant' message or end the array; {_DIRECTIVE}"
)
_EMPTY = "messages.{index}: system content must contain at least one block"
_KINDS = "messages.{index}: role 'system' supports text, tool_addition, and tool_removal blocks only"
_BLANK = "messages.{index}: system text blocks must contain non-whitespace text"


def _orders(request: Asked) -> list[tuple[int, Block]]:
    """Operators' messages with their places, but for those that only set something."""
    spoken = enumerate(messages(request))
    return [(at, said) for at, said in spoken if said.get("role") == "system" and "output_config" not in said]


def _unsupported(request: Asked) -> Found | None:
    able = request.abilities
    return {} if able is not None and not able.system_messages and _orders(request) else None


def _nothing_said(request: Asked) -> Found | None:
    return next(({"index": at} for at, said in _orders(request) if said.get("content") in ("", [])), None)


def _odd_block(request: Asked) -> Found | None:
    for at, said in _orders(request):
        if any(block.get("type") not in (None, *HELD) for block in blocks(said)):
            return {"index": at}
    return None


def _first(request: Asked) -> Found | None:
    return {} if any(at == 0 for at, _ in _orders(request)) else None


def _misplaced(request: Asked) -> Found | None:
    said = messages(request)
    for at, _ in _orders(request):
        following = said[at + 1].get("role") if at + 1 < len(said) else "assistant"
        if following not in ("assistant", "system"):
            return {"index": at}
    return None


def _blank(request: Asked) -> Found | None:
    for at, said in _orders(request):
        if any(isinstance(words := block.get("text"), str) and not words.strip() for block in blocks(said)):
            return {"index": at}
    return None


def _told(*content: object, **more: object) -> Block:
    return {"role": "system", "content": list(content), **more}


def _talk(*said: Block) -> Asked:
    return to(_LISTENS, asked(messages=[user("Hello"), *said]))


_LISTENS = replace(NEWEST, system_messages=True)
_BRIEF = _told(text("Be brief."))
_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}}

SYSTEM_RULES = (
    rule(
        "system-model",
        _unsupported,
        "role 'system' is not supported on this model",
        evidence="D",
        models="that take no operators in the midst",
        passes=_talk(_BRIEF),
        offends=to(PREFILLS, asked(messages=[user("Hello"), _BRIEF])),
        also=((to(PREFILLS, asked()), ""), (to(None, asked(messages=[user("Hello"), _BRIEF])), "")),
    ),
    rule(
        "system-some",
        _nothing_said,
        _EMPTY,
        evidence="F",
        passes=_talk(_told(output_config={"effort": "low"}), user("And?")),
        offends=_talk(_told()),
        says=_EMPTY.format(index=1),
        also=((_talk({"role": "system", "content": ""}), _EMPTY.format(index=1)),),
    ),
    rule(
        "system-blocks",
        _odd_block,
        _KINDS,
        evidence="F",
        passes=_talk(_BRIEF),
        offends=_talk(_told(text("Look."), _IMAGE)),
        says=_KINDS.format(index=1),
    ),
    rule(
        "system-head",
        _first,
        _HEAD,
        evidence="F",
        passes=_talk(_BRIEF),
        offends=to(_LISTENS, asked(messages=[_BRIEF, user("Hello")])),
    ),
    rule(
        "system-place",
        _misplaced,
        _PLACE,
        evidence="F",
        passes=_talk(_BRIEF, assistant("Hm."), user("And?")),
        offends=_talk(_BRIEF, _BRIEF, user("And?")),
        says=_PLACE.format(index=2),
    ),
    rule(
        "system-blank",
        _blank,
        _BLANK,
        evidence="F",
        passes=_talk(_BRIEF),
        offends=_talk(_told(text("Be brief."), text(" "))),
        says=_BLANK.format(index=1),
    ),
)
