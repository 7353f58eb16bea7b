"""Every exception that Bridle raises, grouped by who has to act.

    BridleError
      + MisuseError             the caller: something is missing or makes no sense
      | - UnknownModel            no such vendor, family or model string
      | - MissingKey              no key in the environment
      | - BadTool                 a tool that cannot be called
      | - SessionNotFound         no such session in this store
      | - MissingBlob             a record refers to a blob that is not stored
      | - CannotContinue          this code lacks what an unfinished run needs; nothing was recorded
      | - ApprovedCallWaits       a new prompt would drop a call that a person has approved; nothing was recorded
      + ProviderError           the provider: carries a `Failure`
      + StoreError              the store
        - Conflict                another writer appended first
        - Corrupt                 the stored data is inconsistent
        - Unusable                the store cannot be opened or written

Expected outcomes are not exceptions: a limit reached, a refusal, a failed tool or an unreachable model ends a
run with a value (`Result.stop`). `Result.raise_for_stop` raises `RunStopped` (values/result.py) for callers who
prefer an exception. `ModelRetry`, `OutcomeUnknown` and `EndRun` are not raised by
Bridle but by tools, the first also by validators.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from .base import Value

if TYPE_CHECKING:
    from .calls import Obstacle, PendingApproval

FailureKind = Literal[
    "unreachable",
    "timeout",
    "cut",
    "garbled",
    "overloaded",
    "rate_limited",
    "quota",
    "unauthorized",
    "not_found",
    "forgotten",
    "too_large",
    "context",
    "reasoning_refused",
    "invalid",
    "server",
    "unavailable",
]

OptionalParameter = Literal["tool_choice", "cache"]
"""Parameters that a request can be sent without: a forced tool choice, and everything about caching."""


class Failure(Value, kw_only=True):
    """Reason why a model call produced no reply.

    `forgotten`: the provider no longer has the state it was asked to store; send everything again.
    `reasoning_refused`: it rejects earlier reasoning (signature, encryption, position); omit reasoning
    instead of sending the same request again. `unavailable`: nothing was sent, because the endpoint's circuit
    breaker is open.
    """

    kind: FailureKind
    message: str
    status: int | None = None
    code: str = ""
    retry_after_seconds: float | None = None
    """Wait that the provider asked for, if any."""
    should_retry: bool | None = None
    """The provider's statement whether to retry; None if it made none."""
    window_tokens: int | None = None
    """Window size, if the provider named it when it rejected a prompt as too long."""
    refused_parameter: OptionalParameter | None = None
    """Optional parameter that the provider rejected by name."""


class BridleError(Exception):
    pass


class ModelRetry(Exception):
    """Raised by a tool, a validator or an output function: the model gets the message and tries again."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class EndRun(Exception):
    """Raised by a tool to end the run: `EndRun(answer)` with an answer, `EndRun(failed="why")` as failed.

    No other call of the reply is started, and the model is not asked again.  With an output type the answer
    is a value of that type; validators do not check it.  An answer that cannot be used ends the run as failed.
    """

    def __init__(self, *answer: object, failed: str | None = None) -> None:
        if len(answer) + (failed is not None) != 1:
            raise MisuseError("EndRun takes either one answer or `failed`, the reason of a failure")
        if failed is not None and not isinstance(failed, str):
            raise MisuseError(f"EndRun(failed=…) takes the reason as text, not {failed!r}")
        self.answer = answer[0] if answer else ""
        self.failed = None if failed is None else failed.strip() or "the tool gave no reason"
        super().__init__(self.failed if answer == () else self.answer)


class OutcomeUnknown(Exception):
    """Raised by a tool that lost its service during a call, so that the call may or may not have taken effect.

    The tool's `on_unknown` then decides, as for a call that a crash interrupted.
    """


class MisuseError(BridleError):
    pass


class UnknownModel(MisuseError):
    pass


class MissingKey(MisuseError):
    pass


class BadTool(MisuseError):
    pass


class SessionNotFound(MisuseError):
    pass


class MissingBlob(MisuseError):
    pass


class CannotContinue(MisuseError):
    """The code at hand lacks what an unfinished run needs. Nothing was recorded; open questions stay open."""

    def __init__(self, session: str, obstacles: "Sequence[Obstacle]") -> None:
        listed = "; ".join(f"{each.reason} ({each.remedy})" for each in obstacles)
        super().__init__(
            f"session {session!r} cannot be continued with this code, so nothing was recorded and its questions stay"
            f" open: {listed}. `bridle check waiting -a FILE` lists all such sessions"
        )
        self.session, self.obstacles = session, tuple(obstacles)


class ApprovedCallWaits(MisuseError):
    """A new prompt would drop a call that a person has approved and that has not started. Nothing was recorded."""

    def __init__(self, session: str, calls: "Sequence[PendingApproval]", resumed: str = "") -> None:
        """`resumed` is the session that continues the calls, if it is another one."""
        named = ", ".join(f"{each.tool} ({each.call_id} of session {each.session!r})" for each in calls)
        rejections = " and ".join(f"bridle approvals reject {each.id}" for each in calls)
        super().__init__(
            f"a new prompt for session {session!r} would drop what a person has approved and has not run yet: {named}."
            f" Nothing was recorded. Run it first: agent.resume(…) or bridle resume {resumed or session}; or drop it:"
            f" agent.reject(…) or {rejections}. Then send the prompt again"
        )
        self.session, self.calls = session, tuple(calls)


class ProviderError(BridleError):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class EngineFailed(BridleError):
    """The engine that runs a session failed or cannot be reached; the log is intact."""


class StoreError(BridleError):
    pass


class Conflict(StoreError):
    pass


class Corrupt(StoreError):
    def __init__(self, message: str, *, last_good: int | None = None, torn: bool = False) -> None:
        """Record the extent of the damage.

        `last_good` is the number of the last intact record, which can be forked from. `torn`: the records are
        consistent, but the end of the log is missing.
        """
        super().__init__(message)
        self.last_good, self.torn = last_good, torn


class Unusable(StoreError):
    pass
