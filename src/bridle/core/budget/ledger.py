"""Cost ledger: one entry per model call of a session, and its cost per tool.

Every attempt is an entry: answered, failed, cancelled, or lost if the process ended before its outcome was
recorded. Dollars are those recorded at the time of the call, so that the entries of a session add up to
exactly its totals (`State.total_spent`), whatever the price list says today.

The cost of a *tool* is an estimate, because providers count whole prompts. Tokens and price of a prompt are
divided by the size of its parts: a tool pays for its schema and its results in every later prompt, and for
the text of its calls in the reply. Cache discounts are shared equally. The rest (instructions, text of users
and model) belongs to the conversation.

Runs inside tools have logs and entries of their own. The charges recorded in the parent's log
(`list_nested_charges`) are the same money; they count only if the subrun's own log is not available.
"""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from msgspec.structs import replace

from bridle.core.cache.breakpoints import agent_name
from bridle.core.compaction.summary import state_for_summarizer
from bridle.core.context.assemble import offered_tools
from bridle.core.context.token_estimate import (
    estimate_part_tokens,
    estimate_text_tokens,
    estimate_tool_tokens,
)
from bridle.core.recovery.log_repair import LogReader
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.budget import SubrunCharged
from bridle.values.cache import PromptStored
from bridle.values.message import Message, ToolCall, ToolResult
from bridle.values.record import Record
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings
from bridle.values.usage import Usage

from .limits import billable_usage, price_partial_reply

NO_TOOL_NAME = "(conversation)"
"""Name for results of calls that are not in the view."""


class PromptSizes:
    """Estimated sizes of the parts of a prompt, by tool.

    A conversation grows at its end, so each message is measured once and the sums are carried from reply to
    reply. An event that may have changed an earlier message resets them.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, int] = {}
        """Tokens of the tool definitions, by tool."""
        self.results: dict[str, int] = {}
        """Tokens of calls and their results, by tool."""
        self.rest = 0
        """Tokens of everything else."""
        self._measured = self._messages_rest = 0
        self._last: Message | None = None
        self._names: dict[str, str] = {}
        self._specs: tuple[ToolSpec, ...] = ()
        self._instructions: tuple[str, int] = ("", estimate_text_tokens(""))

    def forget_messages(self) -> None:
        """Measure every message again next time."""
        self._measured = self._messages_rest = 0
        self._last, self._names, self.results = None, {}, {}

    def measure(self, state: State) -> "PromptSizes":
        """Sizes of the prompt that this state would send."""
        specs = offered_tools(state)
        if specs != self._specs:
            self._specs, self.schemas = specs, {spec.name: estimate_tool_tokens((spec,)) for spec in specs}
        words = state.settings.instructions
        if words is not self._instructions[0]:
            self._instructions = words, estimate_text_tokens(words)
        view, known = state.conversation.view, self._measured
        if known and (len(view) < known or view[known - 1] is not self._last):
            self.forget_messages()
        new = view[self._measured :]
        self._names.update((call.id, call.name) for message in new for call in message.calls)
        for message in new:
            self._add(message)
        if new:
            self._measured, self._last = len(view), view[-1]
        self.rest = self._messages_rest + self._instructions[1]
        return self

    def _add(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._count(part.id, estimate_text_tokens(part.arguments))
            elif isinstance(part, ToolResult):
                self._count(part.call_id, estimate_part_tokens((part,)))
            else:
                self._messages_rest += estimate_part_tokens((part,))

    def _count(self, call_id: str, tokens: int) -> None:
        if not call_id:
            self._messages_rest += tokens
            return
        name = self._names.get(call_id, NO_TOOL_NAME)
        self.results[name] = self.results.get(name, 0) + tokens


LedgerOutcome = Literal["answered", "failed", "cancelled", "lost", "stored", "program"]
"""`stored` is not a call: tools and instructions that a provider stores under a name, for a fee.
`program` is not one either: tool calls that a program made."""
CONVERSATION_SHARE = NO_TOOL_NAME
OTHER_STORE = "(elsewhere)"
"""Placeholder for calls whose log is in another store."""
USD_QUANTUM = Decimal("0.000000000001")
"""Precision of divided dollars; the remainder belongs to the conversation."""


APPENDING_EVENTS = (
    e.Prompted, e.ModelAsked, e.ModelReplied, e.ModelFailed, e.ToolStarted, e.ToolFinished, e.RunEnded
)  # fmt: skip
"""Events that only append to the view."""


class ToolShare(Value, kw_only=True):
    """Estimated share of one tool in the tokens and cost of one call."""

    tool: str
    schema_tokens: int = 0
    result_tokens: int = 0
    """Its calls and results, as part of the prompt."""
    call_tokens: int = 0
    usd: Decimal | None = None
    calls: int = 0
    """Number of times this reply ran the tool."""


class LedgerEntry(Value, kw_only=True):
    """One model call and its cost."""

    session: str
    at: float
    run: int
    """Number of the prompt within the session, from 1."""
    step: int
    attempt: int
    model: str
    tenant: str = ""
    caller: str = ""
    agent: str = ""
    seq: int = 0
    """Number of the record."""
    id: str = ""
    """Id of the call, if a reservation was made for it."""
    tool_calls: int = 0
    """Number of its calls that ran."""
    outcome: LedgerOutcome = "answered"
    summary: bool = False
    """True for a request for a summary, which is not a step of the run."""
    usage: Usage = Usage()
    usd: Decimal | None = None
    shares: tuple[ToolShare, ...] = ()


def list_entries(session: str, records: Sequence[Record]) -> tuple[LedgerEntry, ...]:
    reader = _LedgerReader(session)
    for record in records:
        reader.read_record(record)
    return tuple(reader.finish())


def list_nested_charges(records: Sequence[Record]) -> tuple[LedgerEntry, ...]:
    """Charges of runs inside this session's tools according to its own log, one entry per call."""
    reader, found, counts = LogReader(), [], Counter[str]()
    for record in records:
        reader.apply_record(record)
        event, state = record.event, reader.state
        if isinstance(event, SubrunCharged) and not event.tool_calls:
            counts[event.session] += 1
            tool = next((each.tool for each in state.run.budget.subruns if each.session == event.session), "")
            found.append(
                LedgerEntry(
                    session=event.session,
                    at=record.at,
                    run=0,
                    step=0,
                    attempt=counts[event.session],
                    model=OTHER_STORE,
                    tenant=state.run.origin.tenant,
                    caller=state.run.origin.caller,
                    agent=OTHER_STORE,
                    seq=record.seq,
                    id=event.id,
                    outcome="answered" if event.steps else "failed",
                    usage=event.usage,
                    usd=event.usd,
                    shares=(ToolShare(tool=tool, call_tokens=event.usage.total, usd=event.usd),)
                    if tool
                    else (),
                )
            )
    return tuple(found)


