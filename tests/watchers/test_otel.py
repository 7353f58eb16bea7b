"""Traces, as a real OTLP receiver gets them: trees, ids, content, sampling, failures of the receiver."""

import asyncio
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict

import pytest

from bridle import Agent, Budget, MisuseError, RunContext, Telemetry, flush_telemetry, tool
from bridle.core.recovery.log_repair import LogReader
from bridle.core.tracing.session_trace import SessionTrace
from bridle.hooks.pii import PII
from bridle.testing.scripted_model import call_reply, scripted
from bridle.values.record import Span
from tests.watchers.otel_receiver import Receiver, check_tree, read_attributes


def run_async(test):
    @functools.wraps(test)
    def run(*args, **given):
        return asyncio.run(test(*args, **given))

    return run


CALLER = f"00-{'ab' * 16}-{'cd' * 8}-01"
SECRET = "canary-7f3e"


class Collected:
    """An exporter that keeps what it is given."""

    def __init__(self):
        self.spans: list[Span] = []

    def export(self, spans):
        self.spans += spans

    def flush(self, seconds):
        return True


@pytest.fixture
def receiver():
    with Receiver() as opened:
        yield opened


def telemetry(receiver, **settings):
    return Telemetry(endpoint=receiver.url, metrics=False, **settings)


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    return f"{at} is fine"


def look_twice(**options):
    model = scripted(call_reply(("look", {"at": "door"}), ("look", {"at": "sky"})), "All is fine.")
    return Agent(model, tools=[look], name="watchman", **options)


def by_trace(spans):
    traces = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    return traces


def fold(session, records):
    """The spans of a log, derived from its records alone."""
    trace, reader, spans = SessionTrace(session), LogReader(), []
    for record in records:
        before = reader.state
        reader.apply_record(record)
        spans += trace.apply(record, before, reader.state)
    return spans


HOSTILE_TEXT = "no room\x1b[2J\nall is fine"


@run_async
async def test_a_run_is_one_tree_of_conventional_spans(receiver):
    agent = look_twice(telemetry=telemetry(receiver), budget=Budget(usd=None, steps=9))
    result = await agent.run("Look around.", tenant="acme")
    assert flush_telemetry()
    root = check_tree(receiver.spans)
    assert root.name == "invoke_agent watchman"
    names = sorted(span.name.split(" ")[0] for span in receiver.spans)
    assert names == ["chat", "chat", "execute_tool", "execute_tool", "invoke_agent", "turn", "turn"]
    found = read_attributes(root)
    assert found["gen_ai.operation.name"] == "invoke_agent"
    assert found["gen_ai.conversation.id"] == result.session
    assert (found["bridle.tenant"], found["bridle.stop"], found["bridle.budget.steps"]) == ("acme", "done", 9)
    chats = [read_attributes(span) for span in receiver.spans if span.name.startswith("chat")]
    assert sum(chat["gen_ai.usage.input_tokens"] for chat in chats) == result.usage.prompt
    assert sum(chat["gen_ai.usage.output_tokens"] for chat in chats) == result.usage.output
    assert [chat["gen_ai.response.finish_reasons"] for chat in chats] == [("tools",), ("done",)]
    assert receiver.requests[0][1]["content-type"] == "application/x-protobuf"


@run_async
async def test_the_spans_that_were_sent_are_those_of_the_log():
    kept = Collected()
    agent = look_twice(telemetry=Telemetry(exporter=kept))
    result = await agent.run("Look around.")
    assert kept.spans == fold(result.session, await agent.store.read(result.session))


@run_async
async def test_content_is_not_exported_unless_asked(receiver):
    @tool
    def fail(text: str) -> str:
        """Fail."""
        raise RuntimeError(SECRET)

    def agent(**settings):
        model = scripted(call_reply(("fail", {"text": SECRET})), SECRET)
        return Agent(
            model, tools=[fail], instructions=SECRET, name="a", telemetry=telemetry(receiver, **settings)
        )

    await agent().run(SECRET, caller=SECRET)
    await agent(content="redacted", redact=lambda text: text.replace(SECRET, "[gone]")).run(SECRET)
    assert flush_telemetry()
    assert receiver.bodies
    assert not [body for body in receiver.bodies if SECRET.encode() in body]
    assert [body for body in receiver.bodies if b"[gone]" in body]
    await agent(content="full").run(SECRET)
    assert flush_telemetry()
    assert [body for body in receiver.bodies if SECRET.encode() in body]


