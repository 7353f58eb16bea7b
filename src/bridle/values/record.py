"""Stored events: position, time, and a hash chain over the log.

A record's hash covers its position, time, event and the previous record's hash, so that an edited, removed or
moved record is detected. The chain alone cannot show that its tail was cut; for that, store a head hash
elsewhere.

`data` is the event's JSON exactly as hashed; stores keep these bytes and never re-encode the event. Intact
bytes that cannot be decoded were written by a newer version: they become an `UnknownEvent`, of which only the
tag is known.

Spans: intervals of a run, with attributes, in a tree (a trace). core/tracing derives them from records, with ids that
depend on nothing else. Attribute names follow the OpenTelemetry conventions for generative AI; names that these lack
begin with `bridle.`.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

import msgspec

from .base import Value
from .calls import ContentRedacted, redaction_key
from .errors import Corrupt, MisuseError
from .events import Event, UnknownEvent
from .text import repair_surrogates

GENESIS = "0" * 64
MODERN_TIME, DISTANT_TIME = 1e6, 1e12
"""Between these times, JSON and `repr` write a float with the same digits and without an exponent."""

_encode_event = msgspec.json.Encoder(decimal_format="string").encode
_decode_event = msgspec.json.Decoder(Event).decode


class _TaggedEvent(msgspec.Struct):
    type: str = ""


class Record(Value, kw_only=True):
    seq: int
    at: float
    event: Event
    data: bytes
    prev: str
    hash: str
    is_redacted: bool = False
    """Content was removed and a later `ContentRedacted` of the log says so; the hash covers the original content."""


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


def unseal_record(
    seq: int,
    at: float,
    data: bytes,
    prev: str,
    hash_: str,
    find_redaction: Callable[[str], Event | None] = lambda key: None,
) -> Record:
    """Record read back from a store. Raises `Corrupt` if its bytes are not those that were sealed.

    `find_redaction` returns the event of the same log that has a unique key; it is called for changed records only.
    """
    # guard: record-hash
    is_redacted = _hash_record(seq, at, data, prev) != hash_
    if is_redacted:
        evidence = find_redaction(redaction_key(seq, data))
        # guard: redaction-evidence
        if not isinstance(evidence, ContentRedacted) or evidence.record_hash != hash_:
            raise Corrupt(f"record {seq} was changed: its hash does not match its content")
    try:
        event = _decode_event(data)
    except msgspec.ValidationError:
        event = UnknownEvent(kind=_event_tag(data))
    except msgspec.DecodeError as error:
        raise Corrupt(f"record {seq} cannot be read: {error}") from error
    return Record(seq=seq, at=at, event=event, data=data, prev=prev, hash=hash_, is_redacted=is_redacted)


def decode_event(data: bytes) -> Event | None:
    """The event of a record's data; None if this version cannot read it."""
    try:
        event: Event = _decode_event(data)
    except msgspec.DecodeError:
        return None
    return event


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
    # JSON writes the times of our age like `repr`, at a tenth of the cost.
    time = _encode_event(at) if MODERN_TIME <= at < DISTANT_TIME else repr(at).encode()
    return sha256(b"%b %d %b %b" % (prev.encode(), seq, time, data)).hexdigest()


SpanKind = Literal["internal", "client"]
AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, AttributeValue]

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
NO_TRACE, NO_SPAN = bytes(16), bytes(8)
SAMPLED_FLAG = 1


class SpanEvent(Value, kw_only=True, gc=False):
    """A moment inside a span."""

    name: str
    at: float
    attributes: Attributes


class Span(Value, kw_only=True, gc=False):
    """One finished interval of a trace. Spans cannot form cycles, so the garbage collector skips them."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    """`NO_SPAN` for the root of a trace."""
    name: str
    kind: SpanKind
    start: float
    end: float
    """Seconds since 1970."""
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    error: str = ""
    """Kind of the failure; empty if nothing failed."""
    error_text: str = ""
    """Message of the failure; empty unless content is exported."""
    sampled: bool = True
    """The caller's decision to record the trace."""
    has_caller: bool = False
    """True if the trace was begun by the caller of the run."""
    ends_run: bool = False
    """True for the last span of a run, unless the run is resumed."""


class TraceContext(Value, kw_only=True, gc=False):
    """Position in a trace: the span that a new span belongs to, and the decision to record the trace."""

    trace_id: bytes
    span_id: bytes = NO_SPAN
    sampled: bool = True

    def format_traceparent(self) -> str:
        """The W3C header `traceparent`."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{'01' if self.sampled else '00'}"


def parse_traceparent(header: str) -> TraceContext | None:
    """Read a W3C `traceparent`; None if it is invalid."""
    found = TRACEPARENT.fullmatch(header.strip())
    if found is None or found[1] == "ff" or (found[1] == "00" and len(header.strip()) != 55):
        return None
    trace_id, span_id = bytes.fromhex(found[2]), bytes.fromhex(found[3])
    if trace_id == NO_TRACE or span_id == NO_SPAN:
        return None
    return TraceContext(trace_id=trace_id, span_id=span_id, sampled=bool(int(found[4], 16) & SAMPLED_FLAG))


def check_traceparent(header: str) -> str:
    """Return the header; raises `MisuseError` if it is not a W3C `traceparent`."""
    if header and (not isinstance(header, str) or parse_traceparent(header) is None):
        raise MisuseError(
            f"traceparent must be a W3C header such as 00-{32 * '1'}-{16 * '2'}-01, not {header!r}"
        )
    return header
