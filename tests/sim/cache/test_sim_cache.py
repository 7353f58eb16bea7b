"""The simulated cache against the oracle, and each of its rules by hand."""

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from bridle.ports.transport import OutgoingRequest
from bridle.providers.catalogue import find_model
from bridle.sim.cache.prompt_cache import PromptLayout, SimulatedPromptCache, parse_duration
from bridle.sim.families import find_prompt_reader, lay_out_for_family
from bridle.sim.simulator import Simulator
from bridle.testing.fake_clock import FakeClock
from bridle.values.message import Stop
from bridle.values.request import Breakpoint
from tests.sim.cache.cache_conversations import WORLDS, body, conversation, headers
from tests.sim.cache.cache_oracle import figures
from tests.sim.sim_families import FAMILIES, decode_answer, question, send_request
from tests.suite.campaign import IS_WHOLE, scale

CONVERSATIONS = scale(30)
"""For each of nine worlds: 270 by default; with a campaign of 40 more than 10,000."""


def abilities_of(world):
    return find_model(f"sim:={world.family}/{world.model}", environ={}).abilities


def charge_prompt(cache, layout, now):
    """The usage of the prompt; what it writes is stored."""
    usage = cache.measure_usage(layout, now)
    cache.write_entries(layout, now)
    return usage


def report_cached(world, asks, dice):
    cache, abilities, reader = SimulatedPromptCache(), abilities_of(world), find_prompt_reader(world.family)
    for ask in asks:
        wire = body(world, ask, dice)
        prompt = lay_out_for_family(world.family, wire, abilities)
        layout = PromptLayout(prompt, reader.find_account(headers(world, ask)), abilities)  # type: ignore[arg-type]
        usage = charge_prompt(cache, layout, ask.time)
        assert usage.prompt == prompt.tokens
        yield usage.input, usage.cache_read, usage.cache_write, usage.cache_write_1h


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.family}-{world.model}")
def test_the_cache_agrees_with_the_oracle(world):
    seen = Counter()
    for seed in range(CONVERSATIONS):
        dice = random.Random(f"{world} {seed}")
        asks = conversation(dice, world)
        told = list(report_cached(world, asks, dice))
        expected = figures(world, asks)
        assert told == expected, f"seed {seed}"
        for fresh, read, written, long in told:
            seen.update(read=read > 0, written=written > 0, long=long > 0, fresh=fresh > 0, all=1)
    if not IS_WHOLE:
        return
    assert seen["all"] > seen["read"] > seen["all"] / 6, "random conversations must hit often, and miss often"
    if world.way != "prefix":
        assert min(seen["written"], seen["long"]) > seen["all"] / 100


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.family}-{world.model}")
def test_the_tables_say_what_the_oracle_was_told(world):
    abilities = abilities_of(world)
    way = "prefix" if abilities.cache == "hits" else abilities.cache
    assert (way, abilities.cache_minimum_tokens) == (world.way, world.minimum)
    if way != "marks":
        assert (abilities.cache_step_tokens, abilities.cache_seconds) == (world.step, world.seconds)


@pytest.mark.parametrize(
    ("word", "seconds"), [("5m", 300), ("1h", 3_600), ("24h", 86_400), ("", 0), ("h", 0), ("soon", 0)]
)
def test_durations(word, seconds):
    assert parse_duration(word) == seconds


# --- each rule by hand ----------------------------------------------------------------------------

SONNET, GPT, OLD_GPT = WORLDS[0], WORLDS[3], WORLDS[5]
LONG = " ".join(["word"] * 600)


def block(text, ttl=""):
    control = {"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {}
    return {"type": "text", "text": text, **control}


def make_body(*blocks, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": list(blocks)}], **fields}


def read_then(world, cache, *bodies, every=0.0, at=0.0):
    """What is read and written by requests that follow one another at a fixed distance."""
    abilities, told = abilities_of(world), []
    for number, wire in enumerate(bodies):
        layout = PromptLayout(lay_out_for_family(world.family, wire, abilities), "me", abilities)  # type: ignore[arg-type]
        usage = charge_prompt(cache, layout, at + number * every)
        told.append((usage.cache_read, usage.cache_write))
    return told


@pytest.mark.parametrize(("more", "found"), [(19, True), (20, False)])
def test_a_mark_looks_back_over_twenty_positions_and_no_further(more, found):
    first = make_body(block(LONG, "5m"))
    longer = make_body(block(LONG), *(block(f"line {n}") for n in range(more - 1)), block("end", "5m"))
    _, (read, _) = read_then(SONNET, SimulatedPromptCache(), first, longer)
    assert (read > 0) is found


def test_a_run_of_results_is_one_position():
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "seen"} for n in range(60)]
    first = make_body(block(LONG, "5m"))
    longer = make_body(block(LONG), *results, block("end", "5m"))
    _, (read, _) = read_then(SONNET, SimulatedPromptCache(), first, longer)
    assert read == 600 + 4


