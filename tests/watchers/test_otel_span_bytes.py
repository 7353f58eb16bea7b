"""Spans that are encoded by hand are the messages that the classes of opentelemetry-proto read; none is lost."""

import asyncio
import os

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from bridle import Agent, Telemetry, flush_telemetry, tool
from bridle.testing.scripted_model import call_reply, scripted
from bridle.values.record import NO_SPAN, Span, SpanEvent
from bridle.watchers.otel.encode import make_attribute, make_resource
from bridle.watchers.otel.names import to_nanoseconds
from bridle.watchers.otel.span_bytes import encode_spans
from tests.watchers.otel_receiver import Receiver, check_tree

VALUES = (
    "", "a", "é" * 40, "x" * 127, "x" * 128, "x" * 20_000, "gemini", True, False, 0, 1, 127, 128, 300, 2**40, -1,
    -(2**63), 0.0, 1.0, -2.5, 1e-9, (), ("tools",), ("a" * 200, ""),
)  # fmt: skip


def make_span(number, **changed):
    about = {
        "trace_id": bytes(range(16)),
        "span_id": number.to_bytes(8),
        "parent_id": b"parentid",
        "name": f"turn {number}",
        "kind": "client",
        "start": 1_794_866_400.123456,
        "end": 1_794_866_401.5,
        "attributes": {},
    }
    return Span(**{**about, **changed})


def build_expected(span):
    """The same span by the classes alone."""
    found = trace.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=b"" if span.parent_id == NO_SPAN else span.parent_id,
        name=span.name,
        kind=trace.Span.SPAN_KIND_CLIENT if span.kind == "client" else trace.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=to_nanoseconds(span.start),
        end_time_unix_nano=to_nanoseconds(span.end),
        flags=1,
        attributes=[make_attribute(*pair) for pair in span.attributes.items()],
        dropped_events_count=max(0, len(span.events) - 128),
    )
    if span.error:
        found.status.code, found.status.message = (
            trace.Status.STATUS_CODE_ERROR,
            span.error_text or span.error,
        )
    for event in span.events[:128]:
        found.events.add(
            name=event.name,
            time_unix_nano=to_nanoseconds(event.at),
            attributes=[make_attribute(*pair) for pair in event.attributes.items()],
        )
    return found


SPANS = [
    *(make_span(number, attributes={"k" * (number * 9): value}) for number, value in enumerate(VALUES)),
    make_span(40, attributes={f"key {number}": value for number, value in enumerate(VALUES)}),
    make_span(41, parent_id=NO_SPAN, kind="internal", name="n" * 300),
    make_span(42, attributes={"gen_ai.provider.name": "gemini"}, error="timeout", error_text="é"),
    make_span(
        43, events=tuple(SpanEvent(name="e", at=1.5, attributes={"n": n}) for n in range(130)), error="x"
    ),
]


@pytest.mark.parametrize("spans", [[], *([span] for span in SPANS), SPANS])
def test_the_classes_read_what_was_written(spans):
    resource = make_resource({"service.name": "s" * 200})
    read = ExportTraceServiceRequest.FromString(encode_spans(spans, resource))
    assert read.resource_spans[0].resource == resource
    scope = read.resource_spans[0].scope_spans[0]
    assert scope.scope.name == "bridle" and scope.scope.version
    assert list(scope.spans) == [build_expected(span) for span in spans]


@tool(effect="read")
async def look(at: int) -> str:
    """Look once."""
    return str(at)


def look_often(times, receiver, **options):
    calls = [call_reply(("look", {"at": number})) for number in range(times)]
    settings = Telemetry(endpoint=receiver.url, metrics=False)
    return Agent(scripted(*calls, "Done."), tools=[look], telemetry=settings, **options)


@pytest.mark.parametrize("steps", [1, 40])
def test_a_flush_in_the_middle_of_a_run_sends_what_ended_and_nothing_twice(steps):
    counts = []

    @tool(effect="read")
    async def look(at: int) -> str:
        """Look once."""
        assert await asyncio.to_thread(flush_telemetry)
        counts.append(len(receiver.spans))
        return str(at)

    with Receiver() as receiver:
        calls = [call_reply(("look", {"at": number})) for number in range(steps)]
        settings = Telemetry(endpoint=receiver.url, metrics=False)
        agent = Agent(scripted(*calls, "Done."), tools=[look], telemetry=settings)
        assert asyncio.run(agent.run("Look.")).done
        assert flush_telemetry()
        assert counts == [1 + 3 * number for number in range(steps)]
        assert len(receiver.spans) == 3 * steps + 3 == len({span.span_id for span in receiver.spans})
        check_tree(receiver.spans)


def test_many_runs_at_once_lose_nothing():
    async def run_all(receiver):
        return await asyncio.gather(*(look_often(10, receiver).run("Look.") for _ in range(20)))

    with Receiver() as receiver:
        assert all(result.done for result in asyncio.run(run_all(receiver)))
        assert flush_telemetry()
        assert len({span.span_id for span in receiver.spans}) == 20 * 33


class Threadless:
    """An exporter whose thread cannot be started."""

    def export(self, spans):
        pass

    def export_later(self, export_pending, *, is_urgent):
        raise RuntimeError(os.strerror(11))

    def flush(self, seconds):
        return True


def test_an_exporter_without_a_thread_is_dismissed(caplog):
    agent = Agent(scripted("Done."), telemetry=Telemetry(exporter=Threadless()))
    assert asyncio.run(agent.run("Go.")).done
    assert [each.getMessage()[:9] for each in caplog.records if each.name == "bridle"] == ["telemetry"]
