"""Show what happened in a session: messages, tool calls, cost, and how it ended."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from bridle.cli.format.columns import screen_width, wrap_text
from bridle.cli.format.event_lines import (
    format_budget_event,
    format_conversation,
    format_hook,
    format_memory,
    format_notice,
    format_options,
    format_revealed,
    format_subrun,
    format_view_change,
)
from bridle.cli.format.printing import print_line, write_raw
from bridle.cli.log_access import (
    add_across_option,
    add_store_option,
    add_tenant_option,
    fold_state,
    format_local_time,
    open_log,
    read_session,
    tenant_of,
)
from bridle.core.calls.argument_changes import list_changes, show_arguments
from bridle.core.lineage.compare import describe_end
from bridle.core.state import State
from bridle.run.calls.approval import make_approval_id
from bridle.values import events as e
from bridle.values.budget import (
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    Spending,
    SubrunCharged,
    SubrunStarted,
    SubrunWaiting,
)
from bridle.values.cache import CacheDegraded, CacheEvent, PrefixMoved, PromptDropped, PromptStored
from bridle.values.errors import MisuseError
from bridle.values.memory import ContextRetrieved, InstructionWritten, MemoryLoaded, NoteRemoved, NoteWritten
from bridle.values.message import Media, Text, ToolCall
from bridle.values.record import Record
from bridle.values.text import escape_text
from bridle.watchers.console import (
    format_count,
    format_dollars,
    format_duration,
    format_latency,
    format_usage,
    shorten,
)
from bridle.watchers.jsonl import encode_record_line


def cache_line(event: CacheEvent) -> tuple[str, str]:
    """Label and text of a cache event."""
    match event:
        case PrefixMoved(layer=layer, block=block, why=why, uncached_tokens=anew):
            return (
                "prefix",
                f"changed: {layer}, from {block} on: {why} (up to {anew} tokens not read from the cache)",
            )
        case CacheDegraded():
            return "cache", _format_degraded(event)
        case PromptStored():
            return "cache", _format_stored(event)
        case PromptDropped(name=name, why=why):
            return "cache", f"{name} is no longer stored: {why}" if name else f"nothing is stored: {why}"


def _format_stored(kept: PromptStored) -> str:
    usd = format_dollars(None if kept.usd is None else float(kept.usd))
    how = "stored" if kept.created else "still stored"
    return f"{kept.tokens:,} tokens {how} as {kept.name} for {format_duration(kept.seconds)} ({usd})"


def _format_degraded(alarm: CacheDegraded) -> str:
    before = "" if alarm.rate_before is None else f", {alarm.rate_before:.0%} before"
    why = f"{alarm.outcome} ({alarm.why})" if alarm.why else alarm.outcome
    lost = format_dollars(None if alarm.usd is None else float(alarm.usd))
    return (
        f"hit rate {alarm.rate:.0%} over {alarm.calls} calls{before}: {why};"
        f" {alarm.missed_tokens:,} tokens missed, {lost}"
    )


LABEL_WIDTH = 22
"""Columns of time and label before the text of a line."""
OMITTED_EXTRA = "the extra {name!r}: its values are not in the log"
OMITTED_TOOL = "the hosted tool {name!r}: its definition is not in the log"
LINES_MAX = 1_000_000
PROSE_LABELS = ("model", "you", "harness")
"""Lines that may contain long text."""
REVIEW_TEXTS = {
    True: "its approval was not given here and is ignored; it is asked for again",
    False: "its tool now reports another resource",
}
NOTICE_EVENTS = (e.Prompted, e.Resumed, e.LogRepaired)
"""Events with which the harness may add a notice for the model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="session id, as listed by `bridle sessions`")
    parser.add_argument("--json", action="store_true", help="print every record as a line of JSON")
    add_tenant_option(parser)
    add_across_option(parser)
    parser.add_argument("--result", metavar="HANDLE", help="print only this stored tool result, in full")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    records, whole = asyncio.run(_read_session(options))
    if whole is not None:
        write_raw(whole)
    elif options.json:
        for record in records:
            print_line(encode_record_line(options.session, record))
    else:
        SessionPrinter(sys.stdout.isatty()).print_session(options.session, records)
    return 0


