"""The circuit breakers of a process, shared by all its runs.

There is one breaker per endpoint and one per model: an unreachable address affects all its models, an
overloaded model only itself.  core/recovery/failure_policy.py gives the scope of each failure,
core/recovery/breaker.py the transitions; this module holds the shared state.

A rejected request (wrong key, bad request) counts as a sign of life.  Endpoints that reject a key, a model
name or an empty account are still asked, because the user may have fixed that meanwhile; but a new prompt
with a model chain starts with another model for a while (`is_healthy`).
"""

import logging
from threading import Lock
from types import TracebackType
from typing import Self

from bridle.core.recovery.breaker import (
    CLOSED_BREAKER,
    BreakerState,
    admit_request,
    breaker_phase,
    record_failure,
    record_probe_answer,
    record_success,
    release_probe,
)
from bridle.core.recovery.failure_policy import FAILURE_POLICY, is_transient
from bridle.providers.wire.failures import ProviderLimit
from bridle.values.errors import Failure
from bridle.values.model import Model
from bridle.values.text import escape_text

LOG = logging.getLogger("bridle")
AVOIDED_SECONDS = 300.0
"""Time a chain starts with another model after a rejection that waiting does not fix."""


class CircuitBreakers:
    """Breakers by endpoint and model.  Thread-safe.  `now` is monotonic time."""

    def __init__(self) -> None:
        self._breakers: dict[str, BreakerState] = {}
        self._avoided_until: dict[str, float] = {}
        self.provider_limits: dict[str, tuple[float, tuple[ProviderLimit, ...]]] = {}
        self._lock = Lock()

    def admit_request(self, model: Model, now: float) -> "AdmittedRequest | Failure":
        """Admit a request to this model, or return the failure if a breaker is open."""
        if not self._breakers:  # all are closed
            return AdmittedRequest(self, model, ())
        with self._lock:
            probing: list[str] = []
            for key in _breaker_keys(model):
                before = self._breakers.get(key, CLOSED_BREAKER)
                after, seconds = admit_request(before, now)
                if seconds > 0:
                    for taken in probing:
                        self._store_breaker(taken, release_probe(self._breakers[taken]))
                    return _make_unavailable(model, before, seconds)
                if after != before:
                    probing.append(key)
                    self._store_breaker(key, after)
        return AdmittedRequest(self, model, tuple(probing))

    def is_healthy(self, model: Model, now: float) -> bool:
        """True if a new prompt with a choice of models should start with this one."""
        with self._lock:
            if self._avoided_until.get(model.model_key, now) > now:
                return False
            return all(
                breaker_phase(self._breakers.get(key, CLOSED_BREAKER), now) != "open"
                for key in _breaker_keys(model)
            )

    def set_limits(self, model: Model, limits: tuple[ProviderLimit, ...], now: float) -> None:
        """Note what the provider of this model reports to have left."""
        self.provider_limits[model.model_key] = now, limits

    def find_pause(self, model: Model, prompt_tokens: int, now: float) -> float:
        """Seconds until the provider of this model accepts a prompt of this size, by its latest report."""
        at, limits = self.provider_limits.get(model.model_key, (now, ()))
        longest = 0.0
        for limit in limits:
            wait = limit.find_wait(prompt_tokens)
            if wait and at + wait - now > longest:
                longest = at + wait - now
        return longest

    def clear(self) -> None:
        """Close all breakers."""
        with self._lock:
            self._breakers.clear()
            self._avoided_until.clear()
            self.provider_limits.clear()

    def _record_failure(self, model: Model, failure: Failure, now: float) -> None:
        endpoint, model_key = _breaker_keys(model)
        row = FAILURE_POLICY[failure.kind]
        with self._lock:
            if row.scope and is_transient(failure):
                self._count_failure(model_key, model, failure, now)
                if row.scope == "endpoint":
                    self._count_failure(endpoint, model, failure, now)
                    return
            else:
                self._store_breaker(model_key, record_success(self._breakers.get(model_key, CLOSED_BREAKER)))
                if row.scope:
                    self._avoided_until[model.model_key] = now + AVOIDED_SECONDS
            self._store_breaker(endpoint, record_success(self._breakers.get(endpoint, CLOSED_BREAKER)))

    def _count_failure(self, key: str, model: Model, failure: Failure, now: float) -> None:
        before = self._breakers.get(key, CLOSED_BREAKER)
        after = self._store_breaker(key, record_failure(before, now, failure.message))
        if after.opened_at is not None and after.opened_at != before.opened_at:
            seconds = admit_request(after, now)[1]
            # guard: breaker-warning-escaped
            LOG.warning(
                "%s failed %d times in a row and is skipped for %g s: %s; session logs have the provider's messages",
                escape_text(key), after.failures, seconds, failure.kind,
            )  # fmt: skip

    def _record_success(self, model: Model) -> None:
        if not self._breakers and not self._avoided_until:
            return  # all are closed
        with self._lock:
            self._avoided_until.pop(model.model_key, None)
            for key in _breaker_keys(model) if self._breakers else ():
                self._store_breaker(key, record_success(self._breakers.get(key, CLOSED_BREAKER)))

    def _record_probe_answer(self, probing: tuple[str, ...]) -> None:
        with self._lock:
            for key in probing:
                self._store_breaker(key, record_probe_answer(self._breakers.get(key, CLOSED_BREAKER)))

    def _release_probes(self, probing: tuple[str, ...]) -> None:
        with self._lock:
            for key in probing:
                self._store_breaker(key, release_probe(self._breakers.get(key, CLOSED_BREAKER)))

    def _store_breaker(self, key: str, breaker: BreakerState) -> BreakerState:
        if breaker == CLOSED_BREAKER:
            self._breakers.pop(key, None)
        else:
            self._breakers[key] = breaker
        return breaker


class AdmittedRequest:
    """One admitted request.  If no outcome is recorded before exit, it counts neither way."""

    def __init__(self, breakers: CircuitBreakers, model: Model, probing: tuple[str, ...]) -> None:
        self._breakers, self._model, self._probing = breakers, model, probing

    def record_answer_begun(self) -> None:
        """Close the half-open breakers: the response has begun."""
        if self._probing:
            probing, self._probing = self._probing, ()
            self._breakers._record_probe_answer(probing)

    def record_success(self) -> None:
        self._probing = ()
        self._breakers._record_success(self._model)

    def record_failure(self, failure: Failure, now: float) -> None:
        self._probing = ()
        self._breakers._record_failure(self._model, failure, now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._probing:
            self._breakers._release_probes(self._probing)


PROCESS_BREAKERS = CircuitBreakers()
"""Used by every connection made from a model name."""


def _breaker_keys(model: Model) -> tuple[str, str]:
    """Keys of the endpoint (one wire at one address) and of the model there."""
    endpoint = model.endpoint
    address = f"{endpoint.family} at {endpoint.custom_address or endpoint.base_url or endpoint.app}"
    return f"{endpoint.name} ({address})", f"{model.name} ({address})"


def _make_unavailable(model: Model, breaker: BreakerState, seconds: float) -> Failure:
    return Failure(
        kind="unavailable",
        message=f"{model.name} failed {breaker.failures} times in a row and is not asked for another"
        f" {seconds:g} s; the last time: {breaker.last_failure}",
        retry_after_seconds=seconds,
    )
