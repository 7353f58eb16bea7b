"""Sealed state: what a provider hands out, and knows again when it comes back.

A seal tells nobody anything, and cannot be made or changed by anybody but the simulator: it
is a note of what it is bound to, hidden under a keyed digest of itself.  The key is fixed and
the note is complete, so any process can open what any other sealed, and nothing is kept.

What a note is bound to, and where a broken one is refused, differs by family.  Each has a file
of its own, `seals_FAMILY`, with two members:

    sealed(asked, reply)   the reply with everything sealed that this provider seals
    RULES                  what it refuses of that when it comes back, asked after all other rules

A family without such a file seals nothing.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import blake2b, shake_256

import msgspec
from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.message import Reasoning, Reply

SIGNING_KEY = b"the simulator's own key, known to everybody"
DIGEST_BYTES = 16
TRACE_BYTES = 8


class SignedNote(Value):
    """What a blob says once it is opened."""

    kind: str
    family: str
    model: str
    bound: Mapping[str, str | int]
    """What it is bound to, by name: traces of words and prefixes, ids, places."""

    def has_claims(self, **found: str | int) -> bool:
        return all(self.bound.get(name) == value for name, value in found.items())


def sign_note(kind: str, asked_family: str, model: str, **bound: str | int) -> str:
    note = msgspec.json.encode(
        SignedNote(kind=kind, family=asked_family, model=model, bound=bound), order="sorted"
    )
    digest = _keyed_digest(note)
    return b64encode(digest + _mask_note(note, digest)).decode()


def open_signature(blob: object) -> SignedNote | None:
    """The note under a seal; None for everything that the simulator did not seal."""
    if not isinstance(blob, str):
        return None
    try:
        data = b64decode(blob, validate=True)
    except ValueError:
        return None
    if b64encode(data).decode() != blob:
        return None  # the same bytes in another spelling: somebody rewrote it
    digest, hidden = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    note = _mask_note(hidden, digest)
    if not hmac.compare_digest(_keyed_digest(note), digest):
        return None
    return msgspec.json.decode(note, type=SignedNote)


def digest_value(value: object, after: str = "") -> str:
    """A short digest of a value, whatever the order of its members; `after` chains it to another one."""
    data = after.encode() + msgspec.json.encode(value, order="sorted")
    return blake2b(data, digest_size=TRACE_BYTES).hexdigest()


def _keyed_digest(note: bytes) -> bytes:
    return hmac.digest(SIGNING_KEY, note, "sha256")[:DIGEST_BYTES]


def _mask_note(data: bytes, digest: bytes) -> bytes:
    """The note under a stream that its digest begins; twice gives the note again."""
    stream = shake_256(SIGNING_KEY + digest).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def with_reasoning(reply: Reply) -> Reply:
    """The reply opening with a thought about its calls; unchanged when it opens with one or calls nothing."""
    if not reply.calls or isinstance(reply.parts[0], Reasoning):
        return reply
    names = " and ".join(dict.fromkeys(call.name for call in reply.calls))
    return replace(reply, parts=(Reasoning(text=f"I need {names} for this."), *reply.parts))


def hide_reasoning_text(reply: Reply) -> Reply:
    """The reply with empty thoughts; their signatures are what is left to send back."""
    hidden = (replace(part, text="") if isinstance(part, Reasoning) else part for part in reply.parts)
    return replace(reply, parts=tuple(hidden))
