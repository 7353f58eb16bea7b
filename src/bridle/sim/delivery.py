"""Delivers encoded replies as timelines of bytes, pauses and connection cuts."""

from collections.abc import Iterator

import msgspec

from bridle.ports.codec import HttpReply
from bridle.ports.transport import ConnectionCut, ResponseTimeline, SilentPause
from bridle.sim.responder.decision import CutAfter, ResponderDecision

OK = 200
TimelineSteps = tuple[bytes | SilentPause | ConnectionCut, ...]


def deliver_reply(
    reply: HttpReply, decision: ResponderDecision, cut: CutAfter | None = None
) -> ResponseTimeline:
    """Make the timeline of a reply with the pauses of its decision, cut off if it is to fail."""
    paced = tuple(_pace_frames(reply.frames, decision))
    steps = paced if cut is None else tuple(_cut_after(paced, cut.bytes))
    return ResponseTimeline(
        status=reply.status, headers=reply.headers, steps=steps, delay_seconds=decision.silence_seconds
    )


def complete_reply(answer: ResponseTimeline) -> HttpReply | None:
    """Return the reply that an answer with an injected fault still delivers whole, or None."""
    if answer.status != OK or any(isinstance(step, ConnectionCut) for step in answer.steps):
        return None
    data = b"".join(step for step in answer.steps if isinstance(step, bytes)).replace(b"\r\n", b"\n")
    if b"\n\n" not in data:
        frames: tuple[bytes, ...] = (data,)
    else:
        events = (event for event in data.split(b"\n\n") if event and not event.startswith(b":"))
        frames = tuple(event + b"\n\n" for event in events)
    last = frames[-1].rpartition(b"data: ")[2] if frames else b""
    try:
        msgspec.json.decode(last)
    except msgspec.DecodeError:
        return None  # truncated, or not text
    return HttpReply(status=answer.status, headers=answer.headers, frames=frames)


def as_timeline(reply: HttpReply) -> ResponseTimeline:
    return ResponseTimeline(status=reply.status, headers=reply.headers, steps=reply.frames)


def _pace_frames(
    frames: tuple[bytes, ...], decision: ResponderDecision
) -> Iterator[bytes | SilentPause | ConnectionCut]:
    middle = len(frames) // 2
    for number, frame in enumerate(frames):
        if number and decision.pace_seconds:
            yield SilentPause(seconds=decision.pace_seconds)
        if number == middle and decision.stall_seconds:
            yield SilentPause(seconds=decision.stall_seconds)
        yield frame


def _cut_after(steps: TimelineSteps, left: int) -> Iterator[bytes | SilentPause | ConnectionCut]:
    for step in steps:
        if isinstance(step, bytes):
            if len(step) >= left:
                if left:
                    yield step[:left]
                break
            left -= len(step)
        yield step
    yield ConnectionCut()
