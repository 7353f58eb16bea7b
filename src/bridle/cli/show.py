"""Tell what happened in a session: who said what, which tools ran, what it cost and how it ended."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from ..core.argument_changes import list_changes, show_arguments
from ..core.comparing import ending
from ..core.spent import Spent
from ..core.state import State
from ..run.approving import approval_id
from ..values import event as e
from ..values.cached import CacheDegraded, PrefixMoved, PromptDropped, PromptKept
from ..values.errors import MisuseError
from ..values.latency import Latency
from ..values.memory import MemoryLoaded, NoteRemoved, NoteWritten
from ..values.parts import Media, Text, ToolCall
from ..values.pooled import Amount, Carried, Reserved, Settled
from ..values.record import Record
from ..values.retrieval import ContextGathered
from ..values.subrun import SubrunCharged, SubrunStarted
from ..values.text import escape_text
from ..watchers.console import brief, counts, dollars, duration, plural
from ..watchers.jsonl import line
from .cachelines import cache_line
from .columns import screen_width, wrapped
from .logs import fold, local_time, read_session
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import say, write_whole

MARGIN = 20
"""Columns of time and label before the text of a line."""
LINES_MAX = 1_000_000
AT_LENGTH = ("model", "you", "harness")
"""Lines that hold what somebody said at length."""
REVIEWED = {
    True: "its approval was not given here and does not count; the question is put again",
    False: "its tool says something else about it now",
}
NOTICING = (e.Prompted, e.Resumed, e.Repaired)
"""Events with which the harness may tell the model something; a nudge is an event of its own."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    parser.add_argument("--json", action="store_true", help="print every record as a line of JSON")
    add_tenant_option(parser)
    add_across_option(parser)
    parser.add_argument("--result", metavar="HANDLE", help="print a long tool result whole, and nothing else")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    records, whole = asyncio.run(_read(options))
    if whole is not None:
        write_whole(whole)
    elif options.json:
        for record in records:
            say(line(options.session, record))
    else:
        Telling(sys.stdout.isatty()).tell(options.session, records)
    return 0


async def _read(options: argparse.Namespace) -> tuple[Sequence[Record], str | None]:
    """The session, and the result that is to be printed whole."""
    store = open_log(options.store, to_read=True)
    try:
        records = await read_session(store, options.session, tenant_of(options))
        if not options.result:
            return records, None
        wholes = fold(records).wholes
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


