"""What is done about everything that can go wrong: one row each, and exactly one verdict a row.

    retry      the same is asked again after a wait (retry.py says how long)
    repair     something else is sent once, at once: the view is changed by a recorded event
    tell       the model is told and goes on from there
    stop       the run ends as a value, with everything there is; it can be resumed

The loop reads its decisions off these rows and so does the page about recovery; a test holds that no
kind is missing and that the loop does what its row says.

`scope` is whose health a failure speaks of: a whole endpoint is down, or one model of it is busy.
`elsewhere` is whether another model of the run's chain may do better, once the verdict is used up.
What is wrong with a request is wrong everywhere, and going round with it would hide a defect.
"""

from typing import Literal

from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.errors import (
    Conflict,
    Corrupt,
    Failure,
    FailureKind,
    OptionalParameter,
    StoreError,
    Unusable,
)
from bridle.values.events import WaitSource
from bridle.values.message import Outcome, Stop
from bridle.values.request import Request
from bridle.values.settings import ATTEMPTS_DEFAULT

RecoveryAction = Literal["retry", "repair", "tell", "stop"]
HealthScope = Literal["", "endpoint", "model"]


class RecoveryRow(Value):
    action: RecoveryAction
    description: str
    example: str
    """As it is met in the wild."""
    scope: HealthScope = ""
    can_switch_model: bool = False
    needs_named_part: bool = False
    """Repaired only where the provider's words name the part that is wrong; else it is the end."""

    @property
    def can_repeat(self) -> bool:
        """Whether asking once more may help when no part is named."""
        return self.action in ("retry", "repair") and not self.needs_named_part


FAILURE_POLICY: dict[FailureKind, RecoveryRow] = {
    "unreachable": RecoveryRow(
        action="retry",
        description="asked again; not when nobody ever answered there, because the address is wrong more often",
        example="cannot reach 127.0.0.1:8080: connection refused",
        scope="endpoint",
        can_switch_model=True,
    ),
    "timeout": RecoveryRow(
        action="retry",
        description="asked again; not when the whole reply took too long (`total_seconds`): it would again",
        example="408, 504; `sent nothing for 300 s (idle_seconds) and was given up`",
        scope="endpoint",
        can_switch_model=True,
    ),
    "cut": RecoveryRow(
        action="retry",
        description="asked again from the beginning; what was shown is void and nothing is joined",
        example="a stream that ends without the event that ends a reply",
        scope="endpoint",
        can_switch_model=True,
    ),
    "garbled": RecoveryRow(
        action="retry",
        description="asked again; not when a stranger lives at the address",
        example="HTTP 200 with half a JSON object in it",
        scope="endpoint",
        can_switch_model=True,
    ),
    "overloaded": RecoveryRow(
        action="retry",
        description="asked again, also when it was said inside a stream that began well",
        example="529 `overloaded_error`; the same in a stream, after HTTP 200; 503 `UNAVAILABLE`",
        scope="model",
        can_switch_model=True,
    ),
    "rate_limited": RecoveryRow(
        action="retry",
        description="asked again when the provider says",
        example="429 `rate_limit_error`, `retry-after: 20`; `Too many tokens, please wait`",
        scope="model",
        can_switch_model=True,
    ),
    "server": RecoveryRow(
        action="retry",
        description="asked again",
        example="500 `api_error: Internal server error`; 502",
        scope="endpoint",
        can_switch_model=True,
    ),
    "unavailable": RecoveryRow(
        action="retry",
        description="nothing was sent; asked when the endpoint has had its rest",
        example="ours: the endpoint failed 8 times in a row",
        can_switch_model=True,
    ),
    "quota": RecoveryRow(
        action="stop",
        description="never asked again, whatever a header says: waiting brings no money",
        example="429 `insufficient_quota: You exceeded your current quota`; 402",
        scope="model",
        can_switch_model=True,
    ),
    "unauthorized": RecoveryRow(
        action="stop",
        description="the key is yours to mend",
        example="401 `authentication_error: invalid x-api-key`; 403",
        scope="endpoint",
        can_switch_model=True,
    ),
    "not_found": RecoveryRow(
        action="stop",
        description="the model's name or the base URL is yours to mend",
        example="404 `not_found_error: model: …`",
        scope="model",
        can_switch_model=True,
    ),
    "forgotten": RecoveryRow(
        action="repair",
        description="everything is sent instead of what is new",
        example="400 `previous_response_not_found`",
        can_switch_model=True,
    ),
    "reasoning_refused": RecoveryRow(
        action="repair",
        description="earlier reasoning is left out",
        example="400 ``Invalid `signature` in `thinking` block``; `invalid_encrypted_content`",
        can_switch_model=True,
    ),
    "too_large": RecoveryRow(
        action="repair",
        description="the part it names is left out; when it names none, the conversation is made shorter; when it"
        " cannot be, the run ends as `context`",
        example="413 `request_too_large: Request exceeds the maximum size`; `image exceeds 5 MB maximum`",
        can_switch_model=True,
        needs_named_part=True,
    ),
    "context": RecoveryRow(
        action="repair",
        description="the conversation is made shorter; when it cannot be, the run ends as `context`, or a model of"
        " the chain with a larger window is asked",
        example="400 `prompt is too long: 210000 tokens > 200000 maximum`",
        can_switch_model=True,
        needs_named_part=True,
    ),
    "invalid": RecoveryRow(
        action="repair",
        description="the part it names is left out, or once the forced tool choice or the cache parameters it names;"
        " when it names none, its own last reply goes back once in words and calls alone; after that the run"
        " ends: it would be wrong again",
        example="400 `messages.3.content.1.image.source.base64: invalid base64 data`",
        needs_named_part=True,
    ),
}

