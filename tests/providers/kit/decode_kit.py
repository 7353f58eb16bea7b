"""Replies of one wire family, for the checks that every decoder must pass (`test_kit_decode.py`).

A family lists its data in `DECODE` of `<family>_replies.py`.  Bodies are bytes as the provider sends them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bridle.values.errors import Failure
from bridle.values.message import Reply, Stop
from bridle.values.request import Request
from bridle.values.usage import Usage
from tests.providers.kit.wire_kit import Wire

SLICE_BYTES = 4_096
NOT_COUNTED = Usage(incomplete=True)


@dataclass(frozen=True)
class Sample:
    """A stream with what it says: the same reply as a whole, and what is shown on the way."""

    body: bytes
    reply: Reply
    deltas: Sequence
    whole: bytes = b""
    """The same reply in one piece; empty if the family has no other form of it."""
    tail: int = 0
    """Bytes at the end of the stream that may be missing from a complete reply."""


@dataclass(frozen=True, kw_only=True)
class DecodeCases:
    wire: Wire
    replies: Sequence[Reply] = ()
    """Replies that only this family makes, for the laws of codecs."""
    requests: Sequence[Request] = ()
    forget: Callable[[Request], Request] | None = None
    samples: Sequence[Sample]
    say: Callable[[str], tuple[bytes, bytes]]
    """Returns a reply with this text: whole, and streamed."""
    torn: bytes
    """A stream of "X😀" whose last character comes in two halves."""
    partial: bytes
    """The beginning of a stream whose text so far is "half a"."""
    partial_usage: Usage = NOT_COUNTED
    arguments: Sequence[tuple[Sequence[bytes], str]]
    """Replies whose last call has these arguments."""
    stops: Sequence[tuple[Sequence[bytes], Stop, str]]
    """Replies that end for this reason, with this detail."""
    counts: Sequence[tuple[Sequence[bytes], Usage]]
    """Replies that cost this much."""
    same: Mapping[str, tuple[Sequence[bytes], tuple | None]] = field(default_factory=dict)
    """Replies that have the same parts: these, if they are given."""
    broken: bytes
    """A stream that an error ends."""
    failure: Failure
    no_replies: Sequence[tuple[bytes, str]]
    """Bodies that are no replies, and the kind of failure they are."""
    after_end: tuple[bytes, Sequence[bytes]] = (b"", ())
    """A stream of "x", and bytes after its end that change nothing."""
    deltas: Mapping[str, tuple[Callable[[int], list[bytes]], str]]
    """By kind of delta: the slices of a stream of so many, and the text that each adds."""
    rich: Sequence[Sequence[bytes]]
    """Bodies in pieces to be damaged, with much in them."""
    join: Callable[[Sequence[bytes]], bytes] = b"".join
    """Makes a body of damaged pieces."""


def slice_body(body: bytes, size: int = SLICE_BYTES) -> list[bytes]:
    """Cut a body into pieces of `size` bytes, as a connection delivers it."""
    return [body[at : at + size] for at in range(0, len(body), size)]


WORDS = (b"null", b"[]", b"{}", b"1", b'"x"', b"-1e999", b"true", b"[[", b"\xff", b"\\ud800", b"\r", b"\n", b",", b'"',
         b"\n\n", b"{", b"\\ud83d", b"[" * 3_000)  # fmt: skip


def damage_bytes(piece, random):
    """Lose, double, replace and add bytes."""
    data = bytearray(piece)
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 60)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 120)]
            case _:
                data[at : at + random.randint(0, 12)] = random.choice(WORDS)
    return bytes(data)
