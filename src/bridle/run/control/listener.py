"""Takes the requests of other processes for a run and records them in the run's log.

The process that runs a session is its only writer. Others append requests to the session's control log; this
listener is woken by the store, records each request that is meant for the current run as the event that it asks for,
and skips those that the log of the session already names. A run that was killed and resumed takes up the requests
that were left. A store in memory is not listened to: no other process can open it.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from msgspec.structs import replace

from bridle.core.state import Phase, State
from bridle.ports.store import RestartableStore, Store, WatchableStore, supports
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
# not from outside: our own records and queues
REQUESTS_MAX = 1_000
"""Requests that a control log holds; the next run starts it again."""


class CancelRequest(NamedTuple):
    hash: str
    by: str


class ControlListener:
    """Listens for one run, as a context manager around it."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session
        self._driver: Driver | None = None
        self._task: asyncio.Task[None] | None = None
        self.cancel_request: CancelRequest | None = None
        """Request that cancelled the run."""
        self._failure: Exception | None = None
        """Reason why the run cannot write any more, found by a request."""
        self._read = asyncio.Event()

    async def __aenter__(self) -> Self:
        run_task = asyncio.current_task()
        assert run_task is not None
        assert supports(self._store, WatchableStore)
        self._task = asyncio.create_task(self._listen(self._store, run_task))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
        if self._failure is not None and isinstance(error, asyncio.CancelledError) and _uncancel() == 0:
            raise self._failure
        if not self._task.cancelled():
            self._task.result()

    def attach(self, driver: Driver) -> None:
        """Record with this driver from now on."""
        self._driver = driver
        driver.tool_runner.person.takes_answers = self._task is not None

    async def wait_until_read(self) -> None:
        """Wait until the requests that were there before the run went on are recorded."""
        assert self._task is not None
        reading = asyncio.create_task(self._read.wait())
        try:
            await asyncio.wait((reading, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()

    def absorb_cancel(self) -> bool:
        """True if a request cancelled the run, and nothing else did."""
        return self.cancel_request is not None and _uncancel() == 0

    async def _listen(self, store: WatchableStore, run_task: "asyncio.Task[object]") -> None:
        try:
            await self._take_requests(store, run_task)
        except BridleError as error:
            if self._driver is not None and self._driver.is_broken:
                # The run may be waiting for an answer, and would not notice.
                self._failure = error
                run_task.cancel()
                return
            text = f"session {self._session}: no more requests of other processes are taken: {error}"
            LOG.warning("%s", escape_text(text))

    async def _take_requests(self, store: WatchableStore, run_task: "asyncio.Task[object]") -> None:
        name, after = control_log_name(self._session), 0
        handled: set[str] | None = None
        ended = 0
        while True:
            records = await self._store.read(name, after)
            driver = self._driver
            assert driver is not None  # attached before this task first runs
            if records and handled is None:
                handled, ended = await self._read_handled()
                if len(records) >= REQUESTS_MAX:
                    records = await self._restart_log(name, records, current_run(driver.state))
            for record in records:
                after, event = record.seq, record.event
                if not isinstance(event, ControlRequested) or record.hash in (handled or ()):
                    continue
                if event.run != current_run(driver.state):
                    continue
                if event.after is not None and event.after < ended:
                    continue  # its sender was told that the run had ended; this one was resumed since
                if event.action == "cancel":
                    self.cancel_request = CancelRequest(record.hash, event.by or "another process")
                    run_task.cancel()
                    return
                # A cancelled write would break the driver of the run.
                await finish_despite_cancel(self._carry_out(record.hash, event, driver))
            self._read.set()
            await store.wait_for_records(name, after)

    async def _carry_out(self, request: str, event: ControlRequested, driver: Driver) -> None:
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
                    await self._take_answer(request, event, driver)
        except MisuseError as error:
            refusal = e.ControlRefused(request=request, action=event.action, why=str(error), by=event.by)
            await driver.record(refusal)

    async def _take_answer(self, request: str, event: ControlRequested, driver: Driver) -> None:
        answer = event.answer
        questions = list_pending_approvals(self._session, driver.state)
        if answer is None or answer.binding not in {question.binding for question in questions}:
            raise MisuseError("the question is not open any more")
        # guard: control-answer-proof
        if not is_answer_proved(self._store, self._session, driver.state, answer):
            raise MisuseError("the approval has no valid proof: it was not given with the key of this user")
        if not driver.tool_runner.person.claim(answer.binding):
            raise MisuseError("the question was answered here meanwhile")
        try:
            await driver.tool_runner.take_answer(replace(answer, by=answer.by or event.by, request=request))
        except MisuseError:
            driver.tool_runner.person.release(answer.binding)
            raise
        driver.tool_runner.person.notify(answer.binding)

    async def _read_handled(self) -> tuple[set[str], int]:
        """Requests that the log of the session names, and the record at which a run ended last; 0 if none did."""
        records = await self._store.read(self._session)
        handled = {request for record in records if (request := getattr(record.event, "request", ""))}
        # A run that waits has not taken its requests up, and takes them when it is resumed.
        ends = [
            record.seq
            for record in records
            if isinstance(record.event, e.RunEnded) and record.event.stop != "waiting"
        ]
        return handled, ends[-1] if ends else 0

    async def _restart_log(self, name: str, records: Sequence[Record], run: str) -> Sequence[Record]:
        """Start a full log again, unless it has a request for this run; returns what it holds then."""
        events = (record.event for record in records)
        if not supports(self._store, RestartableStore) or any(
            isinstance(event, ControlRequested) and event.run == run for event in events
        ):
            return records
        last = records[-1]
        first = seal_record(1, last.at, last.event, GENESIS)
        try:
            await self._store.restart(name, last.hash, first)
        except Conflict:
            return await self._store.read(name)  # another request arrived
        return (first,)


def _uncancel() -> int:
    """Take back one cancellation of the current task; returns the number of those that are left."""
    task = asyncio.current_task()
    assert task is not None
    return task.uncancel()


def current_run(state: State) -> str:
    """Id of the current run: that of the prompt that started it; empty if none is unfinished."""
    if state.phase in (Phase.NEW, Phase.IDLE) or not state.conversation.prompt_ids:
        return ""
    return state.conversation.prompt_ids[-1]
