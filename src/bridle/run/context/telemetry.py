"""Connects the records of a session with the exporter of spans.

core/tracing derives spans from records; watchers/otel sends them. A `SessionTracer` belongs to one driver. It reads the
log that the driver reads, silently, and emits the spans that end with the records that the driver writes: so a replayed
log emits nothing, and a resumed run continues its trace.

Deriving spans costs a third if it is done for many records at a time. So records wait for the thread of the exporter,
if it has one. Only the events that change the trace context of user code are followed at once.

After a crash it is unknown which of the latest spans were sent. They are sent again, with the ids they had.
"""

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replace_settings
from importlib import import_module
from typing import Literal

from bridle.core.state import State
from bridle.core.tracing.session_trace import SessionTrace
from bridle.core.tracing.tool_spans import APPROVAL_ANSWER
from bridle.ports.span_exporter import DeferringExporter, SpanExporter
from bridle.values.errors import MisuseError
from bridle.values.events import (
    ApprovalAnswered,
    CallReviewed,
    Configured,
    LogRepaired,
    Prompted,
    Resumed,
    RunEnded,
)
from bridle.values.record import Record, Span, TraceContext
from bridle.values.text import escape_text, locate_error
from bridle.watchers.content_filter import ContentFilter, make_content_filter
from bridle.watchers.otel.endpoint import is_disabled, names_endpoint, read_export_settings
from bridle.watchers.otel.prometheus import PrometheusMetrics
from bridle.watchers.otel.provider import API, ProviderExporter, find_provider
from bridle.watchers.otel.sampling import is_in_sample
from bridle.watchers.otel.settings import Telemetry
from bridle.watchers.otel.several import SeveralExporters

LOG = logging.getLogger("bridle")
VARIABLE = "BRIDLE_TELEMETRY"
VARIABLE_VALUES: dict[str, Telemetry | None] = {
    "": None,
    "0": None,
    "off": None,
    "1": Telemetry(),
    "on": Telemetry(),
    "metadata": Telemetry(),
    "redacted": Telemetry(content="redacted"),
    "full": Telemetry(content="full"),
}
RESENT_SECONDS = 60.0
"""Spans that ended in this time before a crash are sent again; older ones were sent or reported as lost."""
BEFORE_RESUMED = (Configured, LogRepaired, CallReviewed)
"""Events that may precede `Resumed` in a log that is taken over."""
CONTEXT_EVENTS = (Prompted, Configured, Resumed)
"""Events that change the trace context of user code."""
# not from outside: our own records and queues
PENDING_RECORDS_MAX = 128
"""Records that wait for the exporter's thread; each keeps a state in memory."""
SENT_ANSWERS_MAX = 10_000
TelemetryInput = Telemetry | bool | None
"""Settings; True for the defaults; False for off; None: the variable BRIDLE_TELEMETRY decides."""


class Tracing:
    """Telemetry of an agent, opened: its exporter, and the filter of content."""

    def __init__(self, settings: Telemetry, exporter: SpanExporter) -> None:
        self.settings, self.exporter = settings, exporter
        self.deferring = exporter if isinstance(exporter, DeferringExporter) else None
        self.content: ContentFilter | None = make_content_filter(
            settings.content, settings.redact, settings.content_characters
        )

    def open_session(self, session: str) -> "SessionTracer":
        return SessionTracer(session, self)

    @staticmethod
    def read_caller() -> str:
        """Position in a trace of a caller that uses the OpenTelemetry API; else an empty text."""
        api = sys.modules.get(API)
        context = api.get_current_span().get_span_context() if api is not None else None
        if context is None or not context.is_valid:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


TracingChoice = Tracing | Literal[False] | None
"""None: a run inside a tool uses the telemetry of the run around it."""


