"""What people do to a session between its runs: see what it waits for, answer, and undo.

Nothing here asks a model.  An answer is written into the log, and the run goes on with it when it is
resumed, in whatever process that happens.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from bridle.core.calls.compensation import list_compensations
from bridle.ports.tool import Json, Tool
from bridle.run.calls.approval import encode_arguments, list_pending_approvals
from bridle.tools.collect_tools import collect_compensations
from bridle.values.calls import ApprovalVerdict, Compensation, PendingApproval

from .session import Session
from .validate_input import check_tenant


class ApprovalsHost(Protocol):
    """What the desk is part of."""

    @property
    def tools(self) -> Mapping[str, Tool]: ...

    def open_session(self, session: str) -> Session: ...


class Approvals:
    """`approval` is the id of a pending approval, or of its call.  For a `tenant`, only his."""

    async def approvals(
        self: ApprovalsHost, session: str, *, tenant: str | None = None
    ) -> tuple[PendingApproval, ...]:
        """What a run that ended with `stop == "waiting"` waits for."""
        driver = self.open_session(session).new_driver()
        await driver.restore()
        check_tenant(session, driver.state, tenant)
        return list_pending_approvals(session, driver.state)

    async def approve(
        self: ApprovalsHost,
        session: str,
        approval: str,
        *,
        arguments: Mapping[str, Json] | str | None = None,
        reason: str = "",
        by: str = "",
        tenant: str | None = None,
    ) -> PendingApproval:
        """Let a call run, perhaps with other arguments; `resume` then goes on.

        For a call in doubt, approving is running it again.
        """
        verdict = ApprovalVerdict(
            answer="approve", arguments=encode_arguments(arguments), reason=reason, by=by
        )
        return await self.open_session(session).answer(approval, verdict, tenant)

    async def reject(
        self: ApprovalsHost,
        session: str,
        approval: str,
        *,
        reason: str = "",
        by: str = "",
        tenant: str | None = None,
    ) -> PendingApproval:
        """Keep a call from running; the model is told, with the reason."""
        verdict = ApprovalVerdict(answer="reject", reason=reason, by=by)
        return await self.open_session(session).answer(approval, verdict, tenant)

    async def settle(
        self: ApprovalsHost,
        session: str,
        approval: str,
        result: str,
        *,
        by: str = "",
        tenant: str | None = None,
    ) -> PendingApproval:
        """Say of a call in doubt that it was done, and what came of it."""
        verdict = ApprovalVerdict(answer="done", reason=result, by=by)
        return await self.open_session(session).answer(approval, verdict, tenant)

    async def compensate(
        self: ApprovalsHost, session: str, *, settled: Collection[str] = (), tenant: str | None = None
    ) -> tuple[Compensation, ...]:
        """Undo what the last run did, last things first; what is left of the list, with how it went.

        It stops where one fails or is in doubt, and goes on from there when it is called again; `settled`
        are calls that a person has seen to.
        """
        conversation = self.open_session(session)
        return list_compensations(
            await conversation.compensate(collect_compensations(self.tools), settled, tenant)
        )
