"""Runs a suite: every task, in every cell of the matrix, as often as it says.

Each trial is a session of the store, and its scores are an event in the log of the evaluation. A second start reads
that log and runs the trials that have none, also after the process was killed. A trial that was interrupted is run
again from the start in a new session: the state of its world is gone.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from math import inf
from pathlib import Path

from msgspec.structs import replace

from bridle import __version__
from bridle.config.agent_file import read_agent_table
from bridle.config.tool_loader import share_loaded_files
from bridle.ports.store import Store
from bridle.run.clock import SystemClock
from bridle.values.errors import BridleError, MisuseError
from bridle.values.evals import HARNESS_KEY, TrialScored, eval_log_name
from bridle.values.record import GENESIS, seal_record
from bridle.values.text import describe_error

from .attempt import OUT_OF_BUDGET, RESULT_FIELDS, attempt_trial, make_pool
from .suite_files import LoadedTask, Suite
from .task import TRIALS_MAX
from .trial import explain_skip, list_models, sum_spending
from .versions.columns import ColumnProcesses, HarnessColumn, describe_columns

NAME_PATTERN = re.compile(r"[^A-Za-z0-9._-]+")
Cell = Mapping[str, object]


@dataclass(frozen=True)
class RunChoices:
    """Choices of one evaluation: tasks, trials, matrix, budget."""

    model: str = ""
    matrix: Mapping[str, Sequence[object]] | None = None
    harness: Mapping[str, str] | None = None
    """Versions of Bridle to run the trials with, by name: the Python of each, its virtual environment or its source."""
    trials: int | None = None
    jobs: int | None = None
    usd: float | None = None
    tags: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    run: str = ""
    """Name of the evaluation; by default the suite's name and a number."""
    fails_fast: bool = False
    """Stop after the first trial that does not pass."""
    is_new: bool = False
    """Start a new evaluation even if the latest one is unfinished."""

    def __post_init__(self) -> None:
        if self.trials is not None and not 1 <= self.trials <= TRIALS_MAX:
            raise MisuseError(f"--trials must be from 1 to {TRIALS_MAX:,}, not {self.trials}")
        if self.jobs is not None and self.jobs < 1:
            raise MisuseError(f"--jobs must be 1 or more, not {self.jobs}")
        if self.usd is not None and not 0 < self.usd < inf:
            raise MisuseError(f"--usd must be a number above 0, not {self.usd:g}")


@dataclass(frozen=True)
class PlannedTrial:
    loaded: LoadedTask
    cell: Cell
    number: int
    skip: str = ""
    column: HarnessColumn | None = None

    @property
    def labels(self) -> dict[str, str]:
        harness = {HARNESS_KEY: self.column.name} if self.column else {}
        return {**{key: str(value) for key, value in self.cell.items()}, **harness}

    @property
    def key(self) -> str:
        return TrialScored(task=self.loaded.name, number=self.number, cell=self.labels).unique_key or ""


@dataclass
class SuiteRun:
    """An evaluation: its plan, and the trials that have a result."""

    suite: Suite
    run: str
    plan: tuple[PlannedTrial, ...]
    scored: dict[str, TrialScored]
    """By the key of the trial; also trials that could not be run, which have an `error`."""
    out_of_budget: bool = False
    unscored_usd: list[Decimal | None] = field(default_factory=list)
    """Costs of the trials that the end of the budget interrupted."""
    continued: int = 0
    """Trials that an earlier start had finished."""
    columns: tuple[HarnessColumn, ...] = ()
    """Versions of Bridle that it compares; none if the trials run in this process."""

    @property
    def trials(self) -> list[TrialScored]:
        """Results in the order of the plan."""
        return [self.scored[each.key] for each in self.plan if each.key in self.scored]

    @property
    def skipped(self) -> list[PlannedTrial]:
        return [each for each in self.plan if each.skip]

    @property
    def is_complete(self) -> bool:
        return all(
            each.skip or (each.key in self.scored and not self.scored[each.key].error) for each in self.plan
        )


