"""Verifies the records of a log as they are read from rows: unaltered, complete, in order.

Shared by the stores with a database. The hash of the previous record is not stored with a record: it is the hash of
the row before. A record that does not match it was altered.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from shlex import quote

from bridle.values.calls import ContentRedacted
from bridle.values.errors import Corrupt, MisuseError
from bridle.values.events import Event, UnknownEvent
from bridle.values.record import GENESIS, Record, decode_event, unseal_record

RecordRow = tuple[int, float, str | None, str, bytes]
"""Number, time, unique key, hash and data of a record."""


def verify_rows(
    rows: Iterable[RecordRow],
    after: int,
    length: int,
    head: str,
    forked_at: int,
    find_redaction: Callable[[str], Event | None] = lambda key: None,
) -> Iterator[Record]:
    """Yield the records above `after` up to `length`, each verified to be unaltered and to follow the one before.

    The rows start one record early, unless `after` is 0: the first record returned must follow its hash. `head` is the
    hash of the last record; empty if the log goes on after it. A log that lacks its end is torn, unless records that
    it shares as a fork are missing too.
    """
    prev, expected = GENESIS, max(after, 1)
    for seq, at, once, hash_, data in rows:
        if seq != expected:
            raise Corrupt(f"record {expected} is missing", last_good=expected - 1)
        if seq > after:
            yield decode_record(seq, at, once, hash_, data, prev, find_redaction)
        prev, expected = hash_, seq + 1
    check_end(expected, prev, length, head, forked_at)


def check_end(expected: int, prev: str, length: int, head: str, forked_at: int) -> None:
    """Raise `Corrupt` unless the records that were read, up to the one before `expected`, are all of them."""
    if expected <= length and not head:
        raise Corrupt(f"record {expected} is missing", last_good=expected - 1)
    if expected <= length:
        missing = f"record {length} is" if expected == length else f"records {expected} to {length} are"
        raise Corrupt(
            f"the log is torn: {missing} missing at its end",
            last_good=expected - 1,
            torn=expected > forked_at,
        )
    # guard: chain-continues
    if head and (expected != length + 1 or prev != head):
        raise Corrupt(f"record {length} is not the last record", last_good=max(length - 1, 0))


def find_page_end(after: int, limit: int | None, length: int, head: str) -> tuple[int, str]:
    """The number of the last record of a page, and the hash of the last record if the page has it, else ""."""
    until = length if limit is None else min(length, after + max(limit, 0))
    return until, head if until == length else ""


def decode_record(
    seq: int,
    at: float,
    once: str | None,
    hash_: str,
    data: bytes,
    prev: str,
    find_redaction: Callable[[str], Event | None],
) -> Record:
    """Decode a row; raises `Corrupt` unless it is what was appended after the record with the hash `prev`.

    Content that was removed is accepted if `find_redaction` finds the event of the log that recorded it.
    """
    try:
        record = unseal_record(seq, at, data, prev, hash_, find_redaction)
    except Corrupt as error:
        raise Corrupt(str(error), last_good=seq - 1) from error
    # A newer version may assign unique keys by rules unknown here.
    # guard: unique-key-matches
    if record.event.unique_key != once and not isinstance(record.event, UnknownEvent):
        raise Corrupt(f"record {seq} has a wrong unique key", last_good=seq - 1)
    return record


def list_redactions(records: Iterable[Record]) -> dict[str, Event]:
    """The redactions that a log records, by unique key."""
    events = (record.event for record in records)
    return {event.unique_key or "": event for event in events if isinstance(event, ContentRedacted)}


def check_timestamp(record: Record) -> None:
    # An integer, NaN or -0.0 would be read back as something else, and the hash would no longer match.
    at = record.at
    if type(at) is not float or not math.isfinite(at) or math.copysign(1.0, at) < 0:
        raise MisuseError(
            f"record {record.seq} has the time {at!r}: seconds since 1970 as a float are needed"
        )


def locate_corruption(store: str, session: str, error: Corrupt) -> Corrupt:
    """Add the place and the remedy to the description of the damage."""
    remedy = "restore it from a backup"
    if error.torn:
        remedy += ", or continue the session: it resumes without the lost records and reports that"
    elif error.last_good is not None:
        remedy += f", or continue from record {error.last_good} with: bridle session fork {quote(session)} --last-good"
    return Corrupt(
        f"store {store}, session {session!r}: {error}; {remedy}", last_good=error.last_good, torn=error.torn
    )


def refers_to_blob(hash_: str, mentions: Iterable[bytes]) -> bool:
    """True if one of these events, all of which mention the hash, refers to the blob, or cannot be read here."""
    events = (decode_event(data) for data in mentions)
    return any(
        event is None or isinstance(event, UnknownEvent) or hash_ in event.required_blobs for event in events
    )


def hash_content(data: bytes) -> str:
    return sha256(data).hexdigest()
