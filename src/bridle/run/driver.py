"""Carries out effects and records what happened.

The driver awaits, stamps time and writes the log.  It takes no decisions: core/loop.py chooses what
happens next.

A driver whose write failed or was cancelled is unusable: the write may or may not have reached the store,
and only a fresh driver that reads the log again can know.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bridle.core.cache.breakpoints import agent_name
from bridle.core.calls.orphaned import list_doubts
from bridle.core.effects import (
    AskModel,
    AwaitApprovals,
    CheckOutput,
    ChooseOptions,
    DropPrompt,
    Effect,
    EndRun,
    FindTools,
    LoadMemory,
    OpenConversation,
    ProbeTool,
    RecordFinding,
    RequestApproval,
    RetrieveContext,
    RevealTools,
    RunHook,
    RunTool,
    SkipCall,
    StorePrompt,
    WriteInstruction,
    event_for_effect,
)
from bridle.core.loop import apply_event, is_replaced, next_effects
from bridle.core.model_turn import describe_reply
from bridle.core.state import State
from bridle.ports.clock import Clock, RandomSource, Turns
from bridle.ports.codec import EncodedHistory
from bridle.ports.store import Store
from bridle.ports.tool import Tool, ToolSource
from bridle.ports.watcher import Watcher
from bridle.run.budget.nested import ParentBudget, current_nested_run, forwarding_watcher
from bridle.run.budget.sources import BudgetPool, BudgetSources, ReservedCall, reserve
from bridle.run.calls.approval import Approver
from bridle.run.calls.approval_proof import prove_answer, review_calls
from bridle.run.calls.server_requests import AskModelForServer, ServerRequests
from bridle.run.calls.stored_results import ResultStore
from bridle.run.calls.tool_runner import ToolRunner
from bridle.run.context.instructions import AgentInstructions
from bridle.run.context.run_context import RunContexts
from bridle.run.context.run_summary import summarize_run
from bridle.run.known_secrets import GUARDED_EVENTS, collect_secrets
from bridle.run.memory.retrieval import Retriever
from bridle.run.memory.runner import MemoryRunner
from bridle.run.recovery.session_log import EMPTY_LOG, WriteEpoch, append_record, load_log
from bridle.stores.conflicts import taken_over
from bridle.tools.search.search_tools import SearchTools
from bridle.values import events as e
from bridle.values.errors import Failure, ProviderError
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.request import Request, StepOptions, ToolChoice
from bridle.values.result import CallReady
from bridle.values.text import escape_text
from bridle.values.usage import Usage

from .cache import open_conversation, update_stored_prompt
from .clock import SessionClock
from .context.reply_filter import HookRefusal, ReplyFilter
from .context.shown_deltas import DeltaCallIds
from .hooks import HookRunner
from .model_call import ModelCall, describe_restart
from .model_connection import ModelConnection
from .result import NO_CHECKS, OutputChecker
from .stream import WatcherGroup
from .unsent_media import UnsentMedia

if TYPE_CHECKING:
    from bridle.run.control.gate import EffectGate

    from .context.telemetry import SessionTracer, Tracing, TracingChoice

LOG = logging.getLogger("bridle")
IMMEDIATE_EFFECTS = (SkipCall, RequestApproval, RecordFinding)
"""Effects that only append a record."""
RUN_TIME_UP = Failure(kind="timeout", message="the run's time was up", should_retry=False)


class Driver:
    __slots__ = (
        "__weakref__", "_asked_at", "_broken", "_budget_sources", "_choose_options", "_clock", "_connections",
        "_encoded_histories", "_head", "_hooks", "_length", "_log", "_memory_runner", "_model_call",
        "_noted_requests", "_output", "_parent_budget", "_random_source", "_record_turn", "_reply_filter",
        "_tool_runner", "_tools", "_unsent_media", "_watchers", "answer", "approver", "contexts", "fence", "gate",
        "is_watched", "known_secrets", "result_store", "session", "show", "state", "store", "streams", "tool_runner",
        "tracer", "tracing",
    )  # fmt: skip

    def __init__(
        self,
        session: str,
        *,
        connections: Mapping[str, ModelConnection],
        store: Store,
        clock: Clock,
        random_source: RandomSource,
        tools: Mapping[str, Tool],
        watchers: Sequence[Watcher] = (),
        stream: bool = False,
        choose_options: Callable[[int], StepOptions] | None = None,
        output: OutputChecker = NO_CHECKS,
        approver: Approver | None = None,
        search: SearchTools | None = None,
        pools: Sequence[BudgetPool] = (),
        retriever: Retriever | None = None,
        instructions: AgentInstructions | None = None,
        hooks: Mapping[str, object] | None = None,
        context: object = None,
        tracing: "TracingChoice" = None,
        sources: Sequence[ToolSource] = (),
        fence: WriteEpoch | None = None,
        gate: "EffectGate | None" = None,
        ask_model: AskModelForServer | None = None,
    ) -> None:
        """`connections` are by model key; `output` checks answers; `fence` refuses to write after a takeover.

        `gate` lets an engine perform the run in parts.
        """
        self.session, self.state, self.approver = session, State(), approver
        self._connections, self.store, self._random_source = connections, store, random_source
        self._clock = clock = SessionClock(clock)
        self._watchers = WatcherGroup(session, (*watchers, *forwarding_watcher()))
        self.is_watched = bool(watchers)
        self.show = self._watchers.notify
        self.streams, self._choose_options, self._output = stream, choose_options, output
        nested = current_nested_run()
        if tracing is None and nested is not None:
            tracing = nested.parent_budget.run.tracing
        self.tracing: Tracing | None = tracing or None
        self.tracer: SessionTracer | None = None
        self._budget_sources = BudgetSources(store, clock, pools, nested, self.show, connections)
        self._parent_budget = ParentBudget(self, clock, self._budget_sources)
        self._length, self._head, self._asked_at, self._log = 0, GENESIS, 0.0, EMPTY_LOG
        self._broken: BaseException | None = None
        self.fence, self.gate = fence or WriteEpoch(), gate
        self._record_turn = Turns(1)
        self._encoded_histories: dict[str, EncodedHistory] = {
            key: connection.codec.new_history() for key, connection in connections.items()
        }
        self._model_call: ModelCall | None = None
        self._reply_filter: ReplyFilter | None = None
        self._noted_requests: set[tuple[str, ToolChoice]] = set()
        self._unsent_media: dict[str, UnsentMedia] = {}
        self.contexts = RunContexts(self, context, clock, self.show)
        self.result_store = ResultStore(store, lambda: self.state)
        self._memory_runner = MemoryRunner(self, self.contexts, store, clock, retriever, instructions)
        self._tools = {**self.result_store.tools, **self._memory_runner.tools, **tools}
        fit, prove = self.result_store.fit_result, self._prove_answer
        self.known_secrets = collect_secrets(
            connections, sources, nested.parent_budget.run.known_secrets if nested is not None else None
        )
        self.contexts.known_secrets = self.known_secrets
        self.tool_runner = self._tool_runner = ToolRunner(
            self.contexts, self._tools, clock, self.record, fit, self._parent_budget, approver, search, prove,
            sources, self.known_secrets, output,
        )  # fmt: skip
        self.answer, self._hooks = self._tool_runner.answer, hooks or {}
        if sources and ask_model is not None:
            self.contexts.answer_server = ServerRequests(self, ask_model).answer

    @property
    def has_begun(self) -> bool:
        """True if the session has records; a fork has them from the start."""
        return self._length > 0

    @property
    def place(self) -> tuple[int, str]:
        """Number and hash of the last record."""
        return self._length, self._head

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    @property
    def partial_text(self) -> str:
        """Text received of an incomplete reply; empty for a summary."""
        if self.state.run.compaction.summary.until:
            return ""
        if self._model_call is None or self._reply_filter is None:
            return (self._model_call or self.state.run.attempt).partial_text
        return self._reply_filter.filter_partial_text(self._model_call.partial_text)

    @property
    def usage(self) -> Usage | None:
        """Usage of the incomplete reply."""
        return self._model_call.usage if self._model_call else None

    @property
    def usd(self) -> Decimal | None:
        return self._cost(self.usage)

    @property
    def latency(self) -> e.Latency | None:
        """Latency of the incomplete reply so far."""
        return self._model_call.latency if self._model_call else None

    @property
    def discarded_tools(self) -> tuple[str, ...]:
        """Tools that were started early for a reply that was never completed."""
        return self._tool_runner.early_calls.discarded_tools

    async def restore(self, *, keeps_snapshot: bool = False) -> None:
        """Read the log; write nothing but a snapshot of it, if that is wanted."""
        self.tracer = tracer = self.tracing.open_session(self.session) if self.tracing is not None else None
        observe = tracer.read_record if tracer is not None else None
        self._log = log = await load_log(self.store, self.session, observe, keeps_snapshot=keeps_snapshot)
        self.state, self._length, self._head = log.state, log.length, log.head
        self._clock.start_after(log.state.now)
        self._budget_sources.set_session(self.session, log.length)

    async def restore_and_repair(self) -> None:
        """Read the log and record what had to be repaired in it."""
        await self.restore(keeps_snapshot=True)
        for event in self._log.list_repairs():
            await self.record(event)

    async def review_calls(self, *, trusts_approvals: bool) -> None:
        """Record which approvals and claims of pending calls a resumed run does not accept from the log."""
        store, tools = self.store, self._tools
        for event in review_calls(store, self.session, self.state, tools, trusts_approvals=trusts_approvals):
            await self.record(event)

    async def record(self, event: e.Event, due: Effect | None = None, *, then: e.Event | None = None) -> None:
        """Apply the event (core may reject it), store it, show it; unless steering replaced the `due` effect.

        `then` is recorded in the same append: the log has both events or neither.
        """
        if self.known_secrets is not None and type(event) in GUARDED_EVENTS:
            # guard: event-redacted
            event = self.known_secrets.redact_value(event)
        if not self._record_turn.take_free():
            await self._record_turn.take()
        try:
            if self._broken is not None:
                raise self._broken
            if due is not None and is_replaced(self.state, due):
                return
            last = record = seal_record(self._length + 1, self._clock.now(), event, self._head)
            records: tuple[Record, ...] = (record,)
            after = between = apply_event(self.state, record.event, record.at, record.hash)
            if then is not None:
                last = seal_record(record.seq + 1, self._clock.now(), then, record.hash)
                records = (record, last)
                after = apply_event(between, last.event, last.at, last.hash)
            try:
                epoch, blobs, torn = self.fence.epoch, self.result_store.unrecorded_blobs, self._log.is_torn
                if (blobs or torn) and then is None:
                    await append_record(self.store, self.session, record, torn=torn, epoch=epoch, blobs=blobs)
                else:
                    await self.store.append(self.session, self._length, records, epoch=epoch)
            except BaseException as error:
                self._broken = error
                raise
            if self.tracer is not None:
                self.tracer.on_record(record, self.state, between)
                if then is not None:
                    self.tracer.on_record(last, between, after)
            self.state, self._length, self._head = after, last.seq, last.hash
            self._log = EMPTY_LOG
        finally:
            self._record_turn.give_back()
        for record in records:
            sys.audit("bridle.recorded", self.session, record)
            if self._watchers.watchers:
                self._watchers.name_agent(agent_name(self.state.settings), self.state.run.origin.tenant)
                if isinstance(record.event, e.RunEnded):
                    self._watchers.end_run(partial(summarize_run, self.state, self.tracer))
                self.show(record)

    async def check_owned(self) -> None:
        """Raise `Conflict` if another process has continued the session."""
        await self._record_turn.take()
        try:
            if await self.store.read(self.session, self._length):
                raise taken_over(self.session)
        finally:
            self._record_turn.give_back()

    async def run_effects(self) -> None:
        """Perform effects until core has none left, or the gate admits none."""
        running: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                effects: Sequence[Effect] = next_effects(self.state)
                if self.gate is not None:
                    effects = self.gate.admit(effects)
                at_once = effects
                if len(effects) > 1 or running:
                    at_once = [effect for effect in effects if isinstance(effect, IMMEDIATE_EFFECTS)]
                for effect in at_once:
                    await self._perform(effect)
                if at_once:
                    continue
                for effect in effects:
                    if effect.name not in running:
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
            self._parent_budget.finish()
            await self._tool_runner.early_calls.discard()

    def _perform(self, effect: Effect) -> Coroutine[Any, Any, None]:
        """Return the coroutine that performs an effect; model calls and tools, the frequent ones, need no other."""
        if isinstance(effect, AskModel):
            return self._call_model(effect)
        if isinstance(effect, RunTool):
            return self._tool_runner.run(effect)
        return self._perform_other_effect(effect)

    async def _perform_other_effect(self, effect: Effect) -> None:
        assert not isinstance(effect, AskModel | RunTool)
        match effect:
            case RunHook():
                await HookRunner(self._hooks, self._tools, self, self._output).perform(effect)
            case ProbeTool():
                await self._tool_runner.probe(effect)
            case SkipCall():
                await self._tool_runner.skip_call(effect)
            case RequestApproval():
                await self._tool_runner.request_approval(effect)
            case AwaitApprovals():
                await self._tool_runner.await_answers(effect, self.state)
            case RevealTools():
                await self._tool_runner.reveal_tools(effect)
            case FindTools():
                await self._tool_runner.find_initial_tools(effect, self.state)
            case LoadMemory() | RetrieveContext() | WriteInstruction():
                await self._memory_runner.perform(effect)
            case StorePrompt() | DropPrompt():
                await update_stored_prompt(
                    effect, self._connections, self.state, self._clock, self.record, self._budget_sources
                )
            case CheckOutput(validator=validator, deadline=until):
                context = self.contexts.for_step(validator, replied=True)
                await self.record(await self._output.check(effect, context, self._clock.seconds_left(until)))
            case ChooseOptions(step=step):
                assert self._choose_options is not None
                await self.record(e.OptionsChosen(options=self._choose_options(step)))
            case OpenConversation(model_key=key):
                await self.record(await open_conversation(self._connections[key], self._clock.wall.now()))
            case EndRun(stop=stop, reason=reason):
                # A reply that core rejected may have started tools.
                discarded = await self._tool_runner.early_calls.discard()
                partial = self.state.run.attempt.partial_text
                end = e.RunEnded(stop=stop, reason=reason, partial_text=partial, discarded_tools=discarded)
                end = replace(end, in_doubt=list_doubts(self.state))
                await self.record(replace(end, usage=self.usage, usd=self.usd, latency=self.latency), effect)
                self._model_call = None  # set if a hook blocked its reply
            case _:
                await self.record(event_for_effect(effect))

    async def _call_model(self, effect: AskModel) -> None:
        if effect.attempt > 1 or effect.after_failure is not None:
            self.show(describe_restart(effect, self.state))
        if effect.wait_seconds > 0:
            # An engine has waited elsewhere since the last record.
            passed = self._clock.wall.now() - self.state.now if self.gate is not None else 0.0
            await self._clock.sleep(max(effect.wait_seconds - passed, 0.0))
        left = self._clock.seconds_left(effect.deadline)
        held = reserve(self._budget_sources, self.state, effect, left, self._length)
        if isinstance(held, ReservedCall):
            await self._send_and_record(held)
        else:
            async with held as reserved:
                await self._send_and_record(reserved)

    async def _send_and_record(self, held: ReservedCall) -> None:
        effect, request, aside = held.effect, held.effect.request, held.effect.summarizes_until
        if held.end is not None:
            await self.record(held.end)
            return
        connection = self._connections[request.model.model_key]
        if not aside and self.state.settings.on_adjusted == "error":
            lost = (
                *connection.codec.list_losses(request, with_schemas=False),
                *self._list_unsent_media(connection, request),
            )
            if lost:
                await self.record(e.RequestAdjusted(adjustments=lost))
                return
        admitted = connection.breakers.admit_request(connection.model, self._clock.monotonic())
        if isinstance(admitted, Failure):
            await self.record(e.ModelFailed(failure=admitted, random_draw=self._random_source()))
            return
        with admitted:
            await self._tool_runner.early_calls.discard()
            key, settings = connection.model.model_key, self.state.settings
            call = ModelCall(
                connection, request, self._encoded_histories[key], stream=self.streams, now=self._clock.monotonic,
                bytes_max=settings.reply_bytes_max, keep_raw=settings.keep_raw,
            )  # fmt: skip
            asked = e.ModelAsked(
                step=effect.step, attempt=effect.attempt, digest=call.digest, tool_choice=request.tool_choice,
                max_tokens=request.max_tokens, notes=effect.notes + self._new_codec_notes(connection, request),
                after_failure=effect.after_failure, wait_seconds=effect.wait_seconds,
                wait_source=effect.wait_source, reservation=held.reservation, breakpoints=request.breakpoints,
                stored_prompt=request.stored_prompt, conversation=request.conversation, summarizes_until=aside,
                model_key="" if key == settings.model.model_key else key,
            )  # fmt: skip
            if (
                request.asks_native_summary
            ):  # a sixteenth keyword would make the call above far more expensive
                asked = replace(asked, asks_native_summary=True)
            await self.record(asked)
            self._model_call, self._asked_at = call, self.state.now
            deltas = DeltaCallIds(self.state.totals.reply_count + 1, self._watchers, self._start_early)
            show = deltas.show_all if not aside else lambda _: None
            try:
                if self._hooks and not aside:
                    self._reply_filter = ReplyFilter(self._hooks, deltas.show, self.state)
                    show = self._reply_filter.take_all
                now = self._clock.wall.now()
                sending = held.send(call, show, now, admitted.record_answer_begun, self._cost)
                reply = await self._clock.limit_time(sending, effect.deadline)
                if self._reply_filter is not None and not aside:
                    reply = self._reply_filter.finish(reply)
            except ProviderError as error:
                admitted.record_failure(error.failure, self._clock.monotonic())
                await self._record_failure(call, error.failure)
            except HookRefusal as refusal:
                await self.record(refusal.event)
            except TimeoutError:
                await self._record_failure(call, RUN_TIME_UP)
            else:
                admitted.record_success()
                await self._record_reply(call, describe_reply(self.state, request, reply, aside))

    def _new_codec_notes(self, connection: ModelConnection, request: Request) -> tuple[str, ...]:
        """Losses of encoding the request on this wire that this run has not recorded yet."""
        key, lost = (
            (connection.model.model_key, request.tool_choice),
            self._list_unsent_media(connection, request),
        )
        if key not in self._noted_requests:
            self._noted_requests.add(key)
            lost = (*connection.codec.list_losses(request), *lost)
        recorded = self.state.run.adjustments.recorded_notes if lost else ()
        return tuple(note for note in lost if note not in recorded)

    def _list_unsent_media(self, connection: ModelConnection, request: Request) -> tuple[str, ...]:
        key = connection.model.model_key
        found = self._unsent_media.get(key)
        if found is None:
            found = self._unsent_media[key] = UnsentMedia(connection)
        return found.list_notes(request.messages)

    async def _record_reply(self, call: ModelCall, event: e.ModelReplied) -> None:
        reply, aside = event.reply, event.summarizes_until
        raw = await call.raw.save(self.result_store.put_blob, self._reply_filter) if call.raw else None
        usd, self._model_call = self._cost(reply.usage), None
        for warning in filter(None, (event.truncation_hint, event.usage_doubt)):
            LOG.warning("%s", escape_text(f"session {self.session}: {warning}"))
        await self.record(
            replace(
                event,
                usd=usd,
                output_error="" if aside else self._output.find_reply_error(self.state, reply),
                resource_claims=() if aside else self._tool_runner.list_resource_claims(reply),
                latency=call.latency,
                raw=raw,
            )
        )

    async def _record_failure(self, call: ModelCall, failure: Failure) -> None:
        usage, usd, partial = self.usage, self.usd, self.partial_text
        self._model_call = None
        failed = e.ModelFailed(
            failure=failure, rejected_parts=call.locate_rejected_parts(failure), partial_text=partial, usage=usage,
            usd=usd, discarded_tools=await self._tool_runner.early_calls.discard(),
            random_draw=self._random_source(), latency=call.latency,
            raw=await call.raw.save(self.result_store.put_blob, self._reply_filter) if call.raw else None,
        )  # fmt: skip
        await self.record(failed)

    def _start_early(self, ready: CallReady) -> None:
        if self.gate is None:
            self._tool_runner.start_early(self.state, ready)

    def _cost(self, usage: Usage | None) -> Decimal | None:
        price = (self._model_call or self.state.settings).model.price
        return price.cost(usage, self._asked_at) if price and usage and usage.is_known else None

    def _prove_answer(self, event: e.ApprovalAnswered) -> str:
        return prove_answer(self.store, self.session, self.state, event)