OnProgress = Callable[[SuiteRun, TrialScored | None], None]
"""Called after every trial, and once before the first."""


def make_cells(suite: Suite, choices: RunChoices) -> list[Cell]:
    """All combinations of the matrix; one empty cell without one."""
    axes: dict[str, Sequence[object]] = {**suite.settings.matrix, **(choices.matrix or {})}
    if choices.model:
        axes = {"model": (choices.model,), **{key: values for key, values in axes.items() if key != "model"}}
    if HARNESS_KEY in axes:
        raise MisuseError(f"versions of Bridle are not part of the matrix; name them with --{HARNESS_KEY}")
    for key, values in axes.items():
        if not values:
            raise MisuseError(f"the matrix has no values for {key!r}")
        if len(set(map(str, values))) < len(values):
            raise MisuseError(f"the matrix has a value of {key!r} twice; name each value once")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def plan_trials(
    suite: Suite, choices: RunChoices, columns: Sequence[HarnessColumn] = ()
) -> tuple[PlannedTrial, ...]:
    """The trials of a start, with the reasons to skip some; raises `MisuseError` for an empty selection."""
    chosen = [
        each
        for each in suite.tasks
        if (not choices.tags or set(choices.tags) & set(each.task.tags))
        and (not choices.tasks or each.name in choices.tasks)
    ]
    if unknown := set(choices.tasks) - {each.name for each in suite.tasks}:
        names = ", ".join(each.name for each in suite.tasks)
        raise MisuseError(f"the suite has no task {min(unknown)!r}; its tasks are: {names}")
    if not chosen:
        raise MisuseError(f"no task has the tag {' or '.join(choices.tags)}")
    planned = tuple(
        PlannedTrial(each, cell, number, explain_skip(each, cell), column)
        for each in chosen
        for cell in make_cells(suite, choices)
        for column in columns or (None,)
        for number in range(1, (choices.trials or each.task.trials) + 1)
    )
    for each in planned:
        if not each.loaded.has_function_agent and not list_models(each.loaded, each.cell):
            raise each.loaded.fail("agent", 'no model is given; add -m MODEL, or model = "sim:" to the agent')
    _check_cells(chosen, make_cells(suite, choices))
    if all(each.skip for each in planned):
        raise MisuseError(f"there is no trial to run: {planned[0].skip}; choose other tasks or -m sim:")
    return planned


def _check_cells(tasks: Sequence[LoadedTask], cells: Sequence[Cell]) -> None:
    """Refuse keys and values of the matrix that an agent file cannot have; functions get them as options."""
    with share_loaded_files():
        for loaded in tasks if any(set(cell) - {"model"} for cell in cells) else ():
            for cell in () if loaded.has_function_agent else cells:
                read_agent_table(loaded.read_agent_table(cell))


async def run_suite(
    suite: Suite, store: Store, choices: RunChoices | None = None, on_progress: OnProgress | None = None
) -> SuiteRun:
    """Run a suite, or continue it; returns what is known when all trials are done or the budget is used."""
    choices = choices or RunChoices()
    plan_trials(suite, choices)  # mistakes are refused before another version is asked
    columns = await _find_columns(suite, choices)
    plan = plan_trials(suite, choices, columns)
    digest = suite.digest(
        ({key: str(value) for key, value in cell.items()} for cell in make_cells(suite, choices)),
        [f"{each.name} {each.found.version} {each.found.source}" for each in columns],
    )
    started = await _find_run(suite, store, choices, plan, digest)
    run = SuiteRun(suite, started[0], plan, started[1], continued=len(started[1]), columns=columns)
    run.scored.update(_refuse_trials(plan))
    async with store.lease(eval_log_name(run.run)):
        if on_progress is not None:
            on_progress(run, None)
        runner = _Runner(run, store, choices, digest, on_progress)
        await runner.run_all(choices.jobs or suite.settings.jobs)
    return run


