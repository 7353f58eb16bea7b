"""Spans and metrics through the providers that an application has set up with the SDK of OpenTelemetry."""

import re
import threading
import types

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: pip install 'bridle[dev]'")

from opentelemetry import metrics as metrics_api
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

from bridle import Agent, MisuseError, RunContext, Telemetry, flush_telemetry, tool
from bridle.run.context import telemetry as module
from bridle.values.record import Span
from bridle.watchers import PrometheusMetrics
from bridle.watchers.otel import provider as provider_module


class MarkingProcessor(SpanProcessor):
    """A processor of the application: sees the beginning and the end of every span, and adds to it."""

    def __init__(self):
        self.started, self.ended = [], []

    def on_start(self, span, parent_context=None):
        span.set_attribute("app.team", "blue")
        self.started.append(span.name)

    def on_end(self, span):
        self.ended.append(span.name)


class App:
    """An application with a `TracerProvider` of its own."""

    def __init__(self, sampler=None):
        self.memory, self.marks = InMemorySpanExporter(), MarkingProcessor()
        self.provider = TracerProvider(resource=Resource({"service.name": "shop"}), sampler=sampler)
        self.provider.add_span_processor(self.marks)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = self.provider.get_tracer("app")

    @property
    def spans(self):
        return {span.name: span for span in self.memory.get_finished_spans()}


@pytest.fixture
def app(monkeypatch):
    """The application whose provider is the global one."""
    made = App()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    monkeypatch.setattr(module, "_exporters", [])
    return made


@tool
def look(name: str) -> str:
    """Look."""
    return f"{name} is here"


SCRIPT = '!call look {"name": "x"}\n!then\n!say found'
NAMES = {"invoke_agent shop", "turn 1", "turn 2", "execute_tool look"}


def list_threads():
    return {thread.name for thread in threading.enumerate()}


def test_the_spans_of_a_run_go_through_the_application_s_provider(app):
    """Its processors see beginning and end, its resource is theirs, and no exporter of ours is opened."""
    before = list_threads()
    agent = Agent("sim:", name="shop", tools=[look], telemetry=True)
    with app.tracer.start_as_current_span("request") as outer:
        assert agent.run_sync(SCRIPT).done
    assert flush_telemetry()
    spans = app.spans
    assert set(spans) > NAMES | {"request"}
    assert all(span.resource.attributes["service.name"] == "shop" for span in spans.values())
    assert all(span.attributes["app.team"] == "blue" for span in spans.values())
    assert sorted(app.marks.started) == sorted(app.marks.ended)
    run = spans["invoke_agent shop"]
    assert run.parent.span_id == outer.get_span_context().span_id
    assert {span.context.trace_id for span in spans.values()} == {outer.get_span_context().trace_id}
    by_id = {span.context.span_id: span for span in spans.values()}
    assert by_id[spans["turn 1"].parent.span_id] is run
    assert by_id[spans["execute_tool look"].parent.span_id] is spans["turn 1"]
    assert run.instrumentation_scope.name == "bridle"
    assert run.attributes["bridle.stop"] == "done" and run.start_time < run.end_time
    [exporter] = [each for _, each in module._exporters]
    assert isinstance(exporter._chosen, provider_module.ProviderExporter)  # type: ignore[attr-defined]
    assert "bridle-telemetry" not in list_threads() - before


