"""Reaction to everything that can go wrong: one row, and one action, per case.

    retry      send the same request again after a wait
    repair     send a changed request once, immediately; the change is a recorded event
    tell       report the problem to the model and continue
    stop       end the run with everything it produced; it can be resumed

The loop takes its decisions from these rows, and docs/recovery.md is generated from them. A test ensures that
no kind is missing and that the loop follows the rows.

`scope` is the extent of a failure: a whole endpoint, or one of its models. `can_switch_model` allows another
model of the chain once the action is exhausted; a defect of the request itself would recur with every model.

Retries are made here and at no other level:

    should_retry    the provider's statement overrides the table, except for an exhausted quota
    retry-after     honoured exactly, up to a limit and to the run's remaining time
    backoff         random between 0 and a ceiling that doubles ("full jitter"), so that clients that
                    failed together do not return together
    breaker         wait until the circuit breaker lets a request through

The random number was drawn when the failure was recorded and is part of the log.

An optional parameter that the endpoint rejects is omitted for the rest of the run, if the rejected request
carried it. If it is rejected again, the failure is handled like any other.
"""

from typing import Literal

from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.errors import Failure, FailureKind, OptionalParameter
from bridle.values.events import ModelFailed, WaitSource
from bridle.values.request import Request
from bridle.values.settings import ATTEMPTS_DEFAULT

RecoveryAction = Literal["retry", "repair", "tell", "stop"]
HealthScope = Literal["", "endpoint", "model"]


class RecoveryRow(Value, kw_only=True):
    action: RecoveryAction
    description: str
    example: str
    """An example of the case as providers report it."""
    scope: HealthScope = ""
    can_switch_model: bool = False
    needs_named_part: bool = False
    """Repair only if the provider names the faulty part; otherwise the run ends."""

    @property
    def can_repeat(self) -> bool:
        """True if another request may help even if no part is named."""
        return self.action in ("retry", "repair") and not self.needs_named_part


# defect: forgotten-repaired
# defect: cut-retried
# defect: overloaded-retried
FAILURE_POLICY: dict[FailureKind, RecoveryRow] = {
    "unreachable": RecoveryRow(
        action="retry",
        description="Retried, unless this endpoint has never answered (then the URL is probably wrong)",
        example="cannot reach 127.0.0.1:8080: connection refused",
        scope="endpoint",
        can_switch_model=True,
    ),
    "timeout": RecoveryRow(
        action="retry",
        description="Retried, unless the whole reply took too long (`total_seconds`): it would again",
        example="408, 504; `sent nothing for 300 s (idle_seconds) and was given up`",
        scope="endpoint",
        can_switch_model=True,
    ),
    "cut": RecoveryRow(
        action="retry",
        description="Retried from the start; text already shown is discarded, never joined to the new attempt",
        example="a stream that ends without its final event",
        scope="endpoint",
        can_switch_model=True,
    ),
    "garbled": RecoveryRow(
        action="retry",
        description="Retried, unless the URL belongs to something other than this API",
        example="HTTP 200 with half a JSON object in it",
        scope="endpoint",
        can_switch_model=True,
    ),
    "overloaded": RecoveryRow(
        action="retry",
        description="Retried, also if reported in the middle of a stream",
        example="529 `overloaded_error`; the same in a stream, after HTTP 200; 503 `UNAVAILABLE`",
        scope="model",
        can_switch_model=True,
    ),
    "rate_limited": RecoveryRow(
        action="retry",
        description="Retried when the provider says",
        example="429 `rate_limit_error`, `retry-after: 20`; `Too many tokens, please wait`",
        scope="model",
        can_switch_model=True,
    ),
    "server": RecoveryRow(
        action="retry",
        description="Retried",
        example="500 `api_error: Internal server error`; 502",
        scope="endpoint",
        can_switch_model=True,
    ),
    "unavailable": RecoveryRow(
        action="retry",
        description="Nothing was sent; retried when the circuit breaker lets a request through",
        example="ours: the endpoint failed 8 times in a row",
        can_switch_model=True,
    ),
    "quota": RecoveryRow(
        action="stop",
        description="Not retried, whatever a header says: the account is out of credit",
        example="429 `insufficient_quota: You exceeded your current quota`; 402",
        scope="model",
        can_switch_model=True,
    ),
    "unauthorized": RecoveryRow(
        action="stop",
        description="Not retried: check the API key",
        example="401 `authentication_error: invalid x-api-key`; 403",
        scope="endpoint",
        can_switch_model=True,
    ),
    "not_found": RecoveryRow(
        action="stop",
        description="Not retried: check the model name and the base URL",
        example="404 `not_found_error: model: …`",
        scope="model",
        can_switch_model=True,
    ),
    "forgotten": RecoveryRow(
        action="repair",
        description="The whole conversation is sent instead of only the new messages",
        example="400 `previous_response_not_found`",
        can_switch_model=True,
    ),
    "reasoning_refused": RecoveryRow(
        action="repair",
        description="Earlier reasoning is omitted; if that is refused too, also the provider's items beside it",
        example="400 ``Invalid `signature` in `thinking` block``; `invalid_encrypted_content`",
        can_switch_model=True,
    ),
    "too_large": RecoveryRow(
        action="repair",
        description="The part that the provider names is omitted; if it names none, the conversation is compacted;"
        " if that is not possible, the run ends as `context`",
        example="413 `request_too_large: Request exceeds the maximum size`; `image exceeds 5 MB maximum`",
        can_switch_model=True,
        needs_named_part=True,
    ),
    "context": RecoveryRow(
        action="repair",
        description="The conversation is compacted; if that is not possible, a model of the chain with a larger window"
        " takes over, or the run ends as `context`",
        example="400 `prompt is too long: 210000 tokens > 200000 maximum`",
        can_switch_model=True,
        needs_named_part=True,
    ),
    "invalid": RecoveryRow(
        action="repair",
        description="The part that the provider names is omitted, or (once) the forced tool choice or cache parameters"
        " it names; if it names none, its last reply is sent once as plain text and calls; then the run ends,"
        " because the request would be rejected again",
        example="400 `messages.3.content.1.image.source.base64: invalid base64 data`",
        needs_named_part=True,
    ),
}