@run_async
async def test_redacted_content_has_no_personal_data_by_default():
    kept = Collected()
    agent = Agent(scripted("Noted."), telemetry=Telemetry(exporter=kept, content="redacted"))
    await agent.run("Write to jane.doe@example.com, please.")
    texts = json.dumps([span.attributes for span in kept.spans])
    assert "email" in PII and "[email]" in texts and "jane.doe" not in texts


@run_async
async def test_ten_parallel_runs_are_ten_trees(receiver, caplog):
    agents = [look_twice(telemetry=telemetry(receiver)) for _ in range(10)]
    await asyncio.gather(*(agent.run("Look.", session="same") for agent in agents))
    assert flush_telemetry()
    traces = by_trace(receiver.spans)
    assert len(traces) == 10
    for spans in traces.values():
        check_tree(spans)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@run_async
async def test_runs_inside_tools_and_handed_over_runs_are_in_the_same_tree(receiver):
    helper = Agent(
        scripted(call_reply(("look", {"at": "cellar"})), "It is dark."), tools=[look], name="helper"
    )
    closer = Agent(scripted("One.", "Two.", "Good night."), name="closer")
    model = scripted(
        call_reply(("helper", {"prompt": "Look below."})), call_reply(("transfer_to_closer", {}))
    )
    agent = Agent(
        model, tools=[helper.as_tool()], handover=[closer], name="outer", telemetry=telemetry(receiver)
    )
    result = await agent.run("Look everywhere.")
    assert result.text == "Good night."
    assert flush_telemetry()
    check_tree(receiver.spans)
    parents = {span.span_id: span for span in receiver.spans}
    runs = {span.name: span for span in receiver.spans if span.name.startswith("invoke_agent")}
    assert {*runs} == {"invoke_agent outer", "invoke_agent helper", "invoke_agent closer"}
    assert parents[runs["invoke_agent helper"].parent_span_id].name == "execute_tool helper"
    assert parents[runs["invoke_agent closer"].parent_span_id].name == "invoke_agent outer"


@run_async
async def test_the_callers_trace_is_joined_and_handed_to_tools(receiver):
    seen = []

    @tool(effect="read")
    def ask(run: RunContext) -> str:
        """Run in a thread."""
        seen.append(run.traceparent)
        return "ok"

    agent = Agent(scripted(call_reply(("ask", {})), "Done."), tools=[ask], telemetry=telemetry(receiver))
    result = await agent.run("Ask.", traceparent=CALLER)
    assert flush_telemetry()
    assert check_tree(receiver.spans).parent_span_id.hex() == "cd" * 8
    inner = next(span for span in receiver.spans if span.name == "execute_tool ask")
    assert seen == [f"00-{'ab' * 16}-{inner.span_id.hex()}-01"]
    prompted = (await agent.store.read(result.session))[1].event
    assert prompted.traceparent == CALLER


@run_async
async def test_without_telemetry_tools_get_the_callers_trace():
    seen = []

    @tool(effect="read")
    def ask(run: RunContext) -> str:
        """Ask."""
        seen.append(run.traceparent)
        return "ok"

    await Agent(scripted(call_reply(("ask", {})), "Done."), tools=[ask]).run("Ask.", traceparent=CALLER)
    assert seen == [CALLER]


@run_async
async def test_a_cancelled_run_is_a_whole_tree(receiver):
    begun = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()

    agent = Agent(scripted(call_reply(("hang", {})), "Never."), tools=[hang], telemetry=telemetry(receiver))
    task = asyncio.create_task(agent.run("Hang."))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flush_telemetry()
    assert read_attributes(check_tree(receiver.spans))["bridle.stop"] == "cancelled"
    hung = next(span for span in receiver.spans if span.name == "execute_tool hang")
    assert read_attributes(hung)["bridle.tool.outcome"] == "cancelled"


