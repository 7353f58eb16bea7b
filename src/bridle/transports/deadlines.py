"""Timeouts of one request, the same for every transport, and the timer that checks them."""

from math import inf
from typing import TYPE_CHECKING, Protocol

from bridle.values.base import Value

if TYPE_CHECKING:
    import asyncio


class Deadlines(Value, kw_only=True):
    """Four timeouts of one request; the failure names the one that fired.

    Any received byte counts as activity; None disables a timeout. The defaults suit models that reason for
    minutes before the first token: a request that times out is still billed.
    """

    connect_seconds: float | None = 10.0
    """DNS lookup, connection and TLS handshake together."""
    first_byte_seconds: float | None = 600.0
    """From the request to the first byte of the response body."""
    idle_seconds: float | None = 300.0
    """Between two chunks of a response."""
    total_seconds: float | None = 3600.0
    """From the request to the last byte. Not retried when it fires: the reply would take as long again."""


class DeadlineOwner(Protocol):
    def check_deadline(self) -> None: ...


class DeadlineTimer:
    """One timer for the deadlines of all requests of an event loop.

    Most requests end long before a deadline. A timer of its own for each would cost more than reading its reply, and
    the loop keeps cancelled timers until it has many.
    """

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._due: dict[DeadlineOwner, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf
        """Time of the timer: that of the earliest deadline, or earlier."""

    def set(self, owner: DeadlineOwner, when: float) -> None:
        """Call `check_deadline` at this time of the loop, once; replaces the owner's earlier deadline."""
        self._due[owner] = when
        if when < self._at:
            self._schedule(when)

    def clear(self, owner: DeadlineOwner) -> None:
        self._due.pop(owner, None)

    def stop(self) -> None:
        """Cancel the timer, unless a request still has a deadline."""
        if self._timer is not None and not self._due:
            self._timer.cancel()
            self._at, self._timer = inf, None

    def _schedule(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at, self._timer = when, self._loop.call_at(when, self._check)

    def _check(self) -> None:
        self._at, self._timer = inf, None
        now = self._loop.time()
        try:
            for owner in [each for each, when in self._due.items() if when <= now]:
                del self._due[owner]
                owner.check_deadline()
        finally:
            earliest = min(self._due.values(), default=inf)
            if earliest < self._at:
                self._schedule(earliest)
