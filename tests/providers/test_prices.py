"""Prices by date, day and service term: every priced model, every term, in the ledger and in the reservation."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from bridle import Agent, Budget
from bridle.core.budget.limits import worst_case_reservation
from bridle.core.state import State
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model, known_models
from bridle.sim.families import find_family
from bridle.testing import FakeClock, ProviderSim
from bridle.values.message import Message, Reply, Stop, Text
from bridle.values.model import make_origin
from bridle.values.request import Extra, Request
from bridle.values.usage import MILLION, TERM_FIELDS, Usage, list_service_terms

PRICED = [model for model in known_models() if model.price]
TODAY = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
MUCH_LATER = datetime(2100, 1, 1, tzinfo=UTC).timestamp()


def at(year, month, day, hour=12) -> float:
    return datetime(year, month, day, hour, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("model", PRICED, ids=lambda model: model.name)
def test_a_priced_model_has_a_price_at_every_later_time(model):
    price = model.price
    edges = {edge for tier in price.tiers for edge in (tier.valid_from, tier.valid_until) if edge is not None}
    for moment in (TODAY, MUCH_LATER, *(edge + step for edge in edges for step in (-1, 0, 1))):
        if moment >= TODAY:
            for tokens in (0, 150_000, 300_000, 900_000):
                assert price.rates(tokens, moment) is not None, (tokens, moment)


@pytest.mark.parametrize(
    ("name", "day", "rates"),
    [
        ("gemini:gemini-4-argon", (2026, 11, 30), "2 10 0.10"),
        ("gemini:gemini-4-argon", (2026, 12, 1), "4 20 0.20"),
        ("gemini:gemini-3.8-flash", (2026, 12, 31), "0.75 3.75 0.075"),
        ("gemini:gemini-3.8-flash", (2027, 1, 1), "1.50 7.50 0.15"),
        ("gemini:gemini-3.7-flash", (2027, 1, 1), "1.50 7.50 0.15"),
        ("gemini:gemini-3.6-flash", (2027, 1, 1), "1.50 7.50 0.15"),
        ("mistral:mistral-large-4", (2026, 10, 28), "1.36 4.18 0.14"),
        ("mistral:mistral-large-4", (2026, 10, 29), "0.70 2.10 0.07"),
    ],
)
def test_published_changes_of_a_price_apply_from_their_day(name, day, rates):
    found = find_model(name, environ={}).price.rates(1, at(*day, 0))  # type: ignore[call-arg]
    assert f"{found.input} {found.output} {found.cache_read}" == rates


@pytest.mark.parametrize("name", ["deepseek-v4-pro", "deepseek-v4-flash", "deepseek-flash"])
def test_peak_hours_apply_on_weekdays_only(name):
    price = find_model(f"deepseek:{name}", environ={}).price
    base = price.rates(1, TODAY).output
    for day in range(16, 23):  # Monday to Sunday
        for hour in range(24):
            peak = (1 <= hour < 4 or 6 <= hour < 10) and day < 21
            cost = price.cost(Usage(output=MILLION), at(2026, 11, day, hour))
            assert cost == base * (2 if peak else 1), (day, hour)
    friday_night = at(2026, 11, 20, 9) + 3_000  # it may end after the peak, which costs less
    assert price.highest_rates(1, friday_night).output == base * 2
    assert price.highest_rates(1, at(2026, 11, 21, 1)).output == base


FACTORS: dict[str, Any] = {
    "anthropic:claude-opus-5-5": {"speed-fast": 2, "geo-us": "1.1", "batch": "0.5"},
    "anthropic:claude-opus-5": {"speed-fast": 2},
    "anthropic:claude-opus-4-8": {"speed-fast": 2},
    "anthropic:claude-opus-4-7": {"speed-fast": None},
    "anthropic:claude-sonnet-5-5": {"speed-fast": None},
    "openai:gpt-6.1-sol": {"flex": "0.5", "priority": 2, "fast": 2, "ultrafast": 6},
    "openai:gpt-5.5": {"priority": "2.5"},
    "openai:gpt-5-mini": {"priority": "1.8"},
    "gemini:gemini-4-argon": {"flex": "0.5", "batch": "0.5", "priority": "1.8"},
    "gemini:gemini-3.8-flash": {"flex": "0.5", "priority": "1.8"},
    "gemini:gemini-2.5-pro": {"flex": "0.5", "priority": "1.8"},
    "xai:grok-4.7": {"batch": "0.8", "priority": None},
    "xai:grok-4.6": {"batch": None},
    "mistral:mistral-large-4": {"batch": "0.5", "priority": None},
    "mistral:mistral-small-latest": {"batch": "0.5"},
}


@pytest.mark.parametrize("name", FACTORS)
def test_what_service_terms_cost(name):
    price = find_model(name, environ={}).price
    plain = price.cost(Usage(output=1_000), TODAY)
    for term, factor in FACTORS[name].items():
        cost = price.cost(Usage(output=1_000, terms=(term,)), TODAY)
        assert cost == (None if factor is None else plain * Decimal(factor)), term


def test_reads_of_the_cache_may_keep_their_price():
    price = find_model("gemini:gemini-2.5-pro", environ={}).price
    assert price.cost(Usage(cache_read=MILLION), TODAY) == price.cost(
        Usage(cache_read=MILLION, terms=("flex",)), TODAY
    )


@pytest.mark.parametrize("model", PRICED, ids=lambda model: model.name)
def test_the_worst_case_of_a_requested_term_covers_its_cost(model):
    usage = Usage(input=10_000, output=1_000)
    for factor in model.price.factors:
        terms = (factor.term,) if factor.term else ()
        cost = model.price.cost(Usage(input=10_000, output=1_000, terms=terms), TODAY)
        assert model.price.highest_rates(10_000, TODAY, terms).cost(usage) >= cost
    assert model.price.highest_rates(10_000, TODAY, ("a term of tomorrow",)) is None


REPORTED = {
    "anthropic:claude-opus-5-5": (("service_tier", "batch"), ("speed", "fast"), ("inference_geo", "us")),
    "openai:gpt-6.1-sol": (("service_tier", "flex"),),
    "openai-chat:gpt-6.1-sol": (("service_tier", "priority"),),
    "bedrock:global.anthropic.claude-opus-5-5": (("serviceTier", "flex"), ("performanceConfig", "optimized")),
    "gemini:gemini-3.8-flash": (("serviceTier", "priority"),),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "field", "word"),
    [(name, *pair) for name, pairs in REPORTED.items() for pair in pairs],
)
def test_every_term_that_a_reply_reports_is_read(name, field, word, stream):
    model = find_model(name, environ={})
    codec = load_codec(model.endpoint.family)
    term = TERM_FIELDS[field] + word
    reply = Reply(
        parts=(Text(text="Yes."),),
        stop=Stop.DONE,
        origin=make_origin(model),
        usage=Usage(input=10, output=2, terms=(term,)),
        id="r1",
    )
    sent = find_family(model.endpoint.family).encode_reply(reply, stream=stream)
    request = Request(
        model=model, messages=(Message(id="m", role="user", parts=(Text(text="?"),)),), stream=stream
    )
    decoder = codec.new_decoder(request, sent.status, dict(sent.headers))
    for frame in sent.frames:
        list(decoder.feed(frame))
    assert decoder.close().usage.terms == (term,)


def test_standard_words_are_no_terms():
    words = ("standard", "default", "auto", "standard_only", "global", "unspecified", "", None, 7)
    assert all(list_service_terms({field: word}) == () for field in TERM_FIELDS for word in words)


def run_with(name, extras, **options):
    provider = ProviderSim(clock=FakeClock())
    model = provider.model(find_model(name, environ={}))
    return Agent(model, extras=extras, clock=FakeClock(TODAY), **options).run_sync("!say Hello.")


@pytest.mark.parametrize(
    ("name", "field", "given", "factor"),
    [
        ("sim:anthropic/claude-opus-5-5", "speed", "fast", 2),
        ("sim:anthropic/claude-opus-5-5", "inference_geo", "us", 1.1),
        ("sim:openai/gpt-6.1-sol", "service_tier", "ultrafast", 6),
        ("sim:openai-chat/gpt-6.1-sol", "service_tier", "flex", 0.5),
        ("sim:gemini/gemini-3.8-flash", "serviceTier", "priority", 1.8),
        ("sim:gemini/gemini-3.8-flash", "serviceTier", "flex", 0.5),
    ],
)
def test_a_requested_term_costs_its_factor_in_the_ledger(name, field, given, factor):
    plain = run_with(name, [])
    asked = run_with(name, [Extra(name=field, json=json.dumps(given))])
    assert asked.usage == plain.usage
    assert asked.cost == pytest.approx(plain.cost * factor)


def test_a_term_whose_price_is_unknown_leaves_the_cost_unknown():
    name = "sim:bedrock_converse/global.anthropic.claude-opus-5-5"
    asked = run_with(name, [Extra(name="performanceConfig", json='{"latency": "optimized"}')])
    assert run_with(name, []).cost > 0
    assert asked.cost is None


@pytest.mark.parametrize(
    ("name", "field", "word", "factor"),
    [
        ("anthropic:claude-opus-5-5", "speed", "fast", 2),
        ("anthropic:claude-opus-5-5", "inference_geo", "us", "1.1"),
        ("openai:gpt-6.1-sol", "service_tier", "ultrafast", 6),
        ("gemini:gemini-3.8-flash", "serviceTier", "priority", "1.8"),
        ("anthropic:claude-opus-5-5", "speed", "standard", 1),
    ],
)
def test_the_reservation_counts_requested_terms(name, field, word, factor):
    def reserved(*extras):
        settings = Agent(name, extras=extras).settings
        state = State(settings=settings, now=TODAY)
        return worst_case_reservation(state, 1_000, "p").usd

    assert reserved(Extra(name=field, json=f'"{word}"')) == reserved() * Decimal(factor)


def test_a_dollar_limit_refuses_a_term_without_a_price():
    result = run_with(
        "sim:anthropic/claude-sonnet-5-5", [Extra(name="speed", json='"fast"')], budget=Budget(usd=5)
    )
    assert result.stop == "budget"
    assert "the price of speed-fast of sim:claude-sonnet-5-5 is unknown" in result.reason


def test_a_term_of_another_provider_does_not_count():
    extra = Extra(name="speed", json='"fast"')
    chain = Agent(["anthropic:claude-opus-5-5", "openai:gpt-6.1-sol"], extras=[extra]).settings
    assert chain.requested_terms == ("speed-fast",)
    owned = Extra(name="speed", json='"fast"', owners=("anthropic",))
    second = Agent(["openai:gpt-6.1-sol", "anthropic:claude-opus-5-5"], extras=[owned])
    assert second.settings.requested_terms == ()


@pytest.mark.parametrize(
    ("name", "effort", "accepted"),
    [
        ("openai:gpt-6.1-sol", "none", False),
        ("openai:gpt-6-astra", "none", False),
        ("openai:gpt-6.1-terra", "none", True),
        ("openai:gpt-6-sol", "none", True),
    ],
)
def test_models_that_always_reason_refuse_the_effort_none(name, effort, accepted):
    assert find_model(name, environ={}).abilities.takes_effort(effort) is accepted


def test_haiku_takes_forced_tools_and_mistral_large_long_answers():
    assert find_model("anthropic:claude-haiku-5-5", environ={}).abilities.forced_tools
    assert find_model("mistral:mistral-large-4", environ={}).abilities.output_tokens == 1_048_576
