"""Carry out effects and report back what happened.

This is where the world comes in: the driver awaits, stamps time and writes the log.
It takes no decisions; to change *what* happens next, see core/loop.py.

A driver whose write failed is finished: the write may or may not have landed, and only
a fresh driver that reads the log again can know.  So is one whose write was cancelled.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from ..core.alarms import alarm
from ..core.asking import restarted
from ..core.boundary import refuse_adjusted
from ..core.catalogue import chosen_unseen
from ..core.context import assemble, losses
from ..core.dispatch import numbered
from ..core.effects import (
    AskModel,
    AwaitAnswers,
    DropPrompt,
    Effect,
    End,
    Excuse,
    FindTools,
    Gather,
    KeepPrompt,
    LoadMemory,
    OpenConversation,
    ProbeTool,
    RunTool,
    SeekApproval,
    ShowTools,
)
from ..core.judging import answer_in
from ..core.loop import apply, next_effects
from ..core.prefix import moved, refusal
from ..core.saying import doubt_usage
from ..core.state import State
from ..core.truncation import suspicion
from ..core.written import event_of
from ..ports.chance import Chance
from ..ports.clock import Clock
from ..ports.codec import Kept
from ..ports.store import Store
from ..ports.tool import Tool
from ..ports.watcher import Watcher
from ..tools.search import SearchTools
from ..values import event as e
from ..values.delta import CallReady, Delta, ToolCallDelta
from ..values.errors import Failure, ProviderError
from ..values.latency import Latency
from ..values.message import Reply
from ..values.record import GENESIS, seal
from ..values.request import Request, ToolChoice
from ..values.usage import Usage
from .answer_proof import prove_answer, review_calls
from .approving import Approver
from .asking import Exchange
from .audience import Audience
from .breakers import Passage
from .clock import SteadyClock
from .conversation_objects import open_conversation
from .gathering import Gatherer
from .hands import Hands
from .hearing import CallIds
from .inside import Allowance, here
from .keeping import Keeping
from .line import Line
from .loading import WHOLE, keep, load
from .prompts import store_prompt
from .recall import Recall
from .reserving import Held, Pool, Purses, set_aside

LOG = logging.getLogger("bridle")
AT_ONCE = (Excuse, SeekApproval)
"""Effects that are nothing but a line in the log."""
OF_A_CALL = (ToolCallDelta, CallReady)
TIME_IS_UP = Failure(kind="timeout", message="the run's time was up", should_retry=False)


class Driver:
    def __init__(
        self,
        session: str,
        *,
        lines: Mapping[str, Line],
        store: Store,
        clock: Clock,
        chance: Chance,
        tools: Mapping[str, Tool],
        watchers: Sequence[Watcher] = (),
        stream: bool = False,
        choose: Callable[[int], ToolChoice] | None = None,
        object_to: Callable[[str], str] | None = None,
        approver: Approver | None = None,
        search: SearchTools | None = None,
        pool: Pool = None,
        gatherer: Gatherer | None = None,
    ) -> None:
        """`lines` are those to the models of the chain, by seat; `choose` gives the tool choice of a step;
        `object_to` is the say of the answer's own type; `approver` answers for a person, where one is
        at hand; `search` finds hidden tools, `gatherer` what belongs to a prompt; `pool` is shared money."""
        self.session = session
        self.state = State()
        self._lines, self._store, self._chance = lines, store, chance
        self._clock = clock = SteadyClock(clock)
        self._show = Audience(session, watchers).show
        self._stream, self._choose, self._object_to = stream, choose, object_to
        self._purses = Purses(store, clock, pool, here())
        self._allowance = Allowance(self, clock, self._purses)
        self._length, self._head, self._asked_at = 0, GENESIS, 0.0
        self._log = WHOLE
        self._broken: BaseException | None = None
        self._turnstile = asyncio.Lock()
        self._kept: dict[str, Kept] = {seat: line.codec.keep() for seat, line in lines.items()}
        self._exchange: Exchange | None = None
        self._remarked: set[tuple[str, ToolChoice]] = set()
        self._call_ids = CallIds(turn=0)
        self.keeping = Keeping(store, lambda: self.state)
        self._recall = Recall(session, store, clock, lambda: self.state, self.record, gatherer)
        known = {**self.keeping.tools, **self._recall.tools, **tools}
        fit, inside = self.keeping.fit, self._allowance
        prove = lambda event: prove_answer(store, session, self.state, event)  # noqa: E731
        self._hands = Hands(session, known, clock, self.record, fit, inside, approver, search, prove)
        self._tools = known
        self.answer = self._hands.answer

    @property
    def begun(self) -> bool:
        """Whether the session has a log; a fork has one from its first record on."""
        return self._length > 0

    @property
    def broken(self) -> bool:
        return self._broken is not None

    @property
    def partial(self) -> str:
        """What the model has said of a reply that is not complete; a summary is none."""
        if self.state.run.squeeze.asked:
            return ""
        return self._exchange.partial if self._exchange else self.state.run.partial

    @property
    def usage(self) -> Usage | None:
        """What there is to pay for that reply."""
        return self._exchange.usage if self._exchange else None

    @property
    def usd(self) -> Decimal | None:
        return self._cost(self.usage)

    @property
    def latency(self) -> Latency | None:
        """How long that reply has taken."""
        return self._exchange.latency if self._exchange else None

    @property
    def discarded(self) -> tuple[str, ...]:
        """Tools that were started early, for a reply that never came."""
        return self._hands.ahead.discarded

    async def restore(self) -> None:
        """Read the log; nothing is written."""
        self._log = log = await load(self._store, self.session)
        self.state, self._length, self._head = log.state, log.length, log.head
        self._clock.set_after(log.state.now)
        self._purses.taken_over(self.session, log.length)

    async def take_over(self) -> None:
        """Read the log, and write down what had to be put right in it."""
        await self.restore()
        if self._log.repairs:
            await self.record(e.Repaired(items=self._log.repairs, lost=self._log.torn))

    async def review_calls(self, *, trusts_approvals: bool) -> None:
        """Record what a resumed run does not take from the log about its open calls."""
        state = self.state
        for event in review_calls(
            self._store, self.session, state, self._tools, trusts_approvals=trusts_approvals
        ):
            await self.record(event)

    async def record(self, event: e.Event) -> None:
        """Apply first (it may refuse), then keep, then show."""
        async with self._turnstile:
            if self._broken is not None:
                raise self._broken
            record = seal(self._length + 1, self._clock.now(), event, self._head)
            state = apply(self.state, record.event, record.at, record.hash)
            try:
                await keep(self._store, self.session, record, torn=self._log.torn)
            except BaseException as error:
                self._broken = error
                raise
            self.state, self._length, self._head = state, record.seq, record.hash
            self._log = WHOLE
        sys.audit("bridle.recorded", self.session, record)
        self._show(record)

    async def go(self) -> None:
        """Do what is to be done until there is nothing left to do."""
        running: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                new = [effect for effect in next_effects(self.state) if effect.name not in running]
                at_once = [effect for effect in new if isinstance(effect, AT_ONCE)]
                if at_once or (len(new) == 1 and not running):
                    for effect in at_once or new:
                        await self._perform(effect)
                    continue
                for effect in new:
                    running[effect.name] = asyncio.create_task(self._perform(effect))
                if not running:
                    return
                await asyncio.wait(running.values(), return_when=asyncio.FIRST_COMPLETED)
                for name in [name for name, task in running.items() if task.done()]:
                    running.pop(name).result()
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)
            running.clear()
            self._allowance.finish()
            await self._hands.ahead.discard()

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case AskModel():
                await self._ask(effect)
            case RunTool():
                await self._hands.run(effect)
            case ProbeTool():
                await self._hands.probe(effect)
            case Excuse():
                await self._hands.excuse(effect)
            case AwaitAnswers():
                await self._hands.await_answers(effect, self.state)
            case ShowTools():
                await self._hands.show(effect)
            case FindTools():
                await self._hands.find(effect, self.state)
            case LoadMemory() | Gather():
                await self._recall.perform(effect)
            case KeepPrompt() | DropPrompt():
                await store_prompt(effect, self._lines, self.state, self._clock, self.record, self._purses)
            case OpenConversation(seat=seat):
                await self.record(await open_conversation(self._lines[seat], self._clock.wall.now()))
            case End(stop=stop, reason=reason):
                # A refused reply may have started tools too.
                discarded = await self._hands.ahead.discard()
                partial = self.state.run.partial
                await self.record(e.RunEnded(stop=stop, reason=reason, partial=partial, discarded=discarded))
            case _:
                await self.record(event_of(effect))

    async def _ask(self, effect: AskModel) -> None:
        if effect.attempt > 1 or effect.after is not None:
            self._show(restarted(effect, self.state))
        if effect.wait_seconds > 0:
            await self._clock.sleep(effect.wait_seconds)
        left = self._left(effect.deadline)
        async with set_aside(self._purses, self.state, effect, left, self._length) as held:
            line = self._lines[effect.request.model.seat]
            if held.end is not None:
                await self.record(held.end)
            elif isinstance(passage := line.breakers.enter(line.model, self._clock.monotonic()), Failure):
                await self.record(e.ModelFailed(failure=passage, chance=self._chance()))
            else:
                with passage:
                    await self._exchanged(held.effect, line, passage, held)

    async def _exchanged(self, effect: AskModel, line: Line, passage: Passage, held: Held) -> None:
        request, notes, aside = effect.request, effect.notes, effect.summary_of
        choice = self._choose(effect.step) if self._choose is not None and not aside else None
        if choice is not None:
            await self._hands.show(chosen_unseen(self.state, choice))
            request, notes = assemble(self.state, choice, request.max_tokens)
        if not aside and await self._is_refused(choice):
            return
        if change := moved(self.state, request, aside=bool(aside), chosen=choice is not None):
            await self.record(change)
            if refusal(self.state):
                return
        await self._hands.ahead.discard()
        kept = self._kept[line.model.seat]
        exchange = Exchange(
            line,
            request,
            kept,
            stream=self._stream,
            now=self._clock.monotonic,
            bytes_max=self.state.settings.reply_bytes_max,
        )
        notes = (*notes, *self._remarks(line, request))
        await self.record(
            e.ModelAsked(
                step=effect.step,
                attempt=effect.attempt,
                digest=exchange.digest,
                tool_choice=request.tool_choice,
                max_tokens=request.max_tokens,
                notes=notes,
                after=effect.after,
                wait_seconds=effect.wait_seconds,
                wait_source=effect.wait_source,
                reserved=held.reservation,
                marks=request.marks,
                kept_as=request.kept_as,
                conversation=request.conversation,
                summary_of=aside,
                seat="" if line.model.seat == self.state.settings.model.seat else line.model.seat,
                native=request.compacts,
            )
        )
        self._exchange, self._asked_at = exchange, self.state.now
        self._call_ids = CallIds(self.state.replies + 1)
        try:
            async with asyncio.timeout(self._left(effect.deadline)):
                heard = self._heard if not aside else lambda _: None
                reply = await held.ask(exchange, heard, self._clock.wall.now(), passage.heard, self._cost)
        except ProviderError as error:
            passage.failed(error.failure, self._clock.monotonic())
            await self._failed(exchange, error.failure)
        except TimeoutError:
            await self._failed(exchange, TIME_IS_UP)
        else:
            passage.succeeded()
            await self._replied(exchange, reply, suspicion(request, reply.usage), aside)

    async def _is_refused(self, choice: ToolChoice | None) -> bool:
        """Record what is asked for and not sent; whether that ends the run."""
        if lost := losses(self.state, choice):
            await self.record(e.RequestAdjusted(what=lost))
        return refuse_adjusted(self.state) is not None

    def _remarks(self, line: Line, request: Request) -> tuple[str, ...]:
        """What this wire cannot say of the request, where that was not noted in this run."""
        asked = (line.model.seat, request.tool_choice)
        if asked in self._remarked:
            return ()
        self._remarked.add(asked)
        return tuple(note for note in line.codec.remarks(request) if note not in self.state.run.noted)

    async def _replied(self, exchange: Exchange, reply: Reply, suspected: str, aside: str) -> None:
        usd, self._exchange = self._cost(reply.usage), None
        doubt = doubt_usage(self.state, reply)
        for words in filter(None, (suspected, doubt)):
            LOG.warning("session %s: %s", self.session, words)
        reply = numbered(reply, self.state.replies + 1)
        await self.record(
            e.ModelReplied(
                reply=reply,
                usd=usd,
                objection="" if aside else self._objection(reply),
                claims=() if aside else self._hands.claims(reply),
                suspicion=suspected,
                usage_doubt=doubt,
                summary_of=aside,
                latency=exchange.latency,
            )
        )
        if degraded := alarm(self.state):
            await self.record(degraded)

    async def _failed(self, exchange: Exchange, failure: Failure) -> None:
        usage, usd, partial = self.usage, self.usd, self.partial
        self._exchange = None
        await self.record(
            e.ModelFailed(
                failure=failure,
                blamed=exchange.blamed(failure),
                partial=partial,
                usage=usage,
                usd=usd,
                discarded=await self._hands.ahead.discard(),
                chance=self._chance(),
                latency=exchange.latency,
            )
        )

    def _heard(self, delta: Delta) -> None:
        if not isinstance(delta, OF_A_CALL):
            self._show(delta)
            return
        delta = self._call_ids.identify(delta)
        self._show(delta)
        if isinstance(delta, CallReady):
            self._hands.start_early(self.state, delta)

    def _cost(self, usage: Usage | None) -> Decimal | None:
        price = (self._exchange or self.state.settings).model.price
        return price.cost(usage, self._asked_at) if price and usage and usage.known else None

    def _objection(self, reply: Reply) -> str:
        answer = answer_in(self.state, reply)
        return self._object_to(answer) if self._object_to is not None and answer is not None else ""

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.now())
