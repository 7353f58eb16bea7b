"""Dollars for recorded calls: the usage body's own numbers times the price list, worked out by hand here.

Each line below was copied from the bytes of one recording.  `sums` is what each bucket costs, in dollars
per million tokens, and is written out so that anybody can do it again with a pencil.
"""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.sim.families import find_family
from bridle.testing.wire.check_recording import decode_recording
from bridle.values.message import Reply
from bridle.values.request import Request
from bridle.values.usage import HostedRate, Price, PriceFactor, Rates, Usage
from tests.wire.wire import corpus, needs_recordings

NOON = 1_794_830_400.0
"""16 November 2026, 12 o'clock UTC: nobody's busy hour."""
PEAK = NOON - 10 * 3_600
UNKNOWN = "unknown"

GOLDEN = {
    "anthropic": [
        ("ant-bt-js-12497437d5-00", "anthropic:claude-haiku-4-5", 19_525, "10*1 + 19318*0.10 + 197*5"),
        # One search was made for it, at a cent.
        (
            "ant-chatlas-cd97273ed4-00",
            "anthropic:claude-haiku-4-5",
            19_635,
            "2254*1 + 17269*1.25 + 112*5 + 1*10000",
        ),
        (
            "ant-ellmer-1ec046fc13-00",
            "anthropic:claude-sonnet-5",
            14_102,
            "4*2 + 2836*0.20 + 11107*2.50 + 155*10 + 1*10000",
        ),
        ("ant-genai-423a6a5212-00", "anthropic:claude-opus-5", 937, "15*5 + 837*0.50 + 85*25"),
        (
            "ant-pydai-0d7060d9f7-00",
            "anthropic:claude-sonnet-4-6",
            9_048,
            UNKNOWN,  # it ran code, and container time is not reported
        ),
        # Two kinds of writes: for five minutes, and for an hour.
        ("ant-rig-0420dc4294-00", "anthropic:claude-sonnet-4-6", 4_574, "3*3 + 19*3.75 + 4546*6 + 6*15"),
        ("ant-rig-0aaf2f5a58-00", "anthropic:claude-sonnet-4-6", 4_572, "3*3 + 20*3.75 + 4542*6 + 7*15"),
        ("ant-vercel-0645cf7ed6-00", "anthropic:claude-sonnet-4-5", 964_504, UNKNOWN),
    ],
    "openai_responses": [
        ("resp-bt-js-9bdee4215e-01", "openai:gpt-5.4-mini", 7_470, "295*0.75 + 7168*0.075 + 7*4.50"),
        ("resp-dd-trace-py-430c0c1aca-00", "openai:gpt-5.6-sol", 1_320, "3*4 + 1217*5 + 100*20"),
        ("resp-ellmer-bc23c23985-00", "openai:gpt-5.6-terra", 4_651, "3*2 + 4331*0.20 + 317*12"),
        ("resp-pydai-129bc48b51-00", "openai:gpt-5.4", 2_337, UNKNOWN),  # it made an image
        ("resp-rig-f79b2aed52-00", "openai:gpt-5.6-sol", 1_604, "269*4 + 1299*0.40 + 36*20"),
        # Served at half the price, and at twice the price.
        ("resp-genai-4659be2630-00", "openai:gpt-5.6-luna", 8_583, "4121*0.10 + 4427*0.01 + 35*0.60 + 10000"),
        ("resp-genai-7096600c82-00", "openai:gpt-5.6-terra", 8_803, "4337*1 + 4427*1.25 + 39*6 + 10000"),
        ("resp-chatlas-4b20dfa9fb-00", "openai:gpt-5.4", 18, "13*5 + 5*30"),
    ],
    "openai_chat": [
        ("chat-chatlas-c0aa4cc781-01", "deepseek:deepseek-v4-flash", 381, "106*0.15 + 256*0.003 + 19*0.60"),
        ("chat-genai-1d1f5680c1-00", "deepseek:deepseek-v4-pro", 394, "74*0.66 + 256*0.022 + 64*1.98"),
        ("chat-genai-41b3be48f0-00", "deepseek:deepseek-v4-pro", 503, "82*0.66 + 256*0.022 + 165*1.98"),
        # The bill is in the body: 3 918 500 ticks of which ten thousand million are a dollar.
        ("chat-req_llm2-2c23741ab2-00", "xai:grok-4.3", 277, "391.85"),
        ("chat-req_llm2-f395a6bcb8-00", "minimax:MiniMax-M2.7", 277, "172*0.30 + 32*0.06 + 73*1.20"),
        ("chat-genai-11e0bcc3f9-00", "openai-chat:gpt-5.6-luna", 176, "159*0.10 + 17*0.60"),
        ("chat-chatlas-67608d8e3c-01", "openai-chat:gpt-5.4", 1_089, "1084*2.50 + 5*15"),
    ],
    "gemini": [
        # 19 of the prompt, 8 of them cached, and 69 that a search brought, which is charged too.
        ("gem-bt-js-15595f6732-06", "gemini:gemini-2.5-flash", 227, "80*0.30 + 8*0.03 + 139*2.50 + 35000"),
        ("gem-crewAI-5764bf8376-01", "gemini:gemini-2.5-flash", 781, "137*0.30 + 287*0.03 + 357*2.50"),
        ("gem-mastra-53fd6fae3d-00", "gemini:gemini-2.5-flash", 4_976, "4689*0.30 + 287*2.50"),
        ("gem-mastra-6596d58820-02", "gemini:gemini-3.1-pro-preview", 5_328, "5224*2 + 104*12"),
        ("gem-pydai-40aad1b120-00", "gemini:gemini-2.5-pro", 1_564, "785*1.25 + 779*10"),
        ("gem-ruby_llm-d1b2d48d22-00", "gemini:gemini-3.5-flash", 1_900, "351*1.50 + 217*0.15 + 1332*9 + 3*14000"),
    ],
    "bedrock_converse": [
        # A region asks a tenth more.
        (
            "bed-pydai-1625527e9e-00",
            "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            1_522,
            "13*3.30 + 1504*0.33 + 5*16.50",
        ),
        (
            "bed-pydai-552b18dd51-00",
            "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            1_329,
            "2*3.30 + 1322*4.125 + 5*16.50",
        ),
        ("bed-crewAI-9918809513-00", "bedrock:us.anthropic.claude-sonnet-4-6", 1_611, "1606*3.30 + 5*16.50"),
        ("bed-langchain-aws-c33ce2d5fc-01", "bedrock:us.anthropic.claude-sonnet-5", 2_563, "1373*2.20 + 1190*11"),
        ("bed-langchain-aws-e33851adaf-00", "bedrock:us.anthropic.claude-sonnet-5", 962, "887*2.20 + 75*11"),
        (
            "bed-ruby_llm-19311181e3-00",
            "bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0",
            1_193,
            "80*1.10 + 1113*5.50",
        ),
        # And wherever there is room, nothing more.
        (
            "bed-req_llm2-e24a2cb966-00",
            "bedrock:global.anthropic.claude-sonnet-4-5-20250929-v1:0",
            47,
            "25*3 + 22*15",
        ),
    ],
}  # fmt: skip


