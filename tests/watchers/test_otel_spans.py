"""Spans of approvals, retries and compaction, a full queue, and the trace of a program that a tool starts."""

import asyncio
import functools
import sys

import pytest

from bridle import Agent, PermissionRule, Policy, Telemetry, flush_telemetry, tool
from bridle.testing import FakeClock
from bridle.testing.scripted_model import call_reply, scripted
from bridle.testing.simulated_provider import ProviderSim
from bridle.tools import CommandTool
from tests.watchers.otel_receiver import Receiver


class Kept:
    """An exporter that keeps its spans."""

    def __init__(self):
        self.spans = []

    def export(self, spans):
        self.spans += spans

    def flush(self, seconds):
        return True

    def named(self, word):
        return [span for span in self.spans if span.name.split(" ")[0] == word]


def run_async(test):
    @functools.wraps(test)
    def run(*args, **given):
        return asyncio.run(test(*args, **given))

    return run


@tool
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@run_async
async def test_an_approval_is_a_span_with_its_answer_and_no_text():
    for answer, outcome in (("approve", "ok"), ("reject", "denied")):
        kept = Kept()
        policy = Policy(rules=(PermissionRule(decision="ask", tools=("pay",)),))
        agent = Agent(
            scripted(call_reply(("pay", {"amount": 3})), "Done."),
            tools=[pay], policy=policy, telemetry=Telemetry(exporter=kept),
        )  # fmt: skip
        waiting = await agent.run("Pay.", session="s")
        assert waiting.stop == "waiting"
        (question,) = await agent.approvals("s")
        await getattr(agent, answer)("s", question.id, by="ada-lovelace", reason="because-i-say-so")
        await agent.resume("s")
        (span,) = kept.named("approval")
        assert span.name == "approval pay"
        assert span.attributes["bridle.approval.answer"] == answer
        (call,) = [each for each in kept.named("execute_tool") if "bridle.tool.outcome" in each.attributes][
            -1:
        ]
        assert call.attributes["bridle.tool.outcome"] == outcome
        assert span.parent_id in {each.span_id for each in kept.spans}
        assert "ada-lovelace" not in str(kept.spans) and "because-i-say-so" not in str(kept.spans)


@run_async
async def test_a_retry_is_a_span_between_the_attempts():
    kept, clock = Kept(), FakeClock()
    provider = ProviderSim("Well.", clock=clock, faults=["error-500"])
    agent = Agent(
        provider.model("sim:anthropic/claude-sonnet-5-5"), clock=clock, telemetry=Telemetry(exporter=kept)
    )
    result = await agent.run("Well?")
    assert result.done
    first, second = kept.named("chat")
    (retry,) = kept.named("retry")
    assert first.error and not second.error
    assert (retry.parent_id, first.parent_id) == (second.parent_id, second.parent_id)
    assert first.end <= retry.start <= retry.end <= second.start
    assert retry.attributes["bridle.attempt"] == second.attributes["bridle.attempt"] == 2
    assert retry.attributes["bridle.retry.after"] == first.error
    wait = retry.attributes["bridle.retry.wait_seconds"]
    assert wait > 0 and retry.end - retry.start == pytest.approx(wait, abs=1e-3)


@tool(effect="read")
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + " ".join(f"word{page}{number}" for number in range(900))


@run_async
async def test_compaction_is_a_span_around_the_call_for_its_summary():
    kept = Kept()
    agent = Agent(
        "sim:openai-chat/gpt-6.1-sol",
        tools=[read],
        max_tokens=500,
        context_tokens=20_000,
        telemetry=Telemetry(exporter=kept),
    )
    for turn in range(4):
        calls = "".join(f'!call read {{"page": {turn * 10 + number}}}\n!then\n' for number in range(6))
        await agent.run(f"{calls}!say answer {turn}", session="s")
    spans = kept.named("compaction")
    assert spans, "nothing was compacted"
    assert all(
        span.attributes["bridle.compaction.before_tokens"] > span.attributes["bridle.compaction.after_tokens"]
        for span in spans
    )
    summaries = [span for span in kept.named("chat") if span.attributes.get("bridle.summary")]
    assert summaries and {span.parent_id for span in summaries} <= {span.span_id for span in spans}


@run_async
async def test_a_full_queue_costs_spans_which_are_counted_once(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    calls = [call_reply(("pay", {"amount": number})) for number in range(20)]
    with Receiver() as receiver:
        agent = Agent(
            scripted(*calls, "Done."), tools=[pay], telemetry=Telemetry(endpoint=receiver.url, metrics=False)
        )
        result = await agent.run("Pay.")
        assert flush_telemetry()
        assert result.done
        assert 0 < len(receiver.spans) < 62
    warnings = [
        record.getMessage() for record in caplog.records if "the queue is full" in record.getMessage()
    ]
    assert len(warnings) == 1 and "further losses are only counted" in warnings[0]


@run_async
async def test_a_program_gets_the_trace_of_its_tool_call():
    kept = Kept()
    script = "import os; print(os.environ.get('TRACEPARENT', 'none'))"
    program = CommandTool("show", "Show.", [sys.executable, "-c", script])
    results = {}
    for telemetry in (Telemetry(exporter=kept), False):
        agent = Agent(scripted(call_reply(("show", {})), "Done."), tools=[program], telemetry=telemetry)
        result = await agent.run("Show.")
        (message,) = [each for each in result.messages if each.results]
        results[bool(telemetry)] = message.results[0].text.strip()
    (span,) = kept.named("execute_tool")
    assert results == {True: f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01", False: "none"}
