"""One trial: a task run once with one agent in its own folder, and what scorers see of it."""

import json
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from inspect import isawaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from bridle.config.agent_file import build_agent, read_agent_table
from bridle.config.configuration import resolve_reference
from bridle.config.tool_loader import load_tools, share_loaded_files
from bridle.core.recovery.log_repair import fold_log
from bridle.ports.clock import Clock
from bridle.ports.run_context import RunContext
from bridle.ports.store import Store
from bridle.ports.tool import Tool
from bridle.run.agent import Agent
from bridle.run.budget.sources import BudgetPool
from bridle.run.calls.approval import Approver
from bridle.run.clock import SystemClock
from bridle.run.hooks import Hook
from bridle.run.model_connection import ModelLike
from bridle.sim.responder.decision import Responder
from bridle.testing.fake_clock import FakeClock
from bridle.testing.scripted_model import responder_of
from bridle.testing.simulated_provider import ProviderSim
from bridle.toolkit.file_tools import make_file_tools
from bridle.toolkit.workspace import Workspace
from bridle.values import events as e
from bridle.values.budget import Spending
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.values.hooks import Change, HookDecision, Refuse
from bridle.values.message import ToolCall, ToolResult
from bridle.values.record import Record
from bridle.values.result import Result
from bridle.values.usage import Usage

from .suite_files import LoadedTask
from .task import Task, ToolFault

SIMULATED_PREFIX = "sim:"
PERSON = "eval"
"""Name under which the simulated person answers."""
T = TypeVar("T")


@dataclass(frozen=True)
class CallMade:
    """A tool call that ran."""

    tool: str
    arguments: Mapping[str, object]
    outcome: str
    """`ok`, `error`, …; empty if there is no result."""
    result: str
    """Text that the model received."""
    id: str


