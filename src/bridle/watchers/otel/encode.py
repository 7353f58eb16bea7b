"""Encodes spans and metrics as OTLP messages, with the classes of the package opentelemetry-proto."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from bridle.values.record import NO_SPAN, AttributeValue, Span

from .metrics import Counter, Histogram, MetricsSnapshot

SCOPE = "bridle"
KINDS = {"internal": trace.Span.SPAN_KIND_INTERNAL, "client": trace.Span.SPAN_KIND_CLIENT}
SPAN_EVENTS_MAX = 128
NANOSECONDS = 1_000_000_000
PROVIDER = "gen_ai.provider.name"
REPEATED_ATTRIBUTES_MAX, REPEATED_CHARACTERS_MAX = 2_048, 48
"""Attributes that are kept to be used again, and the maximum length of a text among them."""


@cache
def package_version() -> str:
    return version("bridle")


@cache
def load_provider_names() -> dict[str, str]:
    text = (Path(__file__).parent / "provider_names.toml").read_text(encoding="utf-8")
    return {name: str(value) for name, value in tomllib.loads(text).items()}


def make_resource(attributes: Mapping[str, str]) -> Resource:
    sdk = {
        "telemetry.sdk.name": SCOPE,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": package_version(),
    }
    resource = Resource()
    add_attributes(resource.attributes, {**sdk, **attributes})
    return resource


def encode_spans(spans: Iterable[Span], resource: Resource) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.CopyFrom(resource)
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = SCOPE, package_version()
    for span in spans:
        add_span(scope.spans, span)
    encoded: bytes = request.SerializeToString()
    return encoded


def add_span(spans: "Sequence[trace.Span]", span: Span) -> None:
    target: trace.Span = spans.add(  # type: ignore[attr-defined]
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=b"" if span.parent_id == NO_SPAN else span.parent_id,
        name=span.name,
        kind=KINDS[span.kind],
        start_time_unix_nano=to_nanoseconds(span.start),
        end_time_unix_nano=to_nanoseconds(span.end),
        flags=1,
    )
    target.MergeFromString(encode_attributes(span.attributes))
    if span.error:
        target.status.code = trace.Status.STATUS_CODE_ERROR
        target.status.message = span.error_text or span.error
    for event in span.events[:SPAN_EVENTS_MAX]:
        added = target.events.add()
        added.name, added.time_unix_nano = event.name, to_nanoseconds(event.at)
        add_attributes(added.attributes, event.attributes)
    target.dropped_events_count = max(0, len(span.events) - SPAN_EVENTS_MAX)


def add_attributes(target: "Sequence[KeyValue]", attributes: Mapping[str, AttributeValue]) -> None:
    target.extend([make_attribute(name, value) for name, value in attributes.items()])  # type: ignore[attr-defined]


def encode_attributes(attributes: Mapping[str, AttributeValue]) -> bytes:
    """A part of an encoded span. Encoded messages are merged by joining them."""
    return b"".join([
        encode_repeated_attribute(name, value)
        if type(value) is not str or len(value) <= REPEATED_CHARACTERS_MAX
        else encode_attribute(name, value)
        for name, value in attributes.items()
    ])  # fmt: skip


@lru_cache(REPEATED_ATTRIBUTES_MAX, typed=True)
def encode_repeated_attribute(name: str, value: AttributeValue) -> bytes:
    """Encode an attribute that other spans have too, such as the name of a model, once."""
    return encode_attribute(name, value)


def encode_attribute(name: str, value: AttributeValue) -> bytes:
    encoded: bytes = trace.Span(attributes=[make_attribute(name, value)]).SerializeToString()
    return encoded


def make_attribute(name: str, value: AttributeValue) -> KeyValue:
    made = KeyValue(key=name)
    holder: AnyValue = made.value
    if isinstance(value, str):
        holder.string_value = load_provider_names().get(value, value) if name == PROVIDER else value
    elif isinstance(value, bool):
        holder.bool_value = value
    elif isinstance(value, int):
        holder.int_value = value
    elif isinstance(value, float):
        holder.double_value = value
    else:
        holder.array_value.SetInParent()
        for item in value:
            holder.array_value.values.add().string_value = item
    return made


def to_nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * NANOSECONDS))


def count_rejected(response: bytes) -> tuple[int, str]:
    """Number of spans that the receiver rejected according to its response, and its explanation."""
    parsed = ExportTraceServiceResponse.FromString(response)
    return parsed.partial_success.rejected_spans, parsed.partial_success.error_message


def encode_metrics(snapshot: MetricsSnapshot, resource: Resource) -> bytes:
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    group.resource.CopyFrom(resource)
    scope = group.scope_metrics.add()
    scope.scope.name, scope.scope.version = SCOPE, package_version()
    times = to_nanoseconds(snapshot.start), to_nanoseconds(snapshot.at)
    for series in snapshot.series:
        metric = scope.metrics.add()
        metric.name, metric.unit, metric.description = series.name, series.unit, series.description
        if isinstance(series, Histogram):
            _add_histogram(metric.histogram, series, times)
        else:
            _add_counter(metric.sum, series, times)
    encoded: bytes = request.SerializeToString()
    return encoded


def _add_histogram(data: metrics.Histogram, series: Histogram, times: tuple[int, int]) -> None:
    data.aggregation_temporality = metrics.AGGREGATION_TEMPORALITY_CUMULATIVE
    for attributes, value in series.points.items():
        point = data.data_points.add()
        point.start_time_unix_nano, point.time_unix_nano = times
        add_attributes(point.attributes, dict(attributes))
        point.count, point.sum = value.count, value.total
        point.explicit_bounds.extend(series.bounds)
        point.bucket_counts.extend(value.buckets)


def _add_counter(data: metrics.Sum, series: Counter, times: tuple[int, int]) -> None:
    data.aggregation_temporality, data.is_monotonic = metrics.AGGREGATION_TEMPORALITY_CUMULATIVE, True
    for attributes, value in series.points.items():
        point = data.data_points.add()
        point.start_time_unix_nano, point.time_unix_nano = times
        add_attributes(point.attributes, dict(attributes))
        point.as_double = value
