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

from ..values.errors import Conflict, Corrupt, FailureKind, StoreError, Unusable
from ..values.message import Stop
from ..values.parts import Outcome
from ..values.value import Value

Verdict = Literal["retry", "repair", "tell", "stop"]
Scope = Literal["", "endpoint", "model"]


class Row(Value):
    verdict: Verdict
    then: str
    example: str
    """As it is met in the wild."""
    scope: Scope = ""
    elsewhere: bool = False
    by_name: bool = False
    """Repaired only where the provider's words name the part that is wrong; else it is the end."""

    @property
    def again(self) -> bool:
        """Whether asking once more may help when no part is named."""
        return self.verdict in ("retry", "repair") and not self.by_name


FAILURES: dict[FailureKind, Row] = {
    "unreachable": Row(
        verdict="retry",
        then="asked again; not when nobody ever answered there, because the address is wrong more often",
        example="cannot reach 127.0.0.1:8080: connection refused",
        scope="endpoint",
        elsewhere=True,
    ),
    "timeout": Row(
        verdict="retry",
        then="asked again; not when the whole reply took too long (`total_seconds`): it would again",
        example="408, 504; `sent nothing for 300 s (idle_seconds) and was given up`",
        scope="endpoint",
        elsewhere=True,
    ),
    "cut": Row(
        verdict="retry",
        then="asked again from the beginning; what was shown is void and nothing is joined",
        example="a stream that ends without the event that ends a reply",
        scope="endpoint",
        elsewhere=True,
    ),
    "garbled": Row(
        verdict="retry",
        then="asked again; not when a stranger lives at the address",
        example="HTTP 200 with half a JSON object in it",
        scope="endpoint",
        elsewhere=True,
    ),
    "overloaded": Row(
        verdict="retry",
        then="asked again, also when it was said inside a stream that began well",
        example="529 `overloaded_error`; the same in a stream, after HTTP 200; 503 `UNAVAILABLE`",
        scope="model",
        elsewhere=True,
    ),
    "rate_limited": Row(
        verdict="retry",
        then="asked again when the provider says",
        example="429 `rate_limit_error`, `retry-after: 20`; `Too many tokens, please wait`",
        scope="model",
        elsewhere=True,
    ),
    "server": Row(
        verdict="retry",
        then="asked again",
        example="500 `api_error: Internal server error`; 502",
        scope="endpoint",
        elsewhere=True,
    ),
    "unavailable": Row(
        verdict="retry",
        then="nothing was sent; asked when the endpoint has had its rest",
        example="ours: the endpoint failed 8 times in a row",
        elsewhere=True,
    ),
    "quota": Row(
        verdict="stop",
        then="never asked again, whatever a header says: waiting brings no money",
        example="429 `insufficient_quota: You exceeded your current quota`; 402",
        scope="model",
        elsewhere=True,
    ),
    "unauthorized": Row(
        verdict="stop",
        then="the key is yours to mend",
        example="401 `authentication_error: invalid x-api-key`; 403",
        scope="endpoint",
        elsewhere=True,
    ),
    "not_found": Row(
        verdict="stop",
        then="the model's name or the base URL is yours to mend",
        example="404 `not_found_error: model: …`",
        scope="model",
        elsewhere=True,
    ),
    "forgotten": Row(
        verdict="repair",
        then="everything is sent instead of what is new",
        example="400 `previous_response_not_found`",
        elsewhere=True,
    ),
    "reasoning_refused": Row(
        verdict="repair",
        then="earlier reasoning is left out",
        example="400 ``Invalid `signature` in `thinking` block``; `invalid_encrypted_content`",
        elsewhere=True,
    ),
    "too_large": Row(
        verdict="repair",
        then="the part it names is left out; when it names none, the conversation is made shorter; when it"
        " cannot be, the run ends as `context`",
        example="413 `request_too_large: Request exceeds the maximum size`; `image exceeds 5 MB maximum`",
        elsewhere=True,
        by_name=True,
    ),
    "context": Row(
        verdict="repair",
        then="the conversation is made shorter; when it cannot be, the run ends as `context`, or a model of"
        " the chain with a larger window is asked",
        example="400 `prompt is too long: 210000 tokens > 200000 maximum`",
        elsewhere=True,
        by_name=True,
    ),
    "invalid": Row(
        verdict="repair",
        then="the part it names is left out, or once the forced tool choice or the cache parameters it names;"
        " when it names none, its own last reply goes back once in words and calls alone; after that the run"
        " ends: it would be wrong again",
        example="400 `messages.3.content.1.image.source.base64: invalid base64 data`",
        by_name=True,
    ),
}

