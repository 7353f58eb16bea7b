"""Estimated usage of replies that broke off or whose provider reports none."""

import asyncio
from contextlib import aclosing

import pytest

from bridle import Agent, Budget, SharedBudget, tool
from bridle.cli.commands.cost import list_all_entries
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_call import PartialUsage
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply, text_reply
from bridle.transports.inprocess import InProcessTransport
from bridle.values.events import RunEnded
from bridle.values.message import Reply, Stop, ToolCall
from bridle.values.model import Origin
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.suite.ledger_sum import sum_entries
from tests.suite.wire_models import VENDOR_MODELS

SIMULATED = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai_responses/gpt-6.1-sol",
    "sim:openai_chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
    "sim:bedrock_converse/anthropic.claude-sonnet-4-5",
)
WORDS = 300


@pytest.mark.parametrize("model", VENDOR_MODELS)
def test_what_was_heard_of_a_cancelled_reply_is_paid_for(model):
    located, pool = find_model(model, environ={}), SharedBudget(usd=5)
    line = ModelConnection(
        model=located,
        codec=load_codec(located.endpoint.family),
        transport=InProcessTransport(Simulator().answer),
    )
    agent = Agent(line, pool=pool)

    async def cancelled():
        heard = ""
        async with aclosing(aiter(agent.stream("!say " + "word " * WORDS, session="s"))) as stream:
            async for shown in stream:
                heard += shown.text
                if heard.count("word") > WORDS // 2:
                    break
        return heard, await agent.store.read("s"), await list_all_entries(agent.store)

    heard, records, booked = asyncio.run(cancelled())
    assert isinstance(records[-1].event, RunEnded)
    spent = sum_entries(booked)
    assert spent.usage.output >= heard.count("word"), "a word is a token at least"
    assert spent.usage.prompt > WORDS
    assert (pool.spent.usd, pool.spent.tokens) == (spent.usd, spent.usage.total)


def test_everything_that_is_written_is_heard():
    heard, counted = PartialUsage(None), Usage(input=10, output=1, incomplete=True)
    assert heard.estimate_usage(counted) == counted
    heard.deltas.append(TextDelta(text="a" * 100))
    said = heard.estimate_usage(counted).output
    heard.deltas.append(ReasoningDelta(reasoning="b" * 100))
    heard.deltas.append(ToolCallDelta(index=0, name="look", arguments="c" * 100))
    all_of_it = heard.estimate_usage(counted)
    assert 25 <= said < all_of_it.output
    assert all_of_it.output >= 75
    heard.deltas.append(CallReady(index=0, call=ToolCall(id="c", name="look", arguments="c" * 100)))
    assert heard.estimate_usage(counted) == all_of_it, "those words were heard already"


def test_who_counts_while_it_speaks_is_believed_and_nobody_is_booked_more_than_was_asked_for():
    heard = PartialUsage(60)
    heard.deltas.append(TextDelta(text="a" * 200))
    assert heard.estimate_usage(Usage(input=10, output=48, incomplete=True)).output == 48
    assert heard.estimate_usage(Usage(incomplete=True)).output == 60
    whole = Reply(
        parts=(), stop=Stop.DONE, origin=Origin(family="f", endpoint="e", model="m"), usage=Usage(output=51)
    )
    assert heard.set_reply(whole) is whole
    assert heard.estimate_usage(Usage(incomplete=True)) == whole.usage


@tool(effect="read")
def look(at: int) -> str:
    """Look."""
    return f"{at} is fine"


@pytest.mark.parametrize("model", SIMULATED)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_reply_without_counts_arrives_whole_on_every_wire(model, streamed):
    wanted = call_reply(("note", {"usage": {"input_tokens": 3}}))
    written = []

    @tool
    def note(usage: dict[str, int]) -> str:
        """Note."""
        written.append(usage)
        return "noted"

    agent = Agent(scripted(_uncounted(wanted), _uncounted(text_reply("Done.")), model=model), tools=[note])

    async def run():
        return await agent.stream("Note it.", session="s").start().result()

    result = asyncio.run(run()) if streamed else agent.run_sync("Note it.", session="s")
    assert (result.stop, result.text) == ("done", "Done.")
    assert written == [{"input_tokens": 3}]
    assert result.usage.incomplete


def test_a_token_limit_holds_without_reported_usage():
    replies = [call_reply(("look", {"at": at})) for at in range(200)]
    agent = Agent(
        scripted(*(_uncounted(reply) for reply in replies)),
        tools=[look],
        budget=Budget(tokens=5_000, steps=200),
    )
    result = agent.run_sync("Look at all of them.", session="s")
    assert result.stop == "budget"
    assert 0 < result.usage.total <= 5_000
    assert result.usage.incomplete
    assert result.cost is None
    assert sum_entries(asyncio.run(list_all_entries(agent.store))).usage == result.usage
    assert 2 < result.steps < 100


def _uncounted(reply):
    return Reply(parts=reply.parts, stop=reply.stop, origin=reply.origin, usage=Usage(incomplete=True))
