"""Finds where removed text is still stored: in other records, in other sessions, in stored results.

A person often writes the same secret with other words around it. So parts of the removed text are searched for as
well: its words that look like data (numbers, addresses, keys), and its lines. The search is bounded: it searches for
`PARTS_MAX` parts, in the logs that were written last, up to `SEARCHED_BYTES_MAX`.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from bridle.ports.store import SessionInfo, Store
from bridle.values.base import Value
from bridle.values.calls import ContentRedacted
from bridle.values.errors import Corrupt
from bridle.values.record import Record

WORD_CHARACTERS_MIN, LINE_CHARACTERS_MIN = 6, 24
# not from outside: an argument of the user's program
PARTS_MAX = 200
# not from outside: our own records and queues
SEARCHED_BYTES_MAX = 64 << 20

_WORD = re.compile(r"""[^\s"'`,;:(){}\[\]<>=|\\]+""")
_DATA = re.compile(r"[0-9@]")


class RemainingText(Value, kw_only=True):
    """Records of a session that contain a removed text or a part of it."""

    session: str
    records: tuple[int, ...]


def list_parts(texts: Iterable[str]) -> list[str]:
    """The removed texts and their distinctive parts: words that look like data, then lines, longest first."""
    texts = list(texts)
    words = {word.strip(".!?") for text in texts for word in _WORD.findall(text)}
    lines = {line.strip() for text in texts for line in text.splitlines()}
    parts = (
        *_sort_parts(texts),
        *_sort_parts(word for word in words if _DATA.search(word)),
        *_sort_parts(part for part in words | lines if len(part) >= LINE_CHARACTERS_MIN),
    )
    return [part for part in dict.fromkeys(parts) if len(part) >= WORD_CHARACTERS_MIN]


def _sort_parts(parts: Iterable[str]) -> list[str]:
    return sorted(parts, key=lambda part: (-len(part), part))


async def find_remaining(
    store: Store, infos: Sequence[SessionInfo], session: str, texts: Sequence[str]
) -> tuple[list[RemainingText], bool]:
    """List the places that still have the texts, the given session first; False if the search was cut short."""
    parts = list_parts(texts)
    # As records have them, and as stored results do.
    forms = {form for part in parts[:PARTS_MAX] for form in (msgspec.json.encode(part)[1:-1], part.encode())}
    found: list[RemainingText] = []
    left, is_complete = SEARCHED_BYTES_MAX, len(parts) <= PARTS_MAX
    for info in sorted(infos, key=lambda info: info.id != session) if parts else ():
        try:
            records = await store.read(info.id, 0 if info.id == session else info.forked_at)
        except Corrupt:
            is_complete = False
            continue
        places = []
        for record in records:
            if left <= 0:
                is_complete = False
                break
            blobs = await read_blobs(store, record)
            is_complete &= len(blobs) == len(record.event.required_blobs)
            bodies = [record.data, *blobs]
            left -= sum(map(len, bodies))
            if not isinstance(record.event, ContentRedacted) and any(
                form in body for body in bodies for form in forms
            ):
                places.append(record.seq)
        if places:
            found.append(RemainingText(session=info.id, records=tuple(places)))
        if left <= 0 and not is_complete:
            break
    return found, is_complete


async def read_blobs(store: Store, record: Record) -> list[bytes]:
    """Content that a record refers to; none if a part of it is damaged."""
    try:
        return [await store.get_blob(hash_) or b"" for hash_ in record.event.required_blobs]
    except Corrupt:
        return []
