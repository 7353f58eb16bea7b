"""Repeats an answer for requests that want several: `n` and `candidateCount`.

All answers are equal, because the responder gives one answer to a request. Each has its index, their chunks
alternate in a stream, and the usage counts all of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import HttpReply

DATA = b"data: "
Json = dict[str, object]


class ChoiceFields(NamedTuple):
    """Names of the fields in which a family's replies list answers and token counts."""

    answers: str
    usage: str
    output_tokens: str
    """Output token count, which grows with every answer."""
    total_tokens: str


def repeat_answers(reply: HttpReply, count: object, listing: ChoiceFields) -> HttpReply:
    """Return the reply with its answer `count` times; unchanged if one is wanted."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 2 or reply.status != 200:
        return reply
    if len(reply.frames) == 1:
        whole = msgspec.json.decode(reply.frames[0], type=Json)
        return replace(
            reply, frames=(msgspec.json.encode(_repeat_choice(whole, range(count), count, listing)),)
        )
    frames = tuple(each for frame in reply.frames for each in _repeat_frame(frame, count, listing))
    return replace(reply, frames=frames)


def _repeat_frame(frame: bytes, count: int, listing: ChoiceFields) -> Iterator[bytes]:
    data, end = frame.removeprefix(DATA).rstrip(b"\r\n"), frame[len(frame.rstrip(b"\r\n")) :]
    if not data.startswith(b"{"):
        yield frame
        return
    event = msgspec.json.decode(data, type=Json)
    times = count if event.get(listing.answers) else 1
    for index in range(times):
        yield DATA + msgspec.json.encode(_repeat_choice(event, [index], count, listing)) + end


def _repeat_choice(body: Json, indexes: range | list[int], count: int, listing: ChoiceFields) -> Json:
    repeated = dict(body)
    answers = body.get(listing.answers)
    if isinstance(answers, list) and answers and isinstance(answers[0], dict):
        repeated[listing.answers] = [{**answers[0], "index": index} for index in indexes]
    usage = body.get(listing.usage)
    output_tokens = usage.get(listing.output_tokens) if isinstance(usage, dict) else None
    if isinstance(usage, dict) and isinstance(output_tokens, int):
        total = usage.get(listing.total_tokens)
        added_tokens = output_tokens * (count - 1)
        repeated[listing.usage] = {**usage, listing.output_tokens: output_tokens + added_tokens}
        if isinstance(total, int):
            repeated[listing.usage] = {
                **usage,
                listing.output_tokens: output_tokens + added_tokens,
                listing.total_tokens: total + added_tokens,
            }
    return repeated
