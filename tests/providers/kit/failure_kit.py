"""Failures of one wire family, for the checks that every codec must pass (`test_kit_failures.py`).

A family lists its data in `FAILURES` of `<family>_errors.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bridle.values.errors import Failure
from tests.providers.kit.wire_kit import Wire


@dataclass(frozen=True)
class Refusal:
    """An answer that is a failure, and what is understood of it; None stands for anything."""

    status: int
    body: bytes
    kind: str
    code: str | None = None
    message: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailureCases:
    wire: Wire
    refusals: Sequence[Refusal]
    say: Callable[..., bytes]
    """Returns an error with this message and status, as the provider spells a request that is wrong."""
    told: Sequence[Failure]
    """Failures that come back equal when the simulated server tells them."""
    in_replies: Sequence[tuple[Sequence[bytes], str, str | None, str]]
    """Bodies with a good status that are failures: kind, code (None for any) and words of the message."""
    waits: Sequence[tuple[bytes, Mapping[str, str], float | None]] = ()
    """Bodies and headers of a rate limit, and the seconds to wait."""
    reasoning_refused: Sequence[str] = ()
    """Messages that say that earlier reasoning is not accepted."""
    invalid: Sequence[str] = ()
    """Messages that only look as if they named a cause."""
    rate_limited: Sequence[str] = ()
    """Messages of the kit that name a rate limit on this wire, whatever the status."""
