"""The things that go wrong, one function each: an answer that was fine, and how it really arrives.

Everything is done to the answer's values or to its pieces, never by a family's name: what an
error looks like in the middle of a stream follows from how the stream is framed, and where
its end is follows from asking the codec.  An incident that a wire has no way to express, or
that needs a call where there is none, is None: it does not happen there.
"""

import random
import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..ports.codec import Codec, HttpReply
from ..ports.transport import Cut, Pause, Timeline
from ..providers._eventstream import framed
from ..values.errors import Failure, FailureKind, ProviderError
from ..values.message import Reply, Stop
from ..values.parts import Opaque, Part, Reasoning, Text, ToolCall
from ..values.request import Request
from ..values.value import Value
from .endings import halved
from .rules import rules_of

LONG_SECONDS = 3_600.0
"""Longer than anybody's patience."""
DRIP_BYTES, DRIP_SECONDS = 16, 0.05
WAIT_SECONDS = 1.0
PAUSED = Path(__file__).with_name("paused.toml")
COMMENT = b": still here\n\n"
CONTINUATION = Opaque(kind="continuation", native='{"continuationToken":"c2ltdWxhdGVk"}')
Beats = tuple[bytes | Pause | Cut, ...]


class Incident(Value):
    """An answer that is about to be sent."""

    codec: Codec
    request: Request
    reply: Reply
    spoken: HttpReply
    chance: random.Random
    now: float = 0.0
    """The provider's clock."""
    argument: float | None = None
    """The number given with the fault, such as seconds or bytes."""

    @property
    def streamed(self) -> bool:
        return self.request.stream

    @property
    def sse(self) -> bool:
        return any("event-stream" in value and "amazon" not in value for _, value in self.spoken.headers)

    def of(self, *beats: bytes | Pause | Cut, delay_seconds: float = 0.0) -> Timeline:
        headers = self.spoken.headers
        return Timeline(status=200, headers=headers, beats=beats, delay_seconds=delay_seconds)

    def saying(self, reply: Reply) -> Timeline:
        spoken = self.codec.speak(reply, stream=self.streamed)
        return Timeline(status=spoken.status, headers=spoken.headers, beats=spoken.frames)

    def heard(self, reply: Reply) -> Reply | None:
        """What the codec makes of a reply that it spoke itself."""
        return decoded(self.codec, self.request, self.codec.speak(reply, stream=False))


Act = Callable[[Incident], Timeline | None]


def failing(status: int, words: str, *, wait: bool = False, final: bool = False) -> Act:
    """`final` tells the client not to try again, whatever the status says."""

    def act(incident: Incident) -> Timeline:
        seconds = _seconds(incident, WAIT_SECONDS) if wait else None
        failure = Failure(kind=_kind(status), message=words, status=status, retry_after_seconds=seconds)
        return _refused(incident, replace(failure, should_retry=False) if final else failure)

    return act


def failing_until(status: int, words: str) -> Act:
    """The wait is told as a date, beside the date it is now."""

    def act(incident: Incident) -> Timeline:
        told = _refused(incident, Failure(kind=_kind(status), message=words, status=status))
        until = incident.now + _seconds(incident, WAIT_SECONDS)
        dates = (("date", _date(incident.now)), ("retry-after", _date(until)))
        return replace(told, headers=(*told.headers, *dates))

    return act


def _kind(status: int) -> FailureKind:
    kinds: dict[int, FailureKind] = {429: "rate_limited", 500: "server"}
    return kinds.get(status, "overloaded")


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


def quota(incident: Incident) -> Timeline:
    words = "You exceeded your current quota, please check your plan and billing details."
    return _refused(incident, Failure(kind="quota", message=words))