def test_reading_keeps_alive_and_waiting_kills():
    marked = make_body(block(LONG, "5m"))
    assert [read for read, _ in read_then(SONNET, SimulatedPromptCache(), *[marked] * 5, every=299)] == [
        0,
        *[604] * 4,
    ]
    assert [read for read, _ in read_then(SONNET, SimulatedPromptCache(), *[marked] * 3, every=300)] == [
        0,
        0,
        0,
    ]


def test_a_longer_promise_outlives_a_shorter_one():
    cache = SimulatedPromptCache()
    long, short = make_body(block(LONG, "1h")), make_body(block(LONG, "5m"))
    assert read_then(SONNET, cache, long, short, short, every=1_700) == [(0, 604), (604, 0), (604, 0)]


def test_what_is_too_short_is_never_kept():
    short = make_body(block(" ".join(["word"] * 507), "5m"))
    enough = make_body(block(" ".join(["word"] * 508), "5m"))
    assert read_then(SONNET, SimulatedPromptCache(), short, short) == [(0, 0), (0, 0)]
    assert read_then(SONNET, SimulatedPromptCache(), enough, enough) == [(0, 512), (512, 0)]


def test_a_search_tool_and_the_speed_leave_the_tools_alone():
    tool = {"name": "t", "description": LONG, "input_schema": {}, "cache_control": {"type": "ephemeral"}}
    plain = make_body(block(LONG, "5m"), tools=[tool])
    search = make_body(block(LONG, "5m"), tools=[tool, {"type": "web_search_20260209", "name": "web_search"}])
    fast = make_body(block(LONG, "5m"), tools=[tool], speed="fast")
    edited = make_body(block(LONG, "5m"), tools=[{**tool, "description": LONG + "!"}])
    (_, whole), (again, _), (after_search, _), (after_fast, _), (after_edit, _) = read_then(
        SONNET, SimulatedPromptCache(), plain, plain, search, fast, edited
    )
    assert again == whole
    assert 600 < after_search == after_fast < whole
    assert after_edit == 0


def test_only_the_first_two_points_and_the_latest_fifty_are_looked_up():
    def with_points(places):
        point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
        parts = [
            {"type": "input_text", "text": f"{LONG} {LONG}", **(point if n in places else {})}
            for n in range(60)
        ]
        options = {"mode": "explicit"}
        return {"input": [{"role": "user", "content": parts}], "prompt_cache_options": options}

    everywhere = with_points(range(60))
    for place, found in [(0, True), (1, True), (2, False), (9, False), (10, True), (30, True)]:
        _, (read, _) = read_then(GPT, SimulatedPromptCache(), with_points([place]), everywhere)
        assert (read > 0) is found, place


def test_twenty_earlier_ends_are_looked_up():
    def talk(turns):
        said = [{"role": "user", "content": LONG + LONG}]
        for n in range(turns):
            said += [{"role": "assistant", "content": f"a{n}"}, {"role": "user", "content": f"u{n}"}]
        return {"input": said}

    assert read_then(GPT, SimulatedPromptCache(), talk(0), talk(20))[1][0] > 0
    assert read_then(GPT, SimulatedPromptCache(), talk(0), talk(21))[1][0] == 0


def test_steps_of_128_from_1024_on():
    def talk(words):
        return {"input": " ".join(["word"] * words)}

    cache = SimulatedPromptCache()
    reads = [read for read, _ in read_then(OLD_GPT, cache, talk(1_019), talk(5_000))]
    assert reads == [0, 0]
    reads = [
        read for read, _ in read_then(OLD_GPT, SimulatedPromptCache(), talk(1_020), talk(5_000), talk(1_300))
    ]
    assert reads == [0, 1_024, 1_280]


def test_a_request_for_less_time_takes_nothing_away():
    def talk(**fields):
        return {"input": " ".join(["word"] * 1_100), **fields}

    day = talk(prompt_cache_retention="24h")
    reads = [
        read for read, _ in read_then(OLD_GPT, SimulatedPromptCache(), day, talk(), talk(), every=10_000)
    ]
    assert reads == [0, 1_024, 1_024]


def test_a_line_for_the_accountants_is_no_part_of_the_prompt():
    def billed(number):
        return make_body(block(LONG, "5m"), system=[block(f"x-anthropic-billing-header: n={number};")])

    assert read_then(SONNET, SimulatedPromptCache(), billed(1), billed(2)) == [(0, 604), (604, 0)]


def test_a_call_that_never_began_writes_nothing():
    abilities = abilities_of(SONNET)
    layout = PromptLayout(
        lay_out_for_family("anthropic", make_body(block(LONG, "5m")), abilities),  # type: ignore[arg-type]
        "me",
        abilities,
    )
    cache = SimulatedPromptCache()
    assert (
        cache.measure_usage(layout, 0.0)
        == cache.measure_usage(layout, 1.0)
        == charge_prompt(cache, layout, 2.0)
    )
    assert cache.measure_usage(layout, 3.0).cache_read == 604


