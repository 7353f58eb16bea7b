"""Encodes spans as OTLP messages, byte by byte.

Every step has three spans, and their classes of the package opentelemetry-proto take three times as long. They still
encode what is rare: failures and events. The tests parse each message with these classes.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from bridle.values.record import NO_SPAN, AttributeValue, Span

from .encode import KINDS, add_attributes
from .names import PROVIDER, SCOPE, package_version, rename_provider, to_nanoseconds

SPAN_EVENTS_MAX = 128
# not from outside: names and requests that we make
REPEATED_ATTRIBUTES_MAX, REPEATED_CHARACTERS_MAX = 2_048, 48
"""Attributes that are kept to be used again, and the maximum length of a text among them."""
pack_times = Struct("<cQcQ").pack
pack_float = Struct("<cd").pack
UINT64 = (1 << 64) - 1
SMALL_VARINTS = [bytes([number]) for number in range(128)]
SMALL_VARINTS_CONTINUED = [bytes([number | 128]) for number in range(128)]
RESOURCE_SPANS, SCOPE_SPANS, SPAN = b"\n", b"\x12", b"\x12"
"""Tags of the groups around a span."""
IDS, IDS_OF_ROOT = b'\n\x10%b\x12\x08%b"\x08%b', b"\n\x10%b\x12\x08%b"
NAME, KIND, START, END, ATTRIBUTE, FLAGS = b"*", b"0", b"9", b"A", b"J", b"\x85\x01\x01\x00\x00\x00"
"""Fields of a span, as their tags in the order of their numbers; the flags say `sampled`."""
KEY, VALUE = b"\n", b"\x12"
TEXT, TRUE, FALSE, INTEGER, FLOAT, ARRAY, ITEM = b"\n", b"\x10\x01", b"\x10\x00", b"\x18", b"!", b"*", b"\n"


def encode_spans(spans: Iterable[Span], resource: Resource) -> bytes:
    """The body of a request to the receiver."""
    maker = InstrumentationScope(name=SCOPE, version=package_version())
    scope: bytes = trace.ScopeSpans(scope=maker).SerializeToString()
    scope += b"".join([_prefix(SPAN, encode_span(span)) for span in spans])
    group = trace.ResourceSpans(resource=resource).SerializeToString()
    return _prefix(RESOURCE_SPANS, group + _prefix(SCOPE_SPANS, scope))


def encode_span(span: Span) -> bytes:
    is_root = span.parent_id == NO_SPAN
    ids = (span.trace_id, span.span_id) if is_root else (span.trace_id, span.span_id, span.parent_id)
    return b"".join((
        (IDS_OF_ROOT if is_root else IDS) % ids,
        _encode_name(span.name),
        _encode_kind(span.kind),
        pack_times(START, to_nanoseconds(span.start), END, to_nanoseconds(span.end)),
        _encode_attributes(span.attributes),
        _encode_failure_and_events(span) if span.error or span.events else b"",
        FLAGS,
    ))  # fmt: skip


@lru_cache(REPEATED_ATTRIBUTES_MAX)
def _encode_name(name: str) -> bytes:
    return _prefix(NAME, name.encode())


@lru_cache
def _encode_kind(kind: str) -> bytes:
    return KIND + _encode_varint(KINDS[kind])


def _encode_failure_and_events(span: Span) -> bytes:
    rest = trace.Span(dropped_events_count=max(0, len(span.events) - SPAN_EVENTS_MAX))
    if span.error:
        rest.status.code = trace.Status.STATUS_CODE_ERROR
        rest.status.message = span.error_text or span.error
    for event in span.events[:SPAN_EVENTS_MAX]:
        added = rest.events.add()
        added.name, added.time_unix_nano = event.name, to_nanoseconds(event.at)
        add_attributes(added.attributes, event.attributes)
    encoded: bytes = rest.SerializeToString()
    return encoded


def _encode_attributes(attributes: Mapping[str, AttributeValue]) -> bytes:
    return b"".join([
        _encode_repeated_attribute(name, value)
        if type(value) is not float and (type(value) is not str or len(value) <= REPEATED_CHARACTERS_MAX)
        else _encode_attribute(name, value)
        for name, value in attributes.items()
    ])  # fmt: skip


def _encode_attribute(name: str, value: AttributeValue) -> bytes:
    return _prefix(ATTRIBUTE, _encode_key(name) + _prefix(VALUE, _encode_value(name, value)))


_encode_repeated_attribute = lru_cache(REPEATED_ATTRIBUTES_MAX, typed=True)(_encode_attribute)
"""Encodes an attribute that other spans have too, such as the name of a model, once."""


@lru_cache(REPEATED_ATTRIBUTES_MAX)
def _encode_key(name: str) -> bytes:
    return _prefix(KEY, name.encode())


def _encode_value(name: str, value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return _prefix(TEXT, (rename_provider(value) if name == PROVIDER else value).encode())
    if isinstance(value, float):
        return pack_float(FLOAT, value)
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return INTEGER + _encode_varint(value & UINT64)
    return _prefix(ARRAY, b"".join([_prefix(ITEM, _prefix(TEXT, item.encode())) for item in value]))


def _prefix(tag: bytes, message: bytes) -> bytes:
    size = len(message)
    return tag + (SMALL_VARINTS[size] if size < 128 else _encode_varint(size)) + message


def _encode_varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all bytes but the last have the highest bit set."""
    found = b""
    while number >= 128:
        found += SMALL_VARINTS_CONTINUED[number & 127]
        number >>= 7
    return found + SMALL_VARINTS[number]