class SessionTracer:
    """Emits the spans of one session, from the records of one driver."""

    def __init__(self, session: str, tracing: Tracing) -> None:
        self._tracing = tracing
        self._trace = SessionTrace(session, tracing.content)
        self._pending: deque[tuple[Record, State, State]] = deque()
        """Records whose spans are not derived yet; the loop appends, one thread at a time takes."""
        self._lock = threading.Lock()
        self._unsure: list[Span] = []
        """Spans of an unfinished run, from the log: it is unknown whether they were sent."""
        self._answered: list[Span] = []
        """Answered questions, from the log: they were answered while no driver of the run was there to emit them."""
        self._has_failed = False

    def read_record(self, record: Record, before: State, after: State) -> None:
        """Follow a record that is already in the log; emits nothing."""
        spans = self._apply(record, before, after)
        if isinstance(record.event, ApprovalAnswered):
            self._answered += spans
        elif isinstance(record.event, Prompted | Resumed):
            self._answered.clear()
        if self._trace.is_running:
            self._unsure += spans
        else:
            self._unsure.clear()

    def on_record(self, record: Record, before: State, after: State) -> None:
        """Emit the spans that end with a new record, now or in the exporter's thread."""
        event, pending, deferring = record.event, self._pending, self._tracing.deferring
        if not isinstance(event, BEFORE_RESUMED):
            if self._unsure:
                self._send_unsure(record, before)
            if self._answered:
                self._send_answered(record)
        if self._has_failed:
            return
        pending.append((record, before, after))
        waiting = len(pending)
        if deferring is None or waiting >= PENDING_RECORDS_MAX or isinstance(event, CONTEXT_EVENTS):
            self.export_pending()
        elif waiting == 1 or isinstance(event, RunEnded):
            try:
                deferring.export_later(self.export_pending, is_urgent=isinstance(event, RunEnded))
            except Exception as error:  # noqa: BLE001 - telemetry can never change a run
                self._give_up(error)

    def export_pending(self) -> None:
        """Derive the spans of the records that wait, and export them."""
        with self._lock:
            spans: list[Span] = []
            while self._pending:
                spans += self._apply(*self._pending.popleft())
            if spans:
                self._export(spans)

    def _send_unsure(self, record: Record, before: State) -> None:
        since, unsure = before.now - RESENT_SECONDS, self._unsure
        self._unsure = []
        if isinstance(record.event, Resumed | RunEnded):
            self._export([span for span in unsure if span.end >= since])

    def _send_answered(self, record: Record) -> None:
        """Emit the questions that another process answered, if this record continues the run."""
        answered, self._answered = self._answered, []
        if isinstance(record.event, Resumed | RunEnded):
            self._export([span for span in answered if span.span_id not in _sent_answers])

    def _apply(self, record: Record, before: State, after: State) -> list[Span]:
        if self._has_failed:
            return []
        try:
            return self._trace.apply(record, before, after)
        except Exception as error:  # noqa: BLE001 - telemetry can never change a run
            self._give_up(error)
            return []

    def _export(self, spans: list[Span]) -> None:
        for span in spans:
            if APPROVAL_ANSWER in span.attributes:
                _sent_answers[span.span_id] = None
                if len(_sent_answers) > SENT_ANSWERS_MAX:
                    _sent_answers.pop(next(iter(_sent_answers)), None)
        try:
            self._tracing.exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - telemetry can never change a run
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._has_failed = True
        # guard: telemetry-warning-escaped
        LOG.warning("telemetry: a run continues without it: %s", escape_text(locate_error(error)))

    def call_traceparent(self, call_id: str, attempt: int) -> str:
        """The W3C header for a tool call: its span is the parent of what the tool does."""
        return self._format(self._trace.call_context(call_id, attempt))

    def run_traceparent(self) -> str:
        return self._format(self._trace.run_context())

    def _format(self, context: TraceContext) -> str:
        sampled = context.sampled and is_in_sample(context.trace_id, self._tracing.settings.sample)
        flags = "01" if sampled else "00"
        return f"00-{context.trace_id.hex()}-{context.span_id.hex()}-{flags}"


_sent_answers: dict[bytes, None] = {}
"""Spans of answered questions that this process has emitted, by their ids: it may both answer and resume."""
_exporters: list[tuple[tuple[Telemetry, bool], SpanExporter]] = []
"""Exporters of this process; agents with equal settings share one."""


def open_tracing(given: TelemetryInput, environment: Mapping[str, str] = os.environ) -> TracingChoice:
    """Resolve the telemetry of an agent; raises `MisuseError` for settings that cannot be used."""
    if not isinstance(given, Telemetry | bool | None):
        raise MisuseError(f"telemetry must be a Telemetry(…), True, False or None, not {given!r}")
    if given is False:
        return False
    settings = (
        given if isinstance(given, Telemetry) else Telemetry() if given else _read_variable(environment)
    )
    if settings is None or is_disabled(environment):
        return None
    if settings.content == "redacted" and settings.redact is None:
        settings = replace_settings(settings, redact=import_module("bridle.hooks.pii").redact_pii)
    return Tracing(settings, _choose_exporter(settings, environment))


