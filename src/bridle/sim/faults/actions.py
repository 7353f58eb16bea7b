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

from bridle.ports.codec import Codec, HttpReply, ServerCodec
from bridle.ports.transport import ConnectionCut, ResponseTimeline, SilentPause
from bridle.providers.wire.eventstream import encode_frame
from bridle.sim.families import find_family, list_rules
from bridle.sim.responder.reply_ending import halve_last_part
from bridle.values.base import Value
from bridle.values.errors import Failure, FailureKind, ProviderError
from bridle.values.message import Opaque, Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.request import Request

LONG_SECONDS = 3_600.0
"""Longer than anybody's patience."""
DRIP_BYTES, DRIP_SECONDS = 16, 0.05
WAIT_SECONDS = 1.0
PAUSED_FILE = Path(__file__).with_name("paused.toml")
COMMENT = b": still here\n\n"
CONTINUATION = Opaque(kind="continuation", native='{"continuationToken":"c2ltdWxhdGVk"}')
TimelineSteps = tuple[bytes | SilentPause | ConnectionCut, ...]


class FaultTarget(Value):
    """An answer that is about to be sent."""

    codec: Codec
    request: Request
    reply: Reply
    encoded: HttpReply
    random_source: random.Random
    now: float = 0.0
    """The provider's clock."""
    argument: float | None = None
    """The number given with the fault, such as seconds or bytes."""

    @property
    def server(self) -> ServerCodec:
        return find_family(self.codec.family)

    @property
    def is_streamed(self) -> bool:
        return self.request.stream

    @property
    def is_sse(self) -> bool:
        return any("event-stream" in value and "amazon" not in value for _, value in self.encoded.headers)

    def make_timeline(
        self, *beats: bytes | SilentPause | ConnectionCut, delay_seconds: float = 0.0
    ) -> ResponseTimeline:
        headers = self.encoded.headers
        return ResponseTimeline(status=200, headers=headers, steps=beats, delay_seconds=delay_seconds)

    def encode_reply(self, reply: Reply) -> ResponseTimeline:
        spoken = self.server.encode_reply(reply, stream=self.is_streamed)
        return ResponseTimeline(status=spoken.status, headers=spoken.headers, steps=spoken.frames)

    def decode_again(self, reply: Reply) -> Reply | None:
        """The reply as the codec decodes it from the wire."""
        return decode_frames(self.codec, self.request, self.server.encode_reply(reply, stream=False))


FaultAction = Callable[[FaultTarget], ResponseTimeline | None]


def fail_with_status(status: int, words: str, *, wait: bool = False, final: bool = False) -> FaultAction:
    """`final` tells the client not to try again, whatever the status says."""

    def act(incident: FaultTarget) -> ResponseTimeline:
        seconds = _seconds_or(incident, WAIT_SECONDS) if wait else None
        failure = Failure(
            kind=_failure_kind(status), message=words, status=status, retry_after_seconds=seconds
        )
        return _encode_failure(incident, replace(failure, should_retry=False) if final else failure)

    return act


def fail_until_date(status: int, words: str) -> FaultAction:
    """The wait is told as a date, beside the date it is now."""

    def act(incident: FaultTarget) -> ResponseTimeline:
        told = _encode_failure(incident, Failure(kind=_failure_kind(status), message=words, status=status))
        until = incident.now + _seconds_or(incident, WAIT_SECONDS)
        dates = (("date", _http_date(incident.now)), ("retry-after", _http_date(until)))
        return replace(told, headers=(*told.headers, *dates))

    return act


def _failure_kind(status: int) -> FailureKind:
    kinds: dict[int, FailureKind] = {429: "rate_limited", 500: "server"}
    return kinds.get(status, "overloaded")


def _http_date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


def exceed_quota(incident: FaultTarget) -> ResponseTimeline:
    words = "You exceeded your current quota, please check your plan and billing details."
    return _encode_failure(incident, Failure(kind="quota", message=words))


