"""Every text of every event is removed by a redaction, or kept for a reason that is written down here."""

import json

import msgspec
import msgspec.inspect as types
import pytest

from bridle.core.redaction import REMOVED, redact_data
from bridle.values.errors import MisuseError
from bridle.values.events import ContentRedacted, Event, UnknownEvent
from bridle.values.record import decode_event
from bridle.values.usage import Budget, Limits, RateLimit

KEPT = {
    "an id or a hash that another record or a provider refers to": """
        answer_id binding call_id conversation digest id key native_digest parent
        parent_call_id parent_session nested_session pool prompt_head prompt_ids rejected_parts reply_id run
        same_as_call session stored_prompt summarized_until summarizes_until traceparent version wire_id
        ViewChange.message ApprovalAnswered.request Steered.request PauseRequested.request RunEnded.request
        ControlRefused.request RunEnded.in_doubt HookDecided.withheld""",
    "the identity of a person, a tenant or an agent": """
        across by caller callers cross_tenant handed_over_to owner owners proof settled_by tenant tenants""",
    "the name of a tool, a model, a rule, a server or an option": """
        aliases alternative code compensation continues concept ToolError.type ToolError.place discarded_tools display effort family functions handover hook
        missing mode model model_key name names option omitted_extras omitted_tools reveals_tools rule
        server step_functions strategies term terms tool tools validator validators wire ToolsChanged.changed
        TrialScored.task TrialScored.cell TrialScored.tags TrialScored.suite TrialScored.stop TrialScored.plan TrialScored.planned TrialScored.source TrialScored.python""",
    "a definition by the program: of a model, a tool, an output or a rule": """
        allowance_mode app PermissionRule.arguments base_url base_url_env custom_address description dialect display_default
        document_types effort_default efforts endpoint headers hosted hosted_counts hosted_refused image_types json key_env
        mode_efforts ToolSpec.native native_to parameters restrictions signing signing_env stop_sequences
        thinking thinking_default unforced_while unshown_modes unsupported_models skipped_models""",
    "a sentence of the harness, which quotes no content": """
        adjustments block budget_warning items label lead notes truncation_hint usage_doubt""",
}
REASONS = {name: reason for reason, names in KEPT.items() for name in names.split()}
EVENTS = [
    kind.cls
    for kind in types.type_info(Event).types  # type: ignore[attr-defined]
    if kind.cls not in (UnknownEvent, ContentRedacted)
]


def fill(kind, owner):
    """JSON of a type with every field set; each text says where it is."""
    match kind:
        case types.StrType() | types.AnyType() | types.RawType():
            return f"<{owner}>"
        case types.StructType() if kind.cls is RateLimit:
            return {"per": "tool", "tool": "<RateLimit.tool>", "requests": 1}
        case types.StructType() if kind.cls is Budget:
            return {"usd": "1", "tenant": {"usd": "1", "period": "day", "zone": "UTC"}}
        case types.StructType() if kind.cls is Limits:
            return {"usd": "1", "period": "day", "zone": "UTC"}
        case types.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return {
                **tag,
                **{
                    field.encode_name: fill(field.type, f"{kind.cls.__name__}.{field.encode_name}")
                    for field in kind.fields
                },
            }
        case types.UnionType():
            return fill(next(each for each in kind.types if not isinstance(each, types.NoneType)), owner)
        case types.ListType() | types.VarTupleType():
            item = kind.item_type
            items = item.types if isinstance(item, types.UnionType) else (item,)
            return [fill(each, owner) for each in items]
        case types.TupleType():
            return [fill(each, owner) for each in kind.item_types]
        case types.DictType():
            return {fill(kind.key_type, owner): fill(kind.value_type, owner)}
        case types.LiteralType():
            return kind.values[0]
        case types.EnumType():
            return next(iter(kind.cls)).value
        case types.BoolType():
            return True
        case types.DecimalType():
            return "1"
        case types.FloatType():
            return 0.5
    assert isinstance(kind, types.IntType), kind
    return 1


def find_texts(tree):
    match tree:
        case str() if tree.startswith("<"):
            yield tree[1:-1]
        case list():
            for each in tree:
                yield from find_texts(each)
        case dict():
            for name, value in tree.items():
                yield from find_texts(name)
                yield from find_texts(value)


def redact_filled(event):
    """Places of the texts of an event with every field set: all of them, and those that a redaction leaves."""
    data = msgspec.json.encode(fill(types.type_info(event), ""))
    assert type(decode_event(data)) is event
    try:
        left = redact_data(1, data).data
    except MisuseError as error:
        assert "no content to remove" in str(error)
        left = data
    return set(find_texts(json.loads(data))), set(find_texts(json.loads(left)))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_every_text_is_removed_or_kept_for_a_reason(event):
    _, kept = redact_filled(event)
    assert [place for place in sorted(kept) if not {place, place.rpartition(".")[2]} & REASONS.keys()] == []


def test_no_reason_covers_a_text_that_is_removed_elsewhere_and_none_is_left_over():
    found = [redact_filled(event) for event in EVENTS]
    kept = {place for _, left in found for place in left}
    removed = {place for all_, left in found for place in all_ - left} - kept
    whole = (
        "Media.",
        "Opaque.",
        "RawCall.",
        "StoredResult.",
        "Origin.",
    )  # removed as a whole, with their names
    names = {place.rpartition(".")[2] for place in removed if not place.startswith(whole)}
    assert names & REASONS.keys() == set()
    assert REASONS.keys() - kept - {place.rpartition(".")[2] for place in kept} == set()


def test_the_record_of_a_redaction_cannot_be_redacted():
    event = ContentRedacted(record=1, record_hash="h", body="b", digest="d", reason="because", by="ann")
    for path in ("", "reason", "by"):
        with pytest.raises(MisuseError, match="says who removed content and why"):
            redact_data(7, msgspec.json.encode(event), path)


def test_marks_that_the_loop_depends_on_stay():
    data = msgspec.json.encode({"type": "reprompted", "why": "output", "message": "secret"})
    event = redact_data(1, data).event
    assert (event.why, event.message) == ("output", REMOVED)
