"""Operators in the midst of a conversation: what a message of the role `system` holds, and where it stands.

It goes before an answer or at the end, never at the beginning.  Several in a row are one; only where they
end matters.  One that says nothing and only sets something may stand anywhere.
"""

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject

from .request import blocks, messages, rule

HELD = ("text", "tool_addition", "tool_removal")
_DIRECTIVE = "the directive-only form (content: [] with output_config) is accepted at any position"
_HEAD = f"messages.0: use the top-level 'system' parameter for the initial system prompt; {_DIRECTIVE}"
_PLACE = (
    f"messages.{{index}}: role 'system' must precede an 'assistant' message or end the array; {_DIRECTIVE}"
)
_EMPTY = "messages.{index}: system content must contain at least one block"
_KINDS = "messages.{index}: role 'system' supports text, tool_addition, and tool_removal blocks only"
_BLANK = "messages.{index}: system text blocks must contain non-whitespace text"


def _list_system_messages(request: RawRequest) -> list[tuple[int, JsonObject]]:
    """Operators' messages with their places, but for those that only set something."""
    spoken = enumerate(messages(request))
    return [(at, said) for at, said in spoken if said.get("role") == "system" and "output_config" not in said]


def _check_system_model(request: RawRequest) -> RuleFinding | None:
    able = request.abilities
    return {} if able is not None and not able.system_messages and _list_system_messages(request) else None


def _check_system_some(request: RawRequest) -> RuleFinding | None:
    return next(
        ({"index": at} for at, said in _list_system_messages(request) if said.get("content") in ("", [])),
        None,
    )


def _check_system_blocks(request: RawRequest) -> RuleFinding | None:
    for at, said in _list_system_messages(request):
        if any(block.get("type") not in (None, *HELD) for block in blocks(said)):
            return {"index": at}
    return None


def _check_system_head(request: RawRequest) -> RuleFinding | None:
    return {} if any(at == 0 for at, _ in _list_system_messages(request)) else None


def _check_system_place(request: RawRequest) -> RuleFinding | None:
    said = messages(request)
    for at, _ in _list_system_messages(request):
        following = said[at + 1].get("role") if at + 1 < len(said) else "assistant"
        if following not in ("assistant", "system"):
            return {"index": at}
    return None


def _check_system_blank(request: RawRequest) -> RuleFinding | None:
    for at, said in _list_system_messages(request):
        if any(isinstance(words := block.get("text"), str) and not words.strip() for block in blocks(said)):
            return {"index": at}
    return None


SYSTEM_RULES = (
    rule(
        "system-model",
        _check_system_model,
        "role 'system' is not supported on this model",
        evidence="D",
        models="that take no operators in the midst",
    ),
    rule("system-some", _check_system_some, _EMPTY, evidence="F"),
    rule("system-blocks", _check_system_blocks, _KINDS, evidence="F"),
    rule("system-head", _check_system_head, _HEAD, evidence="F"),
    rule("system-place", _check_system_place, _PLACE, evidence="F"),
    rule("system-blank", _check_system_blank, _BLANK, evidence="F"),
)
