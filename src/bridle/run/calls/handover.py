"""Hands a run over to another agent, which continues it in the same session.

The model calls `transfer_to_NAME`.  Once the call has its result, core asks for nothing more until the settings of
the next agent are recorded (`Configured.handed_over_to`); run/session.py records them and goes on with its driver.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypedDict, Unpack

from msgspec.structs import replace

from bridle.core.calls.catalogue import add_agent
from bridle.core.compaction.handover import has_handover_view, plan_handover_view
from bridle.core.memory import carry_memory
from bridle.core.state import State
from bridle.ports.run_context import RunContext
from bridle.ports.store import Store
from bridle.ports.tool import ANY_ERROR, Json, Tool
from bridle.ports.watcher import Watcher
from bridle.run.budget.nested import NestedRun
from bridle.run.budget.sources import BudgetPool
from bridle.run.context.run_context import ContextNeed, list_tool_needs
from bridle.run.context.user_functions import FunctionError, call_user_function, call_with_deadline
from bridle.run.recovery.session_log import WriteEpoch
from bridle.run.stream import RunControl
from bridle.tools.collect_tools import ToolLike, collect_compensations
from bridle.tools.names import check_tool_name
from bridle.values.calls import Obstacle
from bridle.values.errors import CannotContinue, MisuseError
from bridle.values.events import Configured, RunEnded
from bridle.values.message import Message, Text
from bridle.values.request import HANDOVER_PREFIX, ToolSpec
from bridle.values.settings import Settings
from bridle.values.text import repair_surrogates

from .approval import Approver
from .tool_sources import connect_tools

if TYPE_CHECKING:
    from bridle.run.context.telemetry import TracingChoice
    from bridle.run.control.gate import EffectGate
    from bridle.run.driver import Driver
    from bridle.run.session import Session

VisiblePart = Literal["all", "prompt"] | Callable[[tuple[Message, ...]], str]
"""Part of the conversation that the next agent sees: all, the latest prompt, or the text that a function returns."""
VISIBLE_TEXT_SECONDS = 30.0
"""Time for the function of `Handover(sees=…)`."""
HANDED_OVER = "The conversation is handed over to {name}."


class LentResources(NamedTuple):
    """Resources of the agent that hands a session over."""

    store: Store
    approver: Approver | None
    watchers: tuple[Watcher, ...]
    tracing: "TracingChoice"
    pool: BudgetPool
    """The pool of the agent that started the run; it counts what every agent of the run spends."""
    agents: "dict[str, Callable[[], Session]]"
    """Opens the session for an agent that may take over, or that had the run before, by name."""


class SessionOptions(TypedDict, total=False):
    """The keyword arguments with which an agent opens a session."""

    stream: bool
    control: RunControl | None
    context: object
    inside: NestedRun | None
    lent: LentResources | None
    fence: WriteEpoch | None
    """Epoch of the lease that all sessions of the operation share."""
    gate: "EffectGate | None"
    """Stops the run for an engine that performs it in parts."""


class HandoverAgent(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def tools(self) -> Mapping[str, Tool]: ...

    @property
    def handovers(self) -> "tuple[Handover, ...]": ...

    def open_session(self, session: str, **options: Unpack[SessionOptions]) -> "Session": ...


class Successor(NamedTuple):
    """An agent that a run may be handed over to."""

    open_session: "Callable[[], Session]"
    sees: VisiblePart
    is_named: bool = False
    """The agent is given by its name; another agent of the run lists it."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """An agent that a run may be handed over to, and the part of the conversation that it sees.

    `agent` is the agent, or the name of an agent that takes part in the run already, to go back to it.
    """

    agent: HandoverAgent | str
    description: str = ""
    sees: VisiblePart = "all"

    @property
    def name(self) -> str:
        return self.agent if isinstance(self.agent, str) else self.agent.settings.name

    def list_context_needs(self) -> tuple[ContextNeed, ...]:
        """The needs of the tools of every agent that may take over, known without opening a session."""
        return tuple(need for agent in list_successors((self,)) for need in list_tool_needs(agent.tools))


class HandoverTool:
    declared_errors = ANY_ERROR

    def __init__(self, name: str, description: str) -> None:
        tool = f"{HANDOVER_PREFIX}{name}"
        check_tool_name(tool)
        described = description or f"Hands the conversation over to the agent {name}, which continues it."
        self.spec = ToolSpec(name=tool, description=described, on_unknown="retry", handover=name)

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text]:
        return (Text(text=HANDED_OVER.format(name=self.spec.handover)),)


def collect_handovers(
    given: Sequence[object], settings: Settings, tools: Mapping[str, Tool]
) -> tuple[Handover, ...]:
    """The hand-overs of an agent with these settings; raises `MisuseError` for one that cannot work."""
    if not given:
        return ()
    found = tuple(
        each if isinstance(each, Handover) else Handover(agent=_check_agent(each)) for each in given
    )
    for each in found:
        if not each.name:
            raise MisuseError('an agent in `handover` has no name; write Agent(name="…")')
        if each.name == settings.name:
            raise MisuseError(f"the agent {each.name!r} in `handover` has the name of this agent; rename one")
        agent = _check_agent(each.agent)
        if not isinstance(agent, str) and _output_schema(agent.settings) != _output_schema(settings):
            raise MisuseError(
                f"the agent {each.name!r} in `handover` has another output type; give both the same"
            )
        if not callable(each.sees) and each.sees not in ("all", "prompt"):
            raise MisuseError(
                f'Handover(sees={each.sees!r}) is invalid; use "all", "prompt" or a function of the messages'
            )
    # One run may use the tools of all of them: two different compensations of one name are refused now.
    collect_compensations(tools, *(agent.tools for agent in list_successors(found)))
    return found


def check_run_output(handovers: Iterable[Handover], settings: Settings) -> None:
    """Raise `MisuseError` if an agent that may take over a run answers with another type than the run wants."""
    for agent in list_successors(handovers):
        if _output_schema(agent.settings) != _output_schema(settings):
            raise MisuseError(
                f"`output` of a run differs from that of the agent {agent.settings.name!r}, which may take it over;"
                " make another agent"
            )


def list_successors(handovers: Iterable[Handover]) -> "Iterable[HandoverAgent]":
    """The agents of these hand-overs and of theirs."""
    for each in handovers:
        if not isinstance(each.agent, str):
            yield each.agent
            yield from list_successors(each.agent.handovers)


async def choose_visible_text(sees: VisiblePart, messages: tuple[Message, ...]) -> str | FunctionError | None:
    """The text that the next agent sees instead of the conversation; None for the latest prompt."""
    if not callable(sees):
        return None
    name = "the function of Handover(sees=…)"
    found = await call_with_deadline(
        name, call_user_function(partial(sees, messages), sees), VISIBLE_TEXT_SECONDS
    )
    if isinstance(found, FunctionError):
        return found
    if not isinstance(found, str) or not found.strip():
        return FunctionError(f"{name} must return text for the next agent, not {found!r}")
    return repair_surrogates(found)


async def hand_over(session: "Session", driver: "Driver") -> "tuple[Session, Driver]":
    """Record the settings of the agent that takes over; returns its session and its driver.

    A function that should choose the visible text and fails ends the run; it is called again when the run is resumed.
    """
    state = driver.state
    name = state.run.origin.handover
    successor = _find_successor(session, name)
    if successor.sees != "all" and not has_handover_view(state):
        text = await choose_visible_text(successor.sees, state.conversation.transcript.messages)
        if isinstance(text, FunctionError):
            await driver.record(RunEnded(stop="failed", reason=str(text)))
            return session, driver
        await driver.record(plan_handover_view(state, text))
    taking, first = successor.open_session(), state.run.origin.first_settings
    if taking.restore_overrides is not None and first is not None and first.overrides:
        run = replace(state.run, origin=add_agent(state, name))
        taking = taking.restore_overrides(replace(state, settings=first, run=run))
    following = taking.new_driver()
    await following.restore()
    if taking.parts.sources:
        taking, following = await connect_tools(taking, following)
    taking.check_context(following, "run")
    settings = carry_memory(taking.settings(), state)
    await following.record(Configured(settings=settings, handed_over_to=name))
    for report in taking.parts.tool_reports:
        await following.record(report)
    return taking, following


def list_agents(session: "Session", state: State) -> "list[Session]":
    """The session as each agent sees it that had the run, in order; the last one has it now."""
    sessions = [session]
    for name in state.run.origin.agents:
        sessions.append(_find_successor(sessions[-1], name).open_session())
    return sessions


async def open_driver(session: "Session") -> "Driver":
    """A driver of the agent that has the run, with the log read and repaired.

    An agent that knows none of those that had the run uses a driver of its own: it is the outer agent of a run inside
    a tool, which may answer questions and run nothing.
    """
    driver = session.new_driver()
    await driver.restore_and_repair()
    if any(name in session.successors for name in driver.state.run.origin.agents[:1]):
        driver = list_agents(session, driver.state)[-1].new_driver()
        await driver.restore()
    return driver


def _find_successor(session: "Session", name: str) -> Successor:
    if name not in session.successors:
        raise CannotContinue(session.session, (describe_missing_agent(name),))
    return session.successors[name]


def describe_missing_agent(name: str) -> Obstacle:
    return Obstacle(
        kind="agent",
        name=name,
        reason=f"it was handed over to the agent {name!r}, which this agent does not know",
        remedy="list it in Agent(handover=[…]), or use the code that has it",
    )


def describe_unknown_agent(session: "Session") -> str:
    """The error for an agent that names an agent which the run does not know."""
    return (
        f"the agent {session.settings().name!r} hands over to {session.unknown_agents[0]!r}, and no agent of"
        " this run has that name; start the run with an agent that has it or lists it in `handover`"
    )


def open_successors(
    session: str,
    name: str,
    handovers: tuple[Handover, ...],
    open_again: "Callable[..., Session]",
    lent: LentResources | None,
    options: SessionOptions,
) -> dict[str, Successor]:
    """The agents that an agent may hand a session over to, opened with these options.

    `open_again` opens the session for the agent itself, which has it `lent` by the agent before it.
    """
    lending = options.get("lent")
    known = lending.agents if lending is not None else {}
    own: SessionOptions = {**options, "lent": lent}
    known[name] = partial(open_again, **own)
    for each in handovers:
        if not isinstance(each.agent, str):
            known[each.name] = partial(each.agent.open_session, session, **options)
    return {
        each.name: Successor(known[each.name], each.sees, isinstance(each.agent, str))
        for each in handovers
        if each.name in known
    }


def add_handover_tools(tools: Iterable[ToolLike], handovers: Sequence[object]) -> Iterable[ToolLike]:
    """The tools and one more per hand-over. Tools that are not a list are returned for `collect_tools` to refuse."""
    given: object = tools
    if isinstance(handovers, str) or not isinstance(handovers, Sequence):
        raise MisuseError(f"`handover` must be a list of agents or their names, not {handovers!r}")
    if not handovers or isinstance(given, str) or not isinstance(given, Iterable):
        return tools
    each = (item if isinstance(item, Handover) else Handover(agent=_check_agent(item)) for item in handovers)
    return *tools, *(HandoverTool(item.name, item.description) for item in each)


def _check_agent(given: object) -> HandoverAgent | str:
    has_settings = isinstance(getattr(given, "settings", None), Settings)
    if isinstance(given, str) or (has_settings and hasattr(given, "open_session")):
        return given  # type: ignore[return-value]
    raise MisuseError(f"`handover` takes agents, names of agents or Handover(agent=…), not {given!r}")


def _output_schema(settings: Settings) -> tuple[str, ...]:
    return (settings.output.parameters, *settings.output.functions) if settings.output is not None else ()
