"""The transcript of a session: messages, tool calls, cost and end, one entry per event."""

import re
from collections.abc import Iterator, Sequence

from bridle.cli.format.columns import apply_style, screen_width, wrap_text
from bridle.cli.format.event_lines import (
    format_budget_event,
    format_conversation,
    format_hook,
    format_log_event,
    format_memory,
    format_notice,
    format_options,
    format_subrun,
    format_tools,
    format_view_change,
)
from bridle.cli.format.printing import print_line
from bridle.cli.log_access import fold_state, format_local_time
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
from bridle.values.calls import ServerRequestEvent
from bridle.values.memory import ContextRetrieved, InstructionWritten, MemoryLoaded, NoteRemoved, NoteWritten
from bridle.values.message import PromptPart, Text, ToolCall
from bridle.values.record import Record
from bridle.values.text import escape_text, join_lines
from bridle.watchers.console import (
    format_count,
    format_dollars,
    format_duration,
    format_latency,
    format_usage,
    shorten,
)
from bridle.watchers.content_filter import describe_scalars


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
LINES_MAX, EVENT_LINES_MAX = 1_000_000, 2
HASH = re.compile("[0-9a-f]{32,}")
PROSE_LABELS = ("model", "you", "harness")
"""Lines that may contain long text."""
REVIEW_TEXTS = {
    True: "its approval was not given here and is ignored; it is asked for again",
    False: "its tool now reports another resource",
}
RESUMED_TEXTS = {False: "by a new driver", True: "by a new driver, taken from a process that did not answer"}
NOTICE_EVENTS = (e.Prompted, e.Resumed, e.LogRepaired)
"""Events with which the harness may add a notice for the model."""


