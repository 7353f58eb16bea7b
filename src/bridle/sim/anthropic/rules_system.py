"""Rules about `system` messages inside a conversation: their content and position.

They go before an answer or at the end, never at the beginning. Several in a row count as one; only the
position of the last matters. A message that only changes settings may stand anywhere.
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
    """List system messages with their indexes, except those that only change settings."""
    numbered = enumerate(messages(request))
    return [
        (at, message)
        for at, message in numbered
        if message.get("role") == "system" and "output_config" not in message
    ]


def _check_system_model(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    return (
        {}
        if abilities is not None and not abilities.system_messages and _list_system_messages(request)
        else None
    )


def _check_system_some(request: RawRequest) -> RuleFinding | None:
    return next(
        (
            {"index": at}
            for at, message in _list_system_messages(request)
            if message.get("content") in ("", [])
        ),
        None,
    )


def _check_system_blocks(request: RawRequest) -> RuleFinding | None:
    for at, message in _list_system_messages(request):
        if any(block.get("type") not in (None, *HELD) for block in blocks(message)):
            return {"index": at}
    return None


def _check_system_head(request: RawRequest) -> RuleFinding | None:
    return {} if any(at == 0 for at, _ in _list_system_messages(request)) else None


def _check_system_place(request: RawRequest) -> RuleFinding | None:
    sent = messages(request)
    for at, _ in _list_system_messages(request):
        following = sent[at + 1].get("role") if at + 1 < len(sent) else "assistant"
        if following not in ("assistant", "system"):
            return {"index": at}
    return None


def _check_system_blank(request: RawRequest) -> RuleFinding | None:
    for at, message in _list_system_messages(request):
        if any(
            isinstance(words := block.get("text"), str) and not words.strip() for block in blocks(message)
        ):
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
