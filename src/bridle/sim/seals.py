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
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b, shake_256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

import msgspec

from ..values.message import Reply
from ..values.value import Value
from .rules import Asked, Rule

KEY = b"the simulator's own key, known to everybody"
PREFIX = "seals_"
DIGEST_BYTES = 16
TRACE_BYTES = 8


class Seal(Value):
    """What a blob says once it is opened."""

    kind: str
    family: str
    model: str
    bound: Mapping[str, str | int]
    """What it is bound to, by name: traces of words and prefixes, ids, places."""

    def holds(self, **found: str | int) -> bool:
        return all(self.bound.get(name) == value for name, value in found.items())


def seal(kind: str, asked_family: str, model: str, **bound: str | int) -> str:
    note = msgspec.json.encode(Seal(kind=kind, family=asked_family, model=model, bound=bound), order="sorted")
    digest = _digest(note)
    return b64encode(digest + _hidden(note, digest)).decode()


def opened(blob: object) -> Seal | None:
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
    note = _hidden(hidden, digest)
    if not hmac.compare_digest(_digest(note), digest):
        return None
    return msgspec.json.decode(note, type=Seal)


def trace(value: object, after: str = "") -> str:
    """A short digest of a value, whatever the order of its members; `after` chains it to another one."""
    data = after.encode() + msgspec.json.encode(value, order="sorted")
    return blake2b(data, digest_size=TRACE_BYTES).hexdigest()


def sealed(family: str, asked: Asked, reply: Reply) -> Reply:
    found = _family(family)
    return found[0](asked, reply) if found else reply


def sealing_families() -> tuple[str, ...]:
    """The families that seal anything."""
    names = (module.name for module in iter_modules([str(Path(__file__).parent)]))
    return tuple(sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)))


def seal_rules_of(family: str) -> tuple[Rule, ...]:
    found = _family(family)
    return found[1] if found else ()


@cache
def _family(family: str) -> tuple[Callable[[Asked, Reply], Reply], tuple[Rule, ...]] | None:
    name = f"{__package__}.{PREFIX}{family}"
    if find_spec(name) is None:
        return None
    module = import_module(name)
    return module.sealed, module.RULES


def _digest(note: bytes) -> bytes:
    return hmac.digest(KEY, note, "sha256")[:DIGEST_BYTES]


def _hidden(data: bytes, digest: bytes) -> bytes:
    """The note under a stream that its digest begins; twice gives the note again."""
    stream = shake_256(KEY + digest).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))