class Telling:
    def __init__(self, colour: bool) -> None:  # noqa: FBT001
        self._colour = colour
        self._calls: dict[str, ToolCall] = {}
        self._started: dict[str, float] = {}
        self._finished: set[str] = set()
        self._began = 0.0
        self._room = screen_width() - MARGIN if colour else 0
        """Columns for text on a terminal; 0 elsewhere, where lines are not wrapped."""

    def tell(self, session: str, records: Sequence[Record]) -> None:
        self._session = session
        state = fold(records)
        self._began = records[0].at
        say(
            self._bold(f"session {escape_text(session)}")
            + f"  ·  {escape_text(state.settings.model.name)}  ·  {local_time(self._began)}",
            styles=self._colour,
        )
        notices = _notices(state)
        for record in records:
            notice = notices.pop(record.at, ()) if isinstance(record.event, NOTICING) else ()
            for label, words in (*self._lines(record), *notice):
                self._print(record.at, label, words)
        total = state.total
        usd = None if total.usd is None else float(total.usd)
        say()
        say(f"{counts(total.usage)} · {dollars(usd)} · {plural(total.steps, 'step')} · {ending(state)}")
        if state.inner != Spent():
            inner = dollars(None if state.inner.usd is None else float(state.inner.usd))
            steps = plural(state.inner.steps, "step")
            say(f"and inside its tools: {counts(state.inner.usage)} · {inner} · {steps}")

    def _lines(self, record: Record) -> list[tuple[str, str]]:  # one case per event
        match record.event:
            case e.Configured(settings=settings):
                tools = ", ".join(spec.name for spec in settings.tools) or "no tools"
                skipped = [("skipped", reason) for _, reason in settings.skipped]
                return [("settings", f"{settings.model.name}, {tools}"), *skipped]
            case e.Prompted(parts=parts):
                return [("you", _words(parts))]
            case e.Imported(messages=messages, repairs=repairs):
                said = [("imported", f"{plural(len(messages), 'message')} from elsewhere")]
                return [*said, *(("repaired", repair) for repair in repairs)]
            case e.ViewChanged(changes=changes, why=why):
                return [("view", f"{plural(len(changes), 'part')} no longer sent: {why}")]
            case e.Compacted() as shorter:
                return _shortened(shorter)
            case MemoryLoaded() | ContextGathered() | NoteWritten() | NoteRemoved() as kept:
                return [_remembered(kept)]
            case e.ToolsShown(names=names, why=why, tokens=tokens, anew_tokens=anew):
                cost = f", {anew} of the prompt read anew" if anew else ""
                told = f"{', '.join(names) or 'none more'} from here on: {why} (about {tokens} tokens{cost})"
                return [("tools", told)]
            case PrefixMoved() | CacheDegraded() | PromptKept() | PromptDropped() as cached:
                return [cache_line(cached)]
            case e.RequestAdjusted(what=what):
                return [("not sent", each) for each in what]
            case e.ConversationOpened(name=name):
                return [("state", f"the provider keeps the conversation as {name}")]
            case e.ConversationDropped(name=name, why=why):
                return [("state", f"everything is sent{f', {name} is left' if name else ''}: {why}")]
            case e.Resumed():
                return [("resumed", "by a new driver"), *self._taken_over()]
            case e.ModelAsked() as question:
                return self._asking(question)
            case e.ModelReplied() as answer:
                return self._answered(answer)
            case e.ModelFailed(failure=failure, discarded=discarded, latency=latency):
                early = f"{', '.join(discarded)}: started early, for nothing"
                void = [("discarded", early)] if discarded else []
                return [("failed", f"{failure.kind}: {failure.message}{took(latency)}"), *void]
            case e.ModelSwitched(model=model, why=why):
                return [("switch", f"to {model.name}: {why}")]
            case e.ToolStarted(call_id=call_id, name=name, attempt=attempt, rule=rule):
                self._started[call_id] = record.at
                marks = ["again, under the same key"] if attempt > 1 else []
                marks += [rule] if rule else []
                return [("start", f"{call_id} {name}: {', '.join(marks)}")] if marks else []
            case e.ToolProbed(call_id=call_id):
                self._started.pop(call_id, None)
                return [("probe", f"{call_id} never took effect; it may be run")]
            case e.ToolFinished():
                return self._receipt(record.at, record.event)
            case e.ApprovalAsked() | e.ApprovalAnswered() | e.CallReviewed() as approval:
                return [self._approval(approval)]
            case e.CompensationStarted() | e.CompensationFinished():
                return _undoing(record.event)
            case e.Nudged(why=why, words=words):
                return [("nudge", f"{why}: {words}")]
            case e.RunEnded(stop=stop, reason=reason, partial=partial):
                self._calls = self._calls if stop == "waiting" else {}
                cut_off = [("model", f"{partial} [cut off]")] if partial.strip() else []
                return [*cut_off, ("ended", f"{stop} {reason}".strip())]
            case SubrunStarted() | SubrunCharged() | Reserved() | Settled() | Carried():
                return _about_money(record.event)
            case e.Forked() as fork:
                return self._forked(fork)
            case e.Repaired(items=items, lost=lost):
                self._calls = {} if lost else self._calls
                return [("repaired", item) for item in items]
            case e.Unknown(kind=kind):
                return [("unknown", f"{kind or 'of no kind'}: written by a newer version; passed over")]

    def _answered(self, event: e.ModelReplied) -> list[tuple[str, str]]:
        reply = event.reply
        cost = dollars(None if event.usd is None else float(event.usd))
        paid = ("usage", f"{counts(reply.usage)} · {cost} · {reply.stop}{took(event.latency)}")
        if event.summary_of:
            return [("summary", brief(reply.text)), paid]
        self._calls = {call.id: call for call in reply.calls}
        said = [("model", reply.text)] if reply.text.strip() else []
        asked = [("call", f"{call.id} {call.name}({brief(call.arguments)})") for call in reply.calls]
        unread = [("note", words) for words in (event.suspicion, event.usage_doubt, *reply.dropped) if words]
        return [*unread, *said, *asked, paid]

    def _approval(self, event: e.ApprovalAsked | e.ApprovalAnswered | e.CallReviewed) -> tuple[str, str]:
        if isinstance(event, e.CallReviewed):
            return "review", f"{event.call_id} {REVIEWED[event.discards_approval]}"
        if isinstance(event, e.ApprovalAsked):
            doubt = "started and never finished; " if event.question == "in_doubt" else ""
            name = approval_id(self._session, event.binding)
            return "ask", f"{event.call_id} {doubt}{event.rule}; bridle approve {name}"
        who = f" by {event.by}" if event.by else ""
        changed = self._changed(event) if event.arguments is not None else ""
        why = f": {event.reason}" if event.reason else ""
        return "answer", f"{event.call_id} {event.answer}{who}{changed}{why}"

    def _changed(self, event: e.ApprovalAnswered) -> str:
        """What a person wrote instead of the model's arguments."""
        call, given = self._calls.get(event.call_id), event.arguments or "{}"
        changes = list_changes(call.arguments, given) if call is not None else []
        return f", with {show_arguments(given)}" + (f" ({'; '.join(changes)})" if changes else "")

    def _receipt(self, at: float, event: e.ToolFinished) -> list[tuple[str, str]]:
        result, rule, whole = event.result, event.rule, event.whole
        started = self._started.get(result.call_id)
        self._finished.add(result.call_id)
        took = "not run" if started is None else duration(at - started)
        took = "in doubt" if result.outcome == "unknown" else took
        known = {
            "run": took,
            "probe": "found by looking it up",
            "person": "told by a person",
            "receipt": f"not run again, same as {event.same_as}",
        }[event.how]
        about = f"{known}; {rule}" if rule else known
        lines = [("result", f"{result.call_id} {result.outcome} ({about}) {brief(result.text)}")]
        if whole is not None:
            lines.append(("excerpt", f"of {whole.characters:,} characters; --result {whole.handle}"))
        return lines

    def _forked(self, fork: e.Forked) -> list[tuple[str, str]]:
        self._calls = {}
        return [("forked", f"from {fork.parent} at record {fork.at}; all above is shared with it")]

    def _taken_over(self) -> list[tuple[str, str]]:
        """What the new driver found of the batch: calls with a receipt, and calls nobody knows about."""
        told = []
        for call in self._calls.values():
            if call.id in self._finished:
                told.append(
                    ("receipt", f"{call.id} {call.name} has its result, which is used; it is not run again")
                )
            elif call.id in self._started:
                told.append(("in doubt", f"{call.id} {call.name} was started and never finished"))
        return told

    def _asking(self, asked: e.ModelAsked) -> list[tuple[str, str]]:
        self._calls = {}
        pause = f", after {asked.wait_seconds:.3g} s ({asked.wait_source})" if asked.wait_source else ""
        again = [("retry", f"attempt {asked.attempt}{pause}")] if asked.attempt > 1 else []
        return again + [("note", note) for note in asked.notes]

    def _print(self, at: float, label: str, words: str) -> None:
        said = label in AT_LENGTH
        lines = [escape_text(line, prose=said) for line in words.replace("\r\n", "\n").split("\n")]
        if self._room:
            lines = [piece for line in lines for piece in wrapped(line, self._room, LINES_MAX)]
        first, *rest = lines
        head = f"{self._dim(f'+{at - self._began:6.2f}s')} {self._bold(f'{label:>9}')}"
        for shown in (f"{head}  {first}", *(f"{' ' * MARGIN}{more}" for more in rest)):
            say(shown, styles=self._colour, prose=said)

    def _bold(self, words: str) -> str:
        return f"\x1b[1m{words}\x1b[0m" if self._colour else words

    def _dim(self, words: str) -> str:
        return f"\x1b[2m{words}\x1b[0m" if self._colour else words


