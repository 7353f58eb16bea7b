"""The log of an evaluation: one event per scored trial.

An evaluation has a log of its own beside the sessions (`eval_log_name`). Each trial is a session; its scores are in the
log of the evaluation, so that a second start knows which trials are finished.
"""

from decimal import Decimal

from .base import EventBase, Value
from .usage import Usage

EVAL_LOG_PREFIX = "eval:"
"""Prefix of the names of evaluation logs; session ids must not start with it."""

HARNESS_KEY = "harness"
"""Key of a cell that names the version of Bridle that ran the trial, if it was not that of the evaluation."""


def eval_log_name(run: str) -> str:
    """Name of the log with the scored trials of an evaluation."""
    return f"{EVAL_LOG_PREFIX}{run}"


class Score(Value, kw_only=True):
    """Verdict of one scorer about one trial."""

    name: str
    passed: bool
    value: float = 0.0
    """From 0 to 1; a scorer without degrees gives 0 or 1."""
    reason: str = ""
    """Reason of a failure, or the measured value."""


class TrialScored(EventBase, kw_only=True, tag="trial_scored"):
    """A trial of a task ended and was scored; it is not run again."""

    task: str
    number: int
    """Number of the trial, from 1."""
    cell: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    """Values of the matrix that it ran with."""
    session: str = ""
    passed: bool = False
    scores: tuple[Score, ...] = ()
    tags: tuple[str, ...] = ()
    stop: str = ""
    output: str = ""
    """Beginning of the answer."""
    error: str = ""
    """Reason why the trial could not be run or scored; such a trial is run again by the next start."""
    usd: Decimal | None = None
    judge_usd: Decimal | None = Decimal(0)
    """Cost of the model that judged, which is not part of `usd`."""
    lost_usd: Decimal | None = Decimal(0)
    """Cost of earlier attempts of this trial that got no score, with their judges."""
    seconds: float = 0.0
    steps: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    plan: str = ""
    """Digest of the suite's files, the agents and the matrix; a changed suite starts a new evaluation."""
    pass_rate: float = 1.0
    """Share of passed trials that the task requires."""
    suite: str = ""
    """Folder or file of the suite, as it was given."""
    version: str = ""
    """Version of Bridle that ran the trial."""
    source: str = ""
    """Digest of its source, if it ran in a process of another version."""
    python: str = ""
    """Version of Python of that process."""
    planned: tuple[str, ...] = ()
    """Keys of all trials that a start plans; in the first trial that this start scores."""

    @property
    def unique_key(self) -> str | None:
        return f"trial:{self.number}:{sorted(self.cell.items())}:{self.task}"