@needs_recordings
@pytest.mark.parametrize("family", GOLDEN)
def test_recorded_calls_cost_what_a_pencil_says(family):
    codec = load_codec(family)
    by_id = {each.id: each for each in corpus(family.replace("_", "-"))}
    for name, string, total, sums in GOLDEN[family]:
        model = find_model(string, environ={})
        recording = by_id[name]
        reply = decode_recording(codec, Request(model=model), recording)
        assert isinstance(reply, Reply), name
        usage = reply.usage
        assert usage.input + usage.cache_read + usage.cache_write + usage.output == total, name
        assert usage.cache_write_1h <= usage.cache_write, name
        assert usage.reasoning <= usage.output, name
        assert model.price.cost(usage, NOON) == by_hand(sums), name


@needs_recordings
@pytest.mark.parametrize("family", GOLDEN)
def test_a_stream_costs_what_the_whole_reply_costs(family):
    codec = load_codec(family)
    wanted = {name: string for name, string, *_ in GOLDEN[family]}
    for recording in (each for each in corpus(family.replace("_", "-")) if each.id in wanted):
        model = find_model(wanted[recording.id], environ={})
        request = Request(model=model)
        reply = decode_recording(codec, request, recording)
        costs = {reply.usage}
        for stream in (True, False):
            spoken = find_family(codec.family).encode_reply(reply, stream=stream)  # type: ignore[arg-type]
            decoder = codec.new_decoder(request, spoken.status, dict(spoken.headers))
            for chunk in spoken.frames:
                decoder.feed(chunk)
            costs.add(decoder.close().usage)
        assert len(costs) == 1, recording.id


