"""Compares two sessions: their common part, and what each did afterwards.

Records are equal if they are the same records, which a fork shares. Messages are equal if their content is:
ids, times and reasoning are ignored, because no two runs reason identically.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from bridle.core.json_differences import list_differences
from bridle.core.recovery.log_repair import LogReader
from bridle.core.state import State
from bridle.values.budget import Spending
from bridle.values.events import ModelReplied
from bridle.values.lineage import ComparedSession, Comparison, Pair
from bridle.values.message import Media, Message, Text, ToolCall, ToolResult
from bridle.values.record import Record
from bridle.values.settings import Settings

NAMED_SETTINGS = ("model", "models", "instructions", "tools", "hidden_tools")
"""Settings that are compared individually."""


def compare_logs(a: str, a_records: Sequence[Record], b: str, b_records: Sequence[Record]) -> Comparison:
    shared = _count_shared(a_records, b_records)
    reader = LogReader()
    for record in a_records[:shared]:
        reader.apply_record(record)
    # Spending before the sessions diverged belongs to neither.
    reader.state = replace(reader.state, totals=replace(reader.state.totals, spent=Spending()))
    a_state, b_state = (
        _fold_records(reader.copy(), a_records[shared:]),
        _fold_records(reader, b_records[shared:]),
    )
    equal_count = _count_equal_messages(
        a_state.conversation.transcript.messages, b_state.conversation.transcript.messages
    )
    return Comparison(
        a=_make_side(a, a_state, a_records[shared:]),
        b=_make_side(b, b_state, b_records[shared:]),
        records=shared,
        messages=equal_count,
        settings=tuple(_compare_settings(a_state.settings, b_state.settings)),
        pairs=tuple(
            _pair_messages(
                a_state.conversation.transcript.messages[equal_count:],
                b_state.conversation.transcript.messages[equal_count:],
            )
        ),
    )


def describe_end(state: State) -> str:
    """Stop reason of the last run, or its state if it did not end."""
    return state.run.end.stop or ("new" if not state.conversation.transcript.messages else "unfinished")


def _count_shared(ours: Sequence[Record], theirs: Sequence[Record]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (a, b) in pairs if a.hash != b.hash), min(len(ours), len(theirs)))


def _fold_records(reader: LogReader, records: Sequence[Record]) -> State:
    for record in records:
        reader.apply_record(record)
    return reader.state


def _make_side(session: str, state: State, own: Sequence[Record]) -> ComparedSession:
    return ComparedSession(
        session=session,
        model=state.settings.model.name,
        messages=len(state.conversation.transcript.messages),
        steps=state.totals.spent.steps,
        usage=state.totals.spent.usage,
        usd=state.totals.spent.usd,
        seconds=own[-1].at - own[0].at if own else 0.0,
        end=describe_end(state),
        reason=state.run.end.reason,
        calls=tuple(Counter(_called_tools(own)).most_common()),
    )


def _called_tools(records: Sequence[Record]) -> Iterator[str]:
    """Tools called by replies in these records, counted over the same records as steps and cost."""
    for record in records:
        if isinstance(record.event, ModelReplied):
            yield from (call.name for call in record.event.reply.calls)


def _count_equal_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next(
        (at for at, (a, b) in pairs if comparable_message(a) != comparable_message(b)),
        min(len(ours), len(theirs)),
    )


def comparable_message(message: Message) -> tuple[object, ...]:
    """The content of a message that is compared."""
    return message.role, *(
        content for part in message.parts if (content := _comparable_part(part)) is not None
    )


def _comparable_part(part: object) -> tuple[str, ...] | None:
    match part:
        case Text(text=text):
            return "text", text
        case ToolCall(name=name, arguments=arguments):
            return "call", name, arguments
        case ToolResult(outcome=outcome, parts=parts):
            inner = (_comparable_part(inner) for inner in parts)
            return (
                "result",
                outcome,
                *(word for content in inner if content is not None for word in content),
            )
        case Media(kind=kind, data=data, url=url, file_id=file_id):
            return "media", kind, data, url, file_id
    return None


def _pair_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> Iterator[Pair]:
    """Pairs in the order of both; within a differing section, messages at the same position are paired."""
    matcher = difflib.SequenceMatcher(
        None, [*map(comparable_message, ours)], [*map(comparable_message, theirs)], autojunk=False
    )
    for tag, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        left, right = ours[a_from:a_to], theirs[b_from:b_to]
        for at in range(max(len(left), len(right))):
            a = left[at] if at < len(left) else None
            b = right[at] if at < len(right) else None
            if a is not None and b is not None:
                yield Pair(kind="same" if tag == "equal" else "changed", a=a, b=b)
            else:
                yield Pair(kind="only_b" if a is None else "only_a", a=a, b=b)


def _compare_settings(a: Settings, b: Settings) -> Iterator[tuple[str, str, str]]:
    if a.model != b.model:
        yield "model", a.model.name, b.model.name
    if a.models != b.models:
        yield "chain", _model_names(a), _model_names(b)
    if a.instructions != b.instructions:
        yield "instructions", a.instructions, b.instructions
    ours, theirs = ({spec.name: spec for spec in settings.all_tools} for settings in (a, b))
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            changed = name in ours and name in theirs
            there = "defined differently" if changed else "there"
            yield (
                f"tool {name}",
                there if changed or name in ours else "",
                there if changed or name in theirs else "",
            )
    yield from _compare_other_settings(a, b)


def _compare_other_settings(a: Settings, b: Settings) -> Iterator[tuple[str, str, str]]:
    for name in Settings.__struct_fields__:
        if name not in NAMED_SETTINGS and getattr(a, name) != getattr(b, name):
            one, other = (msgspec.to_builtins(getattr(settings, name)) for settings in (a, b))
            for place in list_differences(one, other, name):
                where, _, how = place.partition(": ")
                was, _, became = how.partition(" became ")
                yield where, was, became


def _model_names(settings: Settings) -> str:
    return ", ".join(model.name for model in settings.models)
