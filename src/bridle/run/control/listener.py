"""Takes the requests of other processes for a run and records them in the run's log.

The process that runs a session is its only writer. Others append requests to the session's control log; this
listener is woken by the store, records each request that is meant for the current run as the event that it asks for,
and skips those that the log of the session already names. A run that was killed and resumed takes up the requests
that were left. A store in memory is not listened to: no other process can open it.
"""

import asyncio
import logging
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from bridle.core.state import Phase, State
from bridle.ports.store import RestartableStore, Store, SupportsApprovalKey, WatchableStore
from bridle.run.calls.approval import list_pending_approvals
from bridle.run.calls.approval_proof import is_answer_proved
from bridle.run.cancellation import finish_despite_cancel
from bridle.run.driver import Driver
from bridle.values import events as e
from bridle.values.calls import ControlRequested, control_log_name
from bridle.values.errors import BridleError, Conflict, MisuseError
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.text import escape_text, repair_surrogates

LOG = logging.getLogger("bridle")
STEER_CHARACTERS_MAX = 100_000
"""Longer messages are refused: a request is held in memory and in two logs."""
REQUESTS_MAX = 1_000
"""Requests that a control log holds; the next run starts it again."""


class ControlListener:
    """Listens for one run, as a context manager around it."""

    def __init__(self, store: Store, session: str, driver: Driver) -> None:
        self._store, self._session, self.driver = store, session, driver
        self._name = control_log_name(session)
        self._task: asyncio.Task[None] | None = None
        self.cancel_request: Record | None = None
        """Request that cancelled the run."""

    async def __aenter__(self) -> Self:
        if isinstance(self._store, WatchableStore) and not isinstance(self._store, SupportsApprovalKey):
            run_task = asyncio.current_task()
            assert run_task is not None
            self._task = asyncio.create_task(self._listen(self._store, run_task))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            (failure,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(failure, Exception) and error is None:
                raise failure

    def attach(self, driver: Driver) -> None:
        """Record with another driver from now on: the run was handed over."""
        self.driver = driver
        driver.person.takes_answers = self._task is not None

    def absorb_cancel(self) -> bool:
        """True if a request cancelled the run, and nothing else did."""
        task = asyncio.current_task()
        assert task is not None
        return self.cancel_request is not None and task.uncancel() == 0

    async def _listen(self, store: WatchableStore, run_task: "asyncio.Task[object]") -> None:
        try:
            await self._take_requests(store, run_task)
        except BridleError as error:
            LOG.warning(
                "%s", escape_text(f"session {self._session}: no more requests of other processes are taken: {error}")
            )

    async def _take_requests(self, store: WatchableStore, run_task: "asyncio.Task[object]") -> None:
        handled: set[str] | None = None
        after = 0
        while True:
            records = await self._store.read(self._name, after)
            if records and handled is None:
                handled = await self._read_handled()
                if len(records) >= REQUESTS_MAX:
                    records = await self._restart_log(records[-1])
            for record in records:
                after = record.seq
                event = record.event
                if not isinstance(event, ControlRequested) or record.hash in (handled or ()):
                    continue
                if event.run != current_run(self.driver.state):
                    continue
                if event.action == "cancel":
                    self.cancel_request = record
                    run_task.cancel()
                    return
                # A cancelled write would break the driver of the run.
                await finish_despite_cancel(self._carry_out(record.hash, event))
            await store.wait_for_records(self._name, after)

    async def _carry_out(self, request: str, event: ControlRequested) -> None:
        driver = self.driver
        try:
            match event.action:
                case "steer":
                    text = repair_surrogates(event.text)
                    if not text.strip() or len(text) > STEER_CHARACTERS_MAX:
                        raise MisuseError(f"a message has 1 to {STEER_CHARACTERS_MAX:,} characters")
                    await driver.record(e.Steered(message=text, by=event.by, request=request))
                case "pause":
                    reason = f"paused by {event.by or 'another process'}"
                    await driver.record(e.PauseRequested(reason=reason, by=event.by, request=request))
                case "answer":
                    await self._take_answer(request, event)
        except MisuseError as error:
            refusal = e.ControlRefused(request=request, action=event.action, why=str(error), by=event.by)
            await driver.record(refusal)

    async def _take_answer(self, request: str, event: ControlRequested) -> None:
        driver, answer = self.driver, event.answer
        questions = list_pending_approvals(self._session, driver.state)
        if answer is None or answer.binding not in {question.binding for question in questions}:
            raise MisuseError("the question is not open any more")
        if not is_answer_proved(self._store, self._session, driver.state, answer):
            raise MisuseError("the approval has no valid proof: it was not given with the key of this user")
        if not driver.person.claim(answer.binding):
            raise MisuseError("the question was answered here meanwhile")
        try:
            await driver.take_answer(replace(answer, by=answer.by or event.by, request=request))
        except MisuseError:
            driver.person.release(answer.binding)
            raise
        driver.person.notify(answer.binding)

    async def _read_handled(self) -> set[str]:
        """Requests that the log of the session names."""
        records = await self._store.read(self._session)
        return {request for record in records if (request := getattr(record.event, "request", ""))}

    async def _restart_log(self, last: Record) -> tuple[Record, ...]:
        """Start a full log again, unless it has a request for this run."""
        records = await self._store.read(self._name)
        run = current_run(self.driver.state)
        events = [record.event for record in records]
        if not isinstance(self._store, RestartableStore) or any(
            isinstance(event, ControlRequested) and event.run == run for event in events
        ):
            return tuple(records)
        first = seal_record(1, last.at, last.event, GENESIS)
        try:
            await self._store.restart(self._name, last.hash, first)
        except Conflict:
            return tuple(await self._store.read(self._name))  # another request arrived
        return (first,)


def current_run(state: State) -> str:
    """Id of the current run: that of the prompt that started it; empty if none is unfinished."""
    if state.phase in (Phase.NEW, Phase.IDLE) or not state.conversation.prompt_ids:
        return ""
    return state.conversation.prompt_ids[-1]
