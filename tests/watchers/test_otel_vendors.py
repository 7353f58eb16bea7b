"""Spans through the providers that vendors' packages set up; `make oracles` installs them."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

SHARED = """
import json, sys
from bridle import Agent, tool
from bridle import flush_telemetry

@tool
def look(name: str) -> str:
    "Look."
    return "x"

def run():
    script = '!call look {"name": "x"}\\n!then\\n!say hi'
    result = Agent("sim:", name="shop", tools=[look], telemetry=True).run_sync(script)
    assert result.done and flush_telemetry()
"""
LOGFIRE = """
import logfire
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

memory = InMemorySpanExporter()
processor = SimpleSpanProcessor(memory)
logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[processor])
with logfire.span("request"):
    run()
rows = [
    (s.name, s.context.trace_id, s.context.span_id, s.parent and s.parent.span_id)
    for s in memory.get_finished_spans()
]
"""
DATADOG = """
from ddtrace import tracer
from ddtrace.opentelemetry import TracerProvider
from ddtrace.trace import TraceFilter
from opentelemetry import trace

finished = []

class Keep(TraceFilter):
    def process_trace(self, spans):
        finished.extend(spans)
        return None

tracer.configure(trace_processors=[Keep()])
trace.set_tracer_provider(TracerProvider())
run()
rows = [(s.resource, s.trace_id, s.span_id, s.parent_id) for s in finished]
"""
PROGRAMS = {"logfire": (LOGFIRE, "request"), "ddtrace": (DATADOG, None)}
PARENTS = {"execute_tool look": "turn 1", "turn 1": "invoke_agent shop", "turn 2": "invoke_agent shop"}


@pytest.mark.slow
@pytest.mark.parametrize("package", PROGRAMS)
def test_the_set_up_of_a_vendor_gets_the_spans(package, tmp_path):
    """The provider of ddtrace got none, with a warning: its tracers make ids of their own."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make oracles` installs it")
    program, outer = PROGRAMS[package]
    script = tmp_path / "app.py"
    script.write_text(SHARED + program + "\nprint('ROWS', json.dumps(rows))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    rows = json.loads(line.removeprefix("ROWS "))
    names = {span: name for name, _, span, _ in rows}
    parents = {name: names.get(parent) for name, _, _, parent in rows}
    assert {name: parents[name] for name in PARENTS} == PARENTS
    assert parents["invoke_agent shop"] == outer
    assert len({trace for _, trace, _, _ in rows}) == 1
