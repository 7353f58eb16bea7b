"""Summaries of an evaluation: per task and cell, and in total; as text lines and as JSON data."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from bridle.values.base import Value
from bridle.values.evals import HARNESS_KEY, TrialScored
from bridle.values.usage import Usage

from .statistics import wilson_interval
from .suite_run import SuiteRun, add_costs

NAME_MAX = 36


class TaskSummary(Value, kw_only=True):
    """The trials of one task in one cell of the matrix."""

    task: str
    cell: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    trials: int = 0
    passed: int = 0
    errors: int = 0
    """Trials that could not be run or scored; they are not among `trials`."""
    low: float = 0.0
    high: float = 1.0
    """95 % Wilson interval of the pass rate."""
    required: float = 1.0
    """Pass rate that the task requires."""
    usd: Decimal | None = Decimal(0)
    judge_usd: Decimal | None = Decimal(0)
    seconds: float = 0.0
    """Mean time of a trial."""
    steps: float = 0.0
    cache_share: float = 0.0
    failures: tuple[str, ...] = ()
    """Scorers that failed, with the reason of their first failure."""
    tags: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        return self.passed / self.trials if self.trials else 0.0

    @property
    def is_flaky(self) -> bool:
        return 0 < self.passed < self.trials

    @property
    def is_met(self) -> bool:
        return bool(self.trials) and not self.errors and self.rate >= self.required - 1e-9

    @property
    def label(self) -> str:
        return format_label(self.task, self.cell)


class HarnessSummary(Value, kw_only=True):
    """The trials of one version of Bridle."""

    name: str
    version: str = ""
    source: str = ""
    """Digest of the source."""
    python: str = ""
    trials: int = 0
    passed: int = 0
    low: float = 0.0
    high: float = 1.0
    problem: str = ""
    """Reason why this version cannot run the suite."""


class EvalReport(Value, kw_only=True):
    """An evaluation as data: `bridle eval SUITE --json`."""

    run: str
    suite: str
    version: str
    planned: int
    finished: int
    skipped: int
    passed: int
    low: float
    high: float
    """95 % Wilson interval of the pass rate over all trials."""
    flaky: int
    is_complete: bool
    out_of_budget: bool
    usd: Decimal | None
    judge_usd: Decimal | None
    spent_usd: Decimal | None
    """Cost of everything: also of judges, of trials without a score, and of interrupted attempts."""
    tasks: tuple[TaskSummary, ...]
    trials: tuple[TrialScored, ...]
    harness: tuple[HarnessSummary, ...] = ()
    """Versions of Bridle that are compared, in their order; the first is the one to compare with."""

    @property
    def shown_tasks(self) -> list[TaskSummary]:
        """Tasks without those of versions that cannot run the suite; these have one line of their own."""
        unusable = {each.name for each in self.harness if each.problem}
        return [each for each in self.tasks if each.cell.get(HARNESS_KEY) not in unusable]

    @property
    def is_met(self) -> bool:
        """True if every planned trial is finished and every task has the pass rate that it requires."""
        return self.is_complete and all(each.is_met for each in self.tasks)


def format_label(task: str, cell: Mapping[str, str]) -> str:
    """The task and its cell, with sorted keys: a baseline does not keep their order."""
    inner = ", ".join(value if key == "model" else f"{key}={value}" for key, value in sorted(cell.items()))
    return f"{task} [{inner}]" if inner else task


def summarize_trials(trials: Sequence[TrialScored]) -> tuple[TaskSummary, ...]:
    """One summary per task and cell, in the order of the trials."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[TrialScored]] = {}
    for each in trials:
        groups.setdefault((each.task, tuple(sorted(each.cell.items()))), []).append(each)
    return tuple(_summarize_group(group) for group in groups.values())


def _summarize_group(group: Sequence[TrialScored]) -> TaskSummary:
    first, scored = group[0], [each for each in group if not each.error]
    count, passed = len(scored), sum(each.passed for each in scored)
    low, high = wilson_interval(passed, count)
    usage = sum((each.usage for each in scored), Usage())
    failures: dict[str, str] = {}
    for each in group:
        for score in each.scores:
            if not score.passed:
                failures.setdefault(score.name, score.reason)
        if each.error:
            failures.setdefault("error", each.error)
    return TaskSummary(
        task=first.task,
        cell=first.cell,
        trials=count,
        passed=passed,
        errors=len(group) - count,
        low=low,
        high=high,
        required=first.pass_rate,
        usd=add_costs([each.usd for each in scored]),
        judge_usd=add_costs([each.judge_usd for each in scored]),
        seconds=sum(each.seconds for each in scored) / count if count else 0.0,
        steps=sum(each.steps for each in scored) / count if count else 0.0,
        cache_share=usage.cache_read / usage.prompt if usage.prompt else 0.0,
        failures=tuple(f"{name}: {detail}" if detail else name for name, detail in failures.items()),
        tags=first.tags,
    )


def summarize_harness(
    trials: Sequence[TrialScored], problems: Mapping[str, str]
) -> tuple[HarnessSummary, ...]:
    """One summary per version of Bridle; none for an evaluation in one process."""
    groups: dict[str, list[TrialScored]] = {name: [] for name in problems}
    for each in trials:
        if HARNESS_KEY in each.cell:
            groups.setdefault(each.cell[HARNESS_KEY], []).append(each)
    return tuple(
        _summarize_version(name, group, problems.get(name, "")) for name, group in groups.items() if group
    )