OUTCOME_POLICY: dict[Outcome, RecoveryRow] = {
    "ok": RecoveryRow(action="tell", description="the result", example="`24 °C, clear`"),
    "error": RecoveryRow(
        action="tell", description="what the tool raised, as its result", example="`ZeroDivisionError: …`"
    ),
    "invalid": RecoveryRow(
        action="tell",
        description="what is wrong with the call; it was not run",
        example="an unknown name; arguments cut off or against the schema",
    ),
    "denied": RecoveryRow(
        action="tell", description="that it was not allowed, and was not run", example="a rule of the policy"
    ),
    "timeout": RecoveryRow(
        action="tell", description="that the tool took longer than it may", example="`@tool(timeout=5)`"
    ),
    "cancelled": RecoveryRow(
        action="tell", description="that the run ended first, when it goes on", example="Ctrl-C during a call"
    ),
    "unknown": RecoveryRow(
        action="tell",
        description="that it may have taken effect; before that, the tool's `on_unknown` has its say",
        example="the process died between the start of a call and its receipt",
    ),
}

STOP_POLICY: dict[Stop, RecoveryRow] = {
    Stop.DONE: RecoveryRow(
        action="stop",
        description="the answer; the model is told when it is empty or has another shape than asked for",
        example="`end_turn`, `stop`, `STOP`",
    ),
    Stop.TOOLS: RecoveryRow(
        action="tell",
        description="the results; words without a call are an answer, and without either it is asked to go on",
        example="`tool_use`, `tool_calls`",
    ),
    Stop.LENGTH: RecoveryRow(
        action="tell",
        description="asked to continue, with all the room there is; the pieces are joined",
        example="`max_tokens`, `length`, `MAX_TOKENS`",
    ),
    Stop.PAUSED: RecoveryRow(
        action="retry",
        description="sent back as it is, so that the provider goes on",
        example="`pause_turn`",
    ),
    Stop.REFUSED: RecoveryRow(
        action="stop",
        description="the run ends as `refused`; calls of a refused reply are not run",
        example="`refusal`",
    ),
    Stop.FILTERED: RecoveryRow(
        action="stop", description="the run ends as `refused`", example="`content_filter`, `SAFETY`"
    ),
    Stop.CONTEXT: RecoveryRow(
        action="tell",
        description="the conversation is made shorter and the model continues; when it cannot be, the run ends as"
        " `context`",
        example="`model_context_window_exceeded`",
    ),
    Stop.MALFORMED: RecoveryRow(
        action="tell", description="asked again", example="`MALFORMED_FUNCTION_CALL`"
    ),
    Stop.OTHER: RecoveryRow(
        action="stop",
        description="as `done`: what is not known is judged by what was said",
        example="a word nobody knew yet",
    ),
}

STORE_ERROR_POLICY: dict[type[StoreError], RecoveryRow] = {
    Conflict: RecoveryRow(
        action="stop",
        description="raised; somebody else drives the session, and `resume` reads what they wrote",
        example="two processes on one session",
    ),
    Corrupt: RecoveryRow(
        action="stop",
        description="raised; nothing is written behind what contradicts itself",
        example="a record whose hash does not follow from the one before",
    ),
    Unusable: RecoveryRow(
        action="stop",
        description="raised; the write may have landed, and only reading the log again can tell",
        example="the disk is full; the file is read-only",
    ),
}
"""What the store did not keep has not happened, so these cannot be ends in a log: they are exceptions."""