class SessionPrinter:
    def __init__(self, *, colour: bool, wraps: bool = False) -> None:
        """`wraps`: lines are wrapped at the width of the terminal."""
        self._colour = colour
        self._calls: dict[str, ToolCall] = {}
        self._started: dict[str, float] = {}
        self._finished: set[str] = set()
        self._began = 0.0
        self._room = screen_width() - LABEL_WIDTH if wraps else 0
        """Columns for text; 0 if lines are not wrapped."""

    def print_session(self, session: str, records: Sequence[Record]) -> None:
        state = fold_state(records)
        self.begin(session, records[0].at)
        print_line(format_head(session, state, self._began, colour=self._colour), styles=self._colour)
        self.print_records(records, state)
        print_line()
        for line in format_totals(state):
            print_line(line)

    def begin(self, session: str, at: float) -> None:
        """Print a session whose first record was written `at` this time."""
        self._session, self._began = session, at

    def print_records(self, records: Sequence[Record], state: State, *, shown: bool = True) -> None:
        """Print records that follow those before; `state` is the state after them. Not `shown`: only note them."""
        notices = _harness_notices(state)
        for record in records:
            notice = notices.pop(record.at, ()) if isinstance(record.event, NOTICE_EVENTS) else ()
            for label, words in (*self.event_lines(record), *notice):
                if shown:
                    self._print_entry(record.at, label, words)

    def event_lines(self, record: Record) -> list[tuple[str, str]]:  # one case per event
        """Labels and texts of an event; none if there is nothing to say to a person."""
        match record.event:
            case e.Configured() as configured:
                return _settings_lines(configured)
            case e.Prompted(parts=parts):
                return [("you", _prompt_text(parts))]
            case e.Imported(messages=messages, repairs=repairs):
                return _import_lines(len(messages), repairs)
            case e.ViewChanged() | e.Compacted() as changed:
                return format_view_change(changed)
            case MemoryLoaded() | ContextRetrieved() | NoteWritten() | NoteRemoved() | InstructionWritten():
                return [format_memory(record.event)]
            case e.ToolsRevealed() | e.ToolsChanged() as listed:
                return format_tools(listed)
            case PrefixMoved() | CacheDegraded() | PromptStored() | PromptDropped() as cached:
                return [cache_line(cached)]
            case e.OptionsChosen(options=chosen):
                return [format_options(chosen)]
            case e.RequestAdjusted(adjustments=what):
                return [("not sent", each) for each in what]
            case e.ConversationOpened() | e.ConversationDropped() as stored:
                return [format_conversation(stored)]
            case e.Resumed(took_over=forced):
                return [("resumed", RESUMED_TEXTS[forced]), *self._resume_lines()]
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
            case e.ToolFinished() | e.ToolInterrupted() as ended:
                return self._result_lines(record.at, ended)
            case e.ApprovalAsked() | e.ApprovalAnswered() | e.CallReviewed() as approval:
                return [self._approval_line(approval)]
            case e.CompensationStarted() | e.CompensationFinished():
                return _compensation_lines(record.event)
            case e.Reprompted() | e.Steered() | e.SteeringTaken() | e.PauseRequested() as asked:
                return [format_notice(asked)]
            case e.OutputChecked(validator=name, verdict=verdict, reason=reason):
                return [("check", f"{name} {verdict} {reason}".strip())]
            case e.RunEnded() as end:
                return self._close_run(end)
            case SubrunStarted() | SubrunCharged() | SubrunWaiting() | ServerRequestEvent() as inner:
                return [format_subrun(inner)]
            case BudgetReserved() | BudgetSettled() | BudgetSnapshot():
                return format_budget_event(record.event)
            case e.Forked() as fork:
                return self._fork_lines(fork)
            case e.LogRepaired(items=items, records_lost=lost):
                self._calls = {} if lost else self._calls
                return [("repaired", item) for item in items]
            case e.ContentRedacted() | e.ControlRequested() | e.ControlRefused() as told:
                return [format_log_event(told)]
            case e.TrialScored() | e.UnknownEvent() as told:
                return [format_log_event(told)]

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
            return "ask", f"{event.call_id} {doubt}{event.rule}; bridle approvals approve {name}"
        who = f" by {event.by}" if event.by else ""
        changed = self._describe_edit(event) if event.arguments is not None else ""
        why = f": {event.reason}" if event.reason else ""
        compared = " (not compared with an agent)" if event.is_uncompared else ""
        return "answer", f"{event.call_id} {event.answer}{who}{changed}{compared}{why}"

    def _describe_edit(self, event: e.ApprovalAnswered) -> str:
        """The edited arguments and how they differ from the model's."""
        call, given = self._calls.get(event.call_id), event.arguments or "{}"
        changes = list_changes(call.arguments, given) if call is not None else []
        return f", with {show_arguments(given)}" + (f" ({'; '.join(changes)})" if changes else "")

    def _result_lines(self, at: float, event: e.ToolFinished | e.ToolInterrupted) -> list[tuple[str, str]]:
        if isinstance(event, e.ToolInterrupted):
            return [("in doubt", f"{event.call_id}: {event.why}")]
        result, rule, whole = event.result, event.rule, event.stored_result
        started = self._started.get(result.call_id)
        self._finished.add(result.call_id)
        took = "not run" if started is None else format_duration(at - started)
        took = "in doubt" if result.outcome == "unknown" else took
        # guard: hook-outcome-shown
        known = {
            "run": took,
            "probe": "found by its probe",
            "person": "reported by a person",
            "receipt": f"not run again, same as {event.same_as_call}",
            "hook": "not run, answered by a hook",
            "caller": "run by the caller",
        }[event.source]
        about = f"{known}; {rule}" if rule else known
        lines = [("result", f"{result.call_id} {result.outcome} ({about}) {shorten(result.text)}")]
        if whole is not None:
            lines.append(("excerpt", f"of {whole.character_count:,} characters; --result {whole.handle}"))
        if event.raised is not None:
            lines.append(
                ("raised", f"{event.raised.type} at {event.raised.place}, which the tool did not declare")
            )
        if event.conclusion is not None:
            said = shorten(event.conclusion.text or event.conclusion.reason)
            lines.append(("ends", f"the run as {event.conclusion.stop}: {said}"))
        return lines

    def _fork_lines(self, fork: e.Forked) -> list[tuple[str, str]]:
        self._calls = {}
        return [("forked", f"from {fork.parent} at record {fork.at}; all above is shared with it")]

    def _resume_lines(self) -> list[tuple[str, str]]:
        """State of the open calls at a resume: finished or in doubt."""
        done = [call for call in self._calls.values() if call.id in self._finished]
        told = [("receipt", f"{call.id} {call.name} has a result and is not run again") for call in done]
        return [*told, *self._doubt_lines()]

    def _close_run(self, end: e.RunEnded) -> list[tuple[str, str]]:
        doubts = [] if end.stop == "waiting" else self._doubt_lines()
        self._calls = self._calls if end.stop == "waiting" or end.in_doubt else {}
        return [*doubts, *_end_lines(end)]

    def _doubt_lines(self) -> list[tuple[str, str]]:
        calls = [call for call in self._calls.values() if call.id in {*self._started} - self._finished]
        return [("in doubt", f"{call.id} {call.name} was started and has no result") for call in calls]

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
        time = apply_style(f"+{at - self._began:6.2f}s", "dim", self._colour)
        head = f"{time} {apply_style(f'{label:>11}', 'bold', self._colour)}"
        for shown in (f"{head}  {first}", *(f"{' ' * LABEL_WIDTH}{more}" for more in rest)):
            print_line(shown, styles=self._colour, prose=is_prose)