def _summarize_version(name: str, group: Sequence[TrialScored], problem: str) -> HarnessSummary:
    first, scored = group[0], [each for each in group if not each.error]
    passed = sum(each.passed for each in scored)
    low, high = wilson_interval(passed, len(scored))
    return HarnessSummary(
        name=name,
        version=first.version,
        source=first.source,
        python=first.python,
        trials=len(scored),
        passed=passed,
        low=low,
        high=high,
        problem=problem,
    )


def make_report(run: SuiteRun) -> EvalReport:
    trials = run.trials
    planned = [each for each in run.plan if not each.skip]
    return make_trials_report(
        run.run,
        trials,
        planned=len(planned),
        skipped=len(run.skipped),
        out_of_budget=run.out_of_budget,
        unscored_usd=run.unscored_usd,
        problems={each.name: each.problem for each in run.columns},
    )


def make_stored_report(run: str, trials: Sequence[TrialScored]) -> EvalReport:
    """The report of an evaluation in a log: all trials that one of its starts planned belong to it."""
    keys = {each.unique_key for each in trials}.union(*(each.planned for each in trials))
    return make_trials_report(run, trials, planned=len(keys))


def make_trials_report(
    run: str,
    trials: Sequence[TrialScored],
    *,
    planned: int,
    skipped: int = 0,
    out_of_budget: bool = False,
    unscored_usd: Sequence[Decimal | None] = (),
    problems: Mapping[str, str] | None = None,
) -> EvalReport:
    scored = [each for each in trials if not each.error]
    passed = sum(each.passed for each in scored)
    low, high = wilson_interval(passed, len(scored))
    tasks = summarize_trials(trials)
    return EvalReport(
        run=run,
        suite=next((each.suite for each in trials if each.suite), ""),
        version=trials[0].version if trials else "",
        planned=planned,
        finished=len(scored),
        skipped=skipped,
        passed=passed,
        low=low,
        high=high,
        flaky=sum(each.is_flaky for each in tasks),
        is_complete=len(scored) == planned,
        out_of_budget=out_of_budget,
        usd=add_costs([each.usd for each in scored]),
        judge_usd=add_costs([each.judge_usd for each in scored]),
        spent_usd=add_costs(
            [*unscored_usd, *(usd for each in trials for usd in (each.usd, each.judge_usd, each.lost_usd))]
        ),
        tasks=tasks,
        trials=tuple(trials),
        harness=summarize_harness(trials, problems or {}),
    )


def format_rate(passed: int, trials: int, low: float, high: float) -> str:
    return (
        f"{passed}/{trials} {100 * passed / trials if trials else 0:.0f}% ({100 * low:.0f}-{100 * high:.0f})"
    )


def format_usd(usd: Decimal | None) -> str:
    return "price unknown" if usd is None else f"${usd:.4f}"


def _format_harness(report: EvalReport) -> Iterator[str]:
    """One line per version of Bridle."""
    rows = [(each.name, each.version, each.source, each.python) for each in report.harness]
    if not rows:
        return
    titles = ("harness", "version", "source", "python")
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row, last in zip(
        (titles, *rows), ("trials passed", *map(format_version, report.harness)), strict=True
    ):
        cells = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield f"{cells}  {last}"
    same = [each.name for each in report.harness if each.source == report.harness[0].source]
    if len(same) > 1:
        yield f"{' and '.join(same)} have the same source"
    yield ""


def format_version(each: HarnessSummary) -> str:
    return (
        f"cannot run: {each.problem}"
        if each.problem
        else format_rate(each.passed, each.trials, each.low, each.high)
    )


def format_report(report: EvalReport, *, shows_all: bool = True) -> Iterator[str]:
    """Lines for a terminal of 80 columns."""
    shown = [each for each in report.shown_tasks if shows_all or not each.is_met]
    width = min(NAME_MAX, max([len(each.label) for each in shown], default=4))
    for each in shown:
        mark = "ok   " if each.is_met else "FAIL "
        flaky = "  flaky" if each.is_flaky else ""
        rate = format_rate(each.passed, each.trials, each.low, each.high)
        yield f"{mark} {each.label:<{width}}  {rate}{flaky}"
        yield from (f"      {line}" for line in each.failures)
    yield ""
    yield from _format_harness(report)
    met = sum(each.is_met for each in report.tasks)
    yield f"{report.run}: {met} of {len(report.tasks)} tasks as required, {report.flaky} flaky"
    yield f"trials: {format_rate(report.passed, report.finished, report.low, report.high)}, 95 % Wilson interval"
    judged = f", judges {format_usd(report.judge_usd)}" if report.judge_usd else ""
    yield f"cost: {format_usd(report.usd)}{judged}"
    if report.spent_usd != add_costs([report.usd, report.judge_usd]):
        yield f"spent in total: {format_usd(report.spent_usd)}, with errors and interrupted attempts"
    if report.skipped:
        yield f"skipped: {report.skipped} trials, because faults need a simulated model"
    if not report.is_complete:
        yield f"not finished: {report.planned - report.finished} of {report.planned} trials; {_explain_rest(report)}"


def _explain_rest(report: EvalReport) -> str:
    if report.out_of_budget:
        return "the budget is used; raise --usd"
    refused = sum(each.errors for each in report.tasks if each not in report.shown_tasks)
    if refused == report.planned - report.finished:
        return "a version of Bridle cannot run them"
    return "start the same command again"