def test_the_ids_are_those_that_tools_send_on(app):
    """What a tool calls is a child of its span: the header has the id of the exported span."""
    headers = []

    @tool
    def call_service(context: RunContext) -> str:
        """Call a service."""
        headers.append(context.traceparent)
        return "ok"

    agent = Agent("sim:", name="shop", tools=[call_service], telemetry=True)
    assert agent.run_sync("!call call_service {}\n!then\n!say ok").done
    span = app.spans["execute_tool call_service"]
    assert headers == [f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"]


def test_a_provider_that_is_set_after_the_agent_was_made(monkeypatch):
    """Programs make agents when their modules are imported, and set up OpenTelemetry later."""
    monkeypatch.setattr(module, "_exporters", [])
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    agent = Agent("sim:", name="shop", telemetry=True)
    late = App()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", late.provider)
    assert agent.run_sync("!say hi").done
    assert "invoke_agent shop" in late.spans


def test_a_provider_that_is_passed(monkeypatch):
    """It need not be the global one."""
    monkeypatch.setattr(module, "_exporters", [])
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    own = App()
    agent = Agent("sim:", name="shop", telemetry=Telemetry(provider=own.provider))
    assert agent.run_sync("!say hi").done
    assert "invoke_agent shop" in own.spans


def test_an_endpoint_is_not_overruled(app):
    """Telemetry(endpoint=…) sends over OTLP as before."""
    tracing = module.open_tracing(Telemetry(endpoint="http://127.0.0.1:9"))
    assert type(tracing.exporter).__name__ == "OtlpExporter"


def test_failures_are_errors_in_the_application_s_trace(app):
    @tool
    def explode() -> str:
        """Fail."""
        raise ValueError("secret text")

    Agent("sim:", name="shop", tools=[explode], telemetry=True).run_sync("!call explode {}\n!then\n!say no")
    span = app.spans["execute_tool explode"]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in str(span.to_json())


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_decision_of_the_caller_is_followed(monkeypatch, is_sampled):
    made = App(ParentBased(TraceIdRatioBased(1.0)) if is_sampled else ALWAYS_OFF)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    monkeypatch.setattr(module, "_exporters", [])
    agent = Agent("sim:", name="shop", telemetry=Telemetry(keep_errors=False))
    with made.tracer.start_as_current_span("request"):
        assert agent.run_sync("!say hi").done
    assert ("invoke_agent shop" in made.spans) is is_sampled


def test_the_application_s_sampler_keeps_traces_whole(monkeypatch):
    """Half of the traces: each is there with all of its spans, or not at all."""
    made = App(ParentBased(TraceIdRatioBased(0.5)))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    monkeypatch.setattr(module, "_exporters", [])
    agent = Agent("sim:", name="shop", tools=[look], telemetry=True)
    for _ in range(30):
        assert agent.run_sync(SCRIPT).done
    counts = {}
    for span in made.memory.get_finished_spans():
        counts[span.context.trace_id] = counts.get(span.context.trace_id, 0) + 1
    assert 3 <= len(counts) <= 27
    assert len(set(counts.values())) == 1


class DatadogTracer:
    """A tracer as that of ddtrace: its spans have ids of their own until somebody sets them."""

    def __init__(self):
        self.started = []  # also of copies

    def start_span(self, name, context, **given):
        parent = trace.get_current_span(context).get_span_context()
        held = types.SimpleNamespace(name=name, trace=parent.trace_id, parent=parent.span_id, span_id=-1)
        self.started.append(held)
        span = trace.NonRecordingSpan(parent)
        vars(span)["_ddspan"] = held
        return span


DatadogTracer.__module__ = "ddtrace.internal.opentelemetry.trace"


def test_the_provider_of_ddtrace_gets_whole_traces(monkeypatch):
    """It got no span: its tracers have no generator of ids. test_otel_vendors.py tries the package itself."""
    monkeypatch.setattr(module, "_exporters", [])
    tracer = DatadogTracer()
    provider = types.SimpleNamespace(get_tracer=lambda *given: tracer)
    agent = Agent("sim:", name="shop", tools=[look], telemetry=Telemetry(provider=provider))
    assert agent.run_sync(SCRIPT).done
    names = {each.span_id: each.name for each in tracer.started}
    parents = {each.name: names.get(each.parent) for each in tracer.started}
    assert set(parents) > NAMES and -1 not in names
    assert parents["execute_tool look"] == "turn 1" and parents["turn 1"] == "invoke_agent shop"
    [root] = [each for each in tracer.started if not each.parent]
    assert root.name == "invoke_agent shop"
    assert {each.trace for each in tracer.started} == {root.trace} != {0}


class ForeignProvider:
    """A provider whose tracers make ids of their own, in no way that we know."""

    def get_tracer(self, *given):
        return object()


def test_a_provider_that_cannot_be_used_is_refused():
    with pytest.raises(MisuseError, match="ids of its own"):
        Agent("sim:", telemetry=Telemetry(provider=ForeignProvider()))
    with pytest.raises(MisuseError, match="TracerProvider"):
        Telemetry(provider="jaeger")
    with pytest.raises(MisuseError, match="endpoint and provider"):
        Telemetry(provider=ForeignProvider(), endpoint="http://127.0.0.1:4318")


def test_a_global_provider_that_cannot_be_used_costs_no_run(monkeypatch, caplog):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", ForeignProvider())
    monkeypatch.setattr(module, "_exporters", [])
    assert Agent("sim:", telemetry=True).run_sync("!say hi").done
    assert "continues without it" in caplog.text


def read_points(reader):
    data = reader.get_metrics_data()
    return {
        metric.name: list(metric.data.data_points)
        for group in data.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_go_to_the_application_s_meter_with_labels(app, monkeypatch):
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics_api, "_internal", metrics_api._internal)
    monkeypatch.setattr(metrics_api._internal, "_METER_PROVIDER", MeterProvider([reader]))
    telemetry = Telemetry(metric_labels=["agent", "tenant"], label_values_max=2)
    agent = Agent("sim:", name="shop", telemetry=telemetry)
    for tenant in ("a", "b", "c", "d"):
        assert agent.run_sync("!say hi", tenant=tenant).done
    points = read_points(reader)
    tokens = {point.attributes["bridle.tenant"] for point in points["gen_ai.client.token.usage"]}
    assert tokens == {"a", "b", "other"}
    rates = {point.attributes["bridle.tenant"]: point.value for point in points["bridle.cache.hit_rate"]}
    assert set(rates) == {"a", "b", "other"} and all(0 <= rate <= 1 for rate in rates.values())


@pytest.mark.parametrize("labels", [[], ["agent"], ["tenant"], ["agent", "tenant"]])
def test_labels_of_prometheus_are_turned_on_and_bounded(labels):
    metrics = PrometheusMetrics(labels=labels, label_values_max=3)
    for name in ("one", "two"):
        agent = Agent("sim:", name=name, telemetry=Telemetry(exporter=metrics))
        for number in range(8):
            assert agent.run_sync("!say hi", tenant=f"t{number}").done
        assert agent.run_sync("!say hi").done
    text = metrics.render()
    costs = [line for line in text.splitlines() if line.startswith("bridle_cost_usd_total{")]
    tenants = set(re.findall(r'bridle_tenant="([^"]+)"', text))
    assert tenants == ({"t0", "t1", "t2", "other"} if "tenant" in labels else set())
    assert ('gen_ai_agent_name="one"' in "".join(costs)) is ("agent" in labels)
    assert ("bridle_cache_hit_rate{" in text) is bool(labels)
    assert len(costs) == (2 if "agent" in labels else 1) * (4 if "tenant" in labels else 1)


@pytest.mark.parametrize("given", [{"labels": ["session"]}, {"labels": "tenant"}, {"label_values_max": 0}])
def test_labels_without_a_bound_are_refused(given):
    with pytest.raises(MisuseError, match="label"):
        PrometheusMetrics(**given)


def test_the_hit_rate_is_the_share_of_cached_input():
    def span(tenant, read, cached):
        return Span(
            trace_id=b"t" * 16,
            span_id=b"s" * 8,
            parent_id=b"\0" * 8,
            name="chat m",
            kind="client",
            start=1.0,
            end=2.0,
            attributes={
                "gen_ai.operation.name": "chat",
                "bridle.tenant": tenant,
                "gen_ai.usage.input_tokens": read,
                "gen_ai.usage.cache_read.input_tokens": cached,
            },
        )

    metrics = PrometheusMetrics(labels=["tenant"])
    metrics.export([span("a", 100, 0), span("a", 300, 200), span("b", 0, 0)])
    rates = [line for line in metrics.render().splitlines() if line.startswith("bridle_cache_hit_rate{")]
    assert rates == ['bridle_cache_hit_rate{bridle_tenant="a"} 0.5']
