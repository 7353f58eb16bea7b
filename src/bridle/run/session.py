"""One session while somebody is driving it: begin, go on, or take over, and always leave it legal.

A session is held while it is driven, so that nobody else can be in the middle of anything
in it.  Before a prompt is added, whatever an earlier run left open is closed by an event:
a session that was killed, cancelled or forgotten can simply be spoken to again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from bridle.core.calls.compensation import list_compensations
from bridle.core.context.view import rename_imported_calls
from bridle.core.effects import RunTool
from bridle.core.recovery.fallback import set_model
from bridle.core.state import Phase, State
from bridle.ports.tool import Json, Tool
from bridle.run.budget.sources import check_tenant_budget
from bridle.run.calls.approval import find_pending_approval, list_pending_approvals
from bridle.run.calls.run_tool import run_tool
from bridle.values import events as e
from bridle.values.calls import ApprovalVerdict, Compensation, PendingApproval
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.events import Configured, Imported, Prompted, Resumed, RunEnded
from bridle.values.message import Text, ToolCall, ToolResult
from bridle.values.result import History
from bridle.values.settings import Settings
from bridle.values.usage import Budget

from .driver import Driver
from .validate_input import check_tenant

# Undo what a run has done, last things first, each one durably and once.
#
# It stops at the first that fails: what was built before may need what stands on it.  Called
# again, it goes on from there; what is done is never undone twice.  An undoing that was started
# and never finished follows its tool's policy, like any other call.


SETTLED_BY_PERSON = "A person has seen to it: there is nothing left to undo."


async def run_compensations(
    driver: Driver, tools: Mapping[str, Tool], settled: Collection[str] = (), across: str = ""
) -> tuple[Compensation, ...]:
    """`across` is the tenant for whom it is done, where the session is another's."""
    for item in list_compensations(driver.state):
        if item.compensating_tool not in tools:
            raise MisuseError(
                f"{item.tool} is undone by {item.compensating_tool!r}, which is not here; register {item.tool}"
            )
    for item in list_compensations(driver.state):
        if item.call_id in settled and item.state != "done":
            told = ToolResult(call_id=f"{item.call_id}_undo", parts=(Text(text=SETTLED_BY_PERSON),))
            await driver.record(
                e.CompensationFinished(call_id=item.call_id, attempt=item.attempt, result=told, across=across)
            )
            continue
        if item.state == "done":
            continue
        tool = tools[item.compensating_tool]
        if item.state == "in_doubt" and tool.spec.on_unknown != "retry":
            break  # a person must look; undoing on a guess is how things are undone twice
        await _run_compensation(driver, tool, item, across)
        if (
            next(now for now in list_compensations(driver.state) if now.call_id == item.call_id).state
            != "done"
        ):
            break
    return list_compensations(driver.state)


async def _run_compensation(driver: Driver, tool: Tool, item: Compensation, across: str) -> None:
    # An excerpt is for models; what undoes a thing needs all that doing it brought.
    receipt = await driver.result_store.read_text(item.stored_result) if item.stored_result else item.receipt
    attempt = item.attempt + 1
    started = e.CompensationStarted(
        call_id=item.call_id, name=item.compensating_tool, key=item.key, attempt=attempt, across=across
    )
    await driver.record(started)
    call = ToolCall(
        id=f"{item.call_id}_undo",
        name=item.compensating_tool,
        arguments=_compensation_arguments(tool, item, receipt),
    )
    effect = RunTool(call=call, key=item.key, attempt=attempt, timeout_seconds=tool.spec.timeout_seconds)
    result = await run_tool(tool, effect, driver.session, tool.spec.timeout_seconds)
    await driver.record(
        e.CompensationFinished(call_id=item.call_id, attempt=attempt, result=result, across=across)
    )


def _compensation_arguments(tool: Tool, item: Compensation, receipt: str) -> str:
    """Those of the call, as far as the undoing has parameters for them, and the receipt if it wants it."""
    given: dict[str, Json] = msgspec.json.decode(item.arguments.strip() or "{}")
    schema: dict[str, dict[str, Json]] = msgspec.json.decode(tool.spec.parameters)
    wanted = schema.get("properties", {})
    known: dict[str, Json] = {**given, "receipt": receipt}
    return msgspec.json.encode({name: known[name] for name in wanted if name in known}).decode()


