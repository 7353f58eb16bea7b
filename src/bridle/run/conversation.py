"""One session while somebody is driving it: begin, go on, or take over, and always leave it legal.

A session is held while it is driven, so that nobody else can be in the middle of anything
in it.  Before a prompt is added, whatever an earlier run left open is closed by an event:
a session that was killed, cancelled or forgotten can simply be spoken to again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from msgspec.structs import replace

from ..core.fallback import with_model
from ..core.handoff import rename_imported_calls
from ..core.state import Phase, State
from ..ports.tool import Tool
from ..values.approval import PendingApproval, Verdict
from ..values.errors import Conflict, MisuseError, SessionNotFound
from ..values.event import Configured, Imported, Prompted, Resumed, RunEnded
from ..values.result import History
from ..values.settings import Settings
from ..values.usage import Budget
from .approving import chosen, pending
from .driver import Driver
from .reserving import check_shared
from .tenancy import check_tenant
from .undoing import undo

FINISHED = ("done", "refused")
ABANDONED = "the run before was left unfinished"
OWN_INSTRUCTIONS = "the imported system prompt is not sent: the agent has instructions of its own"
CANCELLED = "cancelled by the caller"
CLOSING_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Conversation:
    session: str
    settings: Callable[[], Settings]
    """What a prompt begins with now."""
    hold: Callable[[], AbstractContextManager[None]]
    drivers: Callable[[], Driver]
    """Makes a fresh driver for this session; a broken one cannot be mended, only replaced."""

    async def prompt(
        self,
        prompted: Prompted,
        history: History | None = None,
        *,
        new: bool | None = None,
        tenant: str | None = None,
    ) -> State:
        """`new`: whether the session must not have begun (True), must have (False), or may be either."""
        with self.hold():
            driver = self.drivers()
            await driver.take_over()
            self._check_new(new, begun=driver.begun)
            prompted = replace(prompted, across=check_tenant(self.session, driver.state, tenant))
            if driver.state.phase not in (Phase.NEW, Phase.RESTING):
                await driver.record(RunEnded(stop="cancelled", reason=ABANDONED))
            begins = history.instructions if history is not None else ""
            await self._configure(driver, self.settings(), begins)
            if history is not None:
                await self._import(driver, history)
            await driver.record(prompted)
            return await self._drive(driver)

    async def resume(
        self, budget: Budget | None, tenant: str | None = None, *, trusts_approvals: bool = False
    ) -> State:
        with self.hold():
            driver = self.drivers()
            await driver.take_over()
            state = driver.state
            if state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            if not state.transcript.messages:
                raise MisuseError(f"session {self.session!r} was never prompted: there is nothing to resume")
            across = check_tenant(self.session, state, tenant)
            if state.phase is Phase.RESTING and state.run.stop in FINISHED:
                return state
            check_shared(budget or state.run.budget, state.run.tenant)
            await self._configure(driver, self._going_on(state))
            await driver.record(Resumed(budget=budget, across=across))
            await driver.review_calls(trusts_approvals=trusts_approvals)
            return await self._drive(driver)

    def _check_new(self, new: bool | None, *, begun: bool) -> None:  # noqa: FBT001
        if new is False and not begun:
            raise SessionNotFound(
                f"there is no session {self.session!r} in this store; leave session= out to start one,"
                " or give a new one a name of your own"
            )
        if new is True and begun:
            raise MisuseError(
                f"session {self.session!r} has begun already; leave new=True out to go on there"
            )

    async def answer(self, wanted: str, verdict: Verdict, tenant: str | None = None) -> PendingApproval:
        """Write a person's answer into the log; the run goes on when it is resumed."""
        with self.hold():
            driver = self.drivers()
            await driver.take_over()
            across = check_tenant(self.session, driver.state, tenant)
            if across:
                verdict = replace(verdict, by=f"{verdict.by} of tenant {across}".strip())
            question = chosen(pending(self.session, driver.state), wanted)
            await driver.answer(question, verdict)
            return question

    async def undo(
        self, tools: Mapping[str, Tool], settled: Collection[str] = (), tenant: str | None = None
    ) -> State:
        with self.hold():
            driver = self.drivers()
            await driver.take_over()
            if driver.state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            across = check_tenant(self.session, driver.state, tenant)
            if driver.state.phase is not Phase.RESTING:
                await driver.record(RunEnded(stop="cancelled", reason=ABANDONED))
            await undo(driver, tools, settled, across)
            return driver.state

    async def _import(self, driver: Driver, history: History) -> None:
        if driver.state.transcript.messages:
            raise MisuseError(
                f"session {self.session!r} has begun already; a history can only begin a new one"
            )
        messages, told = rename_imported_calls(history.messages), history.instructions
        repairs, own = history.repairs, driver.state.settings.instructions
        if told and own != told:
            repairs = (*repairs, OWN_INSTRUCTIONS)
        await driver.record(Imported(messages=messages, repairs=repairs, instructions=told))

    def _going_on(self, state: State) -> Settings:
        """A run that was cut off goes on with the model of the chain that it was with."""
        settings, model = self.settings(), state.settings.model
        askable = model in settings.models and model.seat not in dict(settings.skipped)
        under_way = state.phase is not Phase.RESTING and askable
        return with_model(settings, model) if under_way else settings

    async def _configure(self, driver: Driver, settings: Settings, imported: str = "") -> None:
        """`imported`: the system prompt of a history that is about to begin this session."""
        told = imported or driver.state.imported_instructions
        if told and not settings.instructions:
            settings = replace(settings, instructions=told)
        if driver.state.phase is Phase.NEW:
            await driver.record(Configured(settings=settings, session=self.session))
        elif driver.state.settings != settings:
            await driver.record(Configured(settings=settings))

    async def _drive(self, driver: Driver) -> State:
        try:
            await driver.go()
        except asyncio.CancelledError:
            closing = asyncio.ensure_future(self._close(driver))
            while not closing.done():
                try:
                    await asyncio.shield(closing)
                except asyncio.CancelledError:
                    continue  # asked twice: the end is being recorded, and that is not given up
            closing.result()
            raise
        return driver.state

    async def _close(self, driver: Driver) -> None:
        """Record the end of a cancelled run; by a fresh driver if this one died with a write under way."""
        partial, usage, usd, latency = driver.partial, driver.usage, driver.usd, driver.latency
        for _ in range(CLOSING_TRIES):
            try:
                if driver.broken:
                    driver = self.drivers()
                    await driver.take_over()
                if driver.state.phase in (Phase.NEW, Phase.RESTING):
                    return
                end = RunEnded(
                    stop="cancelled",
                    reason=CANCELLED,
                    partial=partial,
                    usage=usage,
                    usd=usd,
                    discarded=driver.discarded,
                    latency=latency,
                )
                await driver.record(end)
            except Conflict:
                continue  # the write that was under way landed after all: read again
            return
