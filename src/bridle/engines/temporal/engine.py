"""`TemporalEngine` starts the runs of an agent on Temporal and controls them.

    engine = TemporalEngine(agent, client, task_queue="agents")
    run = await engine.start("Refund order 7.", session="order-7")
    result = await run.result()

    await engine.worker().run()         # in the processes that do the work

The prompt and everything else is in the agent's store; Temporal gets references only.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar, Unpack

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import CancelledError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from bridle.engines.parts import MakeContext, PartRunner, StartOptions, ToolPlacement
from bridle.engines.status import RunStatus
from bridle.ports.store import Store, SupportsApprovalKey, WatchableStore, supports
from bridle.run.agent import Agent
from bridle.run.archive.sessions import list_all_approvals
from bridle.run.calls.approval import CallResult
from bridle.run.context.run_options import RunOptions, override_parts
from bridle.run.control.live import LiveView
from bridle.run.control.requests import WAIT_SECONDS_DEFAULT, ControlOutcome
from bridle.stores import find_store_file
from bridle.stores.locks import wait_for_lease
from bridle.values.calls import CONTROL_LOG_PREFIX, ApprovalVerdict, PendingApproval
from bridle.values.errors import Conflict, EngineFailed, MisuseError
from bridle.values.events import Event
from bridle.values.message import Prompt
from bridle.values.result import Delta, Result
from bridle.values.usage import Budget

from .connection import register_attributes
from .control import STORED, EngineControl, describe_rpc_error
from .worker import EngineWorker
from .workflow import AGENT, STATE, TENANT, WORKFLOW, RunTask, RunWorkflow, WorkflowLimits

T = TypeVar("T")
OUTAGES = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL)
"""Errors of a server that is down or restarts."""
# not from outside: names and requests that we make
WORKFLOW_ID_BYTES_MAX, TENANT_BYTES_MAX = 1_000, 2_048
"""Limits of a server for ids of workflows and for search attributes."""
CLAIM_SECONDS = 60.0
"""Time for another client that starts the same session."""
# not from outside: time that we wait for our own work
OUTAGE_SECONDS_MAX, OUTAGE_PAUSE_SECONDS = 600.0, 1.0


class TemporalEngine(Generic[T]):
    """Runs of one agent on Temporal."""

    def __init__(
        self,
        agent: Agent[Any, T],
        client: Client,
        task_queue: str,
        *,
        context: MakeContext | None = None,
        tools: Mapping[str, ToolPlacement] | None = None,
        limits: WorkflowLimits | None = None,
        single_machine: bool = False,
        streams: bool = True,
    ) -> None:
        """`context` makes the context of a run from its session id, on each worker; it is never stored.

        `tools` says where the calls of a tool run and how many at once, by name. `single_machine` accepts a store
        that only this machine can open. `streams` requests replies as streams, for viewers.
        """
        if not task_queue.strip():
            raise MisuseError(
                'the task queue has no name: TemporalEngine(agent, client, task_queue="agents")'
            )
        if not agent.settings.name:
            raise MisuseError(
                "an agent on an engine needs a name, by which its workers know it: Agent(…, name=…)"
            )
        check_shared_store(agent.store, single_machine=single_machine)
        unknown = sorted(set(tools or {}) - set(agent.tools))
        if unknown and not agent.parts.sources:
            raise MisuseError(f"tools={{…}} names tools that the agent does not have: {', '.join(unknown)}")
        self.agent, self.client, self.task_queue = agent, client, task_queue
        self.limits = limits or WorkflowLimits()
        self.runner = PartRunner(agent, make_context=context, placements=tools, streams=streams)
        self._is_indexed: bool | None = None

    async def start(
        self,
        prompt: Prompt,
        session: str | None = None,
        **given: Unpack[StartOptions],
    ) -> "EngineRun[T]":
        """Record the prompt in the store and start its run; the parameters are those of `Agent.run`.

        Raises `Conflict` if the session has a run on the engine.
        """
        check_options(self.agent, given.get("options", RunOptions()))
        self._check_lengths(session or "", given.get("tenant", ""))
        await self._register()
        async with AsyncExitStack() as held:
            if session is None:
                await self._is_running("")  # nothing is recorded if the server cannot be reached
            else:
                await held.enter_async_context(self._claim(session))
            name, status = await self.runner.begin(prompt, session, **given)
            return await self._start_workflow(name, status)

    async def resume(self, session: str, *, budget: Budget | None = None) -> "EngineRun[T]":
        """Start a workflow for an unfinished run of the store: its client died before, or it ran elsewhere.

        `budget` is a new one. Raises `Conflict` if the session is in use.
        """
        await self._register()
        async with self._claim(session):
            status = await self.runner.describe(session)
            if status.state == "ended" and status.stop in ("done", "refused"):
                raise MisuseError(
                    f"the run of session {session!r} has ended; start a new one with engine.start(…)"
                )
            return await self._start_workflow(session, await self.runner.resume(session, budget))

    def get(self, session: str) -> "EngineRun[T]":
        """The run of a session that was started before; nothing is read yet."""
        return EngineRun(self, session, self._get_handle(session))

    def worker(
        self,
        *,
        queues: Sequence[str] = (),
        parts_at_once: int = 100,
        shutdown_seconds: float = 30.0,
        deployment: str = "",
        build_id: str = "",
    ) -> EngineWorker:
        """A worker for this agent; one for several agents is `EngineWorker`."""
        return EngineWorker(
            {self.agent.settings.name: self.runner},
            self.client,
            self.task_queue,
            queues=queues,
            parts_at_once=parts_at_once,
            shutdown_seconds=shutdown_seconds,
            deployment=deployment,
            build_id=build_id,
        )

    def _get_handle(self, session: str) -> "WorkflowHandle[Any, RunStatus]":
        return self.client.get_workflow_handle(self._workflow_id(session), result_type=RunStatus)

    def _workflow_id(self, session: str) -> str:
        return f"{self.task_queue}/{session}"

    @asynccontextmanager
    async def _claim(self, session: str) -> AsyncIterator[None]:
        """Be the only client that starts a workflow for this session; raises `Conflict` if it has one."""
        store, name = self.agent.store, f"{CONTROL_LOG_PREFIX}start:{session}"
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(CLAIM_SECONDS):
                    await held.enter_async_context(wait_for_lease(store, name, self.agent.clock.sleep))
            except TimeoutError:
                what = f"another client has been starting session {session!r} for {CLAIM_SECONDS:g} seconds"
                raise Conflict(f"{what}; if it is stuck, end that process") from None
            if await self._is_running(session):
                raise self._already_running(session)
            yield

    def _check_lengths(self, session: str, tenant: str) -> None:
        """Refuse what the server would refuse after the prompt was recorded."""
        if len(self._workflow_id(session).encode()) > (most := WORKFLOW_ID_BYTES_MAX):
            raise MisuseError(
                f"the id of the session is too long: with its queue it has at most {most:,} bytes"
            )
        if len(tenant.encode()) > TENANT_BYTES_MAX:
            raise MisuseError(
                f"the tenant is too long: it has at most {TENANT_BYTES_MAX:,} bytes on Temporal"
            )

    async def _register(self) -> bool:
        """Register the search attributes once; False if runs have none."""
        if self._is_indexed is None:
            self._is_indexed = await register_attributes(self.client)
        return self._is_indexed

    async def _is_running(self, session: str) -> bool:
        try:
            described = await self.client.get_workflow_handle(self._workflow_id(session)).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise describe_rpc_error(error) from error
        return described.status is WorkflowExecutionStatus.RUNNING

    def _already_running(self, session: str) -> Conflict:
        return Conflict(
            f"session {session!r} has a run on Temporal (workflow {self._workflow_id(session)!r});"
            " wait for it, steer it, or cancel it"
        )

    async def _start_workflow(self, session: str, status: RunStatus) -> "EngineRun[T]":
        is_indexed = await self._register()
        task = RunTask(session, self.agent.settings.name, status, self.limits, is_indexed)
        try:
            handle = await self.client.start_workflow(
                WORKFLOW,
                task,
                id=self._workflow_id(session),
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                search_attributes=await self._make_attributes(session) if is_indexed else None,
                result_type=RunStatus,
            )
        except WorkflowAlreadyStartedError:
            raise self._already_running(session) from None
        except RPCError as error:
            note = f"; the prompt is recorded: engine.resume({session!r}) starts its run"
            raise describe_rpc_error(error, note) from error
        return EngineRun(self, session, handle)

    async def _make_attributes(self, session: str) -> TypedSearchAttributes:
        tenant = (await self.runner.read_state(session)).run.origin.tenant
        pairs: list[SearchAttributePair[str]] = [SearchAttributePair(STATE, "running")]
        if name := self.agent.settings.name:
            pairs.append(SearchAttributePair(AGENT, name))
        if tenant:
            pairs.append(SearchAttributePair(TENANT, tenant))
        return TypedSearchAttributes(pairs)


class EngineRun(Generic[T]):
    """One run on Temporal."""

    def __init__(self, engine: TemporalEngine[T], session: str, handle: "WorkflowHandle[Any, Any]") -> None:
        self.session, self._engine, self._handle = session, engine, handle
        self._control = EngineControl(engine.agent, session, handle)

    @property
    def workflow_id(self) -> str:
        return self._handle.id

    async def result(self) -> Result[T]:
        """Wait for the end of the run; the result is read from the log.

        While the server cannot be reached it tries again, for ten minutes.
        """
        ended: RunStatus | None = None
        try:
            ended = await self._wait_for_workflow()
        except WorkflowFailureError as error:
            if not isinstance(error.cause, CancelledError):
                cause = getattr(error.cause, "cause", None) or error.cause
                raise EngineFailed(
                    f"the workflow {self._handle.id} of session {self.session!r} failed: {cause};"
                    " the log has the run up to there: engine.resume(session) continues it"
                ) from error
        except RPCError as error:
            raise describe_rpc_error(error) from error
        runner = self._engine.runner
        if ended is not None:
            return await runner.read_result(self.session, ended.seq, is_end=True)
        return await runner.read_result(self.session, await self._find_start(), is_end=False)

    async def _find_start(self) -> int:
        """Number of the record at which the workflow started: one of its run."""
        client = self._engine.client
        handle = client.get_workflow_handle(self._handle.id, run_id=self._handle.result_run_id)
        try:
            async for event in handle.fetch_history_events(page_size=1):
                given = event.workflow_execution_started_event_attributes.input.payloads
                task: RunTask
                (task,) = await client.data_converter.decode(given, [RunTask])
                return task.status.seq
        except RPCError as error:
            raise describe_rpc_error(error) from error
        raise EngineFailed(f"the workflow {self._handle.id} has no history on the server")

    async def _wait_for_workflow(self) -> RunStatus:
        clock = self._engine.agent.clock
        lost_at: float | None = None
        while True:
            try:
                ended: RunStatus = await self._handle.result()
            except RPCError as error:
                now = clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                if error.status not in OUTAGES or now - lost_at > OUTAGE_SECONDS_MAX:
                    raise
                await clock.sleep(OUTAGE_PAUSE_SECONDS)
                continue
            return ended

    async def status(self) -> RunStatus:
        """The state of the run, read from the log."""
        return await self._engine.runner.describe(self.session)

    async def stream(self, after: int = 0) -> AsyncIterator[Event | Delta]:
        """The events of the session as they are recorded, and deltas of replies, from the store; ends with the run."""
        store = self._engine.agent.store
        view, ended = LiveView(store, self.session), asyncio.create_task(self._wait_for_end())
        waiting: asyncio.Task[Sequence[Delta]] | None = None
        try:
            while True:
                is_last = ended.done()
                for record in await store.read(self.session, after):
                    after = record.seq
                    view.take(record)
                    yield record.event
                if is_last:
                    ended.result()
                    return
                waiting = asyncio.create_task(view.wait(after))
                await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
                for delta in waiting.result() if waiting.done() else ():
                    yield delta
                waiting.cancel()
        finally:
            for task in (ended, waiting):
                if task is not None:
                    task.cancel()

    async def steer(
        self, text: str, *, by: str = "", wait_seconds: float = WAIT_SECONDS_DEFAULT
    ) -> ControlOutcome:
        """Add a message to the run, which takes it up before its next request."""
        return await self._control.steer(text, by=by, wait_seconds=wait_seconds)

    async def pause(self, *, by: str = "", wait_seconds: float = WAIT_SECONDS_DEFAULT) -> ControlOutcome:
        """Stop after the current step; `resume` continues the run."""
        return await self._control.pause(by=by, wait_seconds=wait_seconds)

    async def resume(self) -> None:
        """Continue a paused run; raises `MisuseError` if it is not paused."""
        if (state := (await self.status()).state) != "paused":
            raise MisuseError(
                f"the run of session {self.session!r} is not paused: it is {state};"
                " a pause takes effect after the current step"
            )
        try:
            await self._handle.signal(RunWorkflow.resume)
        except RPCError as error:
            raise describe_rpc_error(error) from error

    async def cancel(self, *, by: str = "", wait_seconds: float = WAIT_SECONDS_DEFAULT) -> ControlOutcome:
        """End the run at once, as `cancelled`; what it produced is kept."""
        return await self._control.cancel(by=by, wait_seconds=wait_seconds)

    async def approvals(self) -> tuple[PendingApproval, ...]:
        """List what the run waits for, also the questions of agents inside its calls."""
        state = await self._engine.runner.read_state(self.session)
        return await list_all_approvals(self._engine.agent.store, self.session, state)

    async def approve(
        self,
        approval: str,
        *,
        arguments: Mapping[str, Any] | str | None = None,
        reason: str = "",
        by: str = "",
    ) -> PendingApproval:
        """Allow a call, optionally with edited arguments; `approval` is its id or that of its call."""
        edited = dict(arguments) if isinstance(arguments, Mapping) else arguments
        verdict = ApprovalVerdict(answer="approve", arguments=edited, reason=reason, by=by)
        return await self._control.answer(approval, verdict)

    async def reject(self, approval: str, *, reason: str = "", by: str = "") -> PendingApproval:
        """Refuse a call; the model receives the reason."""
        return await self._control.answer(approval, ApprovalVerdict(answer="reject", reason=reason, by=by))

    async def settle(self, approval: str, result: str, *, by: str = "") -> PendingApproval:
        """Record that a call in doubt was executed, with its result."""
        return await self._control.answer(approval, ApprovalVerdict(answer="done", reason=result, by=by))

    async def give_results(self, results: Mapping[str, CallResult]) -> None:
        """Give the results of `external_calls`, by id."""
        await self._engine.agent.open_session(self.session).record_results(results)
        try:
            await self._handle.signal(RunWorkflow.look)
        except RPCError as error:
            raise describe_rpc_error(error, STORED) from error

    async def _wait_for_end(self) -> None:
        await self.result()


def check_shared_store(store: Store, *, single_machine: bool) -> None:
    """Raise `MisuseError` if the processes of an engine could not share the store."""
    if supports(store, SupportsApprovalKey) or not supports(store, WatchableStore):
        raise MisuseError(
            "an engine needs a store that its processes share, and this one is in memory:"
            ' Agent(…, store="postgresql://…")'
        )
    if find_store_file(store) is not None and not single_machine:
        raise MisuseError(
            'a SQLite file is shared by the processes of one machine only; use store="postgresql://…",'
            " or state that all workers run here: single_machine=True"
        )


def check_options(agent: Agent[Any, Any], options: RunOptions) -> None:
    """Raise `MisuseError` for options with code that the workers, which read the log, do not have."""
    made = override_parts(agent.parts, options) if options else agent.parts
    external = {spec.name for spec in made.settings.all_tools if spec.external}
    own = {*agent.parts.tool_layout.tools, *(source.prefix for source in agent.parts.sources), *external}
    for override in made.settings.overrides:
        lacking = [name for name in override.code if override.option != "tools" or name not in own]
        if lacking:
            raise MisuseError(
                f"the workers do not have the code of {override.option}=… ({', '.join(lacking)});"
                " give it to the agent itself"
            )
