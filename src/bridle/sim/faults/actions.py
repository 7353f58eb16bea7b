"""The fault actions: each turns a good answer into the faulty one that arrives.

Actions change the values or the frames of an answer and never depend on a family's name: the form of an error
in the middle of a stream follows from the framing, and the codec shows where the stream ends. An action
returns None if the wire cannot express the fault, or if the fault needs a call and there is none.
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
from bridle.sim.delivery import as_timeline
from bridle.sim.families import find_family, list_rules
from bridle.sim.responder.reply_ending import halve_last_part
from bridle.values.base import Value
from bridle.values.errors import Failure, FailureKind, ProviderError
from bridle.values.message import Opaque, Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.request import Request

LONG_SECONDS = 3_600.0
"""Longer than any client timeout."""
DRIP_BYTES, DRIP_SECONDS = 16, 0.05
WAIT_SECONDS = 1.0
PAUSED_FILE = Path(__file__).with_name("paused.toml")
OVERFLOW_FIGURES = {"tokens": 200_001, "total": 200_001, "prompt": 195_905, "room": 4_096, "most": 200_000}
"""Token counts in the message about a prompt that is too long."""
COMMENT = b": still here\n\n"
CONTINUATION = Opaque(kind="continuation", native='{"continuationToken":"c2ltdWxhdGVk"}')


class FaultTarget(Value, kw_only=True, gc=True):
    """An answer that is about to be sent."""

    codec: Codec
    request: Request
    reply: Reply
    encoded: HttpReply
    random_source: random.Random
    now: float = 0.0
    """Time on the provider's clock."""
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
        self, *steps: bytes | SilentPause | ConnectionCut, delay_seconds: float = 0.0
    ) -> ResponseTimeline:
        headers = self.encoded.headers
        return ResponseTimeline(status=200, headers=headers, steps=steps, delay_seconds=delay_seconds)

    def encode_reply(self, reply: Reply) -> ResponseTimeline:
        return as_timeline(self.server.encode_reply(reply, stream=self.is_streamed))

    def decode_again(self, reply: Reply) -> Reply | None:
        """Encode a reply and decode it again, as a client would read it."""
        return decode_frames(self.codec, self.request, self.server.encode_reply(reply, stream=False))


FaultAction = Callable[[FaultTarget], ResponseTimeline | None]


def fail_with_status(status: int, message: str, *, wait: bool = False, final: bool = False) -> FaultAction:
    """Fail with this status. `final` tells the client not to retry, whatever the status says."""

    def act(target: FaultTarget) -> ResponseTimeline:
        seconds = _seconds_or(target, WAIT_SECONDS) if wait else None
        failure = Failure(
            kind=_failure_kind(status), message=message, status=status, retry_after_seconds=seconds
        )
        return _encode_failure(target, replace(failure, should_retry=False) if final else failure)

    return act


def fail_until_date(status: int, message: str) -> FaultAction:
    """Fail with this status and a Retry-After header that is a date, along with a Date header."""

    def act(target: FaultTarget) -> ResponseTimeline:
        refusal = _encode_failure(target, Failure(kind=_failure_kind(status), message=message, status=status))
        until = target.now + _seconds_or(target, WAIT_SECONDS)
        dates = (("date", _http_date(target.now)), ("retry-after", _http_date(until)))
        return replace(refusal, headers=(*refusal.headers, *dates))

    return act


def _failure_kind(status: int) -> FailureKind:
    kinds: dict[int, FailureKind] = {429: "rate_limited", 500: "server"}
    return kinds.get(status, "overloaded")


def _http_date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


def exceed_quota(target: FaultTarget) -> ResponseTimeline:
    message = "You exceeded your current quota, please check your plan and billing details."
    return _encode_failure(target, Failure(kind="quota", message=message))