def overloaded_in_stream(incident: Incident) -> Timeline | None:
    if not incident.streamed:
        return None
    frames = incident.spoken.frames
    failure = Failure(kind="overloaded", message="Overloaded")
    return incident.of(*frames[: max(1, len(frames) // 2)], _in_band(incident, failure))


def overflow_in_stream(incident: Incident) -> Timeline | None:
    """The stream has begun when somebody notices that the prompt is too long."""
    if not incident.streamed:
        return None
    too_long = rules_of(incident.codec.family)[-1]
    failure = Failure(kind=too_long.kind, message=too_long.says, code=too_long.type)
    return incident.of(incident.spoken.frames[0], _in_band(incident, failure))


def reset(incident: Incident) -> Timeline:
    body = b"".join(incident.spoken.frames)
    at = incident.chance.randrange(len(body)) if incident.argument is None else int(incident.argument)
    return incident.of(*([body[:at]] if at else []), Cut(reset=True))


def stall_at_connect(incident: Incident) -> Timeline:
    return incident.of(*incident.spoken.frames, delay_seconds=_seconds(incident, LONG_SECONDS))


def stall_at_first_byte(incident: Incident) -> Timeline:
    return incident.of(Pause(seconds=_seconds(incident, LONG_SECONDS)), *incident.spoken.frames)


def stall_midway(incident: Incident) -> Timeline | None:
    frames = incident.spoken.frames
    middle = len(frames) // 2
    pause = Pause(seconds=_seconds(incident, LONG_SECONDS))
    return incident.of(*frames[:middle], pause, *frames[middle:]) if middle else None


def truncated_json(incident: Incident) -> Timeline | None:
    """The connection ends well, and the JSON in it does not."""
    if incident.streamed and not incident.sse:
        return None
    if not incident.streamed:
        body = b"".join(incident.spoken.frames)
        return incident.of(body[: len(body) // 2])
    frames = incident.spoken.frames
    whole = frames[: _end(incident)]
    stripped = frames[len(whole)].rstrip(b"\r\n")
    return incident.of(*whole, stripped[: len(stripped) * 2 // 3] + b"\n\n")


def out_of_room(incident: Incident) -> Timeline | None:
    if not incident.reply.calls:
        return None
    return incident.saying(
        replace(incident.reply, parts=halved(incident.reply.parts), stop=Stop.LENGTH, stop_detail="")
    )


def malformed_call(incident: Incident) -> Timeline | None:
    """Arguments that are no JSON; on wires where the provider itself notices, it says so instead."""
    reply = incident.reply
    if not reply.calls:
        return None
    noticed = replace(reply, parts=(), stop=Stop.MALFORMED, stop_detail="")
    heard = incident.heard(noticed)
    if heard is not None and heard.stop is Stop.MALFORMED:
        return incident.saying(noticed)
    return incident.saying(replace(reply, parts=_changed(reply.parts, arguments='{"city": Oslo, ')))


def empty_call(incident: Incident) -> Timeline | None:
    reply = incident.reply
    return incident.saying(replace(reply, parts=_changed(reply.parts, name=""))) if reply.calls else None


def duplicate_call(incident: Incident) -> Timeline | None:
    reply = incident.reply
    return incident.saying(replace(reply, parts=(*reply.parts, reply.calls[-1]))) if reply.calls else None


def wrong_finish(incident: Incident) -> Timeline:
    """Calls under the word for an end without any, and the other way round."""
    reply = incident.reply
    return incident.saying(replace(reply, stop=Stop.DONE if reply.calls else Stop.TOOLS, stop_detail=""))


def missing_end(incident: Incident) -> Timeline | None:
    return incident.of(*incident.spoken.frames[: _end(incident)]) if incident.streamed else None


def comments(incident: Incident) -> Timeline | None:
    if not incident.sse:
        return None
    return incident.of(*(piece for frame in incident.spoken.frames for piece in (COMMENT, frame)))


def comments_only(incident: Incident) -> Timeline | None:
    return incident.of(COMMENT, COMMENT, COMMENT) if incident.sse else None


def crlf(incident: Incident) -> Timeline | None:
    if not incident.sse:
        return None
    return incident.of(*(re.sub(rb"\r?\n", b"\r\n", frame) for frame in incident.spoken.frames))


def unknown_event(incident: Incident) -> Timeline | None:
    first, *rest = incident.spoken.frames
    if not incident.sse or not first.startswith(b"event:"):
        return None
    return incident.of(first, b'event: from_the_future\ndata: {"type":"from_the_future"}\n\n', *rest)


def slow_drip(incident: Incident) -> Timeline:
    return incident.of(*_drops(b"".join(incident.spoken.frames), _seconds(incident, DRIP_SECONDS)))


def refusal(incident: Incident) -> Timeline:
    words = Text(text="I can't help with that.")
    return incident.saying(replace(incident.reply, parts=(words,), stop=Stop.REFUSED, stop_detail=""))


def paused(incident: Incident) -> Timeline | None:
    """The provider broke off to be called again; only where a wire has a word for it."""
    kept: tuple[Part, ...] = tuple(
        part for part in incident.reply.parts if isinstance(part, Text | Reasoning)
    )
    words = () if any(isinstance(part, Text) for part in kept) else (Text(text="Still at it."),)
    # A message is bound to the reasoning that led to it, so both are given.
    parts = (*kept, *words, *_under_way(incident.codec.family))
    stopped = replace(incident.reply, parts=parts, stop=Stop.PAUSED, stop_detail="")
    heard = incident.heard(stopped)
    return incident.saying(stopped) if heard is not None and heard.stop is Stop.PAUSED else None


def continuation(incident: Incident) -> Timeline | None:
    """As far as one request goes; the rest is fetched with a token, where a wire has one."""
    words: tuple[Part, ...] = tuple(part for part in incident.reply.parts if isinstance(part, Text))
    stopped = replace(
        incident.reply,
        parts=(*(words or (Text(text="To be continued. "),)), CONTINUATION),
        stop=Stop.PAUSED,
        stop_detail="",
    )
    try:
        heard = incident.heard(stopped)
    except msgspec.ValidationError:
        return None
    kept = heard is not None and any(
        isinstance(part, Opaque) and part.kind == CONTINUATION.kind for part in heard.parts
    )
    return incident.saying(stopped) if kept and heard is not None and heard.stop is Stop.PAUSED else None


def empty_reply(incident: Incident) -> Timeline:
    return incident.saying(replace(incident.reply, parts=(), stop=Stop.DONE, stop_detail=""))


def decoded(codec: Codec, request: Request, spoken: HttpReply, frames: int | None = None) -> Reply | None:
    """What comes of the first so many pieces of an answer; None when nothing does."""
    decoder = codec.decoder(request, spoken.status, {name.lower(): value for name, value in spoken.headers})
    try:
        for frame in spoken.frames[:frames]:
            decoder.feed(frame)
        return decoder.close()
    except ProviderError:
        return None


@cache
def _under_way(family: str) -> tuple[Opaque, ...]:
    table = tomllib.loads(PAUSED.read_text())
    return tuple(Opaque(kind=row["kind"], native=row["native"]) for row in table.get(family, ()))


def _end(incident: Incident) -> int:
    """How many pieces of a stream there are before the one that makes it complete."""
    for count in range(len(incident.spoken.frames) - 1, 0, -1):
        if decoded(incident.codec, incident.request, incident.spoken, count) is None:
            return count
    return 0


def _refused(incident: Incident, failure: Failure) -> Timeline:
    spoken = incident.codec.speak_failure(failure)
    return Timeline(status=spoken.status, headers=spoken.headers, beats=spoken.frames)


def _in_band(incident: Incident, failure: Failure) -> bytes:
    """An error as it is said in the middle of a stream of this framing."""
    spoken = incident.codec.speak_failure(failure)
    body = b"".join(spoken.frames)
    if not incident.sse:
        named = dict(spoken.headers).get("x-amzn-errortype", "serviceUnavailableException")
        name = named.partition(":")[0]
        kind = ((":exception-type", name[:1].lower() + name[1:]), (":message-type", "exception"))
        return framed(kind, body)
    if not incident.spoken.frames[0].startswith(b"event:"):
        return b"data: %b\n\n" % body
    error = msgspec.json.decode(body, type=dict[str, object])
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode({"type": "error", **error})


def _changed(parts: tuple[Part, ...], **fields: str) -> tuple[Part, ...]:
    """The parts with their last call changed."""
    last = max(at for at, part in enumerate(parts) if isinstance(part, ToolCall))
    return (*parts[:last], replace(parts[last], **fields), *parts[last + 1 :])


def _drops(body: bytes, seconds: float) -> Iterator[bytes | Pause]:
    for at in range(0, len(body), DRIP_BYTES):
        if at:
            yield Pause(seconds=seconds)
        yield body[at : at + DRIP_BYTES]


def _seconds(incident: Incident, otherwise: float) -> float:
    return otherwise if incident.argument is None else incident.argument
