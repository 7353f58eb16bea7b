"""Signatures that a provider issues and recognizes when they come back.

A signature is opaque to clients, and only the simulator can make or change one: it is a note about what it is
bound to, masked with a keyed digest of itself. The key is fixed and the note is complete, so any process can
open a signature of any other, and nothing is stored.

The contents of the note, and the error for an invalid one, differ by family. Each family that signs sets two
attributes in `family.py`:

    sign_reply        signs everything in a reply that this provider signs
    signature_rules   what it refuses of that later, checked after all other rules
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
SHORT_DIGEST_BYTES = 8


class SignedNote(Value, kw_only=True):
    """The content of a signature."""

    kind: str
    family: str
    model: str
    bound: Mapping[str, str | int]
    """Values that the signature is bound to: digests of texts and prefixes, ids, positions."""

    def has_claims(self, **found: str | int) -> bool:
        return all(self.bound.get(name) == value for name, value in found.items())


def sign_note(kind: str, family: str, model: str, **bound: str | int) -> str:
    note = msgspec.json.encode(SignedNote(kind=kind, family=family, model=model, bound=bound), order="sorted")
    digest = _keyed_digest(note)
    return b64encode(digest + _mask_note(note, digest)).decode()


def open_signature(blob: object) -> SignedNote | None:
    """Return the note in a signature; None for anything that the simulator did not sign."""
    if not isinstance(blob, str):
        return None
    try:
        data = b64decode(blob, validate=True)
    except ValueError:
        return None
    if b64encode(data).decode() != blob:
        return None  # the same bytes in another base64 spelling: it was rewritten
    digest, hidden = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    note = _mask_note(hidden, digest)
    if not hmac.compare_digest(_keyed_digest(note), digest):
        return None
    return msgspec.json.decode(note, type=SignedNote)


def digest_value(value: object, after: str = "") -> str:
    """Return a short digest of a value, independent of key order; `after` chains it to another digest."""
    data = after.encode() + msgspec.json.encode(value, order="sorted")
    return blake2b(data, digest_size=SHORT_DIGEST_BYTES).hexdigest()


def _keyed_digest(note: bytes) -> bytes:
    return hmac.digest(SIGNING_KEY, note, "sha256")[:DIGEST_BYTES]


def _mask_note(data: bytes, digest: bytes) -> bytes:
    """XOR the note with a stream derived from its digest; applying it twice restores the note."""
    stream = shake_256(SIGNING_KEY + digest).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def with_reasoning(reply: Reply) -> Reply:
    """Add reasoning about the calls at the start of a reply, unless it has some or calls nothing."""
    if not reply.calls or isinstance(reply.parts[0], Reasoning):
        return reply
    names = " and ".join(dict.fromkeys(call.name for call in reply.calls))
    return replace(reply, parts=(Reasoning(text=f"I need {names} for this."), *reply.parts))


def hide_reasoning_text(reply: Reply) -> Reply:
    """Empty the reasoning texts of a reply; the client sends back the signatures."""
    parts = (replace(part, text="") if isinstance(part, Reasoning) else part for part in reply.parts)
    return replace(reply, parts=tuple(parts))