def format_events(session: str, records: Sequence[Record]) -> Iterator[str]:
    """Every record on a line: its number, its time, its event, and its text or its short fields."""
    printer, began = SessionPrinter(colour=False), records[0].at
    printer.begin(session, began)
    names = [str(type(record.event).__struct_config__.tag) for record in records]
    number_width, name_width = len(str(records[-1].seq)), max(map(len, names))
    for record, name in zip(records, names, strict=True):
        head = f"{record.seq:>{number_width}} {f'+{record.at - began:.2f}s':>9}  {name:<{name_width}}  "
        said = [join_lines(f"{label}: {words}") for label, words in printer.event_lines(record)]
        text = " · ".join(said or _list_fields(record.event))
        first, *rest = wrap_text(shorten(text), screen_width() - len(head), EVENT_LINES_MAX)
        yield f"{head}{first}".rstrip()
        yield from (" " * len(head) + line for line in rest)


def _list_fields(event: e.Event) -> list[str]:
    """Short fields of an event, without its name, defaults and hashes."""
    fields = describe_scalars(event)
    fields.pop("type", None)
    return [f"{key}={value}" for key, value in fields.items() if value and not HASH.fullmatch(str(value))]


def format_head(session: str, state: State, began: float, *, colour: bool) -> str:
    """The first line about a session: its id, its model, and when it began."""
    name = apply_style(f"session {session}", "bold", colour)
    return f"{name}  ·  {escape_text(state.settings.model.name)}  ·  {format_local_time(began)}"


def format_totals(state: State) -> list[str]:
    """The last lines about a session: what it used and cost, and how it ended."""
    total, nested = state.totals.spent, state.totals.nested_spent
    lines = [f"{_format_spending(total)} · {describe_end(state)}"]
    lines += [f"nested runs: {_format_spending(nested)}"] if nested != Spending() else []
    return [piece for line in lines for piece in wrap_text(line, screen_width(), LINES_MAX)]


def _format_spending(spent: Spending) -> str:
    usd = format_dollars(None if spent.usd is None else float(spent.usd))
    return f"{format_usage(spent.usage)} · {usd} · {format_count(spent.steps, 'step')}"


def _import_lines(count: int, repairs: Sequence[str]) -> list[tuple[str, str]]:
    said = ("imported", f"{format_count(count, 'message')} from elsewhere")
    return [said, *(("repaired", repair) for repair in repairs)]


def _end_lines(end: e.RunEnded) -> list[tuple[str, str]]:
    cut_off = [("model", f"{end.partial_text} [cut off]")] if end.partial_text.strip() else []
    return [*cut_off, ("ended", f"{end.stop} {end.reason}".strip())]


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


def _prompt_text(parts: Sequence[PromptPart]) -> str:
    return " ".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in parts)
