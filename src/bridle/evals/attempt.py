"""One attempt of a planned trial: run it, score it, and describe it as an event."""

from collections.abc import Mapping

from msgspec.structs import replace

from bridle.ports.store import Store
from bridle.run.budget.stored import StoredBudget
from bridle.values.errors import BridleError
from bridle.values.evals import Score, TrialScored
from bridle.values.text import describe_error

from .judge import JudgeDefaults
from .scorers import score_trial
from .suite_files import LoadedTask
from .task import JudgeRubric
from .trial import Trial, run_trial

ANSWER_SHOWN_MAX = 2_000
OUT_OF_BUDGET = "out of budget"
RESULT_FIELDS = (
    "session", "passed", "scores", "stop", "output", "error", "usd", "judge_usd", "seconds", "steps", "tool_calls",
    "usage",
)  # fmt: skip
"""Fields of `TrialScored` that the attempt decides; the others belong to the plan."""


def make_pool(run: str, usd: float | str | None) -> StoredBudget | None:
    """The budget of an evaluation, in its store; None without a limit."""
    return StoredBudget(name=f"eval-{run}", usd=usd) if usd is not None else None


async def attempt_trial(
    loaded: LoadedTask,
    cell: Mapping[str, object],
    scored: TrialScored,
    *,
    rubric: JudgeRubric,
    store: Store,
    pool: StoredBudget | None,
) -> TrialScored:
    """The event with what the trial did; with an `error` if it could not be run or scored."""
    try:
        return await _run_and_score(loaded, cell, scored, JudgeDefaults(rubric, store, scored.session, pool))
    except Exception as error:  # noqa: BLE001 - code of the user; the trial is reported as an error
        text = describe_error(error)
        known = isinstance(error, BridleError)
        return replace(scored, error=text if known else f"{type(error).__name__}: {text}")


async def _run_and_score(
    loaded: LoadedTask, cell: Mapping[str, object], scored: TrialScored, judge: JudgeDefaults
) -> TrialScored:
    def is_out_of_budget(trial: Trial) -> bool:
        pool = judge.pool
        return isinstance(pool, StoredBudget) and trial.stop == "budget" and pool.name in trial.result.reason

    async def score(trial: Trial) -> list[Score]:
        return [] if is_out_of_budget(trial) else await score_trial(loaded, trial, judge)

    trial, scores = await run_trial(loaded, cell, judge.store, scored.session, judge.pool, score)
    if is_out_of_budget(trial):
        return replace(scored, error=OUT_OF_BUDGET)
    failure = trial.result.failure
    has_failed = trial.stop == "failed" and failure is not None and not loaded.task.faults
    if has_failed and trial.provider is None and "failed" not in loaded.task.expect.stop:
        return replace(scored, error=f"the provider failed: {trial.result.reason}")
    return replace(
        scored,
        session=trial.session,
        passed=all(each.passed for each in scores),
        scores=tuple(scores),
        stop=trial.stop,
        output=trial.text[:ANSWER_SHOWN_MAX],
        usd=trial.usd,
        judge_usd=judge.usd,
        seconds=round(trial.seconds, 6),
        steps=trial.steps,
        tool_calls=len(trial.calls),
        usage=trial.usage,
    )
