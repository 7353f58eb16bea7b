"""The scorers: each key of `[expect]` is a function of the finished trial."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jsonschema_rs
from msgspec.structs import replace

from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.evals import Score
from bridle.values.schema_limits import BACKTRACKS_MAX, STEPS_MAX, count_validation_steps
from bridle.values.text import describe_error, repair_surrogates

from .judge import JudgeDefaults, judge_answer
from .suite_files import LoadedTask, read_schema
from .task import Expect, ExpectedCall, ExpectedFile, as_pattern, as_texts
from .trial import CallMade, Trial, await_value, check_tool_names

SHOWN_MAX = 300
Finding = str | None
"""Reason of a failure; None if the trial passes."""


async def score_trial(loaded: LoadedTask, trial: Trial, judge: JudgeDefaults) -> list[Score]:
    """All scores of a trial, in the order of the keys of `[expect]`."""
    expect = trial.task.expect
    _check_tool_names(loaded, trial)
    scores = [
        make_score(name, find(trial, expect)) for name, find in SCORERS.items() if is_given(expect, name)
    ]
    if expect.schema is not None:
        scores.append(make_score("schema", check_schema(trial, read_schema(loaded) or {})))
    scores += [_compare_number(name, trial, expect) for name in LIMITS if getattr(expect, name) is not None]
    if trial.provider is not None:
        scores += _check_provider(trial)
    for reference in as_texts(expect.check):
        scores += await run_own_scorer(loaded, reference, trial)
    if expect.judge is not None:
        scores.append(await judge_answer(trial, expect.judge, judge))
    return scores


def _check_tool_names(loaded: LoadedTask, trial: Trial) -> None:
    """Check the names of tools again, with those of servers and of other agents, which the run has shown."""
    if trial.agent:
        seen = (spec.name for each in trial.events(e.Configured) for spec in each.settings.tools)
        check_tool_names(loaded, {*seen, *trial.agent.tools})


def is_given(expect: Expect, name: str) -> bool:
    return name == "stop" or bool(getattr(expect, name)) or (name == "equals" and expect.equals is not None)


def make_score(name: str, problem: Finding) -> Score:
    return Score(
        name=name, passed=problem is None, value=float(problem is None), reason=shorten(problem or "")
    )


def shorten(text: str) -> str:
    text = repair_surrogates(text)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


def check_stop(trial: Trial, expect: Expect) -> Finding:
    wanted = as_texts(expect.stop)
    reason = f": {trial.result.reason}" if trial.result.reason else ""
    return None if trial.stop in wanted else f"the run ended as {trial.stop}{reason}"


def check_equals(trial: Trial, expect: Expect) -> Finding:
    return (
        None
        if trial.text.strip() == (expect.equals or "").strip()
        else f"the answer is {trial.text.strip()!r}"
    )


def check_contains(trial: Trial, expect: Expect) -> Finding:
    return find_missing(trial.text, as_texts(expect.contains), "the answer")


def check_excludes(trial: Trial, expect: Expect) -> Finding:
    found = [each for each in as_texts(expect.excludes) if each in trial.text]
    return f"the answer contains {found[0]!r}" if found else None


def check_matches(trial: Trial, expect: Expect) -> Finding:
    return find_unmatched(trial.text, as_texts(expect.matches), "the answer")


def find_missing(text: str, wanted: Iterable[str], subject: str) -> Finding:
    missing = [each for each in wanted if each not in text]
    return f"{subject} lacks {missing[0]!r}: {text!r}" if missing else None


def find_unmatched(text: str, patterns: Iterable[str], subject: str) -> Finding:
    missing = [each for each in patterns if not re.search(each, text)]
    return f"{subject} does not match {missing[0]!r}: {text!r}" if missing else None


def check_output(trial: Trial, expect: Expect) -> Finding:
    try:
        answer = json.loads(trial.text)
    except ValueError:
        return f"the answer is not JSON: {trial.text!r}"
    return find_difference(expect.output, answer)


def check_schema(trial: Trial, schema: Mapping[str, object]) -> Finding:
    try:
        answer = json.loads(trial.text)
    except ValueError:
        return f"the answer is not JSON: {trial.text!r}"
    validator = jsonschema_rs.validator_for(
        dict(schema), pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX)
    )
    if validator.is_valid(answer):
        return None
    if count_validation_steps(schema, answer) > STEPS_MAX:
        return "the answer does not fit the schema, and is too complex for the errors to be listed"
    return f"the answer does not fit the schema: {next(iter(validator.iter_errors(answer))).message}"


def find_difference(wanted: object, found: object, path: str = "") -> Finding:
    """The first member that is missing or differs; objects may have more members than wanted."""
    if pattern := as_pattern(wanted):
        if isinstance(found, str) and re.search(pattern, found):
            return None
    elif isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in wanted.items():
            if name not in found:
                return f"{path}{name} is missing"
            if problem := find_difference(value, found[name], f"{path}{name}."):
                return problem
        return None
    elif isinstance(wanted, list | tuple) and isinstance(found, list):
        if len(wanted) == len(found):
            pairs = enumerate(zip(wanted, found, strict=True))
            return next((p for at, (a, b) in pairs if (p := find_difference(a, b, f"{path}{at}."))), None)
    elif wanted == found and isinstance(wanted, bool) == isinstance(found, bool):
        return None
    return f"{path.rstrip('.') or 'the answer'} is {found!r}, not {wanted!r}"


def check_called(trial: Trial, expect: Expect) -> Finding:
    made = [each.tool for each in trial.calls]
    missing = [each for each in expect.called if each not in made]
    return f"{missing[0]} was not called; called: {', '.join(made) or 'none'}" if missing else None


def check_not_called(trial: Trial, expect: Expect) -> Finding:
    made = [each for each in trial.calls if each.tool in expect.not_called]
    return f"{made[0].tool} was called with {dict(made[0].arguments)!r}" if made else None


def check_order(trial: Trial, expect: Expect) -> Finding:
    made = [each.tool for each in trial.calls]
    left: Iterator[str] = iter(made)
    missing = next((wanted for wanted in expect.order if wanted not in left), None)
    return f"{missing} does not follow in {', '.join(made) or 'no calls'}" if missing else None


def check_calls(trial: Trial, expect: Expect) -> Finding:
    return next((p for wanted in expect.calls if (p := _check_call(trial.calls, wanted))), None)


def _check_call(made: Sequence[CallMade], wanted: ExpectedCall) -> Finding:
    same = [each for each in made if each.tool == wanted.tool]
    fitting = [
        each
        for each in same
        if find_difference(wanted.arguments, each.arguments) is None and wanted.outcome in ("", each.outcome)
    ]
    if len(fitting) == wanted.times or (wanted.times is None and fitting):
        return None
    shown = ", ".join(f"{dict(each.arguments)} {each.outcome}" for each in same) or "none"
    count = f"{len(fitting)} times, not {wanted.times}" if wanted.times is not None else "not"
    return f"{wanted.tool} was called {count} as wanted ({wanted.arguments} {wanted.outcome}); calls: {shown}"


def check_files(trial: Trial, expect: Expect) -> Finding:
    return next((p for name, wanted in expect.files.items() if (p := _check_file(trial, name, wanted))), None)


def _check_file(trial: Trial, name: str, given: str | ExpectedFile) -> Finding:
    wanted = ExpectedFile(equals=given) if isinstance(given, str) else given
    text = trial.read_file(name)
    if text is None or not wanted.exists:
        return (
            None
            if (text is None) is not wanted.exists
            else f"{name} {'is missing' if text is None else 'exists'}"
        )
    if wanted.equals is not None and text.rstrip("\n") != wanted.equals.rstrip("\n"):
        return f"{name} is {text!r}"
    return find_missing(text, as_texts(wanted.contains), name) or find_unmatched(
        text, as_texts(wanted.matches), name
    )


SCORERS: dict[str, Callable[[Trial, Expect], Finding]] = {
    "stop": check_stop,
    "equals": check_equals,
    "contains": check_contains,
    "excludes": check_excludes,
    "matches": check_matches,
    "output": check_output,
    "called": check_called,
    "not_called": check_not_called,
    "order": check_order,
    "calls": check_calls,
    "files": check_files,
}
LIMITS: dict[str, Callable[[Trial], float | None]] = {
    "usd_max": lambda trial: None if trial.usd is None else float(trial.usd),
    "seconds_max": lambda trial: trial.seconds,
    "steps_max": lambda trial: trial.steps,
    "tool_calls_max": lambda trial: len(trial.calls),
    "tokens_max": lambda trial: trial.usage.total,
    "cache_share_min": lambda trial: trial.cache_share,
}


def _compare_number(name: str, trial: Trial, expect: Expect) -> Score:
    measured, limit = LIMITS[name](trial), getattr(expect, name)
    if measured is None:
        return make_score(name, "the price of the model is unknown")
    is_within = measured >= limit if name.endswith("_min") else measured <= limit
    word = "at least" if name.endswith("_min") else "at most"
    return Score(
        name=name, passed=is_within, value=float(is_within), reason=f"{measured:g}, {word} {limit:g}"
    )


def _check_provider(trial: Trial) -> Iterator[Score]:
    """A simulated provider also judges: it must accept every request, and its script must be played to its end."""
    provider = trial.provider
    assert provider is not None
    refused = provider.refusals
    if refused and not trial.task.refusals:
        yield make_score(
            "provider", f"the provider refused a request ({refused[0].rule}): {refused[0].message}"
        )
        return
    if (trial.task.replies or trial.task.faults) and not trial.task.unused:
        try:
            provider.simulator.check_finished()
        except MisuseError as error:
            yield make_score("provider", str(error))
            return
    yield make_score("provider", None)


async def run_own_scorer(loaded: LoadedTask, reference: str, trial: Trial) -> list[Score]:
    """Scores of a user's function: True, False, a number from 0 to 1, a reason, a `Score`, or a list of these."""
    function: Any = loaded.load_function("expect", reference)
    name = reference.rpartition(":")[2]
    try:
        found: object = await await_value(function(trial))
    except AssertionError as error:
        return [make_score(name, describe_error(error) or "an assertion failed")]
    items = found if isinstance(found, list | tuple) else [found]
    return [_read_verdict(loaded, name, item) for item in items]


def _read_verdict(loaded: LoadedTask, name: str, found: object) -> Score:
    match found:
        case Score() if 0 <= found.value <= 1:
            return replace(found, name=repair_surrogates(found.name), reason=repair_surrogates(found.reason))
        case None | True | "":
            return make_score(name, None)
        case False:
            return make_score(name, f"{name} returned False")
        case str():
            return make_score(name, found)
        case int() | float() if 0 <= found <= 1:
            return Score(name=name, passed=found >= 0.5, value=float(found), reason=f"{found:g}")
    raise loaded.fail(
        "expect",
        f"{name} returned {found!r}; return a bool, a number from 0 to 1, a reason or a Score with such a value",
    )