async def _read_session(options: argparse.Namespace) -> tuple[Sequence[Record], str | None]:
    """The session, and the result that is to be printed whole."""
    store = open_log(options.store, to_read=True)
    try:
        records = await read_session(store, options.session, tenant_of(options))
        if not options.result:
            return records, None
        wholes = fold_state(records).calls.stored_results
        found = next((whole for whole in wholes if whole.hash.startswith(options.result)), None)
        data = await store.get_blob(found.hash) if found is not None else None
        if data is None:
            known = ", ".join(whole.handle for whole in wholes) or "none"
            raise MisuseError(
                f"session {options.session} has no long result {options.result}; it has: {known}"
            )
        return records, data.decode()
    finally:
        await store.close()


class SessionPrinter:
    def __init__(self, colour: bool) -> None:  # noqa: FBT001
        self._colour = colour
        self._calls: dict[str, ToolCall] = {}
        self._started: dict[str, float] = {}
        self._finished: set[str] = set()
        self._began = 0.0
        self._room = screen_width() - LABEL_WIDTH if colour else 0
        """Columns for text on a terminal; 0 elsewhere, where lines are not wrapped."""

    def print_session(self, session: str, records: Sequence[Record]) -> None:
        self._session = session
        state = fold_state(records)
        self._began = records[0].at
        print_line(
            self._bold(f"session {escape_text(session)}")
            + f"  ·  {escape_text(state.settings.model.name)}  ·  {format_local_time(self._began)}",
            styles=self._colour,
        )
        notices = _harness_notices(state)
        for record in records:
            notice = notices.pop(record.at, ()) if isinstance(record.event, NOTICE_EVENTS) else ()
            for label, words in (*self._event_lines(record), *notice):
                self._print_entry(record.at, label, words)
        total = state.totals.spent
        usd = None if total.usd is None else float(total.usd)
        print_line()
        print_line(
            f"{format_usage(total.usage)} · {format_dollars(usd)} · {format_count(total.steps, 'step')}"
            f" · {describe_end(state)}"
        )
        nested = state.totals.nested_spent
        if nested != Spending():
            usd, steps = None if nested.usd is None else float(nested.usd), format_count(nested.steps, "step")
            print_line(f"nested runs: {format_usage(nested.usage)} · {format_dollars(usd)} · {steps}")

    def _event_lines(self, record: Record) -> list[tuple[str, str]]:  # one case per event
        match record.event:
            case e.Configured() as configured:
                return _settings_lines(configured)
            case e.Prompted(parts=parts):
                return [("you", _prompt_text(parts))]
            case e.Imported(messages=messages, repairs=repairs):
                said = [("imported", f"{format_count(len(messages), 'message')} from elsewhere")]
                return [*said, *(("repaired", repair) for repair in repairs)]
            case e.ViewChanged() | e.Compacted() as changed:
                return format_view_change(changed)
            case MemoryLoaded() | ContextRetrieved() | NoteWritten() | NoteRemoved() | InstructionWritten():
                return [format_memory(record.event)]
            case e.ToolsRevealed() as revealed:
                return [format_revealed(revealed)]
            case PrefixMoved() | CacheDegraded() | PromptStored() | PromptDropped() as cached:
                return [cache_line(cached)]
            case e.OptionsChosen(options=chosen):
                return [format_options(chosen)]
            case e.RequestAdjusted(adjustments=what):
                return [("not sent", each) for each in what]
            case e.ConversationOpened() | e.ConversationDropped() as stored:
                return [format_conversation(stored)]
            case e.Resumed():
                return [("resumed", "by a new driver"), *self._resume_lines()]
            case e.ModelAsked() as question:
                return self._request_lines(question)
            case e.ModelReplied() as answer:
                return self._reply_lines(answer)
            case e.ModelFailed(failure=failure, discarded_tools=discarded, latency=latency):
                early = f"{', '.join(discarded)}: started early, result discarded"
                void = [("discarded", early)] if discarded else []
                return [("failed", f"{failure.kind}: {failure.message}{format_latency(latency)}"), *void]
            case e.HookDecided() as decided:
                return format_hook(decided)
            case e.ModelSwitched(model=model, why=why):
                return [("switch", f"to {model.name}: {why}")]
            case e.ToolStarted(call_id=call_id, name=name, attempt=attempt, rule=rule):
                self._started[call_id] = record.at
                marks = [*filter(None, ("again, with the same key" if attempt > 1 else "", rule))]
                return [("start", f"{call_id} {name}: {', '.join(marks)}")] if marks else []
            case e.ToolProbed(call_id=call_id):
                self._started.pop(call_id, None)
                return [("probe", f"{call_id} had no effect and may run")]
            case e.ToolFinished():
                return self._result_lines(record.at, record.event)
            case e.ApprovalAsked() | e.ApprovalAnswered() | e.CallReviewed() as approval:
                return [self._approval_line(approval)]
            case e.CompensationStarted() | e.CompensationFinished():
                return _compensation_lines(record.event)
            case e.Reprompted() | e.Steered() | e.SteeringTaken() | e.PauseRequested() as asked:
                return [format_notice(asked)]
            case e.OutputChecked(validator=name, verdict=verdict, reason=reason):
                return [("check", f"{name} {verdict} {reason}".strip())]
            case e.RunEnded(stop=stop, reason=reason, partial_text=partial):
                self._calls = self._calls if stop == "waiting" else {}
                cut_off = [("model", f"{partial} [cut off]")] if partial.strip() else []
                return [*cut_off, ("ended", f"{stop} {reason}".strip())]
            case SubrunStarted() | SubrunCharged() | SubrunWaiting() as subrun:
                return [format_subrun(subrun)]
            case BudgetReserved() | BudgetSettled() | BudgetSnapshot():
                return format_budget_event(record.event)
            case e.Forked() as fork:
                return self._fork_lines(fork)
            case e.LogRepaired(items=items, records_lost=lost):
                self._calls = {} if lost else self._calls
                return [("repaired", item) for item in items]
            case e.UnknownEvent(kind=kind):
                return [("unknown", f"{kind or 'of no kind'}: written by a newer version; ignored")]

    def _reply_lines(self, event: e.ModelReplied) -> list[tuple[str, str]]:
        reply = event.reply
        cost = format_dollars(None if event.usd is None else float(event.usd))
        paid = (
            "usage",
            f"{format_usage(reply.usage)} · {cost} · {reply.stop}{format_latency(event.latency)}",
        )
        if event.summarizes_until:
            return [("summary", shorten(reply.text)), paid]
        self._calls = {call.id: call for call in reply.calls}
        said = [("model", reply.text)] if reply.text.strip() else []
        asked = [("call", f"{call.id} {call.name}({shorten(call.arguments)})") for call in reply.calls]
        notes = (event.truncation_hint, event.usage_doubt, *reply.dropped_parts)
        unread = [("note", words) for words in notes if words]
        return [*unread, *said, *asked, paid]

    def _approval_line(self, event: e.ApprovalAsked | e.ApprovalAnswered | e.CallReviewed) -> tuple[str, str]:
        if isinstance(event, e.CallReviewed):
            return "review", f"{event.call_id} {REVIEW_TEXTS[event.discards_approval]}"
        if isinstance(event, e.ApprovalAsked):
            doubt = "interrupted; " if event.question == "in_doubt" else ""
            name = make_approval_id(self._session, event.binding)
            return "ask", f"{event.call_id} {doubt}{event.rule}; bridle approve {name}"
        who = f" by {event.by}" if event.by else ""
        changed = self._describe_edit(event) if event.arguments is not None else ""
        why = f": {event.reason}" if event.reason else ""
        return "answer", f"{event.call_id} {event.answer}{who}{changed}{why}"

    def _describe_edit(self, event: e.ApprovalAnswered) -> str:
        """The edited arguments and how they differ from the model's."""
        call, given = self._calls.get(event.call_id), event.arguments or "{}"
        changes = list_changes(call.arguments, given) if call is not None else []
        return f", with {show_arguments(given)}" + (f" ({'; '.join(changes)})" if changes else "")

    def _result_lines(self, at: float, event: e.ToolFinished) -> list[tuple[str, str]]:
        result, rule, whole = event.result, event.rule, event.stored_result
        started = self._started.get(result.call_id)
        self._finished.add(result.call_id)
        took = "not run" if started is None else format_duration(at - started)
        took = "in doubt" if result.outcome == "unknown" else took
        known = {
            "run": took,
            "probe": "found by its probe",
            "person": "reported by a person",
            "receipt": f"not run again, same as {event.same_as_call}",
            "hook": "not run, answered by a hook",
        }[event.source]
        about = f"{known}; {rule}" if rule else known
        lines = [("result", f"{result.call_id} {result.outcome} ({about}) {shorten(result.text)}")]
        if whole is not None:
            lines.append(("excerpt", f"of {whole.character_count:,} characters; --result {whole.handle}"))
        return lines

    def _fork_lines(self, fork: e.Forked) -> list[tuple[str, str]]:
        self._calls = {}
        return [("forked", f"from {fork.parent} at record {fork.at}; all above is shared with it")]

    def _resume_lines(self) -> list[tuple[str, str]]:
        """State of the open calls at a resume: finished or in doubt."""
        told = []
        for call in self._calls.values():
            if call.id in self._finished:
                told.append(("receipt", f"{call.id} {call.name} has a result and is not run again"))
            elif call.id in self._started:
                told.append(("in doubt", f"{call.id} {call.name} was started and has no result"))
        return told

    def _request_lines(self, asked: e.ModelAsked) -> list[tuple[str, str]]:
        self._calls = {}
        pause = f", after {asked.wait_seconds:.3g} s ({asked.wait_source})" if asked.wait_source else ""
        again = [("retry", f"attempt {asked.attempt}{pause}")] if asked.attempt > 1 else []
        return again + [("note", note) for note in asked.notes]

    def _print_entry(self, at: float, label: str, words: str) -> None:
        is_prose = label in PROSE_LABELS
        lines = [escape_text(line, prose=is_prose) for line in words.replace("\r\n", "\n").split("\n")]
        if self._room:
            lines = [piece for line in lines for piece in wrap_text(line, self._room, LINES_MAX)]
        first, *rest = lines
        head = f"{self._dim(f'+{at - self._began:6.2f}s')} {self._bold(f'{label:>11}')}"
        for shown in (f"{head}  {first}", *(f"{' ' * LABEL_WIDTH}{more}" for more in rest)):
            print_line(shown, styles=self._colour, prose=is_prose)

    def _bold(self, words: str) -> str:
        return f"\x1b[1m{words}\x1b[0m" if self._colour else words

    def _dim(self, words: str) -> str:
        return f"\x1b[2m{words}\x1b[0m" if self._colour else words


