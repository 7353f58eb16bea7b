"""A baseline: pass rates to compare with, in a file to commit; and the comparison.

Tasks are paired by name and cell. Two tests decide, both one-sided for "got worse" at the level `alpha`:

- over the suite: a paired sign-flip permutation test of the differences of the tasks' pass rates;
- per task: Fisher's exact test of its trials, corrected for the number of tasks by Holm's method.

A task that passed all trials and passes none now is a regression too, if chance explains that with less than `alpha`
at any rate: three trials on both sides at 0.05. If the trials are too few for every test, or the baseline has no pass
of a task that was run, the pass rates that the tasks require decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.evals import HARNESS_KEY
from bridle.values.media import read_at_most

from .report import EvalReport, TaskSummary, format_label
from .statistics import adjust_holm, fisher_test, sign_flip_test, total_fall_chance

FORMAT = 1
BASELINE_BYTES_MAX = 64 * 1024 * 1024
ALPHA_DEFAULT = 0.05


class BaselineTask(Value, kw_only=True):
    """Pass rate of one task in one cell."""

    task: str
    cell: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    passed: int = 0
    trials: int = 0
    usd: Decimal | None = None

    @property
    def label(self) -> str:
        return format_label(self.task, self.cell)

    @property
    def rate(self) -> float:
        return self.passed / self.trials if self.trials else 0.0


class Baseline(Value, kw_only=True):
    """The file that a comparison reads."""

    format: int
    suite: str
    run: str
    version: str
    tasks: tuple[BaselineTask, ...]


class TaskChange(Value, kw_only=True):
    """Difference of one task to the baseline."""

    label: str
    passed: int
    trials: int
    base_passed: int
    base_trials: int
    p: float
    """Probability of as few passes by chance, corrected for the number of tasks."""
    misses_rate: bool = False
    """The task had the pass rate that it requires, and has it no more."""

    @property
    def fall_chance(self) -> float:
        """Highest probability by chance of a fall from all passes to none; 1 for another change."""
        if self.passed or self.base_passed < self.base_trials:
            return 1.0
        return total_fall_chance(self.trials, self.base_trials)

    @property
    def difference(self) -> float:
        return self.passed / self.trials - self.base_passed / self.base_trials


class EvalComparison(Value, kw_only=True):
    """An evaluation compared with a baseline."""

    changes: tuple[TaskChange, ...]
    """Tasks whose rate differs, worst first."""
    compared: int
    difference: float
    """Mean difference of the pass rates."""
    p: float
    """Of the whole suite."""
    alpha: float
    missing: tuple[str, ...] = ()
    """Tasks of the baseline that the evaluation lacks."""
    added: tuple[str, ...] = ()
    fails_on_any: bool = False
    trials_needed: int = 0
    """Trials per task with which a fall to no passes is significant, if this comparison cannot find one; else 0."""
    base_passed: int = 0
    """Passes in the baseline of the tasks that are compared; without one, nothing can get worse."""

    @property
    def regressions(self) -> tuple[TaskChange, ...]:
        """Tasks that got worse significantly; with `fails_on_any`, all that got worse."""
        return tuple(each for each in self.changes if each.difference < 0 and self._is_significant(each))

    def _is_significant(self, change: TaskChange) -> bool:
        return (
            self.fails_on_any
            or min(change.p, change.fall_chance) < self.alpha
            or (bool(self.trials_needed) and change.misses_rate)
        )

    @property
    def is_regression(self) -> bool:
        return bool(self.regressions) or self.p < self.alpha or bool(self.missing)


def make_baseline(report: EvalReport) -> Baseline:
    return _make_baseline(report, report.tasks)


def _make_baseline(report: EvalReport, summaries: Sequence[TaskSummary]) -> Baseline:
    tasks = (
        BaselineTask(task=each.task, cell=each.cell, passed=each.passed, trials=each.trials, usd=each.usd)
        for each in summaries
        if each.trials
    )
    return Baseline(
        format=FORMAT,
        suite=Path(report.suite).name,
        run=report.run,
        version=report.version,
        tasks=tuple(sorted(tasks, key=lambda each: each.label)),
    )


def write_baseline(path: Path, report: EvalReport) -> None:
    """Write the file; one that did not change is written with the same bytes."""
    encoded = msgspec.json.encode(make_baseline(report), order="deterministic")
    path.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


def read_baseline(path: Path) -> Baseline:
    try:
        read = msgspec.json.decode(read_at_most(path, BASELINE_BYTES_MAX), type=Baseline)
    except OSError as error:
        raise MisuseError(f"cannot read the baseline {path}: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise MisuseError(f"{path} is not a baseline: {error}; write one with --save-baseline") from None
    if read.format != FORMAT:
        raise MisuseError(
            f"{path} has format {read.format}, this Bridle reads format {FORMAT}; upgrade Bridle, or write it again"
            " with --save-baseline"
        )
    return read


def compare_baseline(
    baseline: Baseline,
    tasks: Sequence[TaskSummary],
    alpha: float = ALPHA_DEFAULT,
    *,
    fails_on_any: bool = False,
) -> EvalComparison:
    """Compare tasks with a baseline; tasks that only one of the two has are listed, not compared."""
    now = {each.label: each for each in tasks if each.trials}
    before = {each.label: each for each in baseline.tasks if each.trials}
    labels = [label for label in before if label in now]
    raw = [
        fisher_test(now[name].passed, now[name].trials, before[name].passed, before[name].trials)
        for name in labels
    ]
    changes = [
        TaskChange(
            label=name,
            passed=now[name].passed,
            trials=now[name].trials,
            base_passed=before[name].passed,
            base_trials=before[name].trials,
            p=p,
            misses_rate=replace(now[name], passed=before[name].passed, trials=before[name].trials).is_met
            and not now[name].is_met,
        )
        for name, p in zip(labels, adjust_holm(raw), strict=True)
    ]
    differences = [each.difference for each in changes]
    base_passed = sum(each.base_passed for each in changes)
    is_found = not base_passed or _can_find_regression(changes, alpha)
    return EvalComparison(
        changes=tuple(
            sorted((each for each in changes if each.difference), key=lambda each: each.difference)
        ),
        compared=len(changes),
        difference=sum(differences) / len(differences) if differences else 0.0,
        p=sign_flip_test(differences),
        alpha=alpha,
        missing=tuple(sorted(before.keys() - now.keys())),
        added=tuple(sorted(now.keys() - before.keys())),
        fails_on_any=fails_on_any,
        trials_needed=0 if is_found else _count_trials_needed(alpha),
        base_passed=base_passed,
    )


def _can_find_regression(changes: Sequence[TaskChange], alpha: float) -> bool:
    """True if a fall of every task to no passes would be significant."""
    fallen = [replace(each, passed=0) for each in changes]
    raw = [fisher_test(0, each.trials, each.base_passed, each.base_trials) for each in fallen]
    lowest = min((*adjust_holm(raw), *(each.fall_chance for each in fallen)), default=0.0)
    return min(lowest, sign_flip_test([each.difference for each in fallen])) < alpha


def _count_trials_needed(alpha: float) -> int:
    return next(trials for trials in count(1) if total_fall_chance(trials, trials) < alpha)


def compare_harness(
    report: EvalReport, alpha: float = ALPHA_DEFAULT, *, fails_on_any: bool = False
) -> dict[str, EvalComparison]:
    """Every other version of Bridle compared with the first, by its name; tasks are paired without the version."""
    names = [each.name for each in report.harness if not each.problem]
    tasks = {
        name: [_drop_version(each) for each in report.tasks if each.cell.get(HARNESS_KEY) == name]
        for name in names
    }
    if len(names) < 2:
        return {}
    first = _make_baseline(report, tasks[names[0]])
    return {
        name: compare_baseline(first, tasks[name], alpha, fails_on_any=fails_on_any) for name in names[1:]
    }


def _drop_version(task: TaskSummary) -> TaskSummary:
    return replace(task, cell={key: value for key, value in task.cell.items() if key != HARNESS_KEY})


def format_harness_comparison(report: EvalReport, found: Mapping[str, EvalComparison]) -> Iterator[str]:
    first = next((each.name for each in report.harness if not each.problem), "")
    for name, comparison in found.items():
        yield f"{name} compared with {first}:"
        yield from (f"  {line}" for line in format_comparison(comparison))


def format_comparison(found: EvalComparison) -> Iterator[str]:
    for each in found.changes:
        word = "worse " if each.difference < 0 else "better"
        mark = "  REGRESSION" if each in found.regressions else ""
        yield (
            f"{word} {each.label}  {each.base_passed}/{each.base_trials} → {each.passed}/{each.trials}"
            f"  p={each.p:.3f}{mark}"
        )
    yield from (f"missing {label}: it is in the baseline and was not run" for label in found.missing)
    yield from (f"new     {label}" for label in found.added)
    worse = sum(each.difference < 0 for each in found.changes)
    better = len(found.changes) - worse
    noun = "task" if found.compared == 1 else "tasks"
    yield (
        f"{found.compared} {noun} compared: {worse} worse, {better} better, mean difference"
        f" {100 * found.difference:+.1f} points, p={found.p:.3f} (paired sign-flip test, one-sided)"
    )
    if found.trials_needed:
        yield (
            "too few trials: no result could be significant, so the pass rates that the tasks require decide;"
            f" use --trials {found.trials_needed} or more here and in the baseline"
        )
    if not found.base_passed:
        why = "the baseline has no pass of these tasks" if found.compared else "no task is in both"
        yield f"nothing can be worse: {why}, so the pass rates that the tasks require decide"
    verdict = "REGRESSION" if found.is_regression else "no significant regression"
    yield f"{verdict} at the level {found.alpha:g}"