def _choose_exporter(settings: Telemetry, environment: Mapping[str, str]) -> SpanExporter:
    """The exporter of the settings; with it, if it only counts or a place is named, one that sends the spans."""
    own = settings.exporter
    if own is None:
        return _find_exporter(settings, environment)
    is_named = bool(settings.endpoint or settings.provider)
    if not is_named and not isinstance(own, PrometheusMetrics):
        return own
    sending = replace_settings(settings, exporter=None)
    return SeveralExporters((own, _find_exporter(sending, environment, is_wanted=is_named)))


def _read_variable(environment: Mapping[str, str]) -> Telemetry | None:
    value = environment.get(VARIABLE, "").strip().lower()
    if value not in VARIABLE_VALUES:
        choices = ", ".join(name for name in VARIABLE_VALUES if name)
        raise MisuseError(f"{VARIABLE}={value} is invalid; choose one of: {choices}")
    return VARIABLE_VALUES[value]


class ChosenExporter:
    """Sends spans through the provider that the application has set up, else over OTLP.

    Which one is decided with the first span: programs make agents before they set up OpenTelemetry.
    """

    def __init__(
        self, settings: Telemetry, environment: Mapping[str, str], *, is_wanted: bool = True
    ) -> None:
        """Unless it `is_wanted`, spans are sent over OTLP only if a variable names the receiver."""
        self._sends = is_wanted or names_endpoint(environment)
        self._settings, self._environment, self._lock = settings, environment, threading.Lock()
        self._chosen: SpanExporter | None = None
        is_used = API in sys.modules
        self._otlp = None if is_used or not self._sends else _open_otlp(settings, environment)
        if settings.provider is not None:
            self._chosen = _open_provider(settings, settings.provider)

    def export(self, spans: Sequence[Span]) -> None:
        self._choose().export(spans)

    def export_later(self, export_pending: Callable[[], None], *, is_urgent: bool) -> None:
        chosen = self._choose()
        if isinstance(chosen, DeferringExporter):
            chosen.export_later(export_pending, is_urgent=is_urgent)
        else:
            export_pending()

    def flush(self, seconds: float) -> bool:
        return self._chosen.flush(seconds) if self._chosen is not None else True

    def _open_default(self) -> SpanExporter:
        return _open_otlp(self._settings, self._environment) if self._sends else SeveralExporters(())

    def _choose(self) -> SpanExporter:
        with self._lock:
            if self._chosen is None:
                provider = find_provider()
                self._chosen = (
                    _open_provider(self._settings, provider)
                    if provider is not None
                    else self._otlp or self._open_default()
                )
            return self._chosen


def _find_exporter(
    settings: Telemetry, environment: Mapping[str, str], *, is_wanted: bool = True
) -> SpanExporter:
    for known, exporter in _exporters:
        if known == (settings, is_wanted):
            return exporter
    opened = (
        _open_otlp(settings, environment)
        if settings.endpoint
        else ChosenExporter(settings, environment, is_wanted=is_wanted)
    )
    _exporters.append(((settings, is_wanted), opened))
    return opened


def _open_provider(settings: Telemetry, provider: object) -> SpanExporter:
    try:
        return ProviderExporter(settings, provider)
    except TypeError as error:
        raise MisuseError(str(error)) from None


def _open_otlp(settings: Telemetry, environment: Mapping[str, str]) -> SpanExporter:
    export_settings = read_export_settings(settings, environment)
    try:
        module = import_module("bridle.watchers.otel.exporter")
    except ModuleNotFoundError as error:
        raise MisuseError(
            f"telemetry needs the package {error.name}; install it: pip install 'bridle[otel]'"
        ) from None
    opened: SpanExporter = module.OtlpExporter(settings, export_settings)
    return opened


def flush_telemetry(seconds: float = 5.0) -> bool:
    """Send the spans of this process that are queued; returns False if that takes longer.

    A process that ends normally does this by itself. Call it where a process is frozen after each request.
    """
    flushed = [exporter.flush(seconds) for _, exporter in _exporters]
    return all(flushed)
