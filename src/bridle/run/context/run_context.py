"""Makes the `RunContext` of each call of user code in a run, and checks the context that the caller gave.

The caller's context is held here and nowhere else: it is never part of an event, so a resumed run is given it
again.  Tools and other user code declare by annotation which type they need; a run that lacks it is refused
before anything is recorded.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Union, get_args, get_origin

from bridle.core.budget.limits import add_nested_spending, remaining_limits
from bridle.core.effects import ProbeTool, RunTool
from bridle.core.memory import is_instruction_due
from bridle.core.state import Phase, State
from bridle.ports.clock import Clock
from bridle.ports.run_context import RunContext
from bridle.ports.tool import ContextTool, Tool
from bridle.values.calls import RequestRefused, ServerReply, ServerRequest
from bridle.values.errors import MisuseError
from bridle.values.events import Event
from bridle.values.memory import InstructionFunction
from bridle.values.result import Delta, Progress
from bridle.values.usage import Limits, Usage

if TYPE_CHECKING:
    from bridle.run.context.telemetry import SessionTracer
    from bridle.run.known_secrets import KnownSecrets


class ContextNeed(NamedTuple):
    """User code that needs a context."""

    owner: str
    """What needs it, such as "tool `pay`"."""
    type: object
    """The type, or its name if it could not be resolved."""
    function: InstructionFunction | None = None
    """The function that writes instructions, if it is one; it needs the context only while it is due."""


def list_tool_needs(tools: Mapping[str, Tool]) -> tuple[ContextNeed, ...]:
    wanted = ((name, tool.context_type) for name, tool in tools.items() if isinstance(tool, ContextTool))
    return tuple(ContextNeed(f"tool `{name}`", type_) for name, type_ in wanted if type_ is not None)


def list_certain_needs(needs: Iterable[ContextNeed]) -> tuple[ContextNeed, ...]:
    """The needs of every new prompt; a function of the session may have written its text before."""
    return tuple(need for need in needs if need.function is None or need.function.scope == "turn")


def list_due_needs(needs: Iterable[ContextNeed], state: State, *, prompting: bool) -> tuple[ContextNeed, ...]:
    """The needs of this run; `prompting`: it starts with a new prompt."""
    return tuple(need for need in needs if need.function is None or _is_due(state, need.function, prompting))


def _is_due(state: State, function: InstructionFunction, prompting: bool) -> bool:  # noqa: FBT001
    return (prompting and function.scope == "turn") or is_instruction_due(state, function)


def check_context(needs: Iterable[ContextNeed], context: object, method: str) -> None:
    """Raise `MisuseError` if the context is missing or of another type; `method` is the one to call again."""
    for need in needs:
        wanted = describe_type(need.type)
        if context is None:
            raise MisuseError(
                f"{need.owner} needs a context of type {wanted}, which is never stored;"
                f" pass it: agent.{method}(…, context=…)"
            )
        if not _is_instance(context, need.type):
            raise MisuseError(
                f"{need.owner} needs a context of type {wanted}, not {describe_type(type(context))}"
            )


def check_context_types(needs: Iterable[ContextNeed], declared: object) -> None:
    """Raise `MisuseError` if user code needs another type than the declared one."""
    for need in needs:
        if (
            isinstance(need.type, type)
            and isinstance(declared, type)
            and not _is_subtype(declared, need.type)
        ):
            raise MisuseError(
                f"{need.owner} needs a context of type {describe_type(need.type)},"
                f" but context_type is {describe_type(declared)}"
            )


def describe_type(given: object) -> str:
    return given.__name__ if isinstance(given, type) and not get_args(given) else str(given)


def _is_instance(context: object, wanted: Any) -> bool:
    """False if the context is certainly of another type; types that cannot be tested are accepted."""
    if get_origin(wanted) in (Union, types.UnionType):
        return any(_is_instance(context, each) for each in get_args(wanted))
    try:
        return isinstance(context, get_origin(wanted) or wanted)
    except TypeError:
        return True


def _is_subtype(declared: type, wanted: type) -> bool:
    try:
        return issubclass(declared, wanted)
    except TypeError:
        return True  # a protocol with attributes


AnswerServer = Callable[[str, ServerRequest], Awaitable[ServerReply]]


class RunOwner(Protocol):
    """The run: its driver."""

    session: str
    state: State
    tracer: "SessionTracer | None"

    async def record(self, event: Event) -> None: ...


class RunContexts:
    """Makes the contexts of one run and is their monitor."""

    def __init__(self, run: RunOwner, context: object, clock: Clock, show: Callable[[Delta], None]) -> None:
        self._run, self.context, self._clock, self._show = run, context, clock, show
        self.session = run.session
        self._loop: asyncio.AbstractEventLoop | None = None
        """Loop of the run, for progress that is reported from other threads."""
        self.answer_server: AnswerServer | None = None
        """Answers requests of servers during calls of their tools (run/calls/server_requests.py)."""
        self.known_secrets: KnownSecrets | None = None
        """Removed from progress that is shown."""

    def for_call(self, effect: RunTool | ProbeTool) -> RunContext:
        state, call, tracer = self._run.state, effect.call, self._run.tracer
        run, self._loop = state.run, asyncio.get_running_loop()
        # A call that starts early belongs to a reply that is not recorded yet.
        step = run.budget.spent.steps + (state.phase is Phase.CALLING_MODEL)
        return RunContext(
            context=self.context,
            session=self.session,
            tenant=run.origin.tenant,
            caller=run.origin.caller,
            step=step,
            name=call.name,
            call_id=call.id,
            idempotency_key=effect.key,
            attempt=effect.attempt,
            traceparent=tracer.call_traceparent(call.id, effect.attempt)
            if tracer is not None
            else run.origin.traceparent,
            monitor=self,
        )

    def for_step(self, name: str, *, replied: bool = False) -> RunContext:
        """The context of user code that runs before the next request, or about the latest reply."""
        run, self._loop = self._run.state.run, asyncio.get_running_loop()
        tracer = self._run.tracer
        return RunContext(
            context=self.context,
            session=self.session,
            tenant=run.origin.tenant,
            caller=run.origin.caller,
            step=run.budget.spent.steps + (not replied),
            name=name,
            traceparent=tracer.run_traceparent() if tracer is not None else run.origin.traceparent,
            monitor=self,
        )

    @property
    def usage(self) -> Usage:
        used = self._run.state.run.budget
        return add_nested_spending(used.spent, used.nested_spent).usage

    @property
    def budget_left(self) -> Limits:
        return remaining_limits(self._run.state, self._clock.now())

    async def answer_request(self, call_id: str, request: ServerRequest) -> ServerReply:
        if self.answer_server is None:
            raise RequestRefused("this run has no servers")
        return await self.answer_server(call_id, request)

    def show_progress(self, progress: Progress) -> None:
        loop = self._loop
        if loop is None:
            return
        if self.known_secrets is not None:
            progress = self.known_secrets.redact_progress(progress)
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            self._show(progress)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._show, progress)
