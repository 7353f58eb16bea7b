"""Stored events: position, time, and a hash chain over the log.

A record's hash covers its position, time, event and the previous record's hash, so that an edited, removed or
moved record is detected. The chain alone cannot show that its tail was cut; for that, store a head hash
elsewhere.

`data` is the event's JSON exactly as hashed; stores keep these bytes and never re-encode the event. Intact
bytes that cannot be decoded were written by a newer version: they become an `UnknownEvent`, of which only the
tag is known.
"""

from hashlib import sha256
from typing import Any

import msgspec

from .base import Value
from .errors import Corrupt
from .events import Event, UnknownEvent
from .text import repair_surrogates

GENESIS = "0" * 64

_encode_event = msgspec.json.Encoder(decimal_format="string").encode
_decode_event = msgspec.json.Decoder(Event).decode


class _TaggedEvent(msgspec.Struct):
    type: str = ""


class Record(Value):
    seq: int
    at: float
    event: Event
    data: bytes
    prev: str
    hash: str


def seal_record(seq: int, at: float, event: Event, prev: str) -> Record:
    """Record for a new event. Unpaired surrogates cannot be encoded: they are repaired first."""
    try:
        data = _encode_event(event)
    except UnicodeEncodeError:
        event = msgspec.convert(_repair_strings(msgspec.to_builtins(event)), type(event))
        data = _encode_event(event)
    return Record(seq=seq, at=at, event=event, data=data, prev=prev, hash=_hash_record(seq, at, data, prev))


def encode_item(item: Value | dict[str, Any]) -> bytes:
    """JSON of an event or another item of a stream, in the form that the log has. Surrogates are repaired."""
    try:
        return _encode_event(item)
    except UnicodeEncodeError:
        return _encode_event(_repair_strings(msgspec.to_builtins(item)))


def unseal_record(seq: int, at: float, data: bytes, prev: str, hash_: str) -> Record:
    """Record read back from a store. Raises `Corrupt` if its bytes are not those that were sealed."""
    if _hash_record(seq, at, data, prev) != hash_:
        raise Corrupt(f"record {seq} was changed: its hash does not match its content")
    try:
        event = _decode_event(data)
    except msgspec.ValidationError:
        event = UnknownEvent(kind=_event_tag(data))
    except msgspec.DecodeError as error:
        raise Corrupt(f"record {seq} cannot be read: {error}") from error
    return Record(seq=seq, at=at, event=event, data=data, prev=prev, hash=hash_)


def _repair_strings(value: object) -> object:
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, dict):
        return {_repair_strings(name): _repair_strings(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_repair_strings(inner) for inner in value]
    return value


def _event_tag(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_TaggedEvent).type
    except msgspec.ValidationError:
        return ""


def _hash_record(seq: int, at: float, data: bytes, prev: str) -> str:
    digest = sha256(f"{prev} {seq} {at!r} ".encode())
    digest.update(data)
    return digest.hexdigest()