async def _find_columns(suite: Suite, choices: RunChoices) -> tuple[HarnessColumn, ...]:
    """The versions of the command, with paths from the working folder; else those of the suite, from its folder."""
    if choices.harness is not None:
        return await describe_columns(choices.harness, Path.cwd(), suite.path)
    return await describe_columns(suite.settings.harness, suite.folder, suite.path)


def _refuse_trials(plan: Sequence[PlannedTrial]) -> Iterator[tuple[str, TrialScored]]:
    """Errors of the trials whose version cannot run the suite."""
    for each in plan:
        if each.column and each.column.problem and not each.skip:
            yield (
                each.key,
                TrialScored(
                    task=each.loaded.name,
                    number=each.number,
                    cell=each.labels,
                    error=each.column.problem,
                    usd=Decimal(0),
                    pass_rate=each.loaded.task.pass_rate,
                    version=each.column.found.version,
                    source=each.column.found.source,
                    python=each.column.found.python,
                ),
            )


async def read_trials(store: Store, run: str) -> dict[str, TrialScored]:
    """The scored trials of an evaluation, by their keys."""
    found = [record.event for record in await store.read(eval_log_name(run))]
    return {each.unique_key or "": each for each in found if isinstance(each, TrialScored)}


async def find_latest_run(store: Store, suite: str) -> str:
    """Name of the latest evaluation of a suite; empty if there is none."""
    number = 1
    while await store.read(eval_log_name(f"{suite}-{number}"), limit=1):
        number += 1
    return f"{suite}-{number - 1}" if number > 1 else ""


async def _find_run(
    suite: Suite, store: Store, choices: RunChoices, plan: Sequence[PlannedTrial], digest: str
) -> tuple[str, dict[str, TrialScored]]:
    """The evaluation to continue with its finished trials, or a new one."""
    name = clean_name(suite.name)
    latest = choices.run or await find_latest_run(store, name)
    found = await read_trials(store, latest) if latest else {}
    is_same = all(each.plan == digest for each in found.values())
    if choices.run and found and not is_same:
        raise MisuseError(
            f"the suite has changed since evaluation {choices.run!r} started; choose another name for --run"
        )
    is_open = any(not each.skip and each.key not in found for each in plan)
    if choices.run or (found and is_same and is_open and not choices.is_new):
        return latest, found
    number = int(latest.rpartition("-")[2]) + 1 if latest else 1
    return f"{name}-{number}", {}


def clean_name(text: str) -> str:
    return NAME_PATTERN.sub("-", text).strip("-") or "suite"


def name_tasks(suite: Suite) -> dict[str, str]:
    """Part of the session ids for each task; tasks whose names are alike when cleaned get different ones."""
    names: dict[str, str] = {}
    for each in suite.tasks:
        base = name = clean_name(each.name)
        number = 1
        while name in names.values():
            number += 1
            name = f"{base}_{number}"
        names[each.name] = name
    return names


def add_costs(costs: Sequence[Decimal | None]) -> Decimal | None:
    """The sum; None if one is unknown."""
    return None if None in costs else sum((each for each in costs if each is not None), Decimal(0))


