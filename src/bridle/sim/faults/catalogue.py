"""The faults that can be injected, and the plan that decides which answer gets which fault.

A fault is planned by its name. `stall-midway` happens once, to the next answer it can happen to; several
happen in the order they were planned, one per answer. `stall-midway=0.1` happens to about every tenth answer:
which ones depends on the seed and the conversation, not on the order of arrival, so that the same seed gives
the same faults to parallel runs. A fault may take a number: `reset:120` breaks the connection after 120
bytes.

A fault that cannot happen (its wire has no such thing) stays planned, and `Simulator.check_finished` reports
it.
"""

import random
import re
from collections.abc import Iterable

from msgspec.structs import replace

from bridle.ports.transport import ResponseTimeline
from bridle.values.base import Value
from bridle.values.errors import MisuseError

from . import actions
from .actions import FaultAction, FaultTarget, fail_until_date, fail_with_status

FAULT_PATTERN = re.compile(r"(?P<name>[a-z0-9-]+)(?::(?P<argument>\d+(?:\.\d+)?))?(?:=(?P<chance>[\d.]+))?")


class SimulatedFault(Value, kw_only=True, gc=True):
    name: str
    description: str
    inject: FaultAction
    is_harmless: bool = False
    """True if the answer still means the same, so that clients must not be affected."""


class PlannedFault(Value, kw_only=True, gc=True):
    fault: SimulatedFault
    argument: float | None = None
    probability: float | None = None
    """Probability for each answer; None for exactly once."""


class FaultPlan:
    """Assigns planned faults to answers."""

    def __init__(self, planned: Iterable[PlannedFault | str], seed: int) -> None:
        parsed = [each if isinstance(each, PlannedFault) else _parse_fault(each) for each in planned]
        self._one_time = [each for each in parsed if each.probability is None]
        self._recurring = [each for each in parsed if each.probability is not None]
        self._seed = seed

    def __bool__(self) -> bool:
        return bool(self._one_time or self._recurring)

    @property
    def remaining(self) -> tuple[str, ...]:
        return tuple(each.fault.name for each in self._one_time)

    def inject_next(self, target: FaultTarget, point: str) -> tuple[str, ResponseTimeline] | None:
        """Inject the next fault that applies to this answer. `point` seeds the random draws."""
        rng = random.Random(f"{self._seed} {point}")
        for planned in self._recurring:
            if rng.random() < (planned.probability or 0.0) and (timeline := _inject(planned, target, rng)):
                return planned.fault.name, timeline
        for at, planned in enumerate(self._one_time):
            if timeline := _inject(planned, target, rng):
                del self._one_time[at]
                return planned.fault.name, timeline
        return None


def parse_faults(names: Iterable[str]) -> tuple[PlannedFault, ...]:
    return tuple(_parse_fault(name) for name in names)


def _parse_fault(text: str) -> PlannedFault:
    found = FAULT_PATTERN.fullmatch(text)
    name = found["name"] if found else ""
    if found is None or name not in FAULTS:
        raise MisuseError(
            f"unknown fault {text!r}; write NAME[:NUMBER][=CHANCE], with a name from `bridle sim faults`"
        )
    probability = float(found["chance"]) if found["chance"] else None
    if probability is not None and not 0 <= probability <= 1:
        raise MisuseError(f"the probability of a fault must be from 0 to 1, not {probability:g} ({text!r})")
    return PlannedFault(
        fault=FAULTS[name],
        argument=float(found["argument"]) if found["argument"] else None,
        probability=probability,
    )


def _inject(planned: PlannedFault, target: FaultTarget, rng: random.Random) -> ResponseTimeline | None:
    return planned.fault.inject(replace(target, random_source=rng, argument=planned.argument))