def report_overload_in_stream(target: FaultTarget) -> ResponseTimeline | None:
    if not target.is_streamed:
        return None
    frames = target.encoded.frames
    failure = Failure(kind="overloaded", message="Overloaded")
    return target.make_timeline(
        *frames[: max(1, len(frames) // 2)], _encode_failure_in_stream(target, failure)
    )


def report_overflow_in_stream(target: FaultTarget) -> ResponseTimeline | None:
    """Start the stream, then report in it that the prompt is too long."""
    if not target.is_streamed:
        return None
    too_long = list_rules(target.codec.family)[-1]
    message = too_long.wording.format_map(OVERFLOW_FIGURES)
    failure = Failure(kind=too_long.kind, message=message, code=too_long.type)
    return target.make_timeline(target.encoded.frames[0], _encode_failure_in_stream(target, failure))


def reset_connection(target: FaultTarget) -> ResponseTimeline:
    body = b"".join(target.encoded.frames)
    at = target.random_source.randrange(len(body)) if target.argument is None else int(target.argument)
    return target.make_timeline(*([body[:at]] if at else []), ConnectionCut(reset=True))


def stall_at_connect(target: FaultTarget) -> ResponseTimeline:
    return target.make_timeline(*target.encoded.frames, delay_seconds=_seconds_or(target, LONG_SECONDS))


def stall_at_first_byte(target: FaultTarget) -> ResponseTimeline:
    return target.make_timeline(
        SilentPause(seconds=_seconds_or(target, LONG_SECONDS)), *target.encoded.frames
    )


def stall_midway(target: FaultTarget) -> ResponseTimeline | None:
    frames = target.encoded.frames
    middle = len(frames) // 2
    pause = SilentPause(seconds=_seconds_or(target, LONG_SECONDS))
    return target.make_timeline(*frames[:middle], pause, *frames[middle:]) if middle else None


def truncate_json(target: FaultTarget) -> ResponseTimeline | None:
    """Cut the JSON short, but close the connection properly."""
    if target.is_streamed and not target.is_sse:
        return None
    if not target.is_streamed:
        body = b"".join(target.encoded.frames)
        return target.make_timeline(body[: len(body) // 2])
    frames = target.encoded.frames
    whole = frames[: _count_frames_before_end(target)]
    stripped = frames[len(whole)].rstrip(b"\r\n")
    return target.make_timeline(*whole, stripped[: len(stripped) * 2 // 3] + b"\n\n")


def cut_off_arguments(target: FaultTarget) -> ResponseTimeline | None:
    if not target.reply.calls:
        return None
    return target.encode_reply(
        replace(target.reply, parts=halve_last_part(target.reply.parts), stop=Stop.LENGTH, stop_detail="")
    )


def garble_arguments(target: FaultTarget) -> ResponseTimeline | None:
    """Send arguments that are not JSON, or the provider's own error on wires where it checks them."""
    reply = target.reply
    if not reply.calls:
        return None
    rejected = replace(reply, parts=(), stop=Stop.MALFORMED, stop_detail="")
    decoded = target.decode_again(rejected)
    if decoded is not None and decoded.stop is Stop.MALFORMED:
        return target.encode_reply(rejected)
    return target.encode_reply(
        replace(reply, parts=_change_last_call(reply.parts, arguments='{"city": Oslo, '))
    )


def blank_call_name(target: FaultTarget) -> ResponseTimeline | None:
    reply = target.reply
    return (
        target.encode_reply(replace(reply, parts=_change_last_call(reply.parts, name="")))
        if reply.calls
        else None
    )


def duplicate_last_call(target: FaultTarget) -> ResponseTimeline | None:
    reply = target.reply
    return target.encode_reply(replace(reply, parts=(*reply.parts, reply.calls[-1]))) if reply.calls else None


def swap_stop_reason(target: FaultTarget) -> ResponseTimeline:
    """Swap the stop reason for calls with the one for a plain end."""
    reply = target.reply
    return target.encode_reply(replace(reply, stop=Stop.DONE if reply.calls else Stop.TOOLS, stop_detail=""))


def drop_end_event(target: FaultTarget) -> ResponseTimeline | None:
    return (
        target.make_timeline(*target.encoded.frames[: _count_frames_before_end(target)])
        if target.is_streamed
        else None
    )


def insert_comments(target: FaultTarget) -> ResponseTimeline | None:
    if not target.is_sse:
        return None
    return target.make_timeline(*(piece for frame in target.encoded.frames for piece in (COMMENT, frame)))


def send_only_comments(target: FaultTarget) -> ResponseTimeline | None:
    return target.make_timeline(COMMENT, COMMENT, COMMENT) if target.is_sse else None


def use_crlf(target: FaultTarget) -> ResponseTimeline | None:
    if not target.is_sse:
        return None
    return target.make_timeline(*(re.sub(rb"\r?\n", b"\r\n", frame) for frame in target.encoded.frames))


def insert_unknown_event(target: FaultTarget) -> ResponseTimeline | None:
    first, *rest = target.encoded.frames
    if not target.is_sse or not first.startswith(b"event:"):
        return None
    return target.make_timeline(first, b'event: from_the_future\ndata: {"type":"from_the_future"}\n\n', *rest)


def drip_slowly(target: FaultTarget) -> ResponseTimeline:
    return target.make_timeline(
        *_split_into_drips(b"".join(target.encoded.frames), _seconds_or(target, DRIP_SECONDS))
    )


def refuse_answer(target: FaultTarget) -> ResponseTimeline:
    text = Text(text="I can't help with that.")
    return target.encode_reply(replace(target.reply, parts=(text,), stop=Stop.REFUSED, stop_detail=""))


def pause_reply(target: FaultTarget) -> ResponseTimeline | None:
    """Pause the reply so that the client must call again, on wires that can express it."""
    kept: tuple[Part, ...] = tuple(part for part in target.reply.parts if isinstance(part, Text | Reasoning))
    filler = () if any(isinstance(part, Text) for part in kept) else (Text(text="Still at it."),)
    # A message is bound to the reasoning before it, so both are kept.
    parts = (*kept, *filler, *_hosted_calls_in_progress(target.codec.family))
    paused = replace(target.reply, parts=parts, stop=Stop.PAUSED, stop_detail="")
    decoded = target.decode_again(paused)
    return target.encode_reply(paused) if decoded is not None and decoded.stop is Stop.PAUSED else None


def continue_with_token(target: FaultTarget) -> ResponseTimeline | None:
    """Send the first part of the reply and a continuation token, on wires that have one."""
    texts: tuple[Part, ...] = tuple(part for part in target.reply.parts if isinstance(part, Text))
    paused = replace(
        target.reply,
        parts=(*(texts or (Text(text="To be continued. "),)), CONTINUATION),
        stop=Stop.PAUSED,
        stop_detail="",
    )
    try:
        decoded = target.decode_again(paused)
    except msgspec.ValidationError:
        return None
    has_token = decoded is not None and any(
        isinstance(part, Opaque) and part.kind == CONTINUATION.kind for part in decoded.parts
    )
    return (
        target.encode_reply(paused)
        if has_token and decoded is not None and decoded.stop is Stop.PAUSED
        else None
    )


def send_empty_reply(target: FaultTarget) -> ResponseTimeline:
    return target.encode_reply(replace(target.reply, parts=(), stop=Stop.DONE, stop_detail=""))


def decode_frames(
    codec: Codec, request: Request, encoded: HttpReply, frames: int | None = None
) -> Reply | None:
    """Decode the first `frames` frames of an answer; None if they are not a complete reply."""
    decoder = codec.new_decoder(
        request, encoded.status, {name.lower(): value for name, value in encoded.headers}
    )
    try:
        for frame in encoded.frames[:frames]:
            decoder.feed(frame)
        return decoder.close()
    except ProviderError:
        return None


@cache
def _hosted_calls_in_progress(family: str) -> tuple[Opaque, ...]:
    table = tomllib.loads(PAUSED_FILE.read_text())
    return tuple(Opaque(kind=row["kind"], native=row["native"]) for row in table.get(family, ()))


def _count_frames_before_end(target: FaultTarget) -> int:
    """Count the frames of a stream before the one that completes it."""
    for count in range(len(target.encoded.frames) - 1, 0, -1):
        if decode_frames(target.codec, target.request, target.encoded, count) is None:
            return count
    return 0


def _encode_failure(target: FaultTarget, failure: Failure) -> ResponseTimeline:
    return as_timeline(target.server.encode_failure(failure))


def _encode_failure_in_stream(target: FaultTarget, failure: Failure) -> bytes:
    """Encode an error the way it appears in the middle of a stream with this framing."""
    encoded = target.server.encode_failure(failure)
    body = b"".join(encoded.frames)
    if not target.is_sse:
        error_type = dict(encoded.headers).get("x-amzn-errortype", "serviceUnavailableException")
        name = error_type.partition(":")[0]
        kind = ((":exception-type", name[:1].lower() + name[1:]), (":message-type", "exception"))
        return encode_frame(kind, body)
    if not target.encoded.frames[0].startswith(b"event:"):
        return b"data: %b\n\n" % body
    error = msgspec.json.decode(body, type=dict[str, object])
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode({"type": "error", **error})


def _change_last_call(parts: tuple[Part, ...], **fields: str) -> tuple[Part, ...]:
    """Return the parts with these fields of the last call changed."""
    last = max(at for at, part in enumerate(parts) if isinstance(part, ToolCall))
    return (*parts[:last], replace(parts[last], **fields), *parts[last + 1 :])


def _split_into_drips(body: bytes, seconds: float) -> Iterator[bytes | SilentPause]:
    for at in range(0, len(body), DRIP_BYTES):
        if at:
            yield SilentPause(seconds=seconds)
        yield body[at : at + DRIP_BYTES]


def _seconds_or(target: FaultTarget, default: float) -> float:
    return default if target.argument is None else target.argument