@run_async
async def test_a_stopped_run_is_resumed_in_its_trace_and_replays_are_silent(receiver, tmp_path):
    options = {"store": tmp_path / "log.db", "telemetry": telemetry(receiver)}
    stopped = await look_twice(budget=Budget(steps=1), **options).run("Look.", session="s")
    assert stopped.stop == "steps"
    assert flush_telemetry()
    before = len(receiver.spans)
    agent = Agent(scripted("All is fine."), tools=[look], name="watchman", **options)
    await agent.approvals("s")
    assert flush_telemetry()
    assert len(receiver.spans) == before, "reading a log emitted spans"
    await agent.resume("s", budget=Budget(steps=9))
    assert flush_telemetry()
    check_tree(receiver.spans)
    runs = [read_attributes(span) for span in receiver.spans if span.name.startswith("invoke_agent")]
    assert [run.get("bridle.resumed") for run in runs] == [None, True]


KILLED = """
    import os, signal, sys
    from bridle import Agent, Telemetry, tool
    from bridle.testing.scripted_model import call_reply, scripted

    @tool(effect="read")
    def look(at: str) -> str:
        "Look."
        return "fine"

    @tool
    def die() -> str:
        "Die."
        os.kill(os.getpid(), signal.SIGKILL)

    model = scripted(call_reply(("look", {"at": "door"})), call_reply(("die", {})))
    agent = Agent(model, tools=[look, die], name="a", store=sys.argv[1],
                  telemetry=Telemetry(endpoint=sys.argv[2], metrics=False))
    agent.run_sync("Die.", session="s")
"""


@run_async
async def test_a_run_that_was_killed_is_one_tree_after_it_is_resumed(receiver, tmp_path):
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "log.db"), receiver.url]
    killed = await asyncio.to_thread(subprocess.run, program, env={**os.environ}, check=False)
    assert killed.returncode == -signal.SIGKILL

    @tool
    def die() -> str:
        """Live."""
        return "alive"

    model = scripted("Alive.")
    agent = Agent(
        model, tools=[look, die], name="a", store=tmp_path / "log.db", telemetry=telemetry(receiver)
    )
    await agent.resume("s")
    assert flush_telemetry()
    # The receiver may have got some spans twice, from both processes; they have the same id.
    spans = [*{span.span_id: span for span in receiver.spans}.values()]
    assert check_tree(spans).name == "invoke_agent a"
    interrupted = [span for span in spans if read_attributes(span).get("error.type") == "interrupted"]
    assert [span.name for span in interrupted] == ["execute_tool die"]


@run_async
async def test_head_and_tail_sampling(receiver):
    @tool
    def fail() -> str:
        """Fail."""
        raise RuntimeError

    settings = telemetry(receiver, sample=0.0)
    await look_twice(telemetry=settings).run("Look.")
    assert flush_telemetry()
    assert receiver.spans == []
    await Agent(scripted(call_reply(("fail", {})), "Failed."), tools=[fail], telemetry=settings).run("Fail.")
    assert flush_telemetry()
    check_tree(receiver.spans)
    await look_twice(telemetry=telemetry(receiver, sample=0.0, keep_seconds=0.0)).run("Look.")
    assert flush_telemetry()
    assert len(by_trace(receiver.spans)) == 2
    await look_twice(telemetry=telemetry(receiver)).run("Look.", traceparent=CALLER[:-1] + "0")
    assert flush_telemetry()
    assert len(by_trace(receiver.spans)) == 2, "the caller decided not to record this trace"


@run_async
async def test_long_content_is_cut():
    kept = Collected()
    settings = Telemetry(exporter=kept, content="full", content_characters=100)
    await Agent(scripted("x" * 1_000), telemetry=settings).run("y" * 1_000)
    longest = max(len(str(value)) for span in kept.spans for value in span.attributes.values())
    assert longest < 300
    assert any("900 more characters" in str(span.attributes) for span in kept.spans)