def _undoing(event: e.CompensationStarted | e.CompensationFinished) -> list[tuple[str, str]]:
    if isinstance(event, e.CompensationStarted):
        return [("undo", f"{event.call_id} by {event.name}")]
    return [("undone", f"{event.call_id} {event.result.outcome} {brief(event.result.text)}")]


Money = SubrunStarted | SubrunCharged | Reserved | Settled | Carried


def _about_money(event: Money) -> list[tuple[str, str]]:
    match event:
        case SubrunStarted(call_id=call_id, session=session):
            return [("inside", f"{call_id} runs session {session}")]
        case SubrunCharged(session=session, usage=usage, usd=usd):
            cost = dollars(None if usd is None else float(usd))
            return [("inside", f"{session}: {counts(usage)} · {cost}")]
        case Reserved(id=id_, amount=amount):
            return [("reserved", f"{id_} {_amount(amount)}")]
        case Settled(id=id_, amount=amount, how=how):
            return [("settled", f"{id_} {_amount(amount)}" + (f" ({how})" if how else ""))]
        case Carried(spent=spent, open=open_):
            return [("carried", f"{_amount(spent)} spent, {plural(len(open_), 'call')} open")]


def took(latency: Latency | None) -> str:
    """How long a model call took, and how long its first word."""
    if latency is None:
        return ""
    points = (("first byte", latency.first_byte), ("first token", latency.first_token))
    reached = [f"{name} after {duration(at)}" for name, at in points if at is not None]
    return f" · {', '.join([*reached, f'in all {duration(latency.total)}'])}"


