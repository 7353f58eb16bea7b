"""Encodes metrics as OTLP messages, with the classes of opentelemetry-proto; span_bytes.py encodes spans."""

from collections.abc import Mapping, Sequence

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from bridle.values.record import AttributeValue

from .metrics import Counter, Gauge, Histogram, MetricsSnapshot, SeriesKey
from .names import PROVIDER, SCOPE, package_version, rename_provider, to_nanoseconds

KINDS = {"internal": trace.Span.SPAN_KIND_INTERNAL, "client": trace.Span.SPAN_KIND_CLIENT}


def make_resource(attributes: Mapping[str, str]) -> Resource:
    sdk = {
        "telemetry.sdk.name": SCOPE,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": package_version(),
    }
    resource = Resource()
    add_attributes(resource.attributes, {**sdk, **attributes})
    return resource


def add_attributes(target: "Sequence[KeyValue]", attributes: Mapping[str, AttributeValue]) -> None:
    target.extend([make_attribute(name, value) for name, value in attributes.items()])  # type: ignore[attr-defined]


def make_attribute(name: str, value: AttributeValue) -> KeyValue:
    made = KeyValue(key=name)
    holder: AnyValue = made.value
    if isinstance(value, str):
        holder.string_value = rename_provider(value) if name == PROVIDER else value
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


def count_rejected(response: bytes) -> int:
    """Number of spans that the receiver rejected according to its response."""
    rejected: int = ExportTraceServiceResponse.FromString(response).partial_success.rejected_spans
    return rejected


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
        elif isinstance(series, Gauge):
            _add_numbers(metric.gauge, series.points, times)
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
    _add_numbers(data, series.points, times)


def _add_numbers(
    data: "metrics.Sum | metrics.Gauge", points: Mapping[SeriesKey, float], times: tuple[int, int]
) -> None:
    for attributes, value in points.items():
        point = data.data_points.add()
        point.start_time_unix_nano, point.time_unix_nano = times
        add_attributes(point.attributes, dict(attributes))
        point.as_double = value