@run_async
async def test_a_receiver_that_fails_costs_spans_and_no_run(caplog):
    with Receiver(statuses=[400, 400, 400, 400]) as refusing:
        result = await look_twice(telemetry=telemetry(refusing)).run("Look.")
        assert flush_telemetry()
        result = await look_twice(telemetry=telemetry(refusing)).run("Look.")
        assert flush_telemetry()
    assert result.text == "All is fine."
    warnings = [record.getMessage() for record in caplog.records if "not exported" in record.getMessage()]
    assert len(warnings) == 1 and "status 400" in warnings[0]


@run_async
async def test_warnings_show_no_control_characters_of_a_receiver_or_an_exporter(caplog):
    class Broken(Collected):
        def export(self, spans):
            raise type(HOSTILE_TEXT, (OSError,), {})

    with Receiver(refusal=HOSTILE_TEXT) as hostile:
        await look_twice(telemetry=telemetry(hostile)).run("Look.")
        assert flush_telemetry()
    await look_twice(telemetry=Telemetry(exporter=Broken())).run("Look.")
    settings = Telemetry(endpoint=f"http://127.0.0.1:9/{HOSTILE_TEXT}", metrics=False)
    await look_twice(telemetry=settings).run("Look.")
    assert flush_telemetry()
    warnings = [record.getMessage() for record in caplog.records]
    assert len([each for each in warnings if "no room" in each]) == 2
    assert not [each for each in warnings if "\x1b" in each or "\n" in each]


@run_async
async def test_a_busy_receiver_is_asked_again():
    with Receiver(statuses=[503]) as busy:
        await look_twice(telemetry=telemetry(busy)).run("Look.")
        assert flush_telemetry()
        check_tree(busy.spans)


@run_async
async def test_an_exporter_that_raises_is_dismissed(caplog):
    class Broken(Collected):
        def export(self, spans):
            raise OSError("no")

    result = await look_twice(telemetry=Telemetry(exporter=Broken())).run("Look.")
    assert result.done
    assert len([record for record in caplog.records if "continues without it" in record.getMessage()]) == 1


@run_async
async def test_metrics_are_sums_of_all_calls():
    with Receiver() as receiver:
        program = """
            from bridle import Agent
            from bridle.testing import scripted
            for _ in range(3):
                Agent(scripted("Yes."), name="a").run_sync("Well?")
        """
        environment = {
            **os.environ, "BRIDLE_TELEMETRY": "on", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_SERVICE_NAME": "shop", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b",
        }  # fmt: skip
        command = [sys.executable, "-c", textwrap.dedent(program)]
        await asyncio.to_thread(subprocess.run, command, env=environment, check=True)
        assert len(by_trace(receiver.spans)) == 3
        durations = next(each for each in receiver.metrics if each.name == "gen_ai.client.operation.duration")
        counts = {
            read_attributes(point)["gen_ai.operation.name"]: point.count
            for point in durations.histogram.data_points
        }
        assert counts == {"chat": 3, "invoke_agent": 3}
        assert {path for path, _ in receiver.requests} == {"/v1/traces", "/v1/metrics"}
        assert all(headers["x-team"] == "a b" for _, headers in receiver.requests)
        assert all(b"shop" in body for body in receiver.bodies)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Telemetry(content="some"), "choose one of: off, redacted, full"),  # type: ignore[arg-type]
        (lambda: Telemetry(sample=2), "between 0 and 1"),
        (lambda: Agent(scripted("a"), telemetry="on"), "telemetry must be a Telemetry"),  # type: ignore[arg-type]
        (lambda: Agent(scripted("a"), telemetry=Telemetry(endpoint="nowhere")), "must be a URL"),
        (lambda: Agent(scripted("a")).run_sync("b", traceparent="zz"), "traceparent must be a W3C header"),
    ],
)
def test_bad_settings_are_refused_in_one_line(make, message):
    with pytest.raises(MisuseError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)