# After a failed model call: try again, and when?
#
# One layer: nothing below or above retries.  What a kind of failure comes to is in verdicts.py; here is how
# long to wait, and when enough is enough.
#
#     the provider's word     `should_retry` beats the table, except that nobody waits for money
#     retry-after             honoured to the second, up to a limit and to the run's own time: a run that
#                             sleeps for an hour has failed without saying so
#     backoff                 anything from nothing to a ceiling that doubles ("full jitter"), so that those
#                             who failed together do not come back together
#     breaker                 when the endpoint has had its rest; nothing is sent before
#
# Chance is data: it was drawn when the failure was recorded and stands in the log beside it.


WAIT_SECONDS_FIRST = 0.5
WAIT_SECONDS_MAX = 16.0
RETRY_AFTER_SECONDS_MAX = 120.0
BREAKER_WAITS_MAX = 4
"""How often one reply waits for its endpoint to have had its rest."""


class RetryWait(Value):
    seconds: float
    source: WaitSource


class GiveUp(Value):
    why: str


def next_attempt(
    failure: Failure,
    tries: int,
    *,
    chance: float = 1.0,
    answered: bool = True,
    again: bool = False,
    rests: int = 0,
    left_seconds: float | None = None,
    attempts_max: int = ATTEMPTS_DEFAULT,
) -> RetryWait | GiveUp:
    """What follows a failure after so many `tries` at this model.

    `again`: what was sent otherwise to mend this failure has met it too.  `rests`: how often its endpoint
    was resting.  `left_seconds`: of the run's time.
    """
    row = FAILURE_POLICY[failure.kind]
    if row.action == "repair" and row.can_repeat:
        return GiveUp(why=failure.message) if again else RetryWait(seconds=0.0, source="repair")
    if not is_transient(failure, answered=answered) or tries >= attempts_max or rests > BREAKER_WAITS_MAX:
        return GiveUp(why=failure.message)
    wait = _choose_wait(failure, tries, chance)
    problem = _explain_too_long(wait, left_seconds)
    return GiveUp(why=f"{failure.message} ({problem})") if problem else wait


def is_transient(failure: Failure, *, answered: bool = True) -> bool:
    """Whether the same request may do better later.

    Who was never reached and never `answered` in this session has the wrong address more often than a
    bad moment, and the person who typed it is waiting to be told.
    """
    if failure.kind == "quota" or (failure.kind == "unreachable" and not answered):
        return False
    return (
        FAILURE_POLICY[failure.kind].action == "retry"
        if failure.should_retry is None
        else failure.should_retry
    )


def _choose_wait(failure: Failure, tries: int, chance: float) -> RetryWait:
    asked = failure.retry_after_seconds
    if asked is not None:
        source: WaitSource = "breaker" if failure.kind == "unavailable" else "retry-after"
        return RetryWait(seconds=max(0.0, asked), source=source)
    ceiling = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2.0 ** max(0, tries - 1))
    return RetryWait(seconds=ceiling * min(1.0, max(0.0, chance)), source="backoff")


WAIT_REASONS = {
    "retry-after": "the provider asks to wait {:g} s",
    "breaker": "the endpoint rests for another {:g} s",
    "backoff": "the next attempt is due in {:g} s",
}


def _explain_too_long(wait: RetryWait, left_seconds: float | None) -> str:
    told = WAIT_REASONS[wait.source].format(wait.seconds)
    if left_seconds is not None and wait.seconds >= left_seconds:
        return (
            f"{told}, and {max(0.0, left_seconds):g} s of the run's time are left; resume the session later"
        )
    if wait.seconds > RETRY_AFTER_SECONDS_MAX:
        return f"{told}, and a run waits {RETRY_AFTER_SECONDS_MAX:g} s at most; resume the session later"
    return ""


# Optional parameters that the endpoint refused in this run: they are left out from then on.
#
# A parameter is left out once, and only if the refused request carried it.  Refused again, the failure is
# judged like any other.


RefusedParameters = tuple[OptionalParameter, ...]


def has_parameter(request: Request, parameter: OptionalParameter) -> bool:
    """Whether a request carries the parameter."""
    if parameter == "tool_choice":
        return request.tool_choice.mode in ("any", "tool")
    return bool(request.breakpoints or request.cache_key or request.compare_reply_id)


def record_refused_parameter(
    left_out: RefusedParameters, failure: Failure
) -> tuple[RefusedParameters, Failure]:
    """What to leave out after a failure, and the failure, which names nothing that was left out before."""
    refused = failure.refused_parameter
    if refused is None:
        return left_out, failure
    if refused in left_out:
        return left_out, replace(failure, refused_parameter=None)
    return (*left_out, refused), failure
