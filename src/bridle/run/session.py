"""Runs operations on one session: prompt, resume, answer an approval, compensate.

The session's lease is held during each operation, so no other process is inside it.  Before a prompt is
added, an event closes whatever an earlier run left open: a killed or cancelled session accepts a new prompt.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from bridle.core.budget.scopes import resume_budget
from bridle.core.calls.catalogue import is_handover_due, is_return_due
from bridle.core.calls.compensation import list_compensations
from bridle.core.calls.orphaned import describe_doubts
from bridle.core.context.assemble import UNSENT_INSTRUCTIONS
from bridle.core.context.view import rename_imported_calls
from bridle.core.hooks import has_open_reply
from bridle.core.loop import next_effects
from bridle.core.memory import carry_memory
from bridle.core.recovery.fallback import keep_model
from bridle.core.state import Phase, State
from bridle.ports.clock import Clock
from bridle.ports.store import Store, SupportsApprovalKey, WatchableStore, supports
from bridle.run.budget.nested import current_nested_run
from bridle.run.budget.sources import check_shared_limits
from bridle.run.calls.approval import (
    CallResult,
    find_answerable,
    list_approved_calls,
    list_pending_approvals,
    match_results,
)
from bridle.run.calls.compensation import ABANDONED_REASON, open_undoable_run, run_compensations
from bridle.run.calls.continuation import (
    check_abandoned,
    check_answer,
    check_run,
    is_recorder,
    plan_upgrades,
)
from bridle.run.calls.handover import (
    Successor,
    describe_unknown_agent,
    hand_over,
    list_agents,
    open_driver,
)
from bridle.run.calls.tool_sources import connect_tools
from bridle.run.context.run_context import ContextNeed, check_context, list_due_needs, list_tool_needs
from bridle.run.recovery.session_log import WriteEpoch, find_doubts, has_engine, take_over_subruns
from bridle.stores.locks import wait_for_lease
from bridle.values.calls import ApprovalVerdict, Compensation, PendingApproval
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.events import Configured, Imported, Prompted, Resumed, RunEnded
from bridle.values.result import History
from bridle.values.settings import Settings
from bridle.values.usage import Budget

from .agent_settings import AgentParts
from .cancellation import finish_despite_cancel
from .control.holders import Holder, add_holder, is_held, remove_holder, wait_for_cancelled
from .control.listener import CancelRequest, ControlListener
from .control.requests import SessionControl, is_run_elsewhere
from .driver import Driver
from .private_extras import describe_new_settings
from .stream import RunControl
from .sync import driving_loop
from .validate_input import check_new, check_tenant

FINISHED_STOPS = ("done", "refused")
CANCELLED_REASON = "cancelled by the caller"
CLOSE_ATTEMPTS_MAX = 5


class ResumeFlags(NamedTuple):
    """Options of a resumed run."""

    trusts_approvals: bool = False  # of other users in the log
    take_over: bool = False  # from a process that is alive and does not answer
    results: Mapping[str, CallResult] | None = None  # of calls that the caller ran, by id
    stopped_at: str = ""  # hash of the record after which the gate of an engine stopped the run
    engine: bool = False  # an engine resumes it, in parts


NO_FLAGS = ResumeFlags()


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    session: str
    settings: Callable[[], Settings]  # for a new prompt
    store: Store
    new_driver: Callable[[], Driver]
    """Makes a fresh driver for this session; a broken driver is replaced, not repaired."""
    clock: Clock
    control: RunControl | None = None  # records for a person while a run works
    restore_overrides: "Callable[[State], Session] | None" = None  # with the options recorded for the run
    successors: Mapping[str, Successor] = field(default_factory=dict)
    """Agents that the run may be handed over to, by name."""
    unknown_agents: tuple[str, ...] = ()  # named in `handover`, and in no agent of the run
    parts: AgentParts[Any]
    reopen: "Callable[[AgentParts[Any]], Session]"  # with other parts of the agent
    fence: WriteEpoch
    open_other: "Callable[[str], Session]"  # another session, with the same agent
    budget: Budget | None = None  # of the agent

    @asynccontextmanager
    async def lease(self, *, queue: bool = False, take_over: bool = False) -> AsyncIterator[None]:
        """Hold the lease of the session; every driver of this operation writes under its epoch.

        A run of this process that was cancelled, or whose stream was left, ends first.
        """
        if queue:
            self._check_outer()
        elif is_held(self.session) and not take_over:
            await wait_for_cancelled(self.session)
        holder: Holder | None = None
        try:
            async with (
                wait_for_lease(self.store, self.session, self.clock.sleep)
                if queue
                else self.store.lease(self.session, take_over=take_over)
            ) as lease:
                holder = add_holder(self.session, self.store)
                self.fence.epoch, self.fence.took_over = lease.epoch, take_over
                if (outer := current_nested_run()) is not None:
                    await outer.check_owned()
                inside = driving_loop.set(asyncio.get_running_loop())
                try:
                    yield
                finally:
                    driving_loop.reset(inside)
        finally:
            remove_holder(self.session, holder)

    def _check_outer(self) -> None:
        """Raise `Conflict` if a run around this one has the session: it ends only after this one."""
        outer = current_nested_run()
        for each in outer.list_outer() if outer is not None else ():
            if (
                each.session == self.session
                and each.parent_budget.run.store is self.store
                and not each.is_over()
            ):
                raise Conflict(
                    f"session {self.session!r} is that of the run whose tool this is; waiting for it would take"
                    " forever. Use another session"
                )

    async def prompt(
        self,
        prompted: Prompted,
        history: History | None = None,
        *,
        new: bool | None = None,
        tenant: str | None = None,
        queue: bool = False,
        take_over: bool = False,
    ) -> State:
        """Run a prompt.  The session must not exist (`new=True`), must exist (False), or either (None).

        With `queue`, wait until the session is free; otherwise a session in use raises `Conflict`.
        """
        async with self.lease(queue=queue, take_over=take_over):
            driver = self.new_driver()
            await driver.restore_and_repair()
            check_new(self.session, new, begun=driver.has_begun)
            opened, driver = await connect_tools(self, driver) if self.parts.sources else (self, driver)
            opened.check_context(driver, "run")
            across = check_tenant(self.session, driver.state, tenant)
            if not take_over and await has_engine(self.store, self.session, driver.state):
                raise Conflict(
                    f"session {self.session!r} has an unfinished run on an engine; wait for it, or cancel it with"
                    f" run.cancel(). If its workflow is gone: engine.resume({self.session!r}), or without the engine:"
                    f" bridle resume {self.session} --take-over"
                )
            prompted = replace(prompted, cross_tenant=across, engine=driver.gate is not None)
            await check_abandoned(opened, driver.state)
            if driver.state.phase not in (Phase.NEW, Phase.IDLE):
                await driver.record(await opened._end_cancelled(driver, ABANDONED_REASON))
            imported = history.instructions if history is not None else ""
            settling = opened._find_settling(driver.state) if history is None else None
            if settling is not None:
                prompted = replace(prompted, settled_by=driver.state.run.origin.agents)
                return await opened._settle_first(settling, prompted)
            await opened._configure(driver, opened.settings(), imported)
            await opened._finish_hooks(driver)
            if history is not None:
                await driver.record(opened._make_imported(driver, history), then=prompted)
            else:
                await driver.record(prompted)
            if driver.state.calls.batch.pending:  # in doubt; they are settled before the prompt is sent
                await driver.review_calls(trusts_approvals=False)
            if (outer := current_nested_run()) is not None:
                await outer.record_program(self.session)
            return await opened._drive(driver)

    def _find_settling(self, state: State) -> "Session | None":
        """The session of the agent that left calls in doubt after a hand-over; None if this agent settles them."""
        agents = state.run.origin.agents
        is_known = bool(agents) and agents[0] in self.successors
        return list_agents(self, state)[-1] if is_known and state.calls.batch.pending else None

    async def _settle_first(self, settling: "Session", prompted: Prompted) -> State:
        """Let the agent that left calls in doubt settle them, then go on with the prompt."""
        driver = settling.new_driver()
        await driver.restore()
        if settling.parts.sources:
            settling, driver = await connect_tools(settling, driver)
        settling.check_context(driver, "resume")
        await settling._configure(driver, keep_model(settling.settings(), driver.state))
        await driver.record(prompted)
        await driver.review_calls(trusts_approvals=False)
        return await self._take_back(await settling._drive(driver))

    async def _take_back(self, state: State) -> State:
        """Go on as the first agent, once another one has settled the calls that it left in doubt."""
        if not is_return_due(state):
            return state
        driver = self.new_driver()
        await driver.restore()
        opened, driver = await connect_tools(self, driver) if self.parts.sources else (self, driver)
        configured = describe_new_settings(driver.state.settings, opened.settings())
        await driver.record(replace(configured, is_return=True))
        for report in opened.parts.tool_reports:
            await driver.record(report)
        return await opened._drive(driver)

    async def resume(
        self,
        budget: Budget | None,
        tenant: str | None = None,
        flags: ResumeFlags = NO_FLAGS,
    ) -> State:
        """Finish the run."""
        async with self.lease(take_over=flags.take_over):
            driver = self.new_driver()
            await driver.restore_and_repair()
            if driver.state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            if driver.state.run.origin.agents:
                last = list_agents(self, driver.state)[-1]
                return await self._take_back(
                    await last.continue_run(budget, tenant, flags, agent_budget=self.budget)
                )
            return await self.continue_run(budget, tenant, flags, driver, agent_budget=self.budget)

    async def advance(self, driver: Driver) -> State:
        """Drive on a run that its gate stopped; raises `Conflict` if another process has written since."""
        async with self.lease():
            await driver.check_owned()
            return await self._drive(driver)

    async def close(self, request: CancelRequest | None, *, take_over: bool = False) -> State:
        """End an unfinished run as cancelled."""
        async with self.lease(take_over=take_over):
            return await self._close(await open_driver(self), request)

    async def continue_run(
        self,
        budget: Budget | None,
        tenant: str | None,
        flags: ResumeFlags,
        driver: Driver | None = None,
        *,
        agent_budget: Budget | None,
    ) -> State:
        """Resume the run with the agent that has it; the caller holds the lease.

        `agent_budget` is that of the agent that began the run.
        """
        if driver is None:
            driver = self.new_driver()
            await driver.restore()
        state = driver.state
        if not state.conversation.transcript.messages:
            raise SessionNotFound(f"session {self.session!r} was never prompted: there is nothing to resume")
        across = check_tenant(self.session, state, tenant)
        match_results(self.session, state, flags.results or {})
        is_finished = state.phase is Phase.IDLE and state.run.end.stop in FINISHED_STOPS
        if is_finished and not state.run.prompt.steering.waiting:
            return await self._finish_hooks(driver)
        used, origin = state.run.budget, state.run.origin
        check_shared_limits(budget or used.limits, origin.tenant, origin.caller)
        owners = {"session": self.session, "tenant": origin.tenant, "caller": origin.caller}
        scopes = [name for name, owner in owners.items() if owner]
        limits, parts = resume_budget(used.limits, used.parts, agent_budget, budget, scopes)
        opened = self
        if state.settings.overrides and self.restore_overrides is not None:
            opened = self.restore_overrides(state)
            driver = opened.new_driver()
            await driver.restore_and_repair()
        opened, driver = await connect_tools(opened, driver) if opened.parts.sources else (opened, driver)
        opened.check_context(driver, "resume")
        settings, results = keep_model(opened.settings(), state), flags.results or {}
        settings = carry_memory(settings, state) if state.run.origin.agents else settings
        await check_run(opened, settings, driver.state, results)
        if not results:
            await opened._configure(driver, settings)
        if driver.place[1] == flags.stopped_at:  # nothing is in doubt
            return await opened._drive(driver)
        resumed = Resumed(
            budget=None if limits == used.limits and budget is None else limits,
            cross_tenant=across,
            took_over=self.fence.took_over,
            engine=flags.engine,
            budget_parts=None if parts == used.parts else parts,
        )
        await driver.record(replace(resumed, continues_reply=has_open_reply(driver.state)))
        if self.fence.epoch:  # after the record, by which the old process notices the takeover
            await take_over_subruns(self.store, state, self.fence.epoch, self.fence.taken_subruns)
        if results:  # belong to the settings that the calls were made with: the new ones may lack their tools
            await self._finish_external(driver, results)
            await opened._configure(driver, settings)
        await driver.review_calls(trusts_approvals=flags.trusts_approvals)
        return await opened._drive(driver)

    async def prompt_once(self, prompted: Prompted, history: History | None = None) -> State:
        """Run a prompt in a session of its own; a run that is there is finished, or its end is the result."""
        driver = self.new_driver()
        await driver.restore()
        outer = current_nested_run()
        if outer is not None and not driver.has_begun and self.parts.tool_layout.tools:
            outer.check_stored(self.session)
        take_over = outer is not None and outer.claim_takeover(self.session)
        if take_over and not driver.has_begun:
            driver = await self._begin_before_others(driver)
        state = driver.state
        if not state.conversation.prompt_ids:
            return await self.prompt(prompted, history, take_over=take_over)
        if outer is not None:
            await outer.record_program(self.session)
            await outer.charge_missing(self.session, state)
        is_left = state.run.end.stop == "cancelled" or state.calls.batch.pending
        if state.phase is Phase.IDLE and not is_left:
            async with self.lease(take_over=take_over):
                return await self._finish_hooks(await open_driver(self))
        state = await self.resume(None, flags=ResumeFlags(take_over=take_over))
        if outer is not None:  # replies under review were not counted before
            await outer.charge_missing(self.session, state)
        return state

    async def _begin_before_others(self, driver: Driver) -> Driver:
        """Begin a session without its lease, which a process that was replaced may hold; then it can be taken over."""
        try:
            await self._configure(driver, self.settings())
        except Conflict:  # that process has begun it
            driver = self.new_driver()
            await driver.restore()
        return driver

    def check_context(self, driver: Driver, method: str) -> None:
        needs = self.list_context_needs(prompting=method == "run")
        needs = list_due_needs(needs, driver.state, prompting=method == "run")
        check_context(needs, driver.contexts.context, method)

    def list_context_needs(self, *, prompting: bool) -> tuple[ContextNeed, ...]:
        """The needs of this agent and of those that may take over; of these without functions on resume.

        Raises `MisuseError` if one of them names an unknown agent.
        """
        if self.unknown_agents:
            raise MisuseError(describe_unknown_agent(self))
        following = (each for each in self.successors.values() if not each.is_named)
        later = (each.open_session().list_context_needs(prompting=prompting) for each in following)
        needs = (need for each in later for need in each if need.function is None or prompting)
        return (*self.parts.context_needs, *needs)

    async def list_approvals(self, tenant: str | None = None) -> tuple[PendingApproval, ...]:
        """List the pending approvals; nothing is written."""
        driver = self.new_driver()
        await driver.restore()
        check_tenant(self.session, driver.state, tenant)
        return list_pending_approvals(self.session, driver.state)

    async def list_approved_calls(self, tenant: str | None = None) -> tuple[PendingApproval, ...]:
        """List the calls that are approved and have not started; nothing is written."""
        driver = self.new_driver()
        await driver.restore()
        check_tenant(self.session, driver.state, tenant)
        return list_approved_calls(self.session, driver.state)

    async def answer(
        self, wanted: str, verdict: ApprovalVerdict, tenant: str | None = None
    ) -> PendingApproval:
        """Record a person's answer in the log; `resume` then continues the run. A live run takes it at once."""
        if await is_run_elsewhere(self.store, self.session):
            return await SessionControl(self.store, self.session, tenant=tenant).answer(wanted, verdict)
        async with self.lease():
            driver = await open_driver(self)
            if across := check_tenant(self.session, driver.state, tenant):
                verdict = replace(verdict, by=f"{verdict.by} of tenant {across}".strip())
            is_uncompared = is_recorder(self, driver.state)
            question, replaces = find_answerable(
                self.session, driver.state, wanted, verdict, compares=not is_uncompared
            )
            await check_answer(self, driver.state, question, verdict)
            await driver.answer(question, verdict, is_uncompared=is_uncompared, replaces=replaces)
            return replace(question, is_uncompared=is_uncompared)

    async def check_answer(self, wanted: str, verdict: ApprovalVerdict) -> None:
        """Raise what would prevent this answer from being recorded; nothing is written."""
        driver = self.new_driver()
        await driver.restore()
        compares = not is_recorder(self, driver.state)
        question, _ = find_answerable(self.session, driver.state, wanted, verdict, compares=compares)
        await check_answer(self, driver.state, question, verdict)

    async def record_results(self, results: Mapping[str, CallResult], tenant: str | None = None) -> None:
        """Record results of calls that the caller ran, without continuing the run."""
        async with self.lease():
            driver = await open_driver(self)
            across = check_tenant(self.session, driver.state, tenant)
            match_results(self.session, driver.state, results)
            await driver.record(Resumed(cross_tenant=across))
            await self._finish_external(driver, results)

    async def _finish_external(self, driver: Driver, results: Mapping[str, CallResult]) -> None:
        """Record the results of calls that the caller ran."""
        for call, result in match_results(self.session, driver.state, results):
            await driver.tool_runner.finish(call, result, source="caller")

    async def compensate(
        self, settled: Collection[str] = (), tenant: str | None = None
    ) -> tuple[Compensation, ...]:
        """Undo the calls of the last run, also those of runs inside it and of other agents that had it."""
        async with AsyncExitStack() as held, self.lease():
            driver = self.new_driver()
            await driver.restore_and_repair()
            if driver.state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            across = check_tenant(self.session, driver.state, tenant)
            run = await open_undoable_run(self, driver, held)
            for each in run.list_runs():
                check_context(list_tool_needs(each.tools), driver.contexts.context, "compensate")
            return await run_compensations(run, settled, across)

    async def list_compensations(self, state: State) -> tuple[Compensation, ...]:
        """List what `compensate` would undo after the run that ended in this state; nothing is written."""
        if not state.run.budget.subruns:
            return list_compensations(state)
        driver = self.new_driver()
        await driver.restore()
        return (await open_undoable_run(self, driver)).list_compensations()

    def _make_imported(self, driver: Driver, history: History) -> Imported:
        if driver.state.conversation.transcript.messages:
            raise MisuseError(
                f"session {self.session!r} already exists; a history can only start a new session"
            )
        messages, imported = rename_imported_calls(history.messages), history.instructions
        repairs, own = history.repairs, driver.state.settings.instructions
        if imported and own != imported:
            repairs = (*repairs, UNSENT_INSTRUCTIONS)
        return Imported(messages=messages, repairs=repairs, instructions=imported)

    async def _configure(self, driver: Driver, settings: Settings, imported: str = "") -> None:
        """Record changed settings.  `imported` is the system prompt of a history about to be imported."""
        instructions = imported or driver.state.conversation.imported_instructions
        if instructions and not settings.instructions:
            settings = replace(settings, instructions=instructions)
        if driver.state.phase is Phase.NEW:
            await driver.record(Configured(settings=settings, session=self.session))
        elif driver.state.settings != settings:
            configured = describe_new_settings(driver.state.settings, settings)
            upgrades = await plan_upgrades(self, settings, driver.state)
            await driver.record(replace(configured, upgraded_calls=upgrades))
        for report in self.parts.tool_reports:
            await driver.record(report)

    async def _finish_hooks(self, driver: Driver) -> State:
        """Run the `on_end` hooks that a crash prevented."""
        is_due = driver.state.settings.hooks and next_effects(driver.state)
        return await self._drive(driver) if is_due else driver.state

    async def _drive(self, driver: Driver) -> State:
        session = self
        # No other process can open a store that holds its own key: the one in memory.
        is_shared = supports(self.store, WatchableStore) and not supports(self.store, SupportsApprovalKey)
        listener = ControlListener(self.store, self.session) if is_shared else None
        try:
            async with listener or nullcontext():
                session.attach_control(driver, listener)
                if driver.gate is not None and listener is not None:
                    await listener.wait_until_read()
                await driver.run_effects()
                while is_handover_due(driver.state):
                    session, driver = await hand_over(session, driver)
                    session.attach_control(driver, listener)
                    await driver.run_effects()
        except asyncio.CancelledError:
            request = listener.cancel_request if listener is not None else None
            state = await finish_despite_cancel(session._close(driver, request))
            if listener is None or not listener.absorb_cancel():
                raise
            return state
        if driver.gate is not None:
            driver.gate.keep(session, driver)
        return driver.state

    def attach_control(self, driver: Driver, listener: ControlListener | None) -> None:
        if listener is not None:
            listener.attach(driver)
        if self.control is not None:
            self.control.attach(driver.record)

    async def _end_cancelled(self, driver: Driver, reason: str) -> RunEnded:
        """The end of a cancelled run, with the calls that it leaves in doubt."""
        calls = await find_doubts(self.store, driver.state)
        told = describe_doubts(driver.state, calls)
        return RunEnded(stop="cancelled", reason=f"{reason}; {told}" if told else reason, in_doubt=calls)

    async def _close(self, driver: Driver, request: CancelRequest | None) -> State:
        """Record the end of a cancelled run, with a fresh driver if a write of this one was interrupted."""
        partial, usage, usd, latency = driver.partial_text, driver.usage, driver.usd, driver.latency
        for _ in range(CLOSE_ATTEMPTS_MAX):
            try:
                if driver.is_broken:
                    driver = self.new_driver()
                    await driver.restore_and_repair()
                if driver.state.phase in (Phase.NEW, Phase.IDLE):
                    break
                reason = f"cancelled by {request.by}" if request else CANCELLED_REASON
                end = replace(
                    await self._end_cancelled(driver, reason),
                    by=request.by if request else "",
                    request=request.hash if request else "",
                    partial_text=partial,
                    usage=usage,
                    usd=usd,
                    discarded_tools=driver.discarded_tools,
                    latency=latency,
                )
                await driver.record(end)
                await driver.run_effects()
            except Conflict:
                continue  # the interrupted write succeeded after all: read again
            break
        return driver.state