@dataclass(kw_only=True)
class Trial:
    """A finished trial, as scorers see it."""

    task: Task
    folder: Path
    """The work folder; it is removed after the scoring."""
    world: object
    """Value that the function `world` returned; None without one."""
    results: Sequence[Result[object]]
    """Results of the prompts, in order."""
    records: Sequence[Record]
    """The log of the session."""
    session: str
    spending: Spending
    """Of all sessions of the results, with runs inside of tools."""
    cell: Mapping[str, str] = field(default_factory=dict)
    provider: ProviderSim | None = None
    """The simulated provider; None for another model."""
    agent: Agent[Any, Any] | None = None

    @property
    def result(self) -> Result[object]:
        """The last result."""
        return self.results[-1]

    @property
    def text(self) -> str:
        return self.result.text

    @property
    def stop(self) -> str:
        return self.result.stop

    @property
    def steps(self) -> int:
        return self.spending.steps

    @property
    def usage(self) -> Usage:
        return self.spending.usage

    @property
    def usd(self) -> Decimal | None:
        """Dollars; None if a price is unknown."""
        return self.spending.usd

    @property
    def seconds(self) -> float:
        """Time from each prompt to the end of its run, together."""
        total, started = 0.0, None
        for record in self.records:
            if isinstance(record.event, e.Prompted | e.Resumed):
                started = record.at
            elif isinstance(record.event, e.RunEnded) and started is not None:
                total, started = total + record.at - started, None
        return total

    @property
    def cache_share(self) -> float:
        """Share of the prompt tokens that were read from the cache."""
        return self.usage.cache_read / self.usage.prompt if self.usage.prompt else 0.0

    def events(self, kind: type[T]) -> list[T]:
        """The events of one type, in order."""
        return [record.event for record in self.records if isinstance(record.event, kind)]

    @cached_property
    def calls(self) -> tuple[CallMade, ...]:
        """The calls that ran, in the order in which they started."""
        results = {each.call_id: each.result for each in self.events(e.ToolFinished)}
        started = {each.call_id: each for each in reversed(self.events(e.ToolStarted))}
        return tuple(
            CallMade(
                tool=each.name,
                arguments=_decode_object(each.arguments),
                outcome=results[id_].outcome if id_ in results else "",
                result=results[id_].text if id_ in results else "",
                id=id_,
            )
            for id_, each in reversed(started.items())
        )

    @cached_property
    def requests(self) -> tuple[bytes, ...]:
        """Bodies of the requests that a simulated provider received."""
        return tuple(each.body for each in self.provider.exchanges) if self.provider else ()

    def read_file(self, name: str) -> str | None:
        """Text of a file of the work folder; None if there is none."""
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _decode_object(text: str) -> Mapping[str, object]:
    try:
        decoded = json.loads(text or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


@dataclass(kw_only=True)
class TrialSetup:
    """The parts of a trial that are given to the function that makes its agent, and to the one that drives it.

    def make_agent(setup):
        return setup.agent(tools=[find_order], instructions="Be brief.")
    """

    loaded: LoadedTask
    store: Store
    session: str
    """Session to run the prompts in."""
    folder: Path
    world: object
    models: tuple[ModelLike, ...]
    """Models of the trial; simulated ones are connected to `provider`."""
    changes: Mapping[str, object]
    """Settings that the matrix changes."""
    pool: BudgetPool
    clock: Clock
    provider: ProviderSim | None
    approver: Approver | None
    hooks: tuple[Hook[object], ...]
    tools: tuple[Tool, ...]

    @property
    def task(self) -> Task:
        return self.loaded.task

    def agent(self, *, tools: Sequence[object] = (), **options: Any) -> Agent[Any, Any]:
        """An agent for this trial. Options are those of `Agent`; those of the trial are added."""
        own = {"approver": self.approver} if self.approver else {}
        given = {"clock": self.clock, "pool": self.pool, **options, **own, **self.changes}
        if not self.models:
            raise self.loaded.fail("agent", "no model is given; add -m MODEL, or `model` to `[settings]`")
        return Agent(
            list(self.models),
            tools=[*tools, *self.tools],  # type: ignore[list-item]  # checked there
            store=self.store,
            hooks=[*given.pop("hooks", ()), *self.hooks],
            **given,
        )


class FaultyTools:
    """Makes tools misbehave as the task says: a hook."""

    name = "eval_tool_faults"
    timeout_seconds = 3600.0

    def __init__(self, faults: Mapping[str, ToolFault], clock: Clock) -> None:
        self.tools = list(faults)
        self._faults, self._clock = faults, clock
        self._counts = dict.fromkeys(faults, 0)
        self._affected: set[str] = set()
        """Ids of the calls to change; parallel calls are counted before the first of them ends."""

    async def before_tool(self, run: RunContext, call: ToolCall) -> HookDecision | None:
        fault = self._faults[call.name]
        self._counts[call.name] += 1
        if fault.times is not None and self._counts[call.name] > fault.times:
            return None
        self._affected.add(call.id)
        if fault.seconds:
            await self._clock.sleep(fault.seconds)
        return Refuse(reason=fault.error) if fault.error else None

    def after_tool(self, run: RunContext, call: ToolCall, result: ToolResult) -> HookDecision | None:
        says = self._faults[call.name].says
        return Change(text=says) if says and call.id in self._affected else None


def is_simulated(model: ModelLike) -> bool:
    return isinstance(model, str) and model.startswith(SIMULATED_PREFIX)


def list_models(loaded: LoadedTask, cell: Mapping[str, object]) -> tuple[str, ...]:
    """Model strings of a task in a cell of the matrix; empty if only a function knows them."""
    given = cell.get("model", loaded.task.settings.get("model"))
    if given is None and not loaded.has_function_agent:
        given = loaded.read_agent_table({}).table.get("model")
    if isinstance(given, str):
        return (given,)
    return tuple(str(each) for each in given) if isinstance(given, list | tuple) else ()


def explain_skip(loaded: LoadedTask, cell: Mapping[str, object]) -> str:
    """Reason why a task cannot be run in a cell of the matrix; empty if it can."""
    models = list_models(loaded, cell)
    if loaded.task.faults and not all(map(is_simulated, models)):
        return "faults need a simulated model"
    return ""


async def await_value(value: Awaitable[T] | T) -> T:
    return await value if isawaitable(value) else value


async def run_trial(
    loaded: LoadedTask,
    cell: Mapping[str, object],
    store: Store,
    session: str,
    pool: BudgetPool,
    score: Callable[[Trial], Awaitable[T]],
) -> tuple[Trial, T]:
    """Run a task once and score it, while its folder exists. Files that it names are loaded for this trial alone."""
    task = loaded.task
    with ExitStack() as stack:
        stack.enter_context(share_loaded_files())
        folder = write_fixtures(loaded, stack.enter_context(TemporaryDirectory(prefix="bridle-eval-")))
        world = await _make_world(loaded, folder)
        setup = _make_setup(loaded, cell, store, session, pool, folder, world)
        if setup.provider is not None:
            stack.callback(setup.provider.close)
        agent = await _make_agent(setup)
        check_agent_tools(loaded, agent)
        results = await _drive(setup, agent)
        last = results[-1].session
        sessions = dict.fromkeys(each.session for each in results)
        logs = {name: await store.read(name) for name in sessions}
        trial = Trial(
            task=task,
            folder=folder,
            world=world,
            results=results,
            records=logs[last],
            session=last,
            spending=sum((sum_spending(records) for records in logs.values()), Spending()),
            cell={key: str(value) for key, value in cell.items()},
            provider=setup.provider,
            agent=agent,
        )
        return trial, await score(trial)


def sum_spending(records: Sequence[Record]) -> Spending:
    totals = fold_log(records).state.totals
    return totals.spent + totals.nested_spent


def write_fixtures(loaded: LoadedTask, place: str) -> Path:
    """Fill the work folder; returns its real path."""
    task, folder = loaded.task, Path(place).resolve()
    if task.fixtures:
        shutil.copytree(loaded.file.resolve_path(task.fixtures), folder, dirs_exist_ok=True, symlinks=True)
    for name, text in task.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


async def _make_world(loaded: LoadedTask, folder: Path) -> object:
    if not loaded.task.world:
        return None
    make: Any = loaded.load_function("world", loaded.task.world)
    world: object = await await_value(make(folder))
    return world


def _make_setup(
    loaded: LoadedTask,
    cell: Mapping[str, object],
    store: Store,
    session: str,
    pool: BudgetPool,
    folder: Path,
    world: object,
) -> TrialSetup:
    task, models = loaded.task, list_models(loaded, cell)
    simulated = bool(models) and all(map(is_simulated, models))
    uses_fake = task.clock == "simulated" or (simulated and task.clock != "real")
    clock: Clock = FakeClock(SystemClock().now()) if uses_fake else SystemClock()
    provider = (
        ProviderSim(
            *task.replies,
            responder=_load_responder(loaded),
            clock=clock,
            faults=task.faults,
            refusals=task.refusals,
        )
        if simulated
        else None
    )
    tools = load_tools([resolve_reference(loaded.file, each) for each in task.tools], loaded.folder)
    if task.toolkit:
        tools += make_file_tools(Workspace(folder), read_only=False)
    return TrialSetup(
        loaded=loaded,
        store=store,
        session=session,
        folder=folder,
        world=world,
        models=tuple(provider.model(each) if provider else each for each in models),
        changes={key: value for key, value in cell.items() if key != "model"},
        pool=pool,
        clock=clock,
        provider=provider,
        approver=make_approver(task),
        hooks=(FaultyTools(task.tool_faults, clock),) if task.tool_faults else (),
        tools=tuple(tools),
    )


def _load_responder(loaded: LoadedTask) -> Responder | None:
    if not loaded.task.responder:
        return None
    choose: Any = loaded.load_function("responder", loaded.task.responder)
    return responder_of(choose)


def make_approver(task: Task) -> Approver | None:
    """A person who answers as the task says, and leaves other questions open."""
    given = task.approvals
    if given is None:
        return None

    async def answer(pending: PendingApproval) -> ApprovalVerdict | None:
        chosen = given if isinstance(given, str) else given.get(pending.tool)
        return ApprovalVerdict(answer=chosen, by=PERSON) if chosen else None

    return answer


async def _make_agent(setup: TrialSetup) -> Agent[Any, Any]:
    loaded = setup.loaded
    if loaded.has_function_agent:
        make: Any = loaded.load_function("agent", str(loaded.task.agent))
        agent = await await_value(make(setup))
        if not isinstance(agent, Agent):
            raise loaded.fail("agent", f"{loaded.task.agent} returned {type(agent).__name__}, not an Agent")
        return agent
    definition = read_agent_table(loaded.read_agent_table(setup.changes))
    if not setup.models:
        raise loaded.fail("agent", 'no model is given; add -m MODEL, or model = "sim:" to the agent')
    return build_agent(
        definition,
        list(setup.models),
        tools=setup.tools,
        store=setup.store,
        approver=setup.approver,
        hooks=setup.hooks,
        pool=setup.pool,
        clock=setup.clock,
    )


def check_agent_tools(loaded: LoadedTask, agent: Agent[Any, Any]) -> None:
    """Refuse names of tools that the agent has not, before a model is asked.

    The tools of servers, and those of agents that a driver makes, are known only after the run.
    """
    task = loaded.task
    if task.drive or agent.parts.sources:
        return
    check_tool_names(loaded, {*agent.tools, *(spec.name for spec in agent.settings.all_tools)})


def check_tool_names(loaded: LoadedTask, known: Collection[str]) -> None:
    """Refuse names of tools that the agent has not: what forbids, answers or breaks them would pass for nothing."""
    task = loaded.task
    named = {
        "expect": (*task.expect.not_called, *(each.tool for each in task.expect.calls if each.times == 0)),
        "approvals": task.approvals if isinstance(task.approvals, dict) else (),
        "tool_faults": task.tool_faults,
    }
    for key, names in named.items():
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise loaded.fail(key, f"the agent has no tool {name!r}; it has: {listed}")


async def _drive(setup: TrialSetup, agent: Agent[Any, Any]) -> list[Result[object]]:
    """Give the prompts one after the other; a run that does not end well is the last."""
    task = setup.task
    if task.drive:
        drive: Any = setup.loaded.load_function("drive", task.drive)
        found = await await_value(drive(setup, agent))
        results = list(found) if isinstance(found, list | tuple) else [found]
        if not results or not all(isinstance(each, Result) for each in results):
            raise setup.loaded.fail("drive", f"{task.drive} must return a Result, or a list of them")
        return results
    results = []
    for prompt in task.prompts:
        results.append(await agent.run(prompt, setup.session, context=setup.world))
        if not results[-1].done:
            break
    return results
