"""A simulated provider with a memory: everything about the simulator that has state.

`answer` is the application behind `sim:` models and behind the HTTP server.  A request is
heard by its family, checked against the family's rules, answered by the brain, measured,
and delivered as a timeline.  What is remembered between two requests: what was refused,
and which troubles a conversation has already met.
"""

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b

import msgspec

from ..core.retry import TRANSIENT
from ..ports.clock import Clock
from ..ports.codec import HttpReply
from ..ports.transport import Cut, Outgoing, Pause, Timeline
from ..run.clock import SystemClock
from ..values.errors import Failure
from ..values.request import Request
from ..values.value import Value
from .app import Heard, hear, objection
from .brain import perform
from .tokens import measured
from .turn import Brain, CutAfter, Trouble, Turn, turn_of

REFUSALS_MAX = 1_000
"""More than anybody reads; a server that runs for weeks must not grow."""
ATTEMPTS_MAX = 10_000
"""Conversations that were given up in the middle of their troubles; the oldest are forgotten."""


class Refusal(Value):
    """A request that was turned away."""

    family: str
    rule: str
    """The id of the rule it broke; empty when it could not even be read."""
    message: str
    path: str


class Simulator:
    def __init__(
        self,
        brain: Brain = perform,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        strict: bool = True,
        profile: str = "",
    ) -> None:
        """`strict` refuses what the provider would refuse.  `clock` dates whatever has a lifetime."""
        self.brain, self.seed, self.strict, self.profile = brain, seed, strict, profile
        self.clock: Clock = clock or SystemClock()
        self.refusals: list[Refusal] = []
        self._attempts: dict[bytes, int] = {}

    async def answer(self, outgoing: Outgoing) -> Timeline:
        heard = hear(outgoing)
        violation = objection(heard) if self.strict else None
        if violation is not None:
            return self._refuse(heard, violation.failure, violation.rule.id)
        if isinstance(heard.request, Failure):
            return self._refuse(heard, heard.request)
        return self._reply(heard, heard.request)

    def _refuse(self, heard: Heard, failure: Failure, rule: str = "") -> Timeline:
        refusal = Refusal(
            family=heard.codec.family, rule=rule, message=failure.message, path=heard.asked.path
        )
        self.refusals.append(refusal)
        del self.refusals[:-REFUSALS_MAX]
        return _whole(heard.codec.speak_failure(failure))

    def _reply(self, heard: Heard, request: Request) -> Timeline:
        decided = turn_of(self.brain(request))
        if isinstance(decided, Failure):
            return _whole(heard.codec.speak_failure(decided))
        reply = measured(request, decided.reply)
        trouble = self._trouble(request, decided.troubles)
        if isinstance(trouble, Failure):
            return _whole(heard.codec.speak_failure(trouble))
        return delivered(heard.codec.speak(reply, stream=request.stream), decided, trouble)

    def _trouble(self, request: Request, troubles: tuple[Trouble, ...]) -> Trouble | None:
        """What this attempt meets.  What no second attempt can mend is met every time."""
        if not troubles:
            return None
        point = _point(request)
        attempt = self._attempts.pop(point, 0)
        if attempt >= len(troubles):
            return None
        trouble = troubles[attempt]
        mendable = not isinstance(trouble, Failure) or TRANSIENT[trouble.kind]
        self._attempts[point] = attempt + 1 if mendable else attempt
        if len(self._attempts) > ATTEMPTS_MAX:
            del self._attempts[next(iter(self._attempts))]
        return trouble


def delivered(reply: HttpReply, turn: Turn, trouble: CutAfter | None = None) -> Timeline:
    paced = tuple(_paced(reply.frames, turn))
    beats = paced if trouble is None else tuple(_cut(paced, trouble.bytes))
    return Timeline(
        status=reply.status, headers=reply.headers, beats=beats, delay_seconds=turn.silence_seconds
    )


def _whole(reply: HttpReply) -> Timeline:
    return Timeline(status=reply.status, headers=reply.headers, beats=reply.frames)


def _paced(frames: tuple[bytes, ...], turn: Turn) -> Iterator[bytes | Pause | Cut]:
    middle = len(frames) // 2
    for number, frame in enumerate(frames):
        if number and turn.pace_seconds:
            yield Pause(seconds=turn.pace_seconds)
        if number == middle and turn.stall_seconds:
            yield Pause(seconds=turn.stall_seconds)
        yield frame


def _cut(beats: tuple[bytes | Pause | Cut, ...], left: int) -> Iterator[bytes | Pause | Cut]:
    for beat in beats:
        if isinstance(beat, bytes):
            if len(beat) >= left:
                if left:
                    yield beat[:left]
                break
            left -= len(beat)
        yield beat
    yield Cut()


def _point(request: Request) -> bytes:
    """What tells this point of a conversation from every other."""
    return blake2b(msgspec.json.encode((request.model.id, request.messages)), digest_size=16).digest()


@cache
def default() -> Simulator:
    """The one behind `sim:` in this process, made when somebody first asks it."""
    return Simulator()


async def answer(outgoing: Outgoing) -> Timeline:
    return await default().answer(outgoing)