def _compensation_lines(event: e.CompensationStarted | e.CompensationFinished) -> list[tuple[str, str]]:
    if isinstance(event, e.CompensationStarted):
        return [("compensate", f"{event.call_id} by {event.name}")]
    return [("compensated", f"{event.call_id} {event.result.outcome} {shorten(event.result.text)}")]


def _harness_notices(state: State) -> dict[float, list[tuple[str, str]]]:
    """Notices that the harness sent to the model, by time."""
    found: dict[float, list[tuple[str, str]]] = {}
    for message in state.conversation.transcript.messages:
        if message.provenance == "harness":
            found.setdefault(message.at, []).append(("harness", message.text))
    return found


def _settings_lines(event: e.Configured) -> list[tuple[str, str]]:
    settings = event.settings
    tools = ", ".join(spec.name for spec in settings.tools) or "no tools"
    named = ", ".join(override.option for override in settings.overrides)
    only = [("this run", f"has its own {named}")] if named else []
    skipped = [("skipped", reason) for _, reason in settings.skipped_models]
    left_out = [OMITTED_EXTRA.format(name=name) for name in event.omitted_extras]
    left_out += [OMITTED_TOOL.format(name=name) for name in event.omitted_tools]
    omitted = [("left out", each) for each in left_out]
    return [("settings", f"{settings.model.name}, {tools}"), *only, *skipped, *omitted]


def _prompt_text(parts: Sequence[Text | Media]) -> str:
    return " ".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in parts)