HOSTED_USES = {
    # As the message lists them: searches, pages opened, runs of code.
    "chat-genai-4b574897dc-00": (1, 1, 0),
    "chat-genai-5dcc7da593-00": (3, 3, 0),  # streamed, each of them twice
    "chat-genai-7c6b35957e-00": (0, 0, 1),
    "chat-genai-94432b8b89-00": (1, 2, 0),
    "chat-genai-b6d63d80d6-00": (1, 1, 0),
    "chat-langchain-23f82aaeed-00": (1, 0, 0),
    "chat-langchain-23f82aaeed-01": (1, 0, 0),
    "chat-pydai-517d2c9802-00": (1, 1, 0),
    # As the server counts them.
    "chat-pydai-00dea9c1da-00": (1, 0, 0),
    "chat-pydai-422cb4b410-00": (1, 0, 0),
}


@needs_recordings
def test_uses_of_hosted_tools_are_those_that_the_server_tells():
    codec, request = (
        load_codec("openai_chat"),
        Request(model=find_model("groq:openai/gpt-oss-20b", environ={})),
    )
    by_id = {each.id: each for each in corpus("openai-chat")}
    for name, told in HOSTED_USES.items():
        reply = decode_recording(codec, request, by_id[name])
        usage = reply.usage
        assert (usage.searches, usage.pages, usage.containers, usage.terms) == (*told, ()), name
        for stream in (True, False):
            spoken = find_family(codec.family).encode_reply(reply, stream=stream)  # type: ignore[arg-type]
            decoder = codec.new_decoder(request, spoken.status, dict(spoken.headers))
            for chunk in spoken.frames:
                decoder.feed(chunk)
            assert decoder.close().usage == usage, name


def by_hand(sums):
    if sums == UNKNOWN:
        return None
    products = (term.split("*") for term in sums.split(" + "))
    million = sum(Decimal(first) * (Decimal(rest[0]) if rest else 1) for first, *rest in products)
    return million / 1_000_000


def test_busy_hours_cost_twice_as_much():
    price = find_model("deepseek:deepseek-v4-flash", environ={}).price
    usage = Usage(input=1_000_000)
    assert price.cost(usage, NOON) == Decimal("0.15")
    assert price.cost(usage, PEAK) == Decimal("0.30"), "at two in the morning"
    assert price.cost(usage, PEAK + 2 * 3_600) == Decimal("0.15"), "at four"
    assert price.highest_rates(10, NOON).input == Decimal("0.15")
    assert price.highest_rates(10, PEAK - 3_600 - 60).input == Decimal("0.30"), "a minute before one"


def test_what_an_unlisted_term_costs_is_unknown():
    price = find_model("xai:grok-4.7", environ={}).price
    assert price.cost(Usage(input=1)) is not None
    assert price.cost(Usage(input=1, terms=("priority",))) is None


def test_the_cost_of_a_longer_lived_write_is_unknown_without_a_price():
    price = find_model("openai:gpt-5.6-sol", environ={}).price
    assert price.cost(Usage(cache_write=10)) == Decimal("0.00005")
    assert price.cost(Usage(cache_write=10, cache_write_1h=1)) is None
    assert (
        find_model("openai:gpt-5.4", environ={}).price.cost(Usage(cache_write=10, cache_write_1h=1))
        is not None
    )


def test_an_unpriced_search_makes_the_cost_unknown():
    assert find_model("xai:grok-4.7", environ={}).price.cost(Usage(input=1, searches=1)) is None


