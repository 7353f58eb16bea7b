"""Conversations the Responses API makes short: how that is asked for, in three ways.

At a path of its own, which takes a conversation and little else; by an item at the end of the input; and by a
setting, for when the conversation gets long.  Whether an item that comes back was sealed here is asked where
all seals are (seals_openai_responses.py).
"""

from msgspec.structs import replace

from ._rules_openai_responses_shape import SHAPES, asked, items, user
from ._rules_openai_shape import (
    rule,
)
from ._rules_shapes import (
    Row,
)
from .rules import Asked, Found

COMPACT = "/compact"
TRIGGER = "compaction_trigger"
THRESHOLD_TOKENS_MIN = 1_000
FIELDS = ("image", "input", "instructions", "model", "previous_response_id", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "service_tier")  # fmt: skip
"""All that the path of its own takes."""


def _beside(request: Asked) -> Found | None:
    if not request.path.endswith(COMPACT):
        return None
    return next(({"name": name} for name in request.body if name not in FIELDS), None)


def _not_last(request: Asked) -> Found | None:
    for index, item in enumerate(items(request)[:-1]):
        if item.get("type") == TRIGGER:
            return {"index": index}
    return None


def _at_its_path(**changes: object) -> Asked:
    return replace(asked(**changes), path="/v1/responses/compact")


COMPACTION_RULES = (
    rule(
        "compact-fields",
        _beside,
        "Unknown parameter: '{name}'.",
        evidence="F",
        passes=_at_its_path(instructions="Be brief.", prompt_cache_key="k"),
        offends=_at_its_path(tools=[]),
        says="Unknown parameter: 'tools'.",
        code="unknown_parameter",
        also=((asked(tools=[]), ""),),
    ),
    rule(
        "compaction-trigger",
        _not_last,
        "Invalid value for 'input[{index}]': 'compaction_trigger' must be the final input item.",
        evidence="K",
        passes=asked(input=[user("Hello"), {"type": TRIGGER}]),
        offends=asked(input=[{"type": TRIGGER}, user("Hello")]),
        says="Invalid value for 'input[0]': 'compaction_trigger' must be the final input item.",
        code="invalid_value",
    ),
    SHAPES.one_of(
        "context_management[].type",
        ("compaction",),
        asked(context_management=[{"type": "compaction", "compact_threshold": 1_000}]),
        asked(context_management=[{"type": "truncation"}]),
        Row(
            id="management-type",
            evidence="F",
            says="Invalid value: 'truncation'. Supported values are: 'compaction'.",
        ),
    ),
    SHAPES.known(
        "context_management[]",
        ("type", "compact_threshold"),
        asked(context_management=[{"type": "compaction"}]),
        asked(context_management=[{"type": "compaction", "keep": 3}]),
        Row(id="management-fields", evidence="F", says="Unknown parameter: 'context_management[0].keep'."),
    ),
    SHAPES.at_least(
        "context_management[].compact_threshold",
        THRESHOLD_TOKENS_MIN,
        asked(context_management=[{"type": "compaction", "compact_threshold": 1_000}]),
        asked(context_management=[{"type": "compaction", "compact_threshold": 999}]),
        Row(
            id="management-threshold",
            evidence="F",
            says="Invalid 'context_management[0].compact_threshold': integer below minimum value."
            " Expected a value"
            " >= 1000, but got 999 instead.",
        ),
    ),
)
