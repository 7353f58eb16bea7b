"""Who cost what: one session's log as a list of the calls that were made for it.

Every attempt is an entry: answered, failed, cancelled, or lost when nobody was left to say how it
ended.  The dollars are those recorded when they were spent, so the entries of a session add up to
exactly its totals (`State.total`), whatever the price list says today.

What a *tool* costs is an estimate, because providers count prompts and not what is in them.  A
prompt's tokens and price are shared out by the size of what was in it: each tool pays for its schema and
for its results in every later prompt, and for the words of its calls in the reply.  A cached prompt is
cheaper for everybody in it alike.  What is nobody's (instructions, what people and the model said)
is the conversation's.

Runs inside tools have logs and entries of their own.  What the log around them says they drew (`charges`)
is the same money: it counts where their own log is out of reach, and nowhere else.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Literal

from msgspec.structs import replace

from ..values import event as e
from ..values.cached import PromptKept
from ..values.parts import ToolCall
from ..values.record import Record
from ..values.settings import Settings
from ..values.subrun import SubrunCharged
from ..values.usage import Usage
from ..values.value import Value
from .budget import bill, booked, plus
from .mending import Reading
from .naming import agent_name
from .prompt_sizes import NO_TOOL, PromptSizes
from .saying import text_tokens
from .spent import Spent
from .state import State
from .summary import asked_now_by

Outcome = Literal["answered", "failed", "cancelled", "lost", "stored"]
"""`stored` is no call: tools and instructions that a provider keeps by name, for money."""
CONVERSATION = NO_TOOL
ELSEWHERE = "(elsewhere)"
"""Of a call whose log is in another store."""
SHARE = Decimal("0.000000000001")
"""Dollars are shared out to this; what is left over is the conversation's."""


GROWING = (
    e.Prompted, e.ModelAsked, e.ModelReplied, e.ModelFailed, e.ToolStarted, e.ToolFinished, e.RunEnded
)  # fmt: skip
"""Events after which the view is what it was before, with more at its end."""


class Share(Value):
    """What one tool had in one call: of the tokens that were counted and paid for, by estimate."""

    tool: str
    schema_tokens: int = 0
    result_tokens: int = 0
    """Its results, and the calls they belong to, as they stand in the prompt."""
    call_tokens: int = 0
    usd: Decimal | None = None
    calls: int = 0
    """Runs of the tool that this reply asked for."""


class Entry(Value):
    session: str
    at: float
    run: int
    """Which prompt of the session it was for, from 1."""
    step: int
    attempt: int
    model: str
    tenant: str = ""
    caller: str = ""
    agent: str = ""
    seq: int = 0
    """The record that says so."""
    id: str = ""
    """Of the call, where something was set aside for it."""
    tool_calls: int = 0
    """How many of the calls it asked for were run."""
    outcome: Outcome = "answered"
    summary: bool = False
    """Asked for a summary of old turns, which is no step of the run."""
    usage: Usage = Usage()
    usd: Decimal | None = None
    shares: tuple[Share, ...] = ()


def entries(session: str, records: Sequence[Record]) -> tuple[Entry, ...]:
    reader = _Reader(session)
    for record in records:
        reader.read(record)
    return tuple(reader.done())


def charges(session: str, records: Sequence[Record]) -> tuple[Entry, ...]:
    """What runs inside the tools of this session drew, as its own log tells, one entry a call."""
    reading, found, counts = Reading(), [], Counter[str]()
    for record in records:
        reading.take(record)
        event, state = record.event, reading.state
        if isinstance(event, SubrunCharged):
            counts[event.session] += 1
            tool = next((each.tool for each in state.run.subruns if each.session == event.session), "")
            found.append(
                Entry(
                    session=event.session,
                    at=record.at,
                    run=0,
                    step=0,
                    attempt=counts[event.session],
                    model=ELSEWHERE,
                    tenant=state.run.tenant,
                    caller=state.run.caller,
                    agent=ELSEWHERE,
                    seq=record.seq,
                    id=event.id,
                    outcome="answered" if event.steps else "failed",
                    usage=event.usage,
                    usd=event.usd,
                    shares=(Share(tool=tool, call_tokens=event.usage.total, usd=event.usd),) if tool else (),
                )
            )
    return tuple(found)


def added_up(each: Iterable[Entry]) -> Spent:
    total = Spent()
    for entry in each:
        if entry.outcome != "lost":
            steps = entry.outcome == "answered" and not entry.summary
            total = plus(total, entry.usage, entry.usd, steps=steps)
        total = replace(total, tool_calls=total.tool_calls + entry.tool_calls)
    return total


