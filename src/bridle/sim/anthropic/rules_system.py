"""Rules about `system` messages inside a conversation: their content and position.

They go before an answer or at the end, never at the beginning. Several in a row count as one; only the
position of the last matters. A message that only changes settings may stand anywhere.
"""

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, messages

from .request import blocks, rule
from .rules_fields import refuse

HELD = ("text", "tool_addition", "tool_removal")
_DIRECTIVE = "the directive-only form (content: [] with output_config) is accepted at any position"
_HEAD = f"messages.0: use the top-level 'system' parameter for the initial system prompt; {_DIRECTIVE}"
_PLACE = (
    f"messages.{{index}}: role 'system' must precede an 'assistant' message or end the array; {_DIRECTIVE}"
)
_EMPTY = "messages.{index}: system content must contain at least one block"
_KINDS = "messages.{index}: role 'system' supports text, tool_addition, and tool_removal blocks only"
_BLANK = "messages.{index}: system text blocks must contain non-whitespace text"


def _is_system(message: JsonObject) -> bool:
    """True for a system message, except one that only changes settings."""
    return message.get("role") == "system" and "output_config" not in message


def _check_system_place(request: RawRequest) -> RuleFinding | None:
    sent = messages(request)
    for at, message in enumerate(sent):
        following = sent[at + 1].get("role") if at + 1 < len(sent) else "assistant"
        if _is_system(message) and following not in ("assistant", "system"):
            return {"index": at}
    return None


def _has_other_block(message: JsonObject) -> bool:
    return _is_system(message) and any(block.get("type") not in (None, *HELD) for block in blocks(message))


def _has_blank_text(message: JsonObject) -> bool:
    texts = (block.get("text") for block in blocks(message))
    return _is_system(message) and any(isinstance(text, str) and not text.strip() for text in texts)


SYSTEM_RULES = (
    refuse(
        "system-model",
        "messages[]",
        _is_system,
        "role 'system' is not supported on this model",
        evidence="D",
        models="that take no operators in the midst",
        when=lambda able: not able.system_messages,
    ),
    refuse(
        "system-some",
        "messages[]",
        lambda message: _is_system(message) and message.get("content") in ("", []),
        _EMPTY,
        evidence="F",
    ),
    refuse("system-blocks", "messages[]", _has_other_block, _KINDS, evidence="F"),
    rule(
        "system-head",
        lambda request: {} if any(map(_is_system, messages(request)[:1])) else None,
        _HEAD,
        evidence="F",
    ),
    rule("system-place", _check_system_place, _PLACE, evidence="F"),
    refuse("system-blank", "messages[]", _has_blank_text, _BLANK, evidence="F"),
)