OUTCOMES: dict[Outcome, Row] = {
    "ok": Row(verdict="tell", then="the result", example="`24 °C, clear`"),
    "error": Row(
        verdict="tell", then="what the tool raised, as its result", example="`ZeroDivisionError: …`"
    ),
    "invalid": Row(
        verdict="tell",
        then="what is wrong with the call; it was not run",
        example="an unknown name; arguments cut off or against the schema",
    ),
    "denied": Row(
        verdict="tell", then="that it was not allowed, and was not run", example="a rule of the policy"
    ),
    "timeout": Row(
        verdict="tell", then="that the tool took longer than it may", example="`@tool(timeout=5)`"
    ),
    "cancelled": Row(
        verdict="tell", then="that the run ended first, when it goes on", example="Ctrl-C during a call"
    ),
    "unknown": Row(
        verdict="tell",
        then="that it may have taken effect; before that, the tool's `on_unknown` has its say",
        example="the process died between the start of a call and its receipt",
    ),
}

STOPS: dict[Stop, Row] = {
    Stop.DONE: Row(
        verdict="stop",
        then="the answer; the model is told when it is empty or has another shape than asked for",
        example="`end_turn`, `stop`, `STOP`",
    ),
    Stop.TOOLS: Row(
        verdict="tell",
        then="the results; words without a call are an answer, and without either it is asked to go on",
        example="`tool_use`, `tool_calls`",
    ),
    Stop.LENGTH: Row(
        verdict="tell",
        then="asked to continue, with all the room there is; the pieces are joined",
        example="`max_tokens`, `length`, `MAX_TOKENS`",
    ),
    Stop.PAUSED: Row(
        verdict="retry",
        then="sent back as it is, so that the provider goes on",
        example="`pause_turn`",
    ),
    Stop.REFUSED: Row(
        verdict="stop",
        then="the run ends as `refused`; calls of a refused reply are not run",
        example="`refusal`",
    ),
    Stop.FILTERED: Row(
        verdict="stop", then="the run ends as `refused`", example="`content_filter`, `SAFETY`"
    ),
    Stop.CONTEXT: Row(
        verdict="tell",
        then="the conversation is made shorter and the model continues; when it cannot be, the run ends as"
        " `context`",
        example="`model_context_window_exceeded`",
    ),
    Stop.MALFORMED: Row(verdict="tell", then="asked again", example="`MALFORMED_FUNCTION_CALL`"),
    Stop.OTHER: Row(
        verdict="stop",
        then="as `done`: what is not known is judged by what was said",
        example="a word nobody knew yet",
    ),
}

STORES: dict[type[StoreError], Row] = {
    Conflict: Row(
        verdict="stop",
        then="raised; somebody else drives the session, and `resume` reads what they wrote",
        example="two processes on one session",
    ),
    Corrupt: Row(
        verdict="stop",
        then="raised; nothing is written behind what contradicts itself",
        example="a record whose hash does not follow from the one before",
    ),
    Unusable: Row(
        verdict="stop",
        then="raised; the write may have landed, and only reading the log again can tell",
        example="the disk is full; the file is read-only",
    ),
}
"""What the store did not keep has not happened, so these cannot be ends in a log: they are exceptions."""
