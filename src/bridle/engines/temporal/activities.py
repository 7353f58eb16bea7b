"""The activities: each performs one part of a run, with a heartbeat, and ends it when the server says so."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from bridle.engines.parts import PartRunner
from bridle.engines.status import RunStatus
from bridle.values.errors import BridleError, Conflict, Corrupt, MisuseError, SessionNotFound, Unusable
from bridle.values.text import escape_text

from .workflow import PartRequest

T = TypeVar("T")
LOG = logging.getLogger("bridle")
BEATS_PER_TIMEOUT = 4
LASTING_ERRORS = (Corrupt, MisuseError)
"""Errors that no other attempt can avoid; a worker without the agent is none of them."""
MEANINGS = {
    Corrupt: "the log of the session is damaged",
    SessionNotFound: "the store of the worker has no such session",
    MisuseError: "the agent of the worker cannot continue the run",
    Unusable: "the store cannot be used now",
    Conflict: "another process has the session",
}
"""Texts for the history; those of the errors themselves may quote content."""


class RunActivities:
    """The activities of one worker, for all agents that it serves."""

    def __init__(self, runners: Mapping[str, PartRunner[Any]], worker: str) -> None:
        """`worker` is the queue of this worker alone."""
        self._runners, self._worker = runners, worker

    @property
    def functions(self) -> list[Any]:
        return [self.model_call, self.tool_calls, self.advance_run, self.close_run]

    @activity.defn
    async def model_call(self, request: PartRequest) -> RunStatus:
        """One model call."""
        return await self._advance(request)

    @activity.defn
    async def tool_calls(self, request: PartRequest) -> RunStatus:
        """The tool calls of one reply."""
        return await self._advance(request)

    @activity.defn
    async def advance_run(self, request: PartRequest) -> RunStatus:
        """Perform the effects that are neither model calls nor tool calls."""
        return await self._advance(request)

    @activity.defn
    async def close_run(self, request: PartRequest) -> RunStatus:
        """End the run as cancelled."""
        runner, take_over = self._find_runner(request), activity.info().attempt > 1
        work = runner.close(request.session, request.status, take_over=take_over)
        return await self._perform(request, work)

    async def _advance(self, request: PartRequest) -> RunStatus:
        take_over = request.take_over or activity.info().attempt > 1
        runner = self._find_runner(request)
        work = runner.advance(request.session, request.status, take_over=take_over)
        return await self._perform(request, work)

    def _find_runner(self, request: PartRequest) -> PartRunner[Any]:
        runner = self._runners.get(request.agent)
        if runner is None:
            served = ", ".join(sorted(self._runners))
            raise ApplicationError(f"this worker has no agent {request.agent!r}; it serves: {served}")
        return runner

    async def _perform(self, request: PartRequest, work: Coroutine[Any, Any, RunStatus]) -> RunStatus:
        """Do the work with heartbeats; a cancellation of the run ends it, any other leaves the run as it is."""
        limit = activity.info().heartbeat_timeout
        beat = limit.total_seconds() / BEATS_PER_TIMEOUT if limit is not None else None
        working = asyncio.create_task(work)
        try:
            while not working.done():
                await asyncio.wait((working,), timeout=beat)
                activity.heartbeat()
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is None or not details.cancel_requested:
                self._find_runner(request).revoke(working)
            working.cancel()
            await asyncio.wait((working,))
            if not working.cancelled() and working.exception() is None:
                return replace(working.result(), worker=self._worker)
            raise
        try:
            return replace(working.result(), worker=self._worker)
        except Exception as error:  # noqa: BLE001 - foreign code; its text stays out of the history
            raise describe_failure(request.session, error) from None


def describe_failure(session: str, error: Exception) -> ApplicationError:
    """The failure for the history: its type and one of our texts; the worker logs the rest, which may quote content."""
    kind = type(error).__name__
    trace = None if isinstance(error, BridleError) else error
    LOG.error("%s", escape_text(f"session {session}: {kind}: {error}"), exc_info=trace)
    meaning = next((f": {text}" for known, text in MEANINGS.items() if isinstance(error, known)), "")
    final = isinstance(error, LASTING_ERRORS)
    # guard: history-hides-error-text
    shown = f"{kind}{meaning}; the log of the worker has the details"
    return ApplicationError(shown, type=kind, non_retryable=final)