def report_overload_in_stream(incident: FaultTarget) -> ResponseTimeline | None:
    if not incident.is_streamed:
        return None
    frames = incident.encoded.frames
    failure = Failure(kind="overloaded", message="Overloaded")
    return incident.make_timeline(
        *frames[: max(1, len(frames) // 2)], _encode_failure_in_stream(incident, failure)
    )


def report_overflow_in_stream(incident: FaultTarget) -> ResponseTimeline | None:
    """The stream has begun when somebody notices that the prompt is too long."""
    if not incident.is_streamed:
        return None
    too_long = list_rules(incident.codec.family)[-1]
    failure = Failure(kind=too_long.kind, message=too_long.says, code=too_long.type)
    return incident.make_timeline(incident.encoded.frames[0], _encode_failure_in_stream(incident, failure))


def reset_connection(incident: FaultTarget) -> ResponseTimeline:
    body = b"".join(incident.encoded.frames)
    at = incident.random_source.randrange(len(body)) if incident.argument is None else int(incident.argument)
    return incident.make_timeline(*([body[:at]] if at else []), ConnectionCut(reset=True))


def stall_at_connect(incident: FaultTarget) -> ResponseTimeline:
    return incident.make_timeline(*incident.encoded.frames, delay_seconds=_seconds_or(incident, LONG_SECONDS))


def stall_at_first_byte(incident: FaultTarget) -> ResponseTimeline:
    return incident.make_timeline(
        SilentPause(seconds=_seconds_or(incident, LONG_SECONDS)), *incident.encoded.frames
    )


def stall_midway(incident: FaultTarget) -> ResponseTimeline | None:
    frames = incident.encoded.frames
    middle = len(frames) // 2
    pause = SilentPause(seconds=_seconds_or(incident, LONG_SECONDS))
    return incident.make_timeline(*frames[:middle], pause, *frames[middle:]) if middle else None


def truncate_json(incident: FaultTarget) -> ResponseTimeline | None:
    """The connection ends well, and the JSON in it does not."""
    if incident.is_streamed and not incident.is_sse:
        return None
    if not incident.is_streamed:
        body = b"".join(incident.encoded.frames)
        return incident.make_timeline(body[: len(body) // 2])
    frames = incident.encoded.frames
    whole = frames[: _count_frames_before_end(incident)]
    stripped = frames[len(whole)].rstrip(b"\r\n")
    return incident.make_timeline(*whole, stripped[: len(stripped) * 2 // 3] + b"\n\n")


def cut_off_arguments(incident: FaultTarget) -> ResponseTimeline | None:
    if not incident.reply.calls:
        return None
    return incident.encode_reply(
        replace(incident.reply, parts=halve_last_part(incident.reply.parts), stop=Stop.LENGTH, stop_detail="")
    )


def garble_arguments(incident: FaultTarget) -> ResponseTimeline | None:
    """Arguments that are no JSON; on wires where the provider itself notices, it says so instead."""
    reply = incident.reply
    if not reply.calls:
        return None
    noticed = replace(reply, parts=(), stop=Stop.MALFORMED, stop_detail="")
    heard = incident.decode_again(noticed)
    if heard is not None and heard.stop is Stop.MALFORMED:
        return incident.encode_reply(noticed)
    return incident.encode_reply(
        replace(reply, parts=_change_last_call(reply.parts, arguments='{"city": Oslo, '))
    )


def blank_call_name(incident: FaultTarget) -> ResponseTimeline | None:
    reply = incident.reply
    return (
        incident.encode_reply(replace(reply, parts=_change_last_call(reply.parts, name="")))
        if reply.calls
        else None
    )


def duplicate_last_call(incident: FaultTarget) -> ResponseTimeline | None:
    reply = incident.reply
    return (
        incident.encode_reply(replace(reply, parts=(*reply.parts, reply.calls[-1]))) if reply.calls else None
    )


def swap_stop_reason(incident: FaultTarget) -> ResponseTimeline:
    """Calls under the word for an end without any, and the other way round."""
    reply = incident.reply
    return incident.encode_reply(
        replace(reply, stop=Stop.DONE if reply.calls else Stop.TOOLS, stop_detail="")
    )


def drop_end_event(incident: FaultTarget) -> ResponseTimeline | None:
    return (
        incident.make_timeline(*incident.encoded.frames[: _count_frames_before_end(incident)])
        if incident.is_streamed
        else None
    )


def insert_comments(incident: FaultTarget) -> ResponseTimeline | None:
    if not incident.is_sse:
        return None
    return incident.make_timeline(*(piece for frame in incident.encoded.frames for piece in (COMMENT, frame)))


def send_only_comments(incident: FaultTarget) -> ResponseTimeline | None:
    return incident.make_timeline(COMMENT, COMMENT, COMMENT) if incident.is_sse else None


def use_crlf(incident: FaultTarget) -> ResponseTimeline | None:
    if not incident.is_sse:
        return None
    return incident.make_timeline(*(re.sub(rb"\r?\n", b"\r\n", frame) for frame in incident.encoded.frames))


def insert_unknown_event(incident: FaultTarget) -> ResponseTimeline | None:
    first, *rest = incident.encoded.frames
    if not incident.is_sse or not first.startswith(b"event:"):
        return None
    return incident.make_timeline(
        first, b'event: from_the_future\ndata: {"type":"from_the_future"}\n\n', *rest
    )


def drip_slowly(incident: FaultTarget) -> ResponseTimeline:
    return incident.make_timeline(
        *_split_into_drips(b"".join(incident.encoded.frames), _seconds_or(incident, DRIP_SECONDS))
    )


def refuse_answer(incident: FaultTarget) -> ResponseTimeline:
    words = Text(text="I can't help with that.")
    return incident.encode_reply(replace(incident.reply, parts=(words,), stop=Stop.REFUSED, stop_detail=""))


def pause_reply(incident: FaultTarget) -> ResponseTimeline | None:
    """The provider broke off to be called again; only where a wire has a word for it."""
    kept: tuple[Part, ...] = tuple(
        part for part in incident.reply.parts if isinstance(part, Text | Reasoning)
    )
    words = () if any(isinstance(part, Text) for part in kept) else (Text(text="Still at it."),)
    # A message is bound to the reasoning that led to it, so both are given.
    parts = (*kept, *words, *_hosted_calls_in_progress(incident.codec.family))
    stopped = replace(incident.reply, parts=parts, stop=Stop.PAUSED, stop_detail="")
    heard = incident.decode_again(stopped)
    return incident.encode_reply(stopped) if heard is not None and heard.stop is Stop.PAUSED else None


def continue_with_token(incident: FaultTarget) -> ResponseTimeline | None:
    """As far as one request goes; the rest is fetched with a token, where a wire has one."""
    words: tuple[Part, ...] = tuple(part for part in incident.reply.parts if isinstance(part, Text))
    stopped = replace(
        incident.reply,
        parts=(*(words or (Text(text="To be continued. "),)), CONTINUATION),
        stop=Stop.PAUSED,
        stop_detail="",
    )
    try:
        heard = incident.decode_again(stopped)
    except msgspec.ValidationError:
        return None
    kept = heard is not None and any(
        isinstance(part, Opaque) and part.kind == CONTINUATION.kind for part in heard.parts
    )
    return (
        incident.encode_reply(stopped) if kept and heard is not None and heard.stop is Stop.PAUSED else None
    )


def send_empty_reply(incident: FaultTarget) -> ResponseTimeline:
    return incident.encode_reply(replace(incident.reply, parts=(), stop=Stop.DONE, stop_detail=""))


def decode_frames(
    codec: Codec, request: Request, spoken: HttpReply, frames: int | None = None
) -> Reply | None:
    """What comes of the first so many pieces of an answer; None when nothing does."""
    decoder = codec.new_decoder(
        request, spoken.status, {name.lower(): value for name, value in spoken.headers}
    )
    try:
        for frame in spoken.frames[:frames]:
            decoder.feed(frame)
        return decoder.close()
    except ProviderError:
        return None


@cache
def _hosted_calls_in_progress(family: str) -> tuple[Opaque, ...]:
    table = tomllib.loads(PAUSED_FILE.read_text())
    return tuple(Opaque(kind=row["kind"], native=row["native"]) for row in table.get(family, ()))


def _count_frames_before_end(incident: FaultTarget) -> int:
    """How many pieces of a stream there are before the one that makes it complete."""
    for count in range(len(incident.encoded.frames) - 1, 0, -1):
        if decode_frames(incident.codec, incident.request, incident.encoded, count) is None:
            return count
    return 0


def _encode_failure(incident: FaultTarget, failure: Failure) -> ResponseTimeline:
    spoken = incident.server.encode_failure(failure)
    return ResponseTimeline(status=spoken.status, headers=spoken.headers, steps=spoken.frames)


def _encode_failure_in_stream(incident: FaultTarget, failure: Failure) -> bytes:
    """An error as it is said in the middle of a stream of this framing."""
    spoken = incident.server.encode_failure(failure)
    body = b"".join(spoken.frames)
    if not incident.is_sse:
        named = dict(spoken.headers).get("x-amzn-errortype", "serviceUnavailableException")
        name = named.partition(":")[0]
        kind = ((":exception-type", name[:1].lower() + name[1:]), (":message-type", "exception"))
        return encode_frame(kind, body)
    if not incident.encoded.frames[0].startswith(b"event:"):
        return b"data: %b\n\n" % body
    error = msgspec.json.decode(body, type=dict[str, object])
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode({"type": "error", **error})


def _change_last_call(parts: tuple[Part, ...], **fields: str) -> tuple[Part, ...]:
    """The parts with their last call changed."""
    last = max(at for at, part in enumerate(parts) if isinstance(part, ToolCall))
    return (*parts[:last], replace(parts[last], **fields), *parts[last + 1 :])


def _split_into_drips(body: bytes, seconds: float) -> Iterator[bytes | SilentPause]:
    for at in range(0, len(body), DRIP_BYTES):
        if at:
            yield SilentPause(seconds=seconds)
        yield body[at : at + DRIP_BYTES]


def _seconds_or(incident: FaultTarget, otherwise: float) -> float:
    return otherwise if incident.argument is None else incident.argument
