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

from ..ports.transport import Timeline
from ..values.errors import MisuseError
from ..values.value import Value
from . import incidents
from .incidents import Act, Incident, failing, failing_until

SPELLING = re.compile(r"(?P<name>[a-z0-9-]+)(?::(?P<argument>\d+(?:\.\d+)?))?(?:=(?P<chance>[\d.]+))?")


class Fault(Value):
    name: str
    meaning: str
    act: Act
    harmless: bool = False
    """Whether the answer still means the same: clients must not even notice."""


class Planned(Value):
    fault: Fault
    argument: float | None = None
    chance: float | None = None
    """How likely it is each time; None for once."""


class Plan:
    """Which answer meets which fault."""

    def __init__(self, planned: Iterable[Planned | str], seed: int) -> None:
        every = [each if isinstance(each, Planned) else _one(each) for each in planned]
        self._once = [each for each in every if each.chance is None]
        self._often = [each for each in every if each.chance is not None]
        self._seed = seed

    def __bool__(self) -> bool:
        return bool(self._once or self._often)

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(each.fault.name for each in self._once)

    def strike(self, incident: Incident, point: str) -> tuple[str, Timeline] | None:
        """What goes wrong with this answer; `point` tells it from every other."""
        chance = random.Random(f"{self._seed} {point}")
        for planned in self._often:
            if chance.random() < (planned.chance or 0.0) and (happened := _act(planned, incident, chance)):
                return planned.fault.name, happened
        for at, planned in enumerate(self._once):
            if happened := _act(planned, incident, chance):
                del self._once[at]
                return planned.fault.name, happened
        return None


def parsed(names: Iterable[str]) -> tuple[Planned, ...]:
    return tuple(_one(name) for name in names)


def _one(text: str) -> Planned:
    found = SPELLING.fullmatch(text)
    name = found["name"] if found else ""
    if found is None or name not in FAULTS:
        raise MisuseError(
            f"there is no fault {text!r}; `bridle sim faults` lists them: NAME[:NUMBER][=CHANCE]"
        )
    chance = float(found["chance"]) if found["chance"] else None
    if chance is not None and not 0 <= chance <= 1:
        raise MisuseError(f"the chance of a fault is from 0 to 1, not {chance:g} ({text!r})")
    return Planned(
        fault=FAULTS[name],
        argument=float(found["argument"]) if found["argument"] else None,
        chance=chance,
    )


def _act(planned: Planned, incident: Incident, chance: random.Random) -> Timeline | None:
    return planned.fault.act(replace(incident, chance=chance, argument=planned.argument))


_WORDS = {
    429: "Number of requests has exceeded your rate limit.",
    500: "Internal server error",
    503: "The service is temporarily unavailable.",
    529: "Overloaded",
}
_STATUSES = tuple(
    Fault(
        name=f"error-{status}{'-wait' if wait else ''}",
        meaning=f"HTTP {status}"
        + (", asking to wait (1 s, or `:SECONDS`)" if wait else ", no word on when to retry"),
        act=failing(status, words, wait=wait),
    )
    for status, words in _WORDS.items()
    for wait in (False, True)
)
_ALL = (
    *_STATUSES,
    Fault(
        name="error-500-final",
        meaning="HTTP 500 and the word that trying again is of no use",
        act=failing(500, _WORDS[500], final=True),
    ),
    Fault(
        name="error-429-date",
        meaning="HTTP 429, asking to wait until a date (in 1 s, or `:SECONDS`)",
        act=failing_until(429, _WORDS[429]),
    ),
    Fault(name="quota", meaning="nothing is left to spend; trying again is of no use", act=incidents.quota),
    Fault(
        name="overloaded-in-stream",
        meaning="HTTP 200, half of the stream, and then an error in it",
        act=incidents.overloaded_in_stream,
    ),
    Fault(
        name="overflow-in-stream",
        meaning="HTTP 200, and then in the stream that the prompt was too long",
        act=incidents.overflow_in_stream,
    ),
    Fault(
        name="reset",
        meaning="the connection is reset after `:BYTES` of the answer, or anywhere",
        act=incidents.reset,
    ),
    Fault(
        name="stall-at-connect",
        meaning="silence before the status, for an hour or `:SECONDS`",
        act=incidents.stall_at_connect,
    ),
    Fault(
        name="stall-at-first-byte",
        meaning="a status, then silence for an hour or `:SECONDS`",
        act=incidents.stall_at_first_byte,
    ),
    Fault(
        name="stall-midway",
        meaning="half of the stream, then silence for an hour or `:SECONDS`",
        act=incidents.stall_midway,
    ),
    Fault(
        name="truncated-json",
        meaning="the connection ends well, the JSON in it does not",
        act=incidents.truncated_json,
    ),
    Fault(
        name="missing-end",
        meaning="the stream ends well, without the event that ends a reply",
        act=incidents.missing_end,
    ),
    Fault(
        name="out-of-room",
        meaning="the last call's arguments break off for want of room",
        act=incidents.out_of_room,
    ),
    Fault(
        name="malformed-call",
        meaning="a call's arguments are no JSON, or the provider says that they were not",
        act=incidents.malformed_call,
    ),
    Fault(name="empty-call", meaning="a call without a name", act=incidents.empty_call),
    Fault(
        name="duplicate-call", meaning="the last call comes twice, id and all", act=incidents.duplicate_call
    ),
    Fault(
        name="wrong-finish",
        meaning="calls under the word for a plain end, or a plain end under the word for calls",
        act=incidents.wrong_finish,
    ),
    Fault(name="empty-reply", meaning="a good reply with nothing in it", act=incidents.empty_reply),
    Fault(name="refusal", meaning="the model will not", act=incidents.refusal),
    Fault(
        name="paused",
        meaning="the provider breaks off and wants to be called again (where it does that)",
        act=incidents.paused,
    ),
    Fault(
        name="continuation",
        meaning="the reply goes on behind a token (where there are such)",
        act=incidents.continuation,
    ),
    Fault(
        name="comments-only",
        meaning="a stream of nothing but comments",
        act=incidents.comments_only,
    ),
    Fault(name="comments", meaning="comments between the events", act=incidents.comments, harmless=True),
    Fault(name="crlf", meaning="lines that end in CRLF", act=incidents.crlf, harmless=True),
    Fault(
        name="unknown-event",
        meaning="an event that nobody has heard of",
        act=incidents.unknown_event,
        harmless=True,
    ),
    Fault(
        name="slow-drip",
        meaning="16 bytes at a time, every 50 ms or `:SECONDS`",
        act=incidents.slow_drip,
        harmless=True,
    ),
)
FAULTS = {fault.name: fault for fault in _ALL}
