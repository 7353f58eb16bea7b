"""Validators of answers: accept, change, send back; each decision is recorded once and never made twice."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridle import Agent, Budget, MisuseError, ModelRetry, RunContext
from bridle.core.evaluate_reply import REJECTED_ANSWERS_MAX
from bridle.events import OutputChecked
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from tests.suite.crashes import kill_after_every_record, kill_after_record
from tests.suite.wire_models import SCHEMA_MODELS


@dataclass
class Refund:
    order: int
    cents: int


@dataclass
class Prices:
    """An open map has no native form on two wires, which then use a tool."""

    by_city: dict[str, int]


@dataclass
class Shop:
    limit: int


def answer(agent, value):
    """A reply with a structured answer in the form that the model is asked for."""
    text = json.dumps(value)
    if agent.settings.output.mode == "native":
        return text
    return call_reply((agent.settings.output.name, value))


def make_agent(values, model, **options):
    """An agent whose model gives these answers."""
    asked = Agent(model, **options)  # only to see how the model is asked
    return Agent(scripted(*(answer(asked, value) for value in values), model=model), **options)


def read_checks(agent, session):
    records = asyncio.run(agent.store.read(session))
    return [record.event for record in records if isinstance(record.event, OutputChecked)]


def check_limit(ctx: RunContext[Shop], refund: Refund) -> Refund | None:
    if refund.cents > ctx.context.limit:
        raise ModelRetry(f"at most {ctx.context.limit} cents can be refunded")
    return None


@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_an_answer_that_is_sent_back_is_given_again(model):
    values = [{"order": 7, "cents": 9999}, {"order": 7, "cents": 1000}]
    agent = make_agent(values, model, output=Refund, validate=check_limit)
    result = agent.run_sync("refund order 7", session="s", context=Shop(limit=1000))
    assert (result.stop, result.output) == ("done", Refund(7, 1000))
    first, second = read_checks(agent, "s")
    assert (first.validator, first.verdict) == ("check_limit", "retry")
    assert first.reason == "at most 1000 cents can be refunded"
    assert (second.verdict, second.changed) == ("accepted", None)
    assert first.answer_id != second.answer_id
    told = " ".join(
        part.text for message in result.messages for part in message.parts if hasattr(part, "text")
    )
    told += " ".join(r.text for message in result.messages for r in message.results)
    assert "Your answer cannot be used: at most 1000 cents can be refunded" in told


def sort_prices(prices: Prices) -> Prices:
    return Prices({city: cents for city, cents in sorted(prices.by_city.items()) if cents})


async def need_rome(prices: Prices) -> None:
    if "Rome" not in prices.by_city:
        raise ModelRetry("Rome is missing")


@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_validators_run_in_order_and_each_gets_what_the_one_before_it_returned(model):
    values = [{"by_city": {"Oslo": 3, "Nice": 0}}, {"by_city": {"Rome": 2, "Nice": 0, "Oslo": 3}}]
    agent = make_agent(values, model, output=Prices, validate=[sort_prices, need_rome])
    result = agent.run_sync("prices", session="s")
    assert result.output == Prices({"Oslo": 3, "Rome": 2})
    assert json.loads(result.text) == {"by_city": {"Oslo": 3, "Rome": 2}}, "the text is the accepted answer"
    assert [(check.validator, check.verdict, check.changed) for check in read_checks(agent, "s")] == [
        ("sort_prices", "accepted", '{"by_city":{"Oslo":3}}'),
        ("need_rome", "retry", None),
        ("sort_prices", "accepted", '{"by_city":{"Oslo":3,"Rome":2}}'),
        ("need_rome", "accepted", None),
    ]


def test_a_change_in_place_is_recorded_too():
    def round_down(refund: Refund) -> None:
        refund.cents -= refund.cents % 100

    agent = make_agent([{"order": 1, "cents": 1250}], "sim:", output=Refund, validate=round_down)
    result = agent.run_sync("refund", session="s")
    assert result.output == Refund(1, 1200)
    assert asyncio.run(agent.resume("s")).output == Refund(1, 1200)


def test_an_answer_that_is_not_an_object_is_changed_inside_its_wrapping():
    agent = make_agent([{"value": [3, 1]}], "sim:", output=list[int], validate=lambda found: sorted(found))
    assert agent.run_sync("numbers").output == [1, 3]


def test_plain_text_is_validated_as_well():
    def be_brief(text: str) -> str:
        if len(text) > 20:
            raise ModelRetry("use at most 20 characters")
        return text.rstrip(".")

    agent = Agent(scripted("This is a very long answer indeed.", "Forty-two."), validate=be_brief)
    result = agent.run_sync("?")
    assert (result.output, result.text, result.stop) == ("Forty-two", "Forty-two", "done")


@pytest.mark.parametrize("model", [SCHEMA_MODELS[0], "sim:anthropic/claude-haiku-4-5"])
def test_a_validator_that_is_never_satisfied_ends_the_run(model):
    def never(prices: Prices) -> None:
        raise ModelRetry("no")

    values = [{"by_city": {"Rome": number}} for number in range(REJECTED_ANSWERS_MAX + 3)]
    agent = make_agent(values, model, output=Prices, validate=never)
    result = agent.run_sync("prices", session="s")
    assert (result.stop, result.output) == ("failed", None)
    assert len(read_checks(agent, "s")) == REJECTED_ANSWERS_MAX + 1
    assert result.reason == "no answer passed the validators; last problem: no"


@pytest.mark.parametrize("output", [Refund, Prices])
def test_a_validator_that_breaks_ends_the_run_and_says_which(output):
    def broken(_: object) -> None:
        raise KeyError("rates")

    values = [{"order": 7, "cents": 1}] if output is Refund else [{"by_city": {"Rome": 1}}]
    agent = make_agent(values * 2, "sim:anthropic/claude-sonnet-5-5", output=output, validate=broken)
    result = agent.run_sync("?", session="s")
    assert (result.stop, result.output) == ("failed", None)
    assert result.reason == "validator `broken` failed: KeyError: 'rates'"
    model = "sim:anthropic/claude-sonnet-5-5"
    repaired = make_agent(values * 2, model, output=output, store=agent.store)
    assert asyncio.run(repaired.resume("s")).stop == "done"


def test_a_validator_must_return_the_type():
    def wrong(refund: Refund) -> str:
        return "all of it"

    result = make_agent([{"order": 7, "cents": 1}], "sim:", output=Refund, validate=wrong).run_sync("?")
    assert result.stop == "failed"
    assert (
        "validator `wrong` failed: TypeError: it returned an answer that the output type rejects"
        in result.reason
    )


def test_a_validator_has_a_deadline():
    async def slow(refund: Refund) -> None:
        await asyncio.Event().wait()

    agent = make_agent([{"order": 7, "cents": 1}], "sim:", output=Refund, validate=slow)
    result = agent.run_sync("?", budget=Budget(seconds=0.3))
    assert result.stop in ("failed", "seconds")
    assert result.output is None


def test_only_the_first_accepted_answer_of_a_reply_counts():
    seen = []

    def positive(prices: Prices) -> None:
        seen.append(prices.by_city)
        if prices.by_city["Rome"] < 0:
            raise ModelRetry("negative")

    calls = [("Prices", {"by_city": {"Rome": number}}) for number in (-1, 5, 6)]
    agent = Agent(scripted(call_reply(*calls), model=SCHEMA_MODELS[0]), output=Prices, validate=positive)
    result = agent.run_sync("prices")
    assert result.output == Prices({"Rome": 5})
    assert seen == [{"Rome": -1}, {"Rome": 5}]


BAD = [
    (3, "`validate` must be a function or a list of functions, not 3"),
    (lambda: None, "validator `<lambda>`: a validator takes the answer, and optionally a `RunContext`, not ()"),
    (lambda a, b: None, "validator `<lambda>`: a validator takes the answer, and optionally a `RunContext`, not (a, b)"),
    ([check_limit, check_limit], "two validators are named 'check_limit'; the log tells them apart by name: rename one"),
]  # fmt: skip


@pytest.mark.parametrize(("validate", "words"), BAD)
def test_a_function_that_cannot_be_a_validator_is_refused(validate, words):
    with pytest.raises(MisuseError) as raised:
        Agent("sim:", output=Refund, validate=validate)
    assert str(raised.value) == words


def test_a_missing_context_is_refused_before_anything_is_asked():
    agent = make_agent([{"order": 7, "cents": 1}], "sim:", output=Refund, validate=check_limit)
    with pytest.raises(MisuseError, match="validator `check_limit` needs a context of type Shop"):
        agent.run_sync("refund")


# Killed after every event


def killed_agent(folder, model):
    """An agent whose validators note each of their calls in a file that no log knows of."""

    def note(name, prices):
        with (folder / "calls").open("a") as calls:
            calls.write(f"{name} {json.dumps(prices.by_city)}\n")

    def drop_zero(prices: Prices) -> Prices:
        note("drop_zero", prices)
        return Prices({city: cents for city, cents in prices.by_city.items() if cents})

    def need_rome(prices: Prices) -> None:
        note("need_rome", prices)
        if "Rome" not in prices.by_city:
            raise ModelRetry("Rome is missing")

    values = [{"by_city": {"Oslo": 3, "Nice": 0}}, {"by_city": {"Rome": 2, "Nice": 0}}]
    options = {"output": Prices, "validate": [drop_zero, need_rome], "store": str(folder / "log.db")}
    return make_agent(values, model, **options)


def run_and_kill(folder, count, model):
    """Run in this process, which is killed after its `count`th record."""
    agent = killed_agent(Path(folder), model)
    kill_after_record(count)
    asyncio.run(agent.run("prices", session="s"))


def facts(folder, model):
    async def read():
        agent = killed_agent(folder, model)
        records = await agent.store.read("s")
        await agent.store.close()
        return records

    skipped = (e.Configured, e.Resumed, e.ModelAsked)  # of a request that was cut, there are two
    events = [record.event for record in asyncio.run(read()) if not isinstance(record.event, skipped)]
    return [event.reply.parts if isinstance(event, e.ModelReplied) else event for event in events]


@pytest.mark.parametrize("model", [SCHEMA_MODELS[0], SCHEMA_MODELS[2]])  # by a tool, and native
def test_killed_after_every_event_no_validator_decides_twice(tmp_path, model):
    whole = tmp_path / "whole"
    whole.mkdir()
    result = killed_agent(whole, model).run_sync("prices", session="s")
    assert result.output == Prices({"Rome": 2})
    expected = facts(whole, model)
    called = (whole / "calls").read_text().splitlines()
    assert len(called) == len(set(called)) == 4
    for count, folder in kill_after_every_record(tmp_path, __file__, model):

        async def resume(folder=folder):
            agent = killed_agent(folder, model)
            ended = await agent.resume("s")
            await agent.store.close()
            return ended

        assert asyncio.run(resume()).output == Prices({"Rome": 2})
        assert (folder / "calls").read_text().splitlines() == called, f"killed after record {count}"
        assert facts(folder, model) == expected, f"killed after record {count}"