def test_caches_of_accounts_and_models_are_separate():
    abilities, cache = abilities_of(SONNET), SimulatedPromptCache()
    prompt = lay_out_for_family("anthropic", make_body(block(LONG, "5m")), abilities)
    asked = [("me", "m"), ("you", "m"), ("me", "n"), ("me", "m")]
    reads = [
        charge_prompt(cache, PromptLayout(prompt, who, abilities, model), 0.0).cache_read  # type: ignore[arg-type]
        for who, model in asked
    ]
    assert reads == [0, 0, 0, 604]


# --- over the wire --------------------------------------------------------------------------------

TALK = " ".join(["word"] * 7_000)
COUNTS = {
    "anthropic": ("cache_read_input_tokens", "cache_creation_input_tokens", "ephemeral_1h_input_tokens"),
    "bedrock_converse": ("cacheReadInputTokens", "cacheWriteInputTokens", "inputTokens"),
    "gemini": ("cachedContentTokenCount", "promptTokenCount"),
    "openai_chat": ("cached_tokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens"),
    "openai_responses": ("cached_tokens", "cache_write_tokens"),
}


def told_by(simulator, request):
    """The reply as our side understands it, and the bytes it came in."""
    timeline = send_request(simulator, request)
    return decode_answer(request, timeline), timeline.body.decode("utf-8", "replace")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reports_its_cache_in_its_own_fields(family, stream):
    clock = FakeClock()
    simulator = Simulator(clock=clock)
    marks = (Breakpoint(position="message", message=0, ttl="1h"),)
    request = question(family, TALK, stream=stream, breakpoints=marks)
    first, _ = told_by(simulator, request)
    clock.advance(10)
    second, wire = told_by(simulator, request)
    clock.advance(100_000)
    late, _ = told_by(simulator, request)
    assert first.usage.cache_read == late.usage.cache_read == 0
    assert second.usage.cache_read > 0.98 * first.usage.prompt
    assert second.usage.prompt == first.usage.prompt
    assert all(name in wire for name in COUNTS[family])


WINDOW = 6_000
LINES = {
    "claude-sonnet-5-5": "claude",
    "gpt-6.1-sol": "gpt",
    "gemini-3.8-flash": "gemini",
    "deepseek-v4-pro": "deepseek",
}


@pytest.fixture
def small_windows(tmp_path, monkeypatch):
    """Every family's model has a small window: to fill a million tokens shows nothing more."""
    ids = [f'[models.{line}.ids."{name}"]\ncontext_tokens = {WINDOW}\n' for name, line in LINES.items()]
    path = tmp_path / "models.toml"
    path.write_text("\n".join(ids))
    monkeypatch.setenv("BRIDLE_MODELS", str(path))


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.refusals
def test_a_prompt_that_does_not_fit_is_refused_and_its_kind_is_understood(family):
    request = question(family, "word " * WINDOW)
    refused, _ = told_by(Simulator(), request)
    assert (refused.kind, refused.status) == ("context", 400)
    answered, _ = told_by(Simulator(strict=False), request)
    assert answered.usage.prompt > WINDOW


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[pytest.mark.refusals] if family == "openai_chat" else [])
        for family in FAMILIES
    ],
)
def test_an_answer_ends_where_the_window_does(family):
    prompt = "!say " + "yes " * 200 + "\n" + "word " * (WINDOW - 300)
    request = question(family, prompt, max_tokens=500)
    answered, _ = told_by(Simulator(), request)
    if family == "openai_chat":
        assert answered.kind == "context", "room that was asked for counts as used on this wire"
        answered, _ = told_by(Simulator(), question(family, prompt, max_tokens=None))
    assert answered.stop in (Stop.CONTEXT, Stop.LENGTH)
    assert answered.usage.total == WINDOW


def test_what_changed_is_told_to_those_who_ask():
    simulator = Simulator(clock=FakeClock())

    def ask(text, previous="", **fields):
        more = {"diagnostics": {"previous_message_id": previous}} if previous else {}
        body = {"model": "claude-sonnet-5-5", "max_tokens": 50, **make_body(block(text)), **more, **fields}
        body["model"] = fields.get("model", "claude-sonnet-5-5")
        outgoing = OutgoingRequest(
            method="POST",
            url="sim://anthropic/v1/messages",
            headers=(("anthropic-version", "2026-10-21"),),
            body=msgspec.json.encode(body),
        )
        return msgspec.json.decode(asyncio.run(simulator.answer(outgoing)).body)

    first = ask(LONG, system="Be brief.")
    assert "diagnostics" not in first

    def reason(*args, **fields):
        told = ask(*args, previous=first["id"], **fields)["diagnostics"]["cache_miss_reason"]  # type: ignore[misc]
        return told and (told["type"], told.get("cache_missed_input_tokens"))

    assert reason(LONG, system="Be brief.") is None
    assert reason(LONG + " more", system="Be brief.") == ("messages_changed", 604)
    assert reason(LONG, system="Be long.") == ("system_changed", 607)
    assert reason(LONG, system="Be brief.", model="claude-opus-5-5") == ("model_changed", 607)
    first = {"id": "msg_nobody"}
    assert reason(LONG) == ("previous_message_not_found", None)
