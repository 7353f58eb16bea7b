"""Builds the result of a run from the folded session, and checks its answers.

An answer is converted to the output type, then given to the agent's validators. A validator is a function of the
answer, and optionally of the `RunContext`. It returns None or the answer to accept it, returns another answer to
change it, or raises `ModelRetry` to send it back to the model. Each decision is recorded (`OutputChecked`) before
anything follows from it, so that a resumed run does not call a validator again.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from bridle.core.budget.limits import add_nested_spending
from bridle.core.calls.compensation import list_compensations
from bridle.core.effects import CheckOutput
from bridle.core.evaluate_reply import find_structured_answer
from bridle.core.state import ReplyEvaluation, State
from bridle.ports.run_context import RunContext
from bridle.run.calls.approval import list_external_calls
from bridle.run.calls.run_tool import ToolFailure, run_with_deadline
from bridle.run.context.run_context import ContextNeed
from bridle.tools.function.context_parameter import find_context_parameter
from bridle.tools.function.invoker import FunctionInvoker
from bridle.tools.schema.json_form import to_json_form
from bridle.tools.schema.output_type import OutputType
from bridle.values.calls import RunConclusion
from bridle.values.errors import EndRun, MisuseError
from bridle.values.events import OutputChecked
from bridle.values.message import Reply
from bridle.values.request import TOOL_SECONDS_DEFAULT
from bridle.values.result import Messages, Result, suggest_move
from bridle.values.text import describe_error, escape_text, repair_surrogates

if TYPE_CHECKING:
    from bridle.run.session import Session

T = TypeVar("T")
C = TypeVar("C")
Validator = (
    Callable[[T], T | None]
    | Callable[[T], Awaitable[T | None]]
    | Callable[[RunContext[C], T], T | None]
    | Callable[[RunContext[C], T], Awaitable[T | None]]
)
"""A function that accepts, changes or sends back an answer."""
# not from outside: time of a function of the user's program
VALIDATOR_SECONDS_MAX = TOOL_SECONDS_DEFAULT
ONE_ANSWER = "a validator takes the answer, and optionally a `RunContext`"
LOG = logging.getLogger("bridle.failures")
UNEXPECTED_STOPS = ("failed", "no_progress", "context")
"""Ends that are logged.  The others were asked for: by a limit, a person, a rule or the policy of the provider."""
STOPS_WITHOUT_UNDO = ("done", "waiting", None)
"""Ends after which no compensations are listed."""


async def make_session_result(
    opened: "Session", state: State, output_type: OutputType[T] | None
) -> Result[T]:
    """The result of a run, with the compensations of the runs inside it."""
    result = make_result(opened.session, state, output_type)
    if result.stop in UNEXPECTED_STOPS:
        _warn_of_stop(result, state)
    if (hold_session := getattr(opened.store, "hold_session", None)) is not None:
        result = replace(result, _hold=hold_session(opened.session))
    if result.stop in STOPS_WITHOUT_UNDO or not state.run.budget.subruns:
        return result
    return replace(result, compensations=await opened.list_compensations(state))


def _warn_of_stop(result: Result[T], state: State) -> None:
    """Log that a run ended as nobody wants, without a word of its conversation."""
    kind = f" ({result.failure.kind})" if result.failure is not None else ""
    LOG.warning(
        "%s",
        escape_text(
            f"the run in session {result.session} stopped as {result.stop}{kind} with the model"
            f" {state.settings.model.name}. Next: {suggest_move(result)}"
        ),
    )


def make_result(session: str, state: State, output_type: OutputType[T] | None) -> Result[T]:
    run, total = state.run, add_nested_spending(state.run.budget.spent, state.run.budget.nested_spent)
    output: object = run.end.answer if run.end.stop == "done" else None
    if output_type is not None:
        converted = _convert_output(session, run.evaluation, output_type) if run.end.stop == "done" else None
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
        messages=Messages(state.conversation.transcript.messages),
        steps=run.budget.spent.steps,
        compensations=list_compensations(state) if run.end.stop not in STOPS_WITHOUT_UNDO else (),
        failure=run.attempt.failure if run.end.stop == "failed" else None,
        external_calls=list_external_calls(state) if run.end.stop == "waiting" else (),
        adjusted=tuple(
            dict.fromkeys((*run.adjustments.recorded_notes, *run.adjustments.refused_adjustments))
        ),
        _dump_output=to_json_form if output_type is None else output_type.show_json,
        _is_output_missing=output_type is not None and run.evaluation.output is None,
    )


def _convert_output(session: str, evaluated: ReplyEvaluation, output_type: OutputType[T]) -> T | None:
    if evaluated.output is None:
        return None
    try:
        return output_type.load(evaluated.output, evaluated.output_progress.function)
    except Exception as error:
        # The answer was checked when it arrived; an earlier run may have used another type.
        raise MisuseError(
            f"the answer in session {session!r} does not match this agent's output type ({error});"
            " use an agent with the same `output=` as the agent that ran it"
        ) from error


def _to_float(usd: Decimal | None) -> float | None:
    return None if usd is None else float(usd)


class OutputValidator(NamedTuple):
    name: str
    parameter: str
    """Name of the parameter that receives the answer."""
    invoker: FunctionInvoker


def parse_validators(validate: object) -> tuple[OutputValidator, ...]:
    """Read the signatures of the validators; raises `MisuseError` for a function that cannot be one."""
    is_list = isinstance(validate, Sequence) and not isinstance(validate, str)
    given = () if validate is None else cast("Sequence[object]", validate) if is_list else (validate,)
    validators = tuple(map(_parse_validator, given))
    names = [validator.name for validator in validators]
    for name in names:
        if names.count(name) > 1:
            raise MisuseError(
                f"two validators are named {name!r}; the log tells them apart by name: rename one"
            )
    return validators


def _parse_validator(function: object) -> OutputValidator:
    name = str(getattr(function, "__name__", type(function).__name__))
    if not callable(function):
        raise MisuseError(f"`validate` must be a function or a list of functions, not {function!r}")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise MisuseError(
            f"validator `{name}`: its signature cannot be read; wrap it in a function"
        ) from None
    context = find_context_parameter(function)
    free = [
        parameter
        for parameter in parameters.values()
        if parameter.name != (context.name if context else "") and parameter.default is parameter.empty
    ] or [
        parameter for parameter in parameters.values() if parameter.name != (context.name if context else "")
    ]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if len(free) != 1 or free[0].kind not in kinds:
        raise MisuseError(f"validator `{name}`: {ONE_ANSWER}, not {inspect.signature(function)}")
    invoker = FunctionInvoker(name, function, context, returns_nothing=False, lane="functions")
    return OutputValidator(name, free[0].name, invoker)


class OutputChecker:
    """Checks the answers of one agent."""

    def __init__(self, output_type: OutputType[Any] | None, validators: Iterable[OutputValidator]) -> None:
        self._output_type = output_type
        self._validators = {validator.name: validator for validator in validators}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._validators)

    @property
    def context_needs(self) -> tuple[ContextNeed, ...]:
        wanted = ((name, validator.invoker.context_type) for name, validator in self._validators.items())
        return tuple(ContextNeed(f"validator `{name}`", type_) for name, type_ in wanted if type_ is not None)

    def find_error(self, answer: str, function: str = "") -> str:
        """Describe why the type rejects an answer that satisfies its schema; empty if it accepts it."""
        try:
            self._convert(answer, function)
        except Exception as error:  # noqa: BLE001 - the type is foreign code; its objection is for the model
            message, kind = describe_error(error), type(error).__name__
            return (message if isinstance(error, ValueError) else f"{kind}: {message}") or kind
        return ""

    def find_reply_error(self, state: State, reply: Reply) -> str:
        """Describe why the type rejects the answer in a reply; empty if it accepts it, or if there is none."""
        if self._output_type is None:
            return ""
        answer = find_structured_answer(state, reply)
        return "" if answer is None else self.find_error(answer)

    def conclude_run(self, end: EndRun) -> RunConclusion:
        """The end of the run that a tool asked for; raises `TypeError` or `ValueError` for an unusable answer."""
        if end.failed is not None:
            return RunConclusion(stop="failed", reason=repair_surrogates(end.failed))
        if self._output_type is None:
            if not isinstance(end.answer, str):
                raise TypeError(f"it is a {type(end.answer).__name__}, and the agent answers with text")
            return RunConclusion(stop="done", text=repair_surrogates(end.answer))
        answer = self._output_type.dump_text(end.answer)
        if error := self.find_error(answer):
            raise ValueError(error)
        return RunConclusion(stop="done", text=answer, output=answer)

    async def check(self, effect: CheckOutput, context: RunContext, seconds: float | None) -> OutputChecked:
        """Run one validator. An exception is its decision too: try again, or fail."""
        limit = VALIDATOR_SECONDS_MAX if seconds is None else min(seconds, VALIDATOR_SECONDS_MAX)
        validator = self._validators[effect.validator]
        decided = await run_with_deadline(
            limit, lambda: self._validate(validator, effect.answer, context), context
        )
        if isinstance(decided, ToolFailure):
            return OutputChecked(
                validator=effect.validator,
                answer_id=effect.answer_id,
                verdict="retry" if decided.outcome == "retry" else "failed",
                reason=decided.message,
            )
        return OutputChecked(
            validator=effect.validator, answer_id=effect.answer_id, verdict="accepted", changed=decided
        )

    async def _validate(self, validator: OutputValidator, answer: str, context: RunContext) -> str | None:
        """The answer after a validator changed it, as text; None if it did not."""
        given = self._convert(answer)
        before = self._describe(given)
        returned = await validator.invoker.call((), {validator.parameter: given}, context)
        if returned is None:
            returned = given
        after = self._describe(returned)
        if after is None and returned is not given:
            try:
                to_json_form(returned)
            except TypeError as problem:
                raise TypeError(f"it returned {problem}") from None
            raise TypeError(
                f"it returned an answer that the output type rejects: a {type(returned).__name__}"
            )
        if after is None or after == before:
            return None
        if error := self.find_error(after):
            raise TypeError(f"it returned an answer that the output type rejects: {error}")
        return after

    def _convert(self, answer: str, function: str = "") -> object:
        if self._output_type is None:
            return answer
        return cast("object", self._output_type.load(answer, function))

    def _describe(self, value: object) -> str | None:
        """The answer as it is recorded; None if it has no JSON form."""
        if self._output_type is None:
            if not isinstance(value, str):
                raise TypeError(f"it must return text or None, not {type(value).__name__}")
            return repair_surrogates(value)
        try:
            return self._output_type.dump_text(value)
        except TypeError:
            return None


NO_CHECKS = OutputChecker(None, ())
