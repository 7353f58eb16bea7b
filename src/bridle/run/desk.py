"""What people do to a session between its runs: see what it waits for, answer, and undo.

Nothing here asks a model.  An answer is written into the log, and the run goes on with it when it is
resumed, in whatever process that happens.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from ..core.undoing import compensations
from ..ports.tool import Json, Tool
from ..tools.collect import compensating
from ..values.approval import PendingApproval, Verdict
from ..values.compensation import Compensation
from .approving import arguments_text, pending
from .conversation import Conversation
from .tenancy import check_tenant


class Office(Protocol):
    """What the desk is part of."""

    @property
    def tools(self) -> Mapping[str, Tool]: ...

    def conversation(self, session: str) -> Conversation: ...


class Desk:
    """`approval` is the id of a pending approval, or of its call.  For a `tenant`, only his."""

    async def approvals(
        self: Office, session: str, *, tenant: str | None = None
    ) -> tuple[PendingApproval, ...]:
        """What a run that ended with `stop == "waiting"` waits for."""
        driver = self.conversation(session).drivers()
        await driver.restore()
        check_tenant(session, driver.state, tenant)
        return pending(session, driver.state)

    async def approve(
        self: Office,
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
        verdict = Verdict(answer="approve", arguments=arguments_text(arguments), reason=reason, by=by)
        return await self.conversation(session).answer(approval, verdict, tenant)

    async def reject(
        self: Office,
        session: str,
        approval: str,
        *,
        reason: str = "",
        by: str = "",
        tenant: str | None = None,
    ) -> PendingApproval:
        """Keep a call from running; the model is told, with the reason."""
        verdict = Verdict(answer="reject", reason=reason, by=by)
        return await self.conversation(session).answer(approval, verdict, tenant)

    async def settle(
        self: Office, session: str, approval: str, result: str, *, by: str = "", tenant: str | None = None
    ) -> PendingApproval:
        """Say of a call in doubt that it was done, and what came of it."""
        verdict = Verdict(answer="done", reason=result, by=by)
        return await self.conversation(session).answer(approval, verdict, tenant)

    async def compensate(
        self: Office, session: str, *, settled: Collection[str] = (), tenant: str | None = None
    ) -> tuple[Compensation, ...]:
        """Undo what the last run did, last things first; what is left of the list, with how it went.

        It stops where one fails or is in doubt, and goes on from there when it is called again; `settled`
        are calls that a person has seen to.
        """
        conversation = self.conversation(session)
        return compensations(await conversation.undo(compensating(self.tools), settled, tenant))
