"""Every exception Bridle raises, split by whose move it is.

    BridleError
      + MisuseError             yours: something asked for makes no sense, or is missing
      | - UnknownModel            no such vendor, family or model string
      | - MissingKey              no key in the environment
      | - BadTool                 a tool that cannot be called
      | - SessionNotFound         no such session in this store
      + ProviderError           theirs: carries a `Failure`
      + StoreError              the store's
        - Conflict                somebody else appended first
        - Corrupt                 what is stored contradicts itself
        - Unusable                it cannot be opened or written

What is expected to happen is not here: a limit reached, a refusal, a failed
tool or a model that stays unreachable ends a run as a value (`Result.stop`).
"""

from typing import Literal

from .base import Value

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
"""What a request can do without: a forced tool choice, and everything about prompt caches."""


class Failure(Value):
    """Why a model call brought no reply.

    `forgotten`: the provider no longer has what it was to keep for us; sending everything helps.
    `reasoning_refused`: it does not take back reasoning it is shown (a signature, a seal, its place);
    leaving reasoning out helps, sending the same again never does.
    `unavailable`: nothing was sent.  The endpoint failed too often in a row and is given a rest.
    """

    kind: FailureKind
    message: str
    status: int | None = None
    code: str = ""
    retry_after_seconds: float | None = None
    """What the provider asked for, if it did."""
    should_retry: bool | None = None
    """The provider's own word on whether to try again; None when it said nothing."""
    window_tokens: int | None = None
    """The size of the window, where the provider named it in refusing a prompt as too long."""
    refused_parameter: OptionalParameter | None = None
    """The optional parameter of the request that the provider refused by name."""


class BridleError(Exception):
    pass


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


class ProviderError(BridleError):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class StoreError(BridleError):
    pass


class Conflict(StoreError):
    pass


class Corrupt(StoreError):
    def __init__(self, message: str, *, last_good: int | None = None, torn: bool = False) -> None:
        """`last_good` is the number of the last record that can be trusted, and can be forked from.
        `torn`: nothing contradicts it; what comes after is just not there."""
        super().__init__(message)
        self.last_good, self.torn = last_good, torn


class Unusable(StoreError):
    pass
