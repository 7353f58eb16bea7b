"""What can be made to go wrong, as a table, and when it does.

A fault is planned by its name.  `stall-midway` happens once, to the next answer it can
happen to; several happen in the order they were planned, one an answer.  `stall-midway=0.1`
happens to every tenth answer or so: which ones follows from the seed and the conversation,
not from who came first, so that the same seed gives the same trouble to runs in parallel.
A number may be given: `reset:120` breaks the connection after 120 bytes.

A fault that can never happen (there is no such thing on that wire) stays planned, and
whoever planned it is told at the end.
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


class SimulatedFault(Value):
    name: str
    description: str
    inject: FaultAction
    is_harmless: bool = False
    """Whether the answer still means the same: clients must not even notice."""


class PlannedFault(Value):
    fault: SimulatedFault
    argument: float | None = None
    probability: float | None = None
    """How likely it is each time; None for once."""


class FaultPlan:
    """Which answer meets which fault."""

    def __init__(self, planned: Iterable[PlannedFault | str], seed: int) -> None:
        every = [each if isinstance(each, PlannedFault) else _parse_fault(each) for each in planned]
        self._one_time = [each for each in every if each.probability is None]
        self._recurring = [each for each in every if each.probability is not None]
        self._seed = seed

    def __bool__(self) -> bool:
        return bool(self._one_time or self._recurring)

    @property
    def remaining(self) -> tuple[str, ...]:
        return tuple(each.fault.name for each in self._one_time)

    def inject_next(self, incident: FaultTarget, point: str) -> tuple[str, ResponseTimeline] | None:
        """What goes wrong with this answer; `point` tells it from every other."""
        chance = random.Random(f"{self._seed} {point}")
        for planned in self._recurring:
            if chance.random() < (planned.probability or 0.0) and (
                happened := _inject(planned, incident, chance)
            ):
                return planned.fault.name, happened
        for at, planned in enumerate(self._one_time):
            if happened := _inject(planned, incident, chance):
                del self._one_time[at]
                return planned.fault.name, happened
        return None


def parse_faults(names: Iterable[str]) -> tuple[PlannedFault, ...]:
    return tuple(_parse_fault(name) for name in names)


def _parse_fault(text: str) -> PlannedFault:
    found = FAULT_PATTERN.fullmatch(text)
    name = found["name"] if found else ""
    if found is None or name not in FAULTS:
        raise MisuseError(
            f"there is no fault {text!r}; `bridle sim faults` lists them: NAME[:NUMBER][=CHANCE]"
        )
    chance = float(found["chance"]) if found["chance"] else None
    if chance is not None and not 0 <= chance <= 1:
        raise MisuseError(f"the chance of a fault is from 0 to 1, not {chance:g} ({text!r})")
    return PlannedFault(
        fault=FAULTS[name],
        argument=float(found["argument"]) if found["argument"] else None,
        probability=chance,
    )


def _inject(planned: PlannedFault, incident: FaultTarget, chance: random.Random) -> ResponseTimeline | None:
    return planned.fault.inject(replace(incident, random_source=chance, argument=planned.argument))


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
        + (", asking to wait (1 s, or `:SECONDS`)" if wait else ", no word on when to retry"),
        inject=fail_with_status(status, words, wait=wait),
    )
    for status, words in _STATUS_MESSAGES.items()
    for wait in (False, True)
)
_ALL_FAULTS = (
    *_STATUS_FAULTS,
    SimulatedFault(
        name="error-500-final",
        description="HTTP 500 and the word that trying again is of no use",
        inject=fail_with_status(500, _STATUS_MESSAGES[500], final=True),
    ),
    SimulatedFault(
        name="error-429-date",
        description="HTTP 429, asking to wait until a date (in 1 s, or `:SECONDS`)",
        inject=fail_until_date(429, _STATUS_MESSAGES[429]),
    ),
    SimulatedFault(
        name="quota",
        description="nothing is left to spend; trying again is of no use",
        inject=actions.exceed_quota,
    ),
    SimulatedFault(
        name="overloaded-in-stream",
        description="HTTP 200, half of the stream, and then an error in it",
        inject=actions.report_overload_in_stream,
    ),
    SimulatedFault(
        name="overflow-in-stream",
        description="HTTP 200, and then in the stream that the prompt was too long",
        inject=actions.report_overflow_in_stream,
    ),
    SimulatedFault(
        name="reset",
        description="the connection is reset after `:BYTES` of the answer, or anywhere",
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
        description="the connection ends well, the JSON in it does not",
        inject=actions.truncate_json,
    ),
    SimulatedFault(
        name="missing-end",
        description="the stream ends well, without the event that ends a reply",
        inject=actions.drop_end_event,
    ),
    SimulatedFault(
        name="out-of-room",
        description="the last call's arguments break off for want of room",
        inject=actions.cut_off_arguments,
    ),
    SimulatedFault(
        name="malformed-call",
        description="a call's arguments are no JSON, or the provider says that they were not",
        inject=actions.garble_arguments,
    ),
    SimulatedFault(name="empty-call", description="a call without a name", inject=actions.blank_call_name),
    SimulatedFault(
        name="duplicate-call",
        description="the last call comes twice, id and all",
        inject=actions.duplicate_last_call,
    ),
    SimulatedFault(
        name="wrong-finish",
        description="calls under the word for a plain end, or a plain end under the word for calls",
        inject=actions.swap_stop_reason,
    ),
    SimulatedFault(
        name="empty-reply", description="a good reply with nothing in it", inject=actions.send_empty_reply
    ),
    SimulatedFault(name="refusal", description="the model will not", inject=actions.refuse_answer),
    SimulatedFault(
        name="paused",
        description="the provider breaks off and wants to be called again (where it does that)",
        inject=actions.pause_reply,
    ),
    SimulatedFault(
        name="continuation",
        description="the reply goes on behind a token (where there are such)",
        inject=actions.continue_with_token,
    ),
    SimulatedFault(
        name="comments-only",
        description="a stream of nothing but comments",
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
        description="an event that nobody has heard of",
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