_STATUS_MESSAGES = {
    429: "Number of requests has exceeded your rate limit.",
    500: "Internal server error",
    503: "The service is temporarily unavailable.",
    529: "Overloaded",
}
_STATUS_FAULTS = tuple(
    SimulatedFault(
        name=f"error-{status}{'-wait' if wait else ''}",
        description=f"HTTP {status}"
        + (" with Retry-After (1 s, or `:SECONDS`)" if wait else " without Retry-After"),
        inject=fail_with_status(status, words, wait=wait),
    )
    for status, words in _STATUS_MESSAGES.items()
    for wait in (False, True)
)
_ALL_FAULTS = (
    *_STATUS_FAULTS,
    SimulatedFault(
        name="error-500-final",
        description="HTTP 500, telling the client not to retry",
        inject=fail_with_status(500, _STATUS_MESSAGES[500], final=True),
    ),
    SimulatedFault(
        name="error-429-date",
        description="HTTP 429 with a date as Retry-After (in 1 s, or `:SECONDS`)",
        inject=fail_until_date(429, _STATUS_MESSAGES[429]),
    ),
    SimulatedFault(
        name="quota",
        description="the account is out of credit; a retry is useless",
        inject=actions.exceed_quota,
    ),
    SimulatedFault(
        name="overloaded-in-stream",
        description="HTTP 200, half of the stream, then an error in it",
        inject=actions.report_overload_in_stream,
    ),
    SimulatedFault(
        name="overflow-in-stream",
        description="HTTP 200, then an error in the stream: the prompt is too long",
        inject=actions.report_overflow_in_stream,
    ),
    SimulatedFault(
        name="reset",
        description="the connection is reset after `:BYTES` of the answer, or at a random byte",
        inject=actions.reset_connection,
    ),
    SimulatedFault(
        name="stall-at-connect",
        description="silence before the status, for an hour or `:SECONDS`",
        inject=actions.stall_at_connect,
    ),
    SimulatedFault(
        name="stall-at-first-byte",
        description="a status, then silence for an hour or `:SECONDS`",
        inject=actions.stall_at_first_byte,
    ),
    SimulatedFault(
        name="stall-midway",
        description="half of the stream, then silence for an hour or `:SECONDS`",
        inject=actions.stall_midway,
    ),
    SimulatedFault(
        name="truncated-json",
        description="the connection closes properly, but the JSON is cut short",
        inject=actions.truncate_json,
    ),
    SimulatedFault(
        name="missing-end",
        description="the stream closes properly, without the event that ends a reply",
        inject=actions.drop_end_event,
    ),
    SimulatedFault(
        name="out-of-room",
        description="the last call's arguments are cut off at the output limit",
        inject=actions.cut_off_arguments,
    ),
    SimulatedFault(
        name="malformed-call",
        description="a call's arguments are not JSON, or the provider reports that they were not",
        inject=actions.garble_arguments,
    ),
    SimulatedFault(name="empty-call", description="a call without a name", inject=actions.blank_call_name),
    SimulatedFault(
        name="duplicate-call",
        description="the last call comes twice, with the same id",
        inject=actions.duplicate_last_call,
    ),
    SimulatedFault(
        name="wrong-finish",
        description="calls with the stop reason of a plain end, or the reverse",
        inject=actions.swap_stop_reason,
    ),
    SimulatedFault(
        name="empty-reply", description="a successful reply without content", inject=actions.send_empty_reply
    ),
    SimulatedFault(name="refusal", description="the model refuses to answer", inject=actions.refuse_answer),
    SimulatedFault(
        name="paused",
        description="the provider pauses and must be called again (on wires that have this)",
        inject=actions.pause_reply,
    ),
    SimulatedFault(
        name="continuation",
        description="the rest of the reply needs a continuation token (on wires that have one)",
        inject=actions.continue_with_token,
    ),
    SimulatedFault(
        name="comments-only",
        description="a stream of comments only",
        inject=actions.send_only_comments,
    ),
    SimulatedFault(
        name="comments",
        description="comments between the events",
        inject=actions.insert_comments,
        is_harmless=True,
    ),
    SimulatedFault(
        name="crlf", description="lines that end in CRLF", inject=actions.use_crlf, is_harmless=True
    ),
    SimulatedFault(
        name="unknown-event",
        description="an event of an unknown type",
        inject=actions.insert_unknown_event,
        is_harmless=True,
    ),
    SimulatedFault(
        name="slow-drip",
        description="16 bytes at a time, every 50 ms or `:SECONDS`",
        inject=actions.drip_slowly,
        is_harmless=True,
    ),
)
FAULTS = {fault.name: fault for fault in _ALL_FAULTS}
