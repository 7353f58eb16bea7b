"""`Telemetry`: what a run exports.

By default a span has metadata only: names, numbers and members of fixed lists. Text that a person, a model or a tool
wrote is content. Every content value passes through watchers/content_filter.py and through nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from bridle.ports.span_exporter import SpanExporter
from bridle.values.errors import MisuseError
from bridle.watchers.content_filter import (
    CONTENT_CHARACTERS_DEFAULT,
    ContentLevel,
    RedactRule,
    combine_rules,
)

from .metrics import LABEL_VALUES_DEFAULT, MetricLabel, check_labels


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """Settings of the export of traces and metrics: `Agent(telemetry=Telemetry(…))`.

    Fields that are not set follow the standard variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`, …).
    """

    content: ContentLevel = "off"
    """`off` exports metadata only, `redacted` content after `redact`, `full` content as it is."""
    redact: RedactRule | Sequence[RedactRule] | None = None
    """Functions and regular expressions for what must not leave; by default the patterns of `RedactPii`."""
    content_characters: int = CONTENT_CHARACTERS_DEFAULT
    """Maximum length of one content value; the rest is cut."""
    sample: float = 1.0
    """Share of the traces that are exported, from 0 to 1, chosen by trace id."""
    keep_errors: bool = True
    """Export a trace outside of the sample if something in it failed."""
    keep_usd: float | None = None
    """Export a trace outside of the sample if its run cost at least this much."""
    keep_seconds: float | None = None
    """Export a trace outside of the sample if its run took at least this long."""
    endpoint: str = ""
    """URL of the receiver, such as http://127.0.0.1:4318; `/v1/traces` is added."""
    headers: Mapping[str, str] = field(default_factory=dict)
    service_name: str = ""
    metrics: bool = True
    metric_labels: Sequence[MetricLabel] = ()
    """Count calls and runs by `agent`, by `tenant` or by both, with a hit rate of the cache for each."""
    label_values_max: int = LABEL_VALUES_DEFAULT
    """Values of one label that are counted on their own; the rest is counted together as `other`."""
    exporter: SpanExporter | None = None
    """Receives the spans: instead of OTLP, and beside it or a provider if `endpoint` or `provider` is set too.
    `PrometheusMetrics` only counts, so spans are also sent where the standard variables or a global provider say."""
    provider: object | None = None
    """A `TracerProvider` of OpenTelemetry that the spans go through; by default the one that the application has set,
    if it has set one and `endpoint` is empty."""

    def __post_init__(self) -> None:
        if self.content not in get_args(ContentLevel):
            choices = ", ".join(get_args(ContentLevel))
            raise MisuseError(f"Telemetry(content={self.content!r}) is invalid; choose one of: {choices}")
        check_labels(self.metric_labels, self.label_values_max)
        if self.provider is not None and not callable(getattr(self.provider, "get_tracer", None)):
            raise MisuseError(
                f"Telemetry(provider=…) must be a TracerProvider of OpenTelemetry, not {self.provider!r}"
            )
        if self.endpoint and self.provider is not None:
            raise MisuseError("Telemetry takes one place to send spans to, not endpoint and provider")
        if self.redact:
            combine_rules(self.redact)
        if not 0 <= self.sample <= 1:
            raise MisuseError(f"Telemetry(sample=…) must be between 0 and 1, not {self.sample!r}")
        if self.content_characters < 1:
            raise MisuseError(
                f"Telemetry(content_characters=…) must be at least 1, not {self.content_characters!r}"
            )