FINISHED_STOPS = ("done", "refused")
ABANDONED_REASON = "the run before was left unfinished"
OWN_INSTRUCTIONS_NOTE = "the imported system prompt is not sent: the agent has instructions of its own"
CANCELLED_REASON = "cancelled by the caller"
CLOSE_ATTEMPTS_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Session:
    session: str
    settings: Callable[[], Settings]
    """What a prompt begins with now."""
    lease: Callable[[], AbstractContextManager[None]]
    new_driver: Callable[[], Driver]
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
        with self.lease():
            driver = self.new_driver()
            await driver.restore_and_repair()
            self._check_new(new, begun=driver.has_begun)
            prompted = replace(prompted, cross_tenant=check_tenant(self.session, driver.state, tenant))
            if driver.state.phase not in (Phase.NEW, Phase.IDLE):
                await driver.record(RunEnded(stop="cancelled", reason=ABANDONED_REASON))
            begins = history.instructions if history is not None else ""
            await self._configure(driver, self.settings(), begins)
            if history is not None:
                await self._import_history(driver, history)
            await driver.record(prompted)
            return await self._drive(driver)

    async def resume(
        self, budget: Budget | None, tenant: str | None = None, *, trusts_approvals: bool = False
    ) -> State:
        with self.lease():
            driver = self.new_driver()
            await driver.restore_and_repair()
            state = driver.state
            if state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            if not state.transcript.messages:
                raise MisuseError(f"session {self.session!r} was never prompted: there is nothing to resume")
            across = check_tenant(self.session, state, tenant)
            if state.phase is Phase.IDLE and state.run.stop in FINISHED_STOPS:
                return state
            check_tenant_budget(budget or state.run.budget, state.run.tenant)
            await self._configure(driver, self._settings_to_resume(state))
            await driver.record(Resumed(budget=budget, cross_tenant=across))
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

    async def answer(
        self, wanted: str, verdict: ApprovalVerdict, tenant: str | None = None
    ) -> PendingApproval:
        """Write a person's answer into the log; the run goes on when it is resumed."""
        with self.lease():
            driver = self.new_driver()
            await driver.restore_and_repair()
            across = check_tenant(self.session, driver.state, tenant)
            if across:
                verdict = replace(verdict, by=f"{verdict.by} of tenant {across}".strip())
            question = find_pending_approval(list_pending_approvals(self.session, driver.state), wanted)
            await driver.answer(question, verdict)
            return question

    async def compensate(
        self, tools: Mapping[str, Tool], settled: Collection[str] = (), tenant: str | None = None
    ) -> State:
        with self.lease():
            driver = self.new_driver()
            await driver.restore_and_repair()
            if driver.state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            across = check_tenant(self.session, driver.state, tenant)
            if driver.state.phase is not Phase.IDLE:
                await driver.record(RunEnded(stop="cancelled", reason=ABANDONED_REASON))
            await run_compensations(driver, tools, settled, across)
            return driver.state

    async def _import_history(self, driver: Driver, history: History) -> None:
        if driver.state.transcript.messages:
            raise MisuseError(
                f"session {self.session!r} has begun already; a history can only begin a new one"
            )
        messages, told = rename_imported_calls(history.messages), history.instructions
        repairs, own = history.repairs, driver.state.settings.instructions
        if told and own != told:
            repairs = (*repairs, OWN_INSTRUCTIONS_NOTE)
        await driver.record(Imported(messages=messages, repairs=repairs, instructions=told))

    def _settings_to_resume(self, state: State) -> Settings:
        """A run that was cut off goes on with the model of the chain that it was with."""
        settings, model = self.settings(), state.settings.model
        askable = model in settings.models and model.model_key not in dict(settings.skipped_models)
        under_way = state.phase is not Phase.IDLE and askable
        return set_model(settings, model) if under_way else settings

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
            await driver.run_effects()
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
        partial, usage, usd, latency = driver.partial_text, driver.usage, driver.usd, driver.latency
        for _ in range(CLOSE_ATTEMPTS_MAX):
            try:
                if driver.is_broken:
                    driver = self.new_driver()
                    await driver.restore_and_repair()
                if driver.state.phase in (Phase.NEW, Phase.IDLE):
                    return
                end = RunEnded(
                    stop="cancelled",
                    reason=CANCELLED_REASON,
                    partial_text=partial,
                    usage=usage,
                    usd=usd,
                    discarded_tools=driver.discarded_tools,
                    latency=latency,
                )
                await driver.record(end)
            except Conflict:
                continue  # the write that was under way landed after all: read again
            return