class _Reader:
    def __init__(self, session: str) -> None:
        self._session = session
        self._reading, self._seq = Reading(), 0
        self._runs = 0
        self._open: Entry | None = None
        self._agent: tuple[Settings, str] | None = None
        self._entries: list[Entry] = []
        self._sizes = PromptSizes()

    def read(self, record: Record) -> None:
        event, self._seq = record.event, record.seq
        match event:
            case e.Prompted():
                self._runs += 1
            case e.ModelAsked(step=step, attempt=attempt, summary_of=through, seat=seat, reserved=reserved):
                self._lose()
                entry = self._entry(record.at, step, attempt, reserved.id if reserved else "")
                model = asked_now_by(self._state, seat).settings.model.name
                self._open = replace(entry, summary=bool(through), model=model)
            case e.ToolStarted(attempt=1, name=name) if self._entries:
                self._entries[-1] = _with_call(self._entries[-1], name)
            case e.ModelReplied(reply=reply, usd=usd):
                paid = booked(self._state, reply)
                self._book("answered", paid, usd, self._shares(paid, usd, reply.calls))
            case e.ModelFailed(usage=usage, usd=usd):
                self._broke_off("failed", usage, usd)
            case e.RunEnded(usage=usage, usd=usd) if usage is not None or self._open is not None:
                self._broke_off("cancelled" if usage is not None else "lost", usage, usd)
            case e.Resumed():
                self._lose()
            case PromptKept(tokens=tokens, created=created, usd=usd):
                self._book("stored", Usage(input=tokens) if created else Usage(), usd, ())
        if not isinstance(event, GROWING):
            self._sizes.forget_messages()
        self._reading.take(record)

    def done(self) -> list[Entry]:
        self._lose()
        return self._entries

    @property
    def _state(self) -> State:
        return self._reading.state

    def _entry(self, at: float, step: int, attempt: int, id_: str = "") -> Entry:
        run, model = self._state.run, self._state.settings.model
        return Entry(
            session=self._session,
            at=at,
            run=self._runs,
            step=step,
            attempt=attempt,
            model=model.name,
            tenant=run.tenant,
            caller=run.caller,
            agent=self._named(),
            seq=self._seq,
            id=id_,
        )

    def _named(self) -> str:
        settings = self._state.settings
        if self._agent is None or self._agent[0] is not settings:
            self._agent = settings, agent_name(settings)
        return self._agent[1]

    def _lose(self) -> None:
        if self._open is not None:
            self._book("lost", Usage(incomplete=True), None, ())

    def _broke_off(self, outcome: Outcome, usage: Usage | None, usd: Decimal | None) -> None:
        if outcome == "lost":
            self._lose()
        elif usage is None and self._open is None:
            return  # nobody was asked: a breaker was open
        elif usage is None:
            self._book(outcome, Usage(), Decimal(0), ())  # refused at the door: nothing to pay
        else:
            usage, usd = bill(asked_now_by(self._state, self._state.run.squeeze.seat), usage, usd)
            self._book(outcome, usage, usd, self._shares(usage, usd))

    def _book(self, outcome: Outcome, usage: Usage, usd: Decimal | None, shares: tuple[Share, ...]) -> None:
        now = self._state
        opened = self._open or self._entry(now.now, now.run.spent.steps + 1, now.run.attempt + 1)
        self._open = None
        self._entries.append(replace(opened, outcome=outcome, usage=usage, usd=usd, shares=shares))

    def _shares(
        self, usage: Usage, usd: Decimal | None, calls: tuple[ToolCall, ...] = ()
    ) -> tuple[Share, ...]:
        state = self._state
        sizes = self._sizes.measured(state)
        schemas, results, rest = sizes.schemas, sizes.results, sizes.rest
        said: dict[str, int] = {}
        for call in calls:
            said[call.name] = said.get(call.name, 0) + text_tokens(call.arguments)
        tools = schemas.keys() | results.keys() | said.keys()
        prompt_size = max(sum(schemas.values()) + sum(results.values()) + rest, 1)
        output_size = max(usage.output, sum(said.values()), 1)
        prompt_usd, output_usd = _split(usage, usd, state)
        shares = []
        for tool in sorted(tools - {CONVERSATION}):
            schema, result, words = schemas.get(tool, 0), results.get(tool, 0), said.get(tool, 0)
            part = None
            if prompt_usd is not None and output_usd is not None:
                part = prompt_usd * (schema + result) / prompt_size + output_usd * words / output_size
                part = part.quantize(SHARE)
            shares.append(
                Share(
                    tool=tool,
                    schema_tokens=usage.prompt * schema // prompt_size,
                    result_tokens=usage.prompt * result // prompt_size,
                    call_tokens=usage.output * words // output_size,
                    usd=part,
                )
            )
        return tuple(shares)


def _with_call(entry: Entry, tool: str) -> Entry:
    """The entry of a reply after one more run of a tool it asked for."""
    known = any(share.tool == tool for share in entry.shares)
    shares = entry.shares if known else (*entry.shares, Share(tool=tool, usd=Decimal(0)))
    counted = tuple(replace(each, calls=each.calls + (each.tool == tool)) for each in shares)
    return replace(entry, tool_calls=entry.tool_calls + 1, shares=counted)


def _split(usage: Usage, usd: Decimal | None, state: State) -> tuple[Decimal | None, Decimal | None]:
    """What of the dollars was for reading and what for writing, in the proportion of the rates."""
    price = state.settings.model.price
    rates = price.rates(usage.prompt, state.now) if price else None
    if usd is None or rates is None:
        return None, None
    whole, written = rates.cost(usage), rates.output * usage.output / 1_000_000
    output = usd * written / whole if whole else Decimal(0)
    return usd - output, output