def _notices(state: State) -> dict[float, list[tuple[str, str]]]:
    """What the harness said to the model in the user's role, by its time; a nudge has a line of its own."""
    found: dict[float, list[tuple[str, str]]] = {}
    for message in state.transcript.messages:
        if message.provenance == "harness":
            found.setdefault(message.at, []).append(("harness", message.text))
    return found


def _amount(amount: Amount) -> str:
    return f"{dollars(float(amount.usd))} · {amount.tokens:,} tokens"


def _words(parts: Sequence[Text | Media]) -> str:
    return " ".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in parts)


def _shortened(event: e.Compacted) -> list[tuple[str, str]]:
    """What became shorter, by how much, and what that costs in cache."""
    maker = " that the provider made" if event.native else ""
    turns = f"everything up to {event.through} is a summary{maker}" if event.through else ""
    parts = plural(len(event.changes), "part") if event.changes else ""
    what = " and ".join(filter(None, (turns, parts)))
    cost = f", {dollars(float(event.usd))}" if event.usd is not None else ""
    sizes = f"{event.before_tokens:,} -> {event.after_tokens:,} tokens"
    anew = f"{event.anew_tokens:,} of them to be read anew{cost}"
    return [("compact", f"{', '.join(event.how)}: {what}; {sizes}, {anew}: {event.why}")]


def _remembered(event: MemoryLoaded | ContextGathered | NoteWritten | NoteRemoved) -> tuple[str, str]:
    match event:
        case NoteWritten(note=note):
            return "note", f"{note.id} by {note.by}: {note.words}"
        case NoteRemoved(id=note_id, by=by):
            return "note", f"{note_id} removed by {by}"
    left = f"; {event.left_out} left out for want of room" if event.left_out else ""
    trouble = f"; {event.trouble}" if event.trouble else ""
    if isinstance(event, MemoryLoaded):
        return "memory", f"{plural(len(event.notes), 'note')} from here on: {event.why}{left}{trouble}"
    sources = ", ".join(
        dict.fromkeys(chunk.source or chunk.id for chunk in event.chunks if chunk.source or chunk.id)
    )
    chunks, facts = plural(len(event.chunks), "chunk"), plural(len(event.facts), "fact")
    return "gathered", f"{chunks}{f' ({sources})' if sources else ''}, {facts}{left}{trouble}"
