"""Asks something of a run in another process: cancel it, pause it, send it a message, answer its question.

    control = bridle.sessions.control("log.db", session)
    await control.steer("Use euros.", by="ann")
    await control.cancel(by="ann")

A request is appended to the session's control log; the process that runs the session takes it up and records it.
Each method returns once that is recorded, or after `wait_seconds`.
"""

import asyncio
import os
from typing import Literal

from msgspec.structs import replace

from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.store import LeaseInspectable, Store, SupportsApprovalKey, WatchableStore, supports
from bridle.run.calls.approval import find_pending_approval, list_pending_approvals
from bridle.run.calls.approval_proof import prove_answer
from bridle.run.calls.verdicts import encode_edited, read_verdict
from bridle.run.clock import SystemClock
from bridle.run.recovery.session_log import fold_records
from bridle.run.validate_input import check_session, check_tenant
from bridle.stores import open_store
from bridle.values.base import Value
from bridle.values.calls import (
    ApprovalAnswered,
    ApprovalVerdict,
    ControlAction,
    ControlRefused,
    ControlRequested,
    PendingApproval,
    control_log_name,
)
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.events import RunEnded
from bridle.values.record import GENESIS, seal_record

from .listener import REQUESTS_MAX, STEER_CHARACTERS_MAX, current_run

APPEND_ATTEMPTS_MAX = 100
"""Attempts to append while other processes append too; each loses against one that succeeded."""
OWNER_CHECK_SECONDS = 1.0
"""Time after which a request that is not taken up makes the caller look for the process that runs the session."""
WAIT_SECONDS_DEFAULT = 30.0


class ControlOutcome(Value, kw_only=True):
    """The outcome of a request."""

    session: str
    action: ControlAction
    request: str
    """Hash of the request; the event that carries it out names it."""
    status: Literal["taken", "sent"]
    """`sent`: the process that runs the session is alive and has not taken it up in time; it still will."""
    record: int = 0
    """Record of the session that carries it out."""