class _LedgerReader:
    def __init__(self, session: str) -> None:
        self._session = session
        self._reading, self._seq = LogReader(), 0
        self._runs = 0
        self._open: LedgerEntry | None = None
        self._agent: tuple[Settings, str] | None = None
        self._entries: list[LedgerEntry] = []
        self._sizes = PromptSizes()

    def read_record(self, record: Record) -> None:
        event, self._seq = record.event, record.seq
        match event:
            case e.Prompted():
                self._runs += 1
            case e.ModelAsked(
                step=step,
                attempt=attempt,
                summarizes_until=summarizes_until,
                model_key=model_key,
                reservation=reserved,
            ):
                self._close_as_lost()
                entry = self._new_entry(record.at, step, attempt, reserved.id if reserved else "")
                model = state_for_summarizer(self._state, model_key).settings.model.name
                self._open = replace(entry, summary=bool(summarizes_until), model=model)
            case e.ToolStarted(attempt=1, name=name) if self._entries:
                self._entries[-1] = _add_tool_call(self._entries[-1], name)
            case e.ModelReplied(reply=reply, usd=usd):
                billable = billable_usage(self._state, reply)
                self._book("answered", billable, usd, self._split_by_tool(billable, usd, reply.calls))
            case e.ModelFailed(usage=usage, usd=usd):
                self._book_partial("failed", usage, usd)
            case e.RunEnded(usage=usage, usd=usd) if usage is not None or self._open is not None:
                self._book_partial("cancelled" if usage is not None else "lost", usage, usd)
            case e.Resumed():
                self._close_as_lost()
            case PromptStored(tokens=tokens, created=created, usd=usd):
                self._book("stored", Usage(input=tokens) if created else Usage(), usd, ())
        if not isinstance(event, APPENDING_EVENTS):
            self._sizes.forget_messages()
        self._reading.apply_record(record)

    def finish(self) -> list[LedgerEntry]:
        self._close_as_lost()
        return self._entries

    @property
    def _state(self) -> State:
        return self._reading.state

    def _new_entry(self, at: float, step: int, attempt: int, id_: str = "") -> LedgerEntry:
        run, model = self._state.run, self._state.settings.model
        return LedgerEntry(
            session=self._session,
            at=at,
            run=self._runs,
            step=step,
            attempt=attempt,
            model=model.name,
            tenant=run.origin.tenant,
            caller=run.origin.caller,
            agent=self._agent_name(),
            seq=self._seq,
            id=id_,
        )

    def _agent_name(self) -> str:
        settings = self._state.settings
        if self._agent is None or self._agent[0] is not settings:
            self._agent = settings, agent_name(settings)
        return self._agent[1]

    def _close_as_lost(self) -> None:
        if self._open is not None:
            self._book("lost", Usage(incomplete=True), None, ())

    def _book_partial(self, outcome: LedgerOutcome, usage: Usage | None, usd: Decimal | None) -> None:
        if outcome == "lost":
            self._close_as_lost()
        elif usage is None and self._open is None:
            return  # nothing was sent: the circuit breaker was open
        elif usage is None:
            self._book(outcome, Usage(), Decimal(0), ())  # rejected without a reply: nothing to pay
        else:
            usage, usd = price_partial_reply(
                state_for_summarizer(self._state, self._state.run.compaction.summary.summarizer_key),
                usage,
                usd,
            )
            self._book(outcome, usage, usd, self._split_by_tool(usage, usd))

    def _book(
        self, outcome: LedgerOutcome, usage: Usage, usd: Decimal | None, shares: tuple[ToolShare, ...]
    ) -> None:
        state = self._state
        opened = self._open or self._new_entry(
            state.now, state.run.budget.spent.steps + 1, state.run.attempt.number + 1
        )
        self._open = None
        if state.settings.model.endpoint.is_program:
            outcome, usage, usd, shares = "program", Usage(), Decimal(0), ()
        self._entries.append(replace(opened, outcome=outcome, usage=usage, usd=usd, shares=shares))

    def _split_by_tool(
        self, usage: Usage, usd: Decimal | None, calls: tuple[ToolCall, ...] = ()
    ) -> tuple[ToolShare, ...]:
        state = self._state
        sizes = self._sizes.measure(state)
        schemas, results, rest = sizes.schemas, sizes.results, sizes.rest
        call_sizes: dict[str, int] = {}
        for call in calls:
            call_sizes[call.name] = call_sizes.get(call.name, 0) + estimate_text_tokens(call.arguments)
        tools = schemas.keys() | results.keys() | call_sizes.keys()
        prompt_size = max(sum(schemas.values()) + sum(results.values()) + rest, 1)
        output_size = max(usage.output, sum(call_sizes.values()), 1)
        prompt_usd, output_usd = _split_usd(usage, usd, state)
        shares = []
        for tool in sorted(tools - {CONVERSATION_SHARE}):
            schema, result, call_size = schemas.get(tool, 0), results.get(tool, 0), call_sizes.get(tool, 0)
            tool_usd = None
            if prompt_usd is not None and output_usd is not None:
                tool_usd = prompt_usd * (schema + result) / prompt_size + output_usd * call_size / output_size
                tool_usd = tool_usd.quantize(USD_QUANTUM)
            shares.append(
                ToolShare(
                    tool=tool,
                    schema_tokens=usage.prompt * schema // prompt_size,
                    result_tokens=usage.prompt * result // prompt_size,
                    call_tokens=usage.output * call_size // output_size,
                    usd=tool_usd,
                )
            )
        return tuple(shares)


def _add_tool_call(entry: LedgerEntry, tool: str) -> LedgerEntry:
    """Entry of a reply after one more run of a tool that it called."""
    known = any(share.tool == tool for share in entry.shares)
    shares = entry.shares if known else (*entry.shares, ToolShare(tool=tool, usd=Decimal(0)))
    counted = tuple(replace(each, calls=each.calls + (each.tool == tool)) for each in shares)
    return replace(entry, tool_calls=entry.tool_calls + 1, shares=counted)


def _split_usd(usage: Usage, usd: Decimal | None, state: State) -> tuple[Decimal | None, Decimal | None]:
    """Split the dollars into prompt and output, in proportion to the rates."""
    price = state.settings.model.price
    rates = price.rates(usage.prompt, state.now) if price else None
    if usd is None or rates is None:
        return None, None
    total, output_cost = rates.cost(usage), rates.output * usage.output / 1_000_000
    output = usd * output_cost / total if total else Decimal(0)
    return usd - output, output
