"""Trace, ledger and the provider's bill agree on what the runs of random lives used.

A life (lives.py) is run twice, with and without faults, crashes and cancels. The spans add up to the ledger, call by call.
Every reply that the ledger counts as answered is on the bill with the same tokens, and the bill has nothing else but the
calls that broke off. The bill is read from the bytes of the replies, without our decoders.

BRIDLE_CAMPAIGN multiplies the lives; `python -m tests.campaigns.run_campaign trace_totals COUNT [FROM]` prints the sums.
"""

import asyncio
import json
import math
import re
import sys
from collections import Counter
from typing import Any, NamedTuple

import pytest

from bridle import Telemetry
from bridle.core.budget.ledger import list_entries
from bridle.values.events import Forked
from bridle.values.usage import Usage
from tests.campaigns.lives import Life
from tests.suite.campaign import list_seeds

BATCHES = 3
SEEDS = list_seeds(15, least=BATCHES)
REPORTED = re.compile(rb'"(?:usage|usageMetadata)": ?(?=\{)')
DECODER = json.JSONDecoder()
ITERATIONS = "iterations"


class Tokens(NamedTuple):
    """Tokens of a prompt, cached ones included, and of a reply."""

    prompt: int = 0
    output: int = 0


class KeptSpans:
    """An exporter that keeps each span once, as a receiver does."""

    def __init__(self) -> None:
        self.spans = {}

    def export(self, spans) -> None:
        self.spans |= {span.span_id: span for span in spans}

    def flush(self, seconds) -> bool:
        return True


class Totals(NamedTuple):
    lives: int = 0
    calls: int = 0
    prompt: int = 0
    output: int = 0
    usd: float = 0.0
    whole: int = 0
    """Lives without a call that broke off."""


def read_bill(exchange) -> Tokens | None:
    """Tokens that the reply of an exchange reports, by the bytes on the wire; None without a report."""
    if exchange.answer.status != 200:
        return None
    reported: dict[str, Any] = {}
    for found in REPORTED.finditer(exchange.answer.body):
        try:
            value, _ = DECODER.raw_decode(exchange.answer.body[found.end() :].decode("utf-8", "replace"))
        except json.JSONDecodeError:
            return None  # the reply was cut in the middle of its report
        reported |= value
    return sum_report(reported) if reported else None


def sum_report(reported) -> Tokens:
    """Add up a report; Anthropic and Bedrock report cached tokens apart, OpenAI and Gemini within the prompt."""
    if parts := reported.get(ITERATIONS):
        each = [sum_report(part) for part in parts]
        return Tokens(sum(part.prompt for part in each), sum(part.output for part in each))

    def count(*names) -> int:
        return sum(reported.get(name) or 0 for name in names)

    return Tokens(
        count("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "prompt_tokens")
        + count("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "promptTokenCount"),
        count(
            "output_tokens", "completion_tokens", "outputTokens", "candidatesTokenCount", "thoughtsTokenCount"
        ),
    )


async def live(seed, *, faults):
    kept = KeptSpans()
    life = Life(seed, options={"telemetry": Telemetry(exporter=kept)}, faults=faults)
    for number in range(1 + life.draws.number(4)):
        await life.turn(number)
        await life.between()
    life.provider.fail()
    agent = life.agent("sim:anthropic/claude-sonnet-5-5", last=True)
    await agent.run("!say well", session=life.session, tenant=life.tenant)
    return life, [*kept.spans.values()]


async def list_ledger(life):
    """Entries of all sessions; a fork begins with those of its origin, which are counted there."""
    found = []
    for info in await life.store.sessions(1_000):
        records = await life.store.read(info.id)
        start = max((record.seq for record in records if isinstance(record.event, Forked)), default=0)
        found += [entry for entry in list_entries(info.id, records) if entry.seq > start]
    return found


def read_usage(span):
    found = span.attributes
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens", "cache_creation.input_tokens")
    return tuple(found.get(f"gen_ai.usage.{name}", 0) for name in names)


def describe_usage(usage: Usage):
    return (usage.prompt, usage.output, usage.cache_read, usage.cache_write)


def is_whole(entry) -> bool:
    """False for a call that broke off, was refused without charge, or whose reply reported no tokens."""
    usage = entry.usage
    return entry.outcome in ("answered", "stored") and not usage.unbilled and not usage.incomplete


async def compare(seed, *, faults) -> Totals:
    life, spans = await live(seed, faults=faults)
    entries, where = await list_ledger(life), f"seed {seed}, {faults=}"
    calls = [span for span in spans if span.name.startswith(("chat ", "store_prompt"))]
    booked = [entry for entry in entries if entry.outcome != "lost"]
    traced = Counter(read_usage(span) for span in calls) - Counter({(0, 0, 0, 0): len(calls)})
    ledger = Counter(describe_usage(entry.usage) for entry in booked) - Counter({(0, 0, 0, 0): len(booked)})
    assert traced == ledger, (
        f"{where}: only in the trace {traced - ledger}, only in the ledger {ledger - traced}"
    )
    usd = sum(float(entry.usd or 0) for entry in booked)
    assert math.isclose(
        sum(span.attributes.get("bridle.cost.usd", 0.0) for span in calls), usd, abs_tol=1e-9
    ), where
    bill = Counter(filter(None, map(read_bill, life.provider.exchanges)))
    whole = [entry for entry in entries if is_whole(entry)]
    counted = Counter(
        Tokens(entry.usage.prompt, entry.usage.output) for entry in whole if entry.outcome == "answered"
    )
    assert not counted - bill, f"{where}: the ledger counts {counted - bill}, which is not on the bill"
    broken = len(entries) - len(whole)
    assert (bill - counted).total() <= broken, f"{where}: the ledger does not count {bill - counted}"
    total = [Tokens(prompt, output) for prompt, output, *_ in traced.elements()]
    return Totals(
        1, len(calls), sum(each.prompt for each in total), sum(each.output for each in total), usd, not broken
    )


@pytest.mark.slow
@pytest.mark.refusals(
    "prompt-window",
    "request-size",
    "body-size",
    "local-window",
    "strip-window",
    "short-ids-window",
    "compatible-window",
)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_trace_ledger_and_bill_are_equal(batch):
    for seed in SEEDS[batch::BATCHES]:
        for faults in (True, False):
            asyncio.run(compare(seed, faults=faults))


def main(count, first):
    totals, failed = Totals(), 0
    for number in range(count):
        try:
            found = asyncio.run(compare(first + number // 2, faults=number % 2 == 0))
            totals = Totals(*map(sum, zip(totals, found, strict=True)))  # type: ignore[arg-type]
        except AssertionError as error:
            failed += 1
            print(f"{str(error)[:600]}", flush=True)
    print(f"{totals}, {failed} of {count} failed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
