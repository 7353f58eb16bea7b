"""The tracer of Datadog's own `TracerProvider` (the package ddtrace), as one that takes our ids.

Its spans have no generator of ids that could be replaced. Each gets ours after it has started, before it ends. A span
without a parent is given one that names only the trace, because the trace would be another one otherwise. Nothing here
imports ddtrace.
"""

from typing import Any, Protocol


class Ids(Protocol):
    trace_id: int
    span_id: int


class DatadogTracer:
    """Starts spans of ddtrace with the ids of `ids`."""

    def __init__(self, tracer: Any, ids: Ids, api: Any) -> None:
        self._tracer, self._ids, self._api = tracer, ids, api

    def start_span(self, name: str, context: Any, **given: Any) -> Any:
        api = self._api
        if not api.get_current_span(context).get_span_context().is_valid:
            root = api.SpanContext(
                self._ids.trace_id, 0, is_remote=True, trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED)
            )
            context = api.set_span_in_context(api.NonRecordingSpan(root), {})
        started = self._tracer.start_span(name, context=context, **given)
        started._ddspan.span_id = self._ids.span_id
        return started


def is_datadog_tracer(tracer: object) -> bool:
    return type(tracer).__module__.partition(".")[0] == "ddtrace"
