"""Evaluations: tasks in files, run against an agent, scored, and compared with a baseline.

    bridle eval SUITE                       run a suite, or continue it
    load_suite(path), run_suite(…)          the same in Python
    Task, Expect, Score, Trial, TrialSetup  for tasks and scorers written in Python

Belongs here: the format of tasks, scorers, trials, statistics, reports. Does not belong here: the command (cli/), and
what a run needs without an evaluation (run/). Each name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.values.evals import Score as Score
    from bridle.values.evals import TrialScored as TrialScored

    from .baseline import compare_baseline as compare_baseline
    from .baseline import read_baseline as read_baseline
    from .baseline import write_baseline as write_baseline
    from .report import EvalReport as EvalReport
    from .report import make_report as make_report
    from .suite_files import Suite as Suite
    from .suite_files import load_suite as load_suite
    from .suite_run import RunChoices as RunChoices
    from .suite_run import SuiteRun as SuiteRun
    from .suite_run import run_suite as run_suite
    from .task import Expect as Expect
    from .task import ExpectedCall as ExpectedCall
    from .task import ExpectedFile as ExpectedFile
    from .task import JudgeRubric as JudgeRubric
    from .task import Task as Task
    from .task import ToolFault as ToolFault
    from .trial import CallMade as CallMade
    from .trial import Trial as Trial
    from .trial import TrialSetup as TrialSetup

_HOMES = {
    "bridle.values.evals": ("Score", "TrialScored"),
    "bridle.evals.baseline": ("compare_baseline", "read_baseline", "write_baseline"),
    "bridle.evals.suite_files": ("Suite", "load_suite"),
    "bridle.evals.report": ("EvalReport", "make_report"),
    "bridle.evals.suite_run": ("RunChoices", "SuiteRun", "run_suite"),
    "bridle.evals.task": ("Expect", "ExpectedCall", "ExpectedFile", "JudgeRubric", "Task", "ToolFault"),
    "bridle.evals.trial": ("CallMade", "Trial", "TrialSetup"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
