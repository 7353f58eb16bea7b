"""The breakers of a process: which endpoints are left alone, for all the runs that would ask them.

One breaker stands for an endpoint and one for each of its models, because an address that is down is down
for all of them and a busy model is busy alone.  What a failure speaks of is in core/verdicts.py, what
follows from it in core/breaker.py; here is only what is shared.

A refusal of what was asked (a wrong key, a bad request) is a sign of life.  Endpoints that refuse for want
of a key, a name or money are asked all the same, since the person may just have mended that; but a prompt
with a chain of models begins elsewhere for a while (`healthy`).
"""

import logging
from threading import Lock
from types import TracebackType
from typing import Self

from ..core.breaker import CLOSED, Breaker, admitted, failed, heard, phase, released, succeeded
from ..core.retry import is_passing
from ..core.verdicts import FAILURES
from ..values.errors import Failure
from ..values.model import Model

LOG = logging.getLogger("bridle")
SIDELINED_SECONDS = 300.0
"""How long a chain begins elsewhere after a refusal that no waiting mends."""


class Breakers:
    """Safe to share between threads: a run may be driven by any of them.  `now` is monotonic time."""

    def __init__(self) -> None:
        self._held: dict[str, Breaker] = {}
        self._sidelined: dict[str, float] = {}
        self._lock = Lock()

    def enter(self, model: Model, now: float) -> "Passage | Failure":
        """Leave to ask this model, or why nothing is sent to it now."""
        with self._lock:
            probing: list[str] = []
            for key in _keys(model):
                before = self._held.get(key, CLOSED)
                after, seconds = admitted(before, now)
                if seconds > 0:
                    for taken in probing:
                        self._keep(taken, released(self._held[taken]))
                    return _unavailable(model, before, seconds)
                if after != before:
                    probing.append(key)
                    self._keep(key, after)
        return Passage(self, model, tuple(probing))

    def healthy(self, model: Model, now: float) -> bool:
        """Whether a prompt that may choose should begin with this model."""
        with self._lock:
            if self._sidelined.get(model.seat, now) > now:
                return False
            return all(phase(self._held.get(key, CLOSED), now) != "open" for key in _keys(model))

    def clear(self) -> None:
        """Think well of everybody again."""
        with self._lock:
            self._held.clear()
            self._sidelined.clear()

    def _failed(self, model: Model, failure: Failure, now: float) -> None:
        endpoint, seat = _keys(model)
        row = FAILURES[failure.kind]
        with self._lock:
            if row.scope and is_passing(failure):
                self._fail(seat, model, failure, now)
                if row.scope == "endpoint":
                    self._fail(endpoint, model, failure, now)
                    return
            else:
                self._keep(seat, succeeded(self._held.get(seat, CLOSED)))
                if row.scope:
                    self._sidelined[model.seat] = now + SIDELINED_SECONDS
            self._keep(endpoint, succeeded(self._held.get(endpoint, CLOSED)))

    def _fail(self, key: str, model: Model, failure: Failure, now: float) -> None:
        before = self._held.get(key, CLOSED)
        after = self._keep(key, failed(before, now, failure.message))
        if after.opened_at is not None and after.opened_at != before.opened_at:
            seconds = admitted(after, now)[1]
            LOG.warning(
                "%s failed %d times in a row and is left alone for %g s: %s",
                key, after.failures, seconds, failure.message,
            )  # fmt: skip

    def _succeeded(self, model: Model) -> None:
        with self._lock:
            self._sidelined.pop(model.seat, None)
            for key in _keys(model):
                self._keep(key, succeeded(self._held.get(key, CLOSED)))

    def _heard(self, probing: tuple[str, ...]) -> None:
        with self._lock:
            for key in probing:
                self._keep(key, heard(self._held.get(key, CLOSED)))

    def _released(self, probing: tuple[str, ...]) -> None:
        with self._lock:
            for key in probing:
                self._keep(key, released(self._held.get(key, CLOSED)))

    def _keep(self, key: str, breaker: Breaker) -> Breaker:
        if breaker == CLOSED:
            self._held.pop(key, None)
        else:
            self._held[key] = breaker
        return breaker


class Passage:
    """One request that was let through.  Left without a word on how it went, it counts for nothing."""

    def __init__(self, breakers: Breakers, model: Model, probing: tuple[str, ...]) -> None:
        self._breakers, self._model, self._probing = breakers, model, probing

    def heard(self) -> None:
        """The answer has begun."""
        if self._probing:
            probing, self._probing = self._probing, ()
            self._breakers._heard(probing)

    def succeeded(self) -> None:
        self._probing = ()
        self._breakers._succeeded(self._model)

    def failed(self, failure: Failure, now: float) -> None:
        self._probing = ()
        self._breakers._failed(self._model, failure, now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._probing:
            self._breakers._released(self._probing)


SHARED = Breakers()
"""Of this process: for every line that is made from the name of a model."""


def _keys(model: Model) -> tuple[str, str]:
    """Who shares a fate: all models behind one wire at one address, and one model there."""
    endpoint = model.endpoint
    place = f"{endpoint.family} at {endpoint.elsewhere or endpoint.base_url or endpoint.app}"
    return f"{endpoint.name} ({place})", f"{model.name} ({place})"


def _unavailable(model: Model, breaker: Breaker, seconds: float) -> Failure:
    return Failure(
        kind="unavailable",
        message=f"{model.name} failed {breaker.failures} times in a row and is not asked for another"
        f" {seconds:g} s; the last time: {breaker.why}",
        retry_after_seconds=seconds,
    )
