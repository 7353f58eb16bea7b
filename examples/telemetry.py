"""A run as its trace, log lines and metrics, printed instead of sent.

    python examples/telemetry.py

Needs no key, no network and no package. With a receiver, write `telemetry=Telemetry(endpoint="http://127.0.0.1:4318")`.
"""

import logging
import sys
from collections.abc import Sequence

from bridle import Agent, Telemetry, tool
from bridle.watchers import LogLines, PrometheusMetrics, Span


class PrintedTrace:
    """An exporter that prints a trace as a tree once its run has ended."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, spans: Sequence[Span]) -> None:
        self.spans += spans
        if any(span.ends_run for span in spans):
            known = {span.span_id for span in self.spans}
            self.print_children([span for span in self.spans if span.parent_id not in known], "")

    def print_children(self, spans: Sequence[Span], indent: str) -> None:
        for span in sorted(spans, key=lambda span: span.start):
            found = span.attributes
            facts = [span.error, found.get("bridle.tool.outcome"), found.get("bridle.stop")]
            if "gen_ai.usage.input_tokens" in found:
                facts.append(f"{found['gen_ai.usage.input_tokens']} tokens in")
            print(f"{indent}{span.name}  {', '.join(str(fact) for fact in facts if fact)}".rstrip())
            self.print_children(
                [each for each in self.spans if each.parent_id == span.span_id], indent + "  "
            )

    def flush(self, seconds: float) -> bool:
        return True


@tool(effect="read", errors=[LookupError])
def find_order(number: int) -> str:
    """Find an order."""
    if number > 100:
        raise LookupError("jane.doe@example.com has no such order")
    return "sent on Monday, to jane.doe@example.com"


SCRIPT = (
    '!call find_order {"number": 7}\n!call find_order {"number": 700}\n!then\n!say It was sent on Monday.'
)
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")

print("The trace:")
agent = Agent("sim:", tools=[find_order], name="support", telemetry=Telemetry(exporter=PrintedTrace()))
agent.run_sync(SCRIPT)

print("\nThe log lines of such a run; the address is in none of them:")
metrics = PrometheusMetrics()
agent = Agent(
    "sim:", tools=[find_order], name="support", watchers=[LogLines()], telemetry=Telemetry(exporter=metrics)
)
agent.run_sync(SCRIPT)

print("\nIts metrics for Prometheus, the counts among them:")
print("\n".join(line for line in metrics.render().splitlines() if "_count{" in line))
