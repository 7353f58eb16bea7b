"""Compaction on the Responses API, which can be requested in three ways.

    its own path    takes a conversation and few other fields; the answer repeats the user messages unchanged
    an item         at the end of the input; the answer is the summary alone
    a setting       for long conversations; the summary comes before the answer

The summary is one encrypted item. `signatures.py` checks items that are sent back.
"""

from collections.abc import Iterable

import msgspec

from bridle.sim.family import CompactionDue
from bridle.sim.openai.error_style import FIELD_CHECKS, rule
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field
from bridle.sim.signatures import digest_value
from bridle.values.message import Opaque

from .request import items
from .signatures import make_summary_item, read_summary

COMPACT_PATH = "/compact"
TRIGGER_TYPE = "compaction_trigger"
THRESHOLD_TOKENS_MIN = 1_000
COMPACT_FIELDS = ("image", "input", "instructions", "model", "previous_response_id", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "service_tier")  # fmt: skip
"""The fields that the compaction path accepts."""


def _check_compact_fields(request: RawRequest) -> RuleFinding | None:
    if not request.path.endswith(COMPACT_PATH):
        return None
    return next(({"name": name} for name in request.body if name not in COMPACT_FIELDS), None)


def _check_compaction_trigger(request: RawRequest) -> RuleFinding | None:
    for index, item in enumerate(items(request)[:-1]):
        if item.get("type") == TRIGGER_TYPE:
            return {"index": index}
    return None


COMPACTION_RULES = (
    rule(
        "compact-fields",
        _check_compact_fields,
        "Unknown parameter: '{name}'.",
        evidence="F",
        code="unknown_parameter",
    ),
    rule(
        "compaction-trigger",
        _check_compaction_trigger,
        "Invalid value for 'input[{index}]': 'compaction_trigger' must be the final input item.",
        evidence="K",
        code="invalid_value",
    ),
    FIELD_CHECKS.one_of(
        "context_management[].type", ("compaction",), FieldRow(id="management-type", evidence="F")
    ),
    FIELD_CHECKS.only_fields(
        "context_management[]", ("type", "compact_threshold"), FieldRow(id="management-fields", evidence="F")
    ),
    FIELD_CHECKS.minimum(
        "context_management[].compact_threshold",
        THRESHOLD_TOKENS_MIN,
        FieldRow(id="management-threshold", evidence="F"),
    ),
)


def make_requested_summary(asked: RawRequest, words: str) -> tuple[Opaque, ...]:
    mark, given = digest_value(asked.body), field(asked, "input")
    told: Iterable[JsonObject] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else items(asked)
    )
    said = [{**item, "content": _item_content(item)} for item in told if item.get("role") == "user"]
    kept = [
        {"id": f"msg_{mark}{at:02x}", "type": "message", "status": "completed", **item}
        for at, item in enumerate(said)
    ]
    return (*map(_as_opaque, kept), *make_automatic_summary(asked, words))


def make_automatic_summary(asked: RawRequest, words: str) -> tuple[Opaque, ...]:
    sealed = make_summary_item(str(field(asked, "model")), f"cmp_{digest_value(asked.body)}", words)
    return (_as_opaque(sealed),)


def read_summary_text(part: Opaque) -> str:
    item = msgspec.json.decode(part.native, type=dict[str, object])
    return read_summary(item)


def find_due_compaction(asked: RawRequest) -> CompactionDue | None:
    last = as_mapping(next(reversed(items(asked)), None))
    if last.get("type") == TRIGGER_TYPE:
        return CompactionDue(pauses_after=True)
    for entry in map(as_mapping, as_list(field(asked, "context_management"))):
        threshold = entry.get("compact_threshold")
        if isinstance(threshold, int) and asked.prompt_tokens >= threshold:
            return CompactionDue()
    return None


def _item_content(item: JsonObject) -> object:
    content = item.get("content")
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


def _as_opaque(item: JsonObject) -> Opaque:
    return Opaque(kind=str(item["type"]), native=msgspec.json.encode(item).decode())
