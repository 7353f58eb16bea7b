"""Builds the result of a run from the folded session, and checks answers against the output type."""

from decimal import Decimal
from typing import TypeVar

import msgspec

from bridle.core.budget.limits import add_nested_spending
from bridle.core.calls.compensation import list_compensations
from bridle.core.state import State
from bridle.tools.schema.output_type import OutputType
from bridle.values.errors import MisuseError
from bridle.values.result import Result
from bridle.values.text import describe_error

T = TypeVar("T")
STOPS_WITHOUT_UNDO = ("done", "waiting", None)
"""Ends after which no compensations are listed."""


def make_result(session: str, state: State, output_type: OutputType[T] | None) -> Result[T]:
    run, total = state.run, add_nested_spending(state.run.budget.spent, state.run.budget.nested_spent)
    output: object = run.end.answer if run.end.stop == "done" else None
    if output_type is not None:
        converted = (
            _convert_output(session, run.evaluation.output, output_type) if run.end.stop == "done" else None
        )
        output = converted
    return Result(
        text=run.end.answer,
        output=output,  # type: ignore[arg-type]  # a str exactly when there is no output type
        usage=total.usage,
        cost=_to_float(total.usd),
        own_usage=run.budget.spent.usage,
        own_cost=_to_float(run.budget.spent.usd),
        subruns=run.budget.subruns,
        stop=run.end.stop or "cancelled",
        reason=run.end.reason
        or (f"wrapped up: {run.budget.wrap_up_reason}" if run.budget.wrap_up_reason else ""),
        session=session,
        messages=state.conversation.transcript.messages,
        steps=run.budget.spent.steps,
        compensations=list_compensations(state) if run.end.stop not in STOPS_WITHOUT_UNDO else (),
        failure=run.attempt.failure if run.end.stop == "failed" else None,
    )


def find_output_error(answer: str, output_type: OutputType[T]) -> str:
    """Describe why the output type rejects an answer that satisfies its schema; empty if it accepts it."""
    try:
        output_type.convert(msgspec.json.decode(answer))
    except Exception as error:  # noqa: BLE001 - the type is foreign code; its objection is for the model
        message, kind = describe_error(error), type(error).__name__
        return (message if isinstance(error, ValueError) else f"{kind}: {message}") or kind
    return ""


def _convert_output(session: str, answer: str | None, output_type: OutputType[T]) -> T | None:
    if answer is None:
        return None
    try:
        return output_type.convert(msgspec.json.decode(answer))
    except Exception as error:
        # The answer was checked when it arrived; an earlier run may have used another type.
        raise MisuseError(
            f"the answer in session {session!r} does not match this agent's output type ({error});"
            " use an agent with the same `output=` as the agent that ran it"
        ) from error


def _to_float(usd: Decimal | None) -> float | None:
    return None if usd is None else float(usd)