WAIT_SECONDS_FIRST = 0.5
# not from outside: time that we wait for our own work
WAIT_SECONDS_MAX = 16.0
RETRY_AFTER_SECONDS_MAX = 120.0
BREAKER_WAITS_MAX = 4
"""Maximum number of waits for the circuit breaker per reply."""


class RetryWait(Value, kw_only=True):
    seconds: float
    source: WaitSource


class GiveUp(Value, kw_only=True):
    why: str


def next_attempt(
    failure: Failure,
    tries: int,
    *,
    random_draw: float = 1.0,
    answered: bool = True,
    repair_failed: bool = False,
    breaker_waits: int = 0,
    left_seconds: float | None = None,
    attempts_max: int = ATTEMPTS_DEFAULT,
) -> RetryWait | GiveUp:
    """Next step after a failure, given the number of `tries` with this model.

    `repair_failed`: the repaired request failed in the same way. `breaker_waits`: waits for the circuit
    breaker so far. `left_seconds`: remaining time of the run.
    """
    row = FAILURE_POLICY[failure.kind]
    if row.action == "repair" and row.can_repeat:
        return GiveUp(why=failure.message) if repair_failed else RetryWait(seconds=0.0, source="repair")
    # defect: attempts-limited
    if (
        not is_transient(failure, answered=answered)
        or tries >= attempts_max
        or breaker_waits > BREAKER_WAITS_MAX
    ):
        return GiveUp(why=failure.message)
    wait = _choose_wait(failure, tries, random_draw)
    problem = _explain_too_long(wait, left_seconds)
    return GiveUp(why=f"{failure.message} ({problem})") if problem else wait


def is_transient(failure: Failure, *, answered: bool = True) -> bool:
    """True if the same request may succeed later.

    An endpoint that was never reached and never `answered` in this session probably has a wrong URL, so the
    failure is reported immediately.
    """
    if failure.kind == "quota" or (failure.kind == "unreachable" and not answered):
        return False
    # defect: told-not-to-retry
    return (
        FAILURE_POLICY[failure.kind].action == "retry"
        if failure.should_retry is None
        else failure.should_retry
    )


def _choose_wait(failure: Failure, tries: int, random_draw: float) -> RetryWait:
    requested = failure.retry_after_seconds
    # defect: requested-wait
    if requested is not None:
        source: WaitSource = "breaker" if failure.kind == "unavailable" else "retry-after"
        return RetryWait(seconds=max(0.0, requested), source=source)
    ceiling = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2.0 ** max(0, tries - 1))
    return RetryWait(seconds=ceiling * min(1.0, max(0.0, random_draw)), source="backoff")


WAIT_REASONS = {
    "retry-after": "the provider asks to wait {:g} s",
    "breaker": "the circuit breaker stays open for another {:g} s",
    "backoff": "the next attempt is due in {:g} s",
}


def _explain_too_long(wait: RetryWait, left_seconds: float | None) -> str:
    reason = WAIT_REASONS[wait.source].format(wait.seconds)
    if left_seconds is not None and wait.seconds >= left_seconds:
        return (
            f"{reason}, and {max(0.0, left_seconds):g} s of the run's time are left; resume the session later"
        )
    if wait.seconds > RETRY_AFTER_SECONDS_MAX:
        return f"{reason}, and a run waits {RETRY_AFTER_SECONDS_MAX:g} s at most; resume the session later"
    return ""


RefusedParameters = tuple[OptionalParameter, ...]


def has_parameter(request: Request, parameter: OptionalParameter) -> bool:
    """True if the request carries the parameter."""
    if parameter == "tool_choice":
        return request.tool_choice.mode in ("any", "tool")
    return bool(request.breakpoints or request.cache_key or request.compare_reply_id)


def has_endpoint_answered(event: ModelFailed) -> bool:
    """True if the failure shows that a server exists: it sent a status, or interrupted its response."""
    failure = event.failure
    return failure.status is not None or failure.kind in ("cut", "garbled") or bool(event.partial_text)


def record_refused_parameter(
    omitted: RefusedParameters, failure: Failure
) -> tuple[RefusedParameters, Failure]:
    """Parameters to omit after a failure, and the failure, without a parameter that was already omitted."""
    refused = failure.refused_parameter
    if refused is None:
        return omitted, failure
    if refused in omitted:
        return omitted, replace(failure, refused_parameter=None)
    return (*omitted, refused), failure