def test_uses_of_hosted_tools_are_charged_one_by_one_or_by_reply():
    one = find_model("openai:gpt-6.1-sol", environ={}).price
    assert one.cost(Usage(searches=2, file_searches=4, containers=1)) == Decimal("0.06")
    assert one.cost(Usage(images=1)) is None
    assert find_model("gemini:gemini-3.8-flash", environ={}).price.cost(Usage(searches=3), NOON) == Decimal(
        "0.042"
    )
    assert find_model("gemini:gemini-2.5-flash", environ={}).price.cost(Usage(searches=3), NOON) == Decimal(
        "0.035"
    )
    assert find_model("anthropic:claude-opus-5", environ={}).price.cost(Usage(containers=1)) is None


def test_a_dated_rate_of_a_hosted_tool_applies_in_its_time():
    rates = (HostedRate(count="searches", usd=Decimal(1), valid_until=NOON),
             HostedRate(count="searches", usd=Decimal(2), valid_from=NOON))  # fmt: skip
    price = Price(tiers=find_model("anthropic:claude-opus-5", environ={}).price.tiers, hosted=rates)
    assert [price.cost(Usage(searches=3), NOON + step) for step in (-1, 0, 1)] == [3, 6, 6]


def test_a_price_that_has_ended_is_unknown_from_that_day_on():
    rates = Rates(input=2, output=10, cache_read=1, cache_write=2, cache_write_1h=2, valid_until=NOON)  # type: ignore[arg-type]
    price = Price(tiers=(rates,))
    assert price.cost(Usage(input=1_000_000), NOON - 1) == 2
    assert price.cost(Usage(input=1_000_000), NOON) is None


def test_cards_of_ones_own_are_dated(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        """
[models.gemini.ids.gemini-4-argon]
prices = [
  { input = 2, output = 10, cache_read = 0.10, valid_until = 2026-12-01 },
  { input = 3, output = 12, cache_read = 0.30, valid_from = 2026-12-01 },
  { input = 6, output = 24, cache_read = 0.60, valid_from = 2026-12-01, above_prompt_tokens = 1000 },
]
price_factors = [{ term = "flex", factor = 0.25 }]
"""
    )
    price = find_model("gemini:gemini-4-argon", environ={"BRIDLE_MODELS": str(path)}).price
    december = NOON + 15 * 86_400
    assert price.cost(Usage(output=1_000_000), NOON) == 10
    assert price.cost(Usage(output=1_000_000), december) == 12
    assert price.cost(Usage(input=1_001), december) == Decimal("0.006006")
    assert price.cost(Usage(output=1_000_000, terms=("flex",)), december) == 3
    assert price.highest_rates(10, december - 60).output == 12, (
        "by the time it is asked it may be another day"
    )
    assert price.highest_rates(10, NOON).output == 10
    assert price.highest_rates(980, december).output == 24, "it may turn out to be longer"
    assert price.highest_rates(900, december).output == 12


@given(
    st.integers(0, 2_000_000),
    st.floats(0, 4_000_000_000),
    st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
    st.lists(st.integers(0, 300_000), min_size=5, max_size=5),
)
def test_the_highest_rates_are_never_exceeded(room, at, terms, counts):
    """Kept for an hour or not, and with a prompt that is a little longer than it was taken to be."""
    tiers = tuple(
        Rates(
            input=rate,
            output=5 * rate,
            cache_read=rate / 10,
            cache_write=rate * 5 / 4,
            cache_write_1h=2 * rate,
            above_prompt_tokens=above,
        )
        for rate, above in ((Decimal(1), 0), (Decimal(4), 100_000))
    )
    price = Price(
        tiers=tiers,
        factors=(
            PriceFactor(factor=Decimal(2), term="a"),
            PriceFactor(factor=Decimal("0.5"), term="b"),
            PriceFactor(factor=Decimal(3), hours=(5, 9)),
        ),
    )
    usage = Usage(
        input=counts[0],
        cache_read=counts[1],
        cache_write=counts[2],
        cache_write_1h=min(counts[4], counts[2]),
        output=min(counts[3], room),
        terms=terms,
    )
    rates = price.highest_rates(int(usage.prompt / 1.02), at, terms)
    most = max(rates.input, rates.cache_write, rates.cache_write_1h) * usage.prompt + rates.output * room  # type: ignore[type-var]
    assert price.cost(usage, at) <= most / 1_000_000
    assert price.cost(usage, at + 800) <= most / 1_000_000
