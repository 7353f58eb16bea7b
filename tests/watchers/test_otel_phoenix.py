"""A trace read back from Arize Phoenix, a receiver that we did not write: `make phoenix`."""

import json
import os
import time
import urllib.request

import pytest

from bridle import Agent, Telemetry, flush_telemetry, tool

PHOENIX = os.environ.get("BRIDLE_PHOENIX", "")
pytestmark = pytest.mark.skipif(not PHOENIX, reason="`make phoenix` starts the receiver")
READ_SECONDS = 30


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    return f"{at} is fine"


def read_spans(trace_id, count):
    """The spans of a trace, once Phoenix has stored so many of them."""
    until = time.monotonic() + READ_SECONDS
    while True:
        with urllib.request.urlopen(f"{PHOENIX}/v1/projects/default/spans?limit=1000") as response:
            found = json.load(response)["data"]
        spans = [span for span in found if span["context"]["trace_id"] == trace_id]
        if len(spans) >= count or time.monotonic() > until:
            return spans


def test_a_trace_is_read_back_whole():
    helper = Agent("sim:openai/gpt-6.1-sol", tools=[look], name="helper")
    agent = Agent(
        "sim:anthropic/claude-sonnet-5-5",
        tools=[helper.as_tool()],
        name="outer",
        telemetry=Telemetry(endpoint=PHOENIX, metrics=False, content="full"),
    )
    trace_id = os.urandom(16).hex()
    prompt = (
        '!call helper {"prompt": "!call look {\\"at\\": \\"door\\"}\\n!then\\n!say Fine."}\n!then\n!say Done.'
    )
    result = agent.run_sync(prompt, traceparent=f"00-{trace_id}-{'ab' * 8}-01")
    assert result.done and result.subruns
    assert flush_telemetry()
    spans = read_spans(trace_id, 12)
    ids = {span["context"]["span_id"] for span in spans}
    outside = [span["name"] for span in spans if span["parent_id"] not in ids]
    assert outside == ["invoke_agent outer"]
    kinds = {span["name"].split(" ")[0]: span["span_kind"] for span in spans}
    assert (kinds["invoke_agent"], kinds["chat"], kinds["execute_tool"]) == ("AGENT", "LLM", "TOOL")
    calls = [span["attributes"] for span in spans if span["span_kind"] == "LLM"]
    assert sum(call["llm.token_count.prompt"] for call in calls) == result.usage.prompt
    assert sum(call["llm.token_count.completion"] for call in calls) == result.usage.output
    assert sum(call["bridle.cost.usd"] for call in calls) == pytest.approx(result.cost, abs=1e-9)