class SessionControl:
    """Control of one session's run."""

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        session: str,
        *,
        tenant: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = open_store(store) if isinstance(store, str | os.PathLike) else store
        self._session, self._tenant, self._clock = check_session(session), tenant, clock or SystemClock()

    async def cancel(self, *, by: str = "", wait_seconds: float = WAIT_SECONDS_DEFAULT) -> ControlOutcome:
        """End the run at once, as `cancelled`; what it produced is kept."""
        return await self._send("cancel", by, wait_seconds)

    async def pause(self, *, by: str = "", wait_seconds: float = WAIT_SECONDS_DEFAULT) -> ControlOutcome:
        """Let the run end as `paused` after its current step; `resume` continues it."""
        return await self._send("pause", by, wait_seconds)

    async def steer(
        self, text: str, *, by: str = "", wait_seconds: float = WAIT_SECONDS_DEFAULT
    ) -> ControlOutcome:
        """Add a message to the run, which takes it up before its next request."""
        if not isinstance(text, str) or not text.strip() or len(text) > STEER_CHARACTERS_MAX:
            raise MisuseError(f"steer takes a text of 1 to {STEER_CHARACTERS_MAX:,} characters")
        return await self._send("steer", by, wait_seconds, text)

    async def answer(
        self, wanted: str, verdict: ApprovalVerdict, *, wait_seconds: float = WAIT_SECONDS_DEFAULT
    ) -> PendingApproval:
        """Answer a question that the run waits for; raises `MisuseError` if it is not taken."""
        verdict = read_verdict(verdict)
        state, length = await self._read_state()
        across = check_tenant(self._session, state, self._tenant)
        if across:
            verdict = replace(verdict, by=f"{verdict.by} of tenant {across}".strip())
        question = find_pending_approval(list_pending_approvals(self._session, state), wanted)
        event = ApprovalAnswered(
            call_id=question.call_id,
            binding=question.binding,
            answer=verdict.answer,
            arguments=encode_edited(question.arguments, verdict.arguments),
            reason=verdict.reason,
            by=verdict.by,
            name=question.tool,
            asked_arguments=question.arguments,
        )
        event = replace(event, proof=prove_answer(self._store, self._session, state, event))
        request = ControlRequested(
            action="answer", run=current_run(state), by=verdict.by, answer=event, after=length
        )
        hash_ = await self._append(request)
        await self._wake(question)
        outcome = await self._wait_until_taken(request, hash_, length, wait_seconds)
        if outcome.status == "sent":
            raise Conflict(self._describe_delay(wait_seconds))
        return question

    def _describe_delay(self, wait_seconds: float) -> str:
        return (
            f"the process that runs session {self._session!r} has not taken the answer within "
            f"{wait_seconds:g} seconds; it still may. "
            f"If that process is stuck: bridle resume {self._session} --take-over"
        )

    async def _send(
        self, action: ControlAction, by: str, wait_seconds: float, text: str = ""
    ) -> ControlOutcome:
        state, length = await self._read_state()
        run = current_run(state)
        if self._is_over(state):
            ended = f"its last run ended as {state.run.end.stop}" if state.run.end.stop else "it has no run"
            if current_run(state):  # it waits
                ended += "; answer its questions, or send a new prompt, which gives up its calls unless one is approved"
            raise MisuseError(f"session {self._session!r} is not running: {ended}")
        if not await self._has_owner():
            raise MisuseError(
                f"no process runs session {self._session!r}: it stopped at record {length}; "
                f"continue it with: bridle resume {self._session}"
            )
        request = ControlRequested(action=action, run=run, by=by, text=text, after=length)
        hash_ = await self._append(request)
        await self._wake(None)
        return await self._wait_until_taken(request, hash_, length, wait_seconds)

    def _is_over(self, state: State) -> bool:
        """True if no run would take up a request."""
        return not current_run(state) or bool(state.run.end.stop)

    async def _wake(self, question: PendingApproval | None) -> None:
        """Tell the owner of the session about a request; a process that listens needs no telling."""

    async def _read_state(self) -> tuple[State, int]:
        records = await self._store.read(self._session)
        if not records:
            raise SessionNotFound(f"no session {self._session!r} in this store; `bridle sessions` lists them")
        state = (await fold_records(records)).state
        check_tenant(self._session, state, self._tenant)
        return state, len(records)

    async def _append(self, request: ControlRequested) -> str:
        """Append the request; returns its hash."""
        name = control_log_name(self._session)
        for _ in range(APPEND_ATTEMPTS_MAX):
            records = await self._store.read(name)
            if len(records) > REQUESTS_MAX and request.action not in ("answer", "cancel"):
                raise MisuseError(
                    f"session {self._session!r} has {len(records):,} requests; wait for its next run"
                )
            head = records[-1].hash if records else GENESIS
            record = seal_record(len(records) + 1, self._clock.now(), request, head)
            try:
                await self._store.append(name, len(records), (record,))
            except Conflict:
                continue  # another process appended first
            return record.hash
        raise Conflict(f"session {self._session!r} gets too many requests at once; try again")

    async def _wait_until_taken(
        self, request: ControlRequested, hash_: str, after: int, wait_seconds: float
    ) -> ControlOutcome:
        deadline = self._clock.monotonic() + wait_seconds
        while True:
            had_owner = await self._has_owner()
            for record in await self._store.read(self._session, after):
                after = record.seq
                if isinstance(record.event, ControlRefused) and record.event.request == hash_:
                    raise MisuseError(f"session {self._session!r} refused the request: {record.event.why}")
                if getattr(record.event, "request", "") == hash_:
                    return ControlOutcome(
                        session=self._session,
                        action=request.action,
                        request=hash_,
                        status="taken",
                        record=record.seq,
                    )
                if isinstance(record.event, RunEnded) and record.event.stop != "waiting":
                    raise Conflict(self._explain_too_late())
            if not had_owner:
                raise Conflict(await self._explain_not_taken(request))
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return ControlOutcome(
                    session=self._session, action=request.action, request=hash_, status="sent"
                )
            await self._wait_for_records(after, min(left, OWNER_CHECK_SECONDS))

    async def _explain_not_taken(self, request: ControlRequested) -> str:
        """One line about a request that no process was there to take up: an unfinished run still gets it."""
        state, _ = await self._read_state()
        if current_run(state) == request.run:
            return (
                f"the process that ran session {self._session!r} ended before it took the request up; the request"
                f" stays, and the next `bridle resume {self._session}` takes it up"
            )
        return self._explain_too_late()

    def _explain_too_late(self) -> str:
        return (
            f"the run of session {self._session!r} ended before it took the request up, and no later run will; "
            f"see what happened with: bridle show {self._session}"
        )

    async def _wait_for_records(self, after: int, seconds: float) -> None:
        if not supports(self._store, WatchableStore):
            await self._clock.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._store.wait_for_records(self._session, after)
        except TimeoutError:
            return

    async def _has_owner(self) -> bool:
        """True if a process holds the session."""
        if supports(self._store, LeaseInspectable):
            return await self._store.is_leased(self._session)
        try:
            async with self._store.lease(self._session):
                return False
        except Conflict:
            return True


async def is_run_elsewhere(store: Store, session: str) -> bool:
    """True if a process holds the session and takes requests for it."""
    if supports(store, SupportsApprovalKey) or not supports(store, LeaseInspectable):
        return False
    return await store.is_leased(session)


def control(
    store: Store | str | os.PathLike[str], session: str, *, tenant: str | None = None
) -> SessionControl:
    """Control of a session that another process runs; `store` is a path, a URL or an open store."""
    return SessionControl(store, session, tenant=tenant)
