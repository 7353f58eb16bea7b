"""Control of a run on Temporal: answers and requests go to the store, and the workflow is woken."""

import asyncio
from contextlib import suppress
from typing import Any

from temporalio.client import (
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from bridle.core.state import State
from bridle.run.agent import Agent
from bridle.run.archive.sessions import list_all_approvals
from bridle.run.calls.approval import find_pending_approval
from bridle.run.control.listener import current_run
from bridle.run.control.requests import WAIT_SECONDS_DEFAULT, SessionControl
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.values.errors import EngineFailed

from .workflow import RunWorkflow

ANSWER_SECONDS = 10.0
"""Time for a workflow to learn of a question that the log has already."""
ANSWER_PAUSE_SECONDS = 0.05
STORED = "; what you gave is stored, and the workflow finds it when it looks: do not send it again"


class EngineControl(SessionControl):
    """Control of a run whose owner is an engine: requests go to the store, and the workflow is woken."""

    def __init__(self, agent: Agent[Any, Any], session: str, handle: "WorkflowHandle[Any, Any]") -> None:
        super().__init__(agent.store, session)
        self._agent, self._handle = agent, handle

    async def answer(
        self, wanted: str, verdict: ApprovalVerdict, *, wait_seconds: float = WAIT_SECONDS_DEFAULT
    ) -> PendingApproval:
        """Answer a question of the run, or of a run inside its calls, which waits in a log of its own."""
        questions = await list_all_approvals(self._store, self._session, (await self._read_state())[0])
        question = find_pending_approval(questions, wanted)
        if question.session == self._session:
            return await super().answer(question.id, verdict, wait_seconds=wait_seconds)
        await self._agent.open_session(question.session).answer(question.id, verdict)
        await self._wake(question)
        return question

    async def _has_owner(self) -> bool:
        return True

    def _is_over(self, state: State) -> bool:
        return not current_run(state)  # one that waits is woken

    async def _wake(self, question: PendingApproval | None) -> None:
        try:
            if question is None or not await self._announce(question.id):
                await self._handle.signal(RunWorkflow.look)  # waits for a worker; the request is in the store
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise describe_rpc_error(error, STORED) from error
            # The workflow has ended meanwhile; the log says if the request was taken.

    async def _announce(self, approval: str) -> bool:
        """Update the workflow; False if no worker was there to validate it in time."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while True:
                    with suppress(
                        WorkflowUpdateFailedError
                    ):  # the log has a question a moment before the workflow
                        await self._handle.execute_update(RunWorkflow.answer, approval)
                        return True
                    await asyncio.sleep(ANSWER_PAUSE_SECONDS)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            return False

    def _describe_delay(self, wait_seconds: float) -> str:
        return (
            f"no worker has taken the answer for session {self._session!r} within {wait_seconds:g} seconds;"
            " it is stored, and the run goes on when a worker is there: do not send it again"
        )


def describe_rpc_error(error: RPCError, note: str = "") -> EngineFailed:
    return EngineFailed(f"the Temporal server refused or did not answer: {error.message}{note}")
