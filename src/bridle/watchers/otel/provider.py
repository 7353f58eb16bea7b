"""Gives spans and metrics to the providers of OpenTelemetry that the application has set up.

The application's own processors, samplers and exporters handle them, beside its own spans: there is no second exporter.
A span is given when it has ended, with the ids that it has in the log, so that a request for which a tool sent on
`RunContext.traceparent` is its child. The application imports opentelemetry-api; nothing here imports the SDK.
"""

import copy
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bridle.values.record import NO_SPAN, Span

from .datadog import DatadogTracer, is_datadog_tracer
from .metrics import HIT_RATE, HIT_RATE_DESCRIPTION, Metrics, SeriesKey
from .names import SCOPE, package_version, rename_attributes, to_nanoseconds
from .sampling import Sampler
from .settings import Telemetry

API = "opentelemetry.trace"
TRACES_MAX = 10_000
"""Traces of our own whose decision is remembered."""
RECENT_IDS_MAX = 20_000
UNCHOSEN_IDS = (
    "the TracerProvider {kind} gives spans ids of its own, so that spans of one run would not find each other; set up"
    " that of the OpenTelemetry SDK, or send spans with Telemetry(endpoint=…)"
)


def find_provider() -> Any:
    """The `TracerProvider` that the application has set; None if it has set none, or does not use OpenTelemetry."""
    api = sys.modules.get(API)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    is_set = not isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
    return provider if is_set else None


class _Ids:
    """Makes the ids of the span that is about to start."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False


def _open_tracer(provider: Any, ids: _Ids) -> Any:
    """A tracer of the provider that takes our ids; raises `TypeError` if its tracers make their own.

    Libraries wrap the tracer of the SDK: the one inside makes the ids.
    """
    tracer = copy.copy(provider.get_tracer(SCOPE, package_version()))
    if is_datadog_tracer(tracer):
        return DatadogTracer(tracer, ids, import_module(API))
    inner, name = tracer, ""
    for _ in range(4):
        if hasattr(inner, "id_generator"):
            inner.id_generator = ids
            return tracer
        name = next((each for each in ("tracer", "_tracer") if hasattr(inner, each)), "")
        if not name:
            break
        made = copy.copy(getattr(inner, name))
        setattr(inner, name, made)
        inner = made
    raise TypeError(UNCHOSEN_IDS.format(kind=type(provider).__qualname__))


class ProviderExporter:
    """An exporter whose receiver is a `TracerProvider`; metrics go to the application's `MeterProvider`."""

    def __init__(self, telemetry: Telemetry, provider: Any) -> None:
        self._api, self._provider = import_module(API), provider
        self._ids, self._lock = _Ids(), threading.Lock()
        self._tracer = _open_tracer(provider, self._ids)
        self._sampler = Sampler(telemetry)
        self._metrics = make_meter_metrics(telemetry) if telemetry.metrics else None
        self._own_traces: OrderedDict[bytes, bool] = OrderedDict()
        """Traces that a run of ours began, with the decision of the application's sampler."""
        self._recent: OrderedDict[bytes, None] = OrderedDict()

    def export(self, spans: Sequence[Span]) -> None:
        with self._lock:
            fresh = [span for span in spans if span.span_id not in self._recent]
            self._recent.update(dict.fromkeys(span.span_id for span in fresh))
            while len(self._recent) > RECENT_IDS_MAX:
                self._recent.popitem(last=False)
            if self._metrics is not None:
                for span in fresh:
                    self._metrics.count_span(span)
            for span in self._sampler.choose(fresh):
                self._give(span)

    def flush(self, seconds: float) -> bool:
        """Let the application's processors send what they have."""
        flush: Callable[[int], bool] | None = getattr(self._provider, "force_flush", None)
        return bool(flush(round(seconds * 1000))) if flush is not None else True

    def _give(self, span: Span) -> None:
        api = self._api
        self._ids.trace_id, self._ids.span_id = int.from_bytes(span.trace_id), int.from_bytes(span.span_id)
        parent = self._make_parent(span)
        kind = api.SpanKind.CLIENT if span.kind == "client" else api.SpanKind.INTERNAL
        started = self._tracer.start_span(
            span.name,
            context=api.set_span_in_context(parent, {}),
            kind=kind,
            attributes=rename_attributes(span.attributes),
            start_time=to_nanoseconds(span.start),
        )
        for event in span.events:
            started.add_event(event.name, rename_attributes(event.attributes), to_nanoseconds(event.at))
        if span.error:
            started.set_status(api.StatusCode.ERROR, span.error_text or span.error)
        started.end(to_nanoseconds(span.end))

    def _make_parent(self, span: Span) -> Any:
        api = self._api
        if span.parent_id == NO_SPAN:
            return api.INVALID_SPAN
        flags = api.TraceFlags(api.TraceFlags.SAMPLED if self._is_sampled(span) else api.TraceFlags.DEFAULT)
        context = api.SpanContext(
            int.from_bytes(span.trace_id), int.from_bytes(span.parent_id), is_remote=True, trace_flags=flags
        )
        return api.NonRecordingSpan(context)

    def _is_sampled(self, span: Span) -> bool:
        """The decision for the trace: the caller's, or that of the application's sampler for a root of ours."""
        known = self._own_traces.get(span.trace_id)
        if known is not None or span.has_caller:
            return span.sampled if known is None else known
        sampler = getattr(self._tracer, "sampler", None)
        decided = True
        if sampler is not None:
            result = sampler.should_sample(None, int.from_bytes(span.trace_id), "invoke_agent")
            decided = bool(result.decision.is_sampled())
        self._own_traces[span.trace_id] = decided
        while len(self._own_traces) > TRACES_MAX:
            self._own_traces.popitem(last=False)
        return decided


class _MeterSum:
    def __init__(self, add: Callable[[float, dict[str, Any]], None]) -> None:
        self._add = add

    def add(self, key: SeriesKey, value: float) -> None:
        self._add(value, dict(rename_attributes(dict(key))))


def make_meter_metrics(telemetry: Telemetry) -> Metrics:
    """Metrics whose values go to the application's `MeterProvider`; nowhere if it has none."""
    api = import_module("opentelemetry.metrics")
    meter = api.get_meter(SCOPE, package_version())

    def make_histogram(name: str, unit: str, description: str, bounds: tuple[float, ...]) -> _MeterSum:
        made = meter.create_histogram(
            name, unit, description, explicit_bucket_boundaries_advisory=list(bounds)
        )
        return _MeterSum(made.record)

    def make_counter(name: str, unit: str, description: str) -> _MeterSum:
        return _MeterSum(meter.create_counter(name, unit, description).add)

    metrics = Metrics(telemetry.metric_labels, telemetry.label_values_max, make_histogram, make_counter)

    def observe(_: object) -> list[Any]:
        rates = metrics.compute_hit_rates()
        return [api.Observation(rate, dict(rename_attributes(dict(key)))) for key, rate in rates.items()]

    if telemetry.metric_labels:
        meter.create_observable_gauge(HIT_RATE, [observe], "1", HIT_RATE_DESCRIPTION)
    return metrics
