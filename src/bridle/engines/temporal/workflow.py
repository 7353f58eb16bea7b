"""The workflow: starts one activity per part of a run and waits between them.

This is the only code under Temporal's rules of determinism. It has no loop of its own beside "do what the last status
says", so releases change activities and leave it alone. A change that alters the commands of stored histories needs
`workflow.patched`; tests replay saved histories (tests/engines/temporal/histories).
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutType,
    is_cancelled_exception,
)
from temporalio.exceptions import TimeoutError as ActivityTimeout

from bridle.engines.status import Part, RunStatus
from bridle.values.errors import MisuseError

WORKFLOW = "bridle_run"
ACTIVITIES = {"model": "model_call", "tools": "tool_calls"}
"""Activity type of each kind of part; of all others it is `advance_run`."""
LOST = (TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE)
"""Ends of an activity that a worker had and did not report on; one that no worker took holds no session."""
SECONDS_DEFAULT, CLOSE_SECONDS = 7 * 24 * 3600.0, 300.0
BUSY_SECONDS = 2.0
# not from outside: time that we wait for our own work
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 60.0, 6 * 3600.0
"""Time between two looks at a run that waits, for an answer that was given without the engine: doubled each time."""

LIMIT_RANGES = {
    "heartbeat_seconds": (1, 86_400),
    "sticky_seconds": (0.1, 3_600),
    "retry_seconds_max": (0.2, 86_400),
    "events_max": (20, 50_000),
    "bytes_max": (10_000, 50_000_000),
}
"""Least and largest values of `WorkflowLimits`; the last two end below the limits of the server."""

AGENT = SearchAttributeKey.for_keyword("BridleAgent")
TENANT = SearchAttributeKey.for_keyword("BridleTenant")
STATE = SearchAttributeKey.for_keyword("BridleState")
COST = SearchAttributeKey.for_float("BridleCost")


@dataclass(frozen=True)
class WorkflowLimits:
    """Settings of the engine that a workflow follows; they are part of its input, so a change concerns new runs."""

    heartbeat_seconds: float = 10.0
    """Silence after which a worker counts as dead."""
    sticky_seconds: float = 5.0
    """Time for the worker that has the run in memory to take the next part; then any worker may."""
    retry_seconds_max: float = 30.0
    events_max: int = 2_000
    """Events of the history after which it starts again as a new one."""
    bytes_max: int = 1_000_000

    def __post_init__(self) -> None:
        for name, (least, most) in LIMIT_RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise MisuseError(f"WorkflowLimits({name}=…) is {least:,} to {most:,}, not {value!r}")


@dataclass(frozen=True)
class RunTask:
    """The input of a workflow: references only."""

    session: str
    agent: str = ""
    status: RunStatus = field(default_factory=RunStatus)
    limits: WorkflowLimits = field(default_factory=WorkflowLimits)
    is_indexed: bool = False
    """True if the server knows the search attributes."""
    has_news: bool = False
    """A signal or an update came that the workflow before this one did not act on."""
    is_resumed: bool = False
    """Such a signal asked to continue a paused run."""


@dataclass(frozen=True)
class PartRequest:
    """The input of an activity."""

    session: str
    agent: str = ""
    status: RunStatus = field(default_factory=RunStatus)
    take_over: bool = False
    """An earlier worker may still have it."""


@workflow.defn(name=WORKFLOW, sandboxed=False)
class RunWorkflow:
    @workflow.init
    def __init__(self, task: RunTask) -> None:
        self._task, self._status = task, task.status
        self._news, self._is_resumed = task.has_news, task.is_resumed

    @workflow.run
    async def run(self, task: RunTask) -> RunStatus:
        try:
            while self._status.state != "ended":
                part = await self._next_part()
                status = await self._perform(replace(self._status, part=part))
                self._show_state(status)
                self._status = status
                is_cancelled = workflow.cancellation_reason() is not None
                if status.state != "ended" and is_cancelled and workflow.patched("close-after-part"):
                    raise asyncio.CancelledError  # the part ended before it heard of it
                if self._is_history_long():
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    news, is_resumed = self._news, self._is_resumed
                    workflow.continue_as_new(
                        replace(task, status=status, has_news=news, is_resumed=is_resumed)
                    )
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            self._status = await self._close()
            self._show_state(self._status)
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._status

    @workflow.signal
    def look(self) -> None:
        """Another process has left an answer or a request in the store."""
        self._news = True

    @workflow.signal
    def resume(self) -> None:
        """Continue a paused run."""
        self._is_resumed = self._news = True

    @workflow.update
    async def answer(self, approval: str) -> None:
        """The answer to this approval is in the store."""
        self._news = True

    @answer.validator
    def check_answer(self, approval: str) -> None:
        # guard: question-is-open
        if approval not in self._status.questions:
            waiting = ", ".join(self._status.questions) or "none"
            raise ApplicationError(f"no pending approval matches {approval!r}; pending: {waiting}")

    @workflow.query
    def status(self) -> RunStatus:
        return self._status

    async def _next_part(self) -> Part:
        """Wait until there is something to do; returns what."""
        status, now = self._status, workflow.now().timestamp()
        if status.state in ("running", "waiting"):
            self._forget_resume()
        if status.state == "busy":
            await workflow.sleep(BUSY_SECONDS)
            return replace(status.part, kind=status.part.kind or "")
        if status.state == "running":
            if status.wake_at is not None and status.wake_at > now:
                await self._sleep(status.wake_at - now)
            return status.part
        pause = LOOK_SECONDS_MIN
        while not self._news:
            seconds = pause
            if status.wake_at is not None:
                seconds = min(pause, max(status.wake_at - now, 1.0))
            try:
                await workflow.wait_condition(lambda: self._news, timeout=seconds)
            except TimeoutError:
                pause = min(2 * pause, LOOK_SECONDS_MAX)
                looked = await self._perform(replace(status, part=Part(kind="look", label="look")))
                if looked.state != status.state or looked.seq != status.seq:
                    self._show_state(looked)
                    self._status = looked
                    return await self._next_part()
                now = workflow.now().timestamp()
        self._news = False
        if status.state != "paused":
            self._forget_resume()
        if self._is_resumed:
            self._is_resumed = False
            return Part(kind="resume", label="resume")
        return Part(kind="look", label="answered")

    def _forget_resume(self) -> None:
        """A signal to resume that came while the run was not paused must not undo a later pause."""
        if self._is_resumed and workflow.patched("resume-when-paused"):
            self._is_resumed = False

    async def _sleep(self, seconds: float) -> None:
        """Sleep; a request of another process, such as one to cancel the run, ends it."""
        if not workflow.patched("wake-from-retry"):
            await workflow.sleep(seconds)
            return
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._news, timeout=seconds)
        self._news = False

    async def _perform(self, status: RunStatus) -> RunStatus:
        """Perform a part on the worker that has the run in memory, else on any."""
        part, limits = status.part, self._task.limits
        request = PartRequest(self._task.session, self._task.agent, status)
        name = ACTIVITIES.get(part.kind, "advance_run")
        if status.worker and not part.queue:
            try:
                return await self._execute(
                    name,
                    request,
                    queue=status.worker,
                    start_timeout=timedelta(seconds=limits.sticky_seconds),
                    retries=RetryPolicy(maximum_attempts=1),
                )
            except ActivityError as error:
                cause = error.cause
                is_final = isinstance(cause, ApplicationError) and cause.non_retryable
                if is_cancelled_exception(error) or is_final:
                    raise
                is_lost = isinstance(cause, ActivityTimeout) and cause.type in LOST
                request = replace(request, take_over=is_lost)
        return await self._execute(name, request, queue=part.queue or None)

    async def _close(self) -> RunStatus:
        part = Part(label="cancelled", seconds=CLOSE_SECONDS)
        status = replace(self._status, part=part)
        return await self._execute("close_run", PartRequest(self._task.session, self._task.agent, status))

    async def _execute(
        self,
        name: str,
        request: PartRequest,
        *,
        queue: str | None = None,
        start_timeout: timedelta | None = None,
        retries: RetryPolicy | None = None,
    ) -> RunStatus:
        part, limits = request.status.part, self._task.limits
        performed: RunStatus = await workflow.execute_activity(
            name,
            request,
            task_queue=queue,
            result_type=RunStatus,
            schedule_to_start_timeout=start_timeout,
            start_to_close_timeout=timedelta(seconds=part.seconds or SECONDS_DEFAULT),
            heartbeat_timeout=timedelta(seconds=part.heartbeat_seconds or limits.heartbeat_seconds),
            retry_policy=retries
            or RetryPolicy(
                initial_interval=timedelta(milliseconds=200),
                maximum_interval=timedelta(seconds=limits.retry_seconds_max),
            ),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=part.label or None,
        )
        return performed

    def _show_state(self, status: RunStatus) -> None:
        shown = status.stop if status.state == "ended" else status.state
        before = self._status.stop if self._status.state == "ended" else self._status.state
        if not self._task.is_indexed or (shown == before and status.state != "ended"):
            return
        updates: list[SearchAttributeUpdate[Any]] = [STATE.value_set(shown)]
        if status.usd is not None:
            updates.append(COST.value_set(status.usd))
        workflow.upsert_search_attributes(updates)

    def _is_history_long(self) -> bool:
        info, limits = workflow.info(), self._task.limits
        return self._status.state != "ended" and (
            info.is_continue_as_new_suggested()
            or info.get_current_history_length() > limits.events_max
            or info.get_current_history_size() > limits.bytes_max
        )
