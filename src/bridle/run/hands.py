"""What a driver does with tools: run one, show some, look for what became of one, ask about one.

Each of these ends in an event, written by `record`.  Running is act's (acting.py); what may
run, and when, was decided in the core.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from ..core.catalogue import first_shown
from ..core.dispatch import expired
from ..core.effects import AwaitAnswers, Excuse, FindTools, ProbeTool, RunTool, ShowTools
from ..core.limits import SHARED_CALLS_RULE, TOOL_CALLS_USED
from ..core.receipts import Receipt
from ..core.state import State
from ..ports.clock import Clock
from ..ports.tool import Tool
from ..tools.search import SearchTools
from ..values import event as e
from ..values.approval import PendingApproval, Verdict
from ..values.delta import CallReady
from ..values.errors import MisuseError, Unusable
from ..values.event import How
from ..values.message import Reply
from ..values.parts import Text, ToolCall, ToolResult
from ..values.policy import Claim
from ..values.whole import Whole
from .acting import act, claim, look_up
from .ahead import Ahead
from .approving import Approver, arguments_text, question_about
from .catalogue import found_first
from .inside import Allowance, Inside, entered

LOG = logging.getLogger("bridle")
LATE: Final = "late"

WRONG_EDITS_MAX = 3
"""How often an approver may give arguments the tool does not take."""


class Hands:
    def __init__(
        self,
        session: str,
        tools: Mapping[str, Tool],
        clock: Clock,
        record: Callable[[e.Event], Awaitable[None]],
        fit: Callable[[ToolResult], Awaitable[tuple[ToolResult, Whole | None]]],
        allowance: Allowance,
        approver: Approver | None = None,
        search: SearchTools | None = None,
        prove: Callable[[e.ApprovalAnswered], str] = lambda _: "",
    ) -> None:
        """`fit` decides how much of a result is kept in the log; `allowance` is for runs inside the tools;
        `approver` answers for a person, where one is at hand; `search` finds tools that are not shown;
        `prove` shows later that an approval was given here."""
        self._session, self._tools, self._clock, self._record = session, tools, clock, record
        self._fit, self._allowance, self._approver, self._search = fit, allowance, approver, search
        self._prove = prove
        self.ahead = Ahead()
        self._wrong: dict[str, list[str]] = {}

    async def run(self, effect: RunTool) -> None:
        """The intent first, and durable: what was started and not finished must show after a crash."""
        call = effect.call
        if effect.attempt == 1 and (used := await self._allowance.count(call.id)):
            words = Text(text=TOOL_CALLS_USED.format(used=used))
            unrun = ToolResult(call_id=call.id, parts=(words,), outcome="cancelled")
            await self.finish(call, unrun, SHARED_CALLS_RULE)
            return
        await self._record(
            e.ToolStarted(
                call_id=call.id,
                name=call.name,
                key=effect.key,
                attempt=effect.attempt,
                rule=effect.rule,
                arguments=call.arguments,
            )
        )
        ahead = self.ahead.take(call)
        if ahead is not None:
            self._allowance.started(call.id)
        result = await (ahead or self._act(effect, self._allowance.inside(call.id)))
        await self.finish(call, result)

    async def finish(self, call: ToolCall, result: ToolResult, rule: str = "", how: How = "run") -> None:
        """How much of a result the model gets is decided here and never again."""
        kept, whole = await self._fit(result)
        await self._record(e.ToolFinished(result=kept, rule=rule, how=how, whole=whole, name=call.name))
        self._allowance.over(result.call_id)

    async def excuse(self, effect: Excuse) -> None:
        """Answer a call that is not run."""
        result = ToolResult(call_id=effect.call.id, parts=(Text(text=effect.why),), outcome=effect.outcome)
        if effect.receipt is None:
            await self.finish(effect.call, result, effect.rule, effect.how)
        else:
            await self._repeat(effect.call, result, effect.receipt)

    async def _repeat(self, call: ToolCall, result: ToolResult, receipt: Receipt) -> None:
        """Give an earlier result again.  How much of it the model gets was decided when it was new."""
        earlier = receipt.result
        again = replace(result, parts=(*result.parts, *earlier.parts), shows=earlier.shows)
        await self._record(
            e.ToolFinished(
                result=again,
                how="receipt",
                same_as=earlier.call_id,
                whole=receipt.whole,
                name=call.name,
            )
        )

    def start_early(self, state: State, delta: CallReady) -> None:
        effect = self.ahead.ready(state, delta)
        if effect is not None and not self._allowance.counts_calls():
            inside = self._allowance.inside(effect.call.id, early=True)
            self.ahead.start(effect, self._act(effect, inside))

    async def find(self, effect: FindTools, state: State) -> None:
        found, trouble = await found_first(
            self._search, effect.query, effect.limit, self._left(effect.deadline)
        )
        await self.show(first_shown(state, found, trouble))

    async def show(self, effect: ShowTools | None) -> None:
        if effect is not None:
            await self._record(
                e.ToolsShown(
                    names=effect.names,
                    why=effect.why,
                    first=effect.first,
                    tokens=effect.tokens,
                    anew_tokens=effect.anew_tokens,
                )
            )

    async def probe(self, effect: ProbeTool) -> None:
        tool = self._tools[effect.call.name]
        found = await look_up(tool, effect, self._session, self._seconds(effect))
        if found is None:
            await self._record(e.ToolProbed(call_id=effect.call.id, attempt=effect.attempt))
        else:
            await self.finish(effect.call, found, how="probe")

    async def await_answers(self, effect: AwaitAnswers, state: State) -> None:
        for item in effect.items:
            question = question_about(self._session, item, state)
            if question is None:
                continue
            if question.binding in self._wrong:
                question = replace(question, rule=f"{question.rule}; {self._wrong[question.binding][-1]}")
            verdict = await self._verdict(question)
            if verdict == LATE:
                excuse = expired(item)
                result = ToolResult(
                    call_id=item.call.id, parts=(Text(text=excuse.why),), outcome=excuse.outcome
                )
                await self.finish(item.call, result, excuse.rule)
                continue
            if verdict is None:
                names = ", ".join(item.call.name for item in effect.items)
                await self._record(e.RunEnded(stop="waiting", reason=f"waiting for an answer about {names}"))
                return
            try:
                await self._record_answer(question, verdict, self._prove_if_possible)
            except MisuseError as error:
                told = self._wrong.setdefault(question.binding, [])
                told.append(str(error))
                if verdict.arguments is None or len(told) >= WRONG_EDITS_MAX:
                    raise
                return  # the question is still open, so it is put again, with what was wrong

    async def _verdict(self, question: PendingApproval) -> Verdict | Literal["late"] | None:
        """What the approver says; a question that expires while he thinks is answered by nobody."""
        if self._approver is None:
            return None
        try:
            async with asyncio.timeout(self._left(question.expires_at)) as time:
                verdict = await self._approver(question)
        except TimeoutError:
            if not time.expired():
                raise  # his own
            return LATE
        return LATE if self._left(question.expires_at) == 0 else verdict

    async def answer(self, question: PendingApproval, verdict: Verdict) -> None:
        """Record what a person said, for a run that goes on later, perhaps in another process."""
        await self._record_answer(question, verdict, self._prove)

    def _prove_if_possible(self, event: e.ApprovalAnswered) -> str:
        """The run goes on now and needs no proof; without one, the question is put again after a crash."""
        try:
            return self._prove(event)
        except Unusable as error:
            LOG.warning("session %s: %s", self._session, error)
            return ""

    async def _record_answer(
        self, question: PendingApproval, verdict: Verdict, prove: Callable[[e.ApprovalAnswered], str]
    ) -> None:
        """Record an answer, with what the tool's own code says of changed arguments."""
        arguments = arguments_text(verdict.arguments)
        edited = None
        if arguments is not None:
            edited = ToolCall(id=question.call_id, name=question.tool, arguments=arguments)
        event = e.ApprovalAnswered(
            call_id=question.call_id,
            binding=question.binding,
            answer=verdict.answer,
            arguments=arguments,
            reason=verdict.reason,
            by=verdict.by,
            claim=claim(self._tools, edited) if edited is not None else None,
        )
        await self._record(replace(event, proof=prove(event)))

    def claims(self, reply: Reply) -> tuple[Claim, ...]:
        found = (claim(self._tools, call) for call in reply.calls)
        return tuple(item for item in found if item is not None)

    async def _act(self, effect: RunTool, inside: Inside) -> ToolResult:
        with entered(inside):
            return await act(self._tools[effect.call.name], effect, self._session, self._seconds(effect))

    def _seconds(self, effect: RunTool | ProbeTool) -> float | None:
        """The tool's time, or what is left of the run's."""
        limits = (effect.timeout_seconds, self._left(effect.deadline))
        return min((limit for limit in limits if limit is not None), default=None)

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.now())