class _Runner:
    def __init__(
        self, run: SuiteRun, store: Store, choices: RunChoices, digest: str, on_progress: OnProgress | None
    ) -> None:
        self._run, self._store, self._digest, self._on_progress = run, store, digest, on_progress
        usd = choices.usd if choices.usd is not None else run.suite.settings.usd
        self._usd, self._pool = usd, make_pool(run.run, usd)
        self._processes = ColumnProcesses(store, run.suite.path)
        self._lock, self._clock = asyncio.Lock(), SystemClock()
        self._length, self._head, self._at = 0, GENESIS, 0.0
        self._cells = [dict(each) for each in dict.fromkeys(tuple(each.labels.items()) for each in run.plan)]
        self._fails_fast, self._has_failed = choices.fails_fast, False
        self._names = name_tasks(run.suite)
        self._planned = tuple(each.key for each in run.plan if not each.skip)

    async def run_all(self, jobs: int) -> None:
        records = await self._store.read(eval_log_name(self._run.run))
        if records:
            self._length, self._head = records[-1].seq, records[-1].hash
        waiting = iter(
            [each for each in self._run.plan if not each.skip and each.key not in self._run.scored]
        )

        async def work() -> None:
            for each in waiting:
                if self._run.out_of_budget or (self._fails_fast and self._has_failed):
                    return
                await self._run_one(each)

        async with self._processes.ended_together(), asyncio.TaskGroup() as group:
            for _ in range(min(jobs, len(self._run.plan))):
                group.create_task(work())

    async def _run_one(self, planned: PlannedTrial) -> None:
        session, lost = await self._find_session(planned)
        scored = TrialScored(
            task=planned.loaded.name,
            number=planned.number,
            cell=planned.labels,
            session=session,
            lost_usd=lost,
            tags=planned.loaded.task.tags,
            plan=self._digest,
            pass_rate=planned.loaded.task.pass_rate,
            suite=str(self._run.suite.path),
            version=__version__,
        )
        scored = await self._attempt(planned, scored)
        if scored.error:
            scored = replace(scored, usd=await self._sum_attempt(session))
        if scored.error == OUT_OF_BUDGET:
            self._run.out_of_budget = True
            self._run.unscored_usd += [scored.usd, lost]
            return
        if not scored.error:
            scored = await self._append(scored)
        self._run.scored[planned.key] = scored
        self._has_failed = self._has_failed or not scored.passed
        if self._on_progress is not None:
            self._on_progress(self._run, scored)

    async def _attempt(self, planned: PlannedTrial, scored: TrialScored) -> TrialScored:
        if planned.column is None:
            rubric = self._run.suite.settings.judge
            return await attempt_trial(
                planned.loaded, planned.cell, scored, rubric=rubric, store=self._store, pool=self._pool
            )
        found = planned.column.found
        scored = replace(scored, version=found.version, source=found.source, python=found.python)
        try:
            made = await self._processes.run_trial(
                planned.column,
                {
                    "task": scored.task,
                    "number": scored.number,
                    "session": scored.session,
                    "cell": planned.cell,
                    "run": self._run.run,
                    "usd": None if self._usd is None else str(self._usd),
                },
            )
        except BridleError as error:
            return replace(scored, error=describe_error(error))
        return replace(scored, **{name: getattr(made, name) for name in RESULT_FIELDS})

    async def _find_session(self, planned: PlannedTrial) -> tuple[str, Decimal | None]:
        """A free session id, and the cost of earlier attempts; an interrupted attempt keeps its own id."""
        base = f"eval-{self._run.run}-{self._names[planned.loaded.name]}-{planned.number}"
        if planned.labels:
            base += f"-{self._cells.index(planned.labels) + 1}"
        attempt, lost = 1, list[Decimal | None]()
        while await self._store.read(name := base if attempt == 1 else f"{base}.{attempt}", limit=1):
            lost.append(await self._sum_attempt(name))
            attempt += 1
        return name, add_costs(lost)

    async def _sum_attempt(self, session: str) -> Decimal | None:
        """Cost of an attempt by its log, with its judge."""
        logs = [await self._store.read(name) for name in (session, f"{session}-judge")]
        return add_costs([sum_spending(records).usd for records in logs if records])

    async def _append(self, scored: TrialScored) -> TrialScored:
        async with self._lock:
            scored, self._planned = replace(scored, planned=self._planned), ()
            record = seal_record(self._length + 1, max(self._at, self._clock.now()), scored, self._head)
            await self._store.append(eval_log_name(self._run.run), self._length, [record])
            self._length, self._head, self._at = record.seq, record.hash, record.at
        return scored
