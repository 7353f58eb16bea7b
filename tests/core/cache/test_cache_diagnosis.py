"""The cause and the price of every cache miss."""

import asyncio
import json
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, tool
from bridle.cli.format.columns import display_width
from bridle.cli.main import main
from bridle.core.cache.report import CACHE_OUTCOMES, list_cache_calls, sum_cache_calls
from bridle.hooks import after_model
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sessions import CrossTenant
from bridle.sim.simulator import Simulator
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.cache import CacheDegraded
from bridle.values.message import Reply, Stop, Text, ToolCall
from bridle.values.model import Abilities, Origin
from bridle.values.usage import Usage
from tests.core.compaction.long_walks import FAMILIES, Walk

LONG = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(80))


@tool(effect="read")
def look(at: int) -> str:
    """Look at one place."""
    return f"There are {at} things. " * 20


def reply_to_request(request):
    """One look in every run, then an answer."""
    seen = sum(message.role == "assistant" for message in request.messages)
    endpoint = request.model.endpoint
    origin = Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id)
    if request.messages[-1].role == "tool":
        return Reply(parts=(Text(text="Done."),), stop=Stop.DONE, origin=origin, id=f"r{seen}")
    call = ToolCall(id=f"c{seen}", wire_id=f"c{seen}", name="look", arguments='{"at": 1}')
    return Reply(parts=(call,), stop=Stop.TOOLS, origin=origin, id=f"r{seen}")


class World:
    """A session with a simulated provider, whose cache can be lost."""

    def __init__(self, model="anthropic:claude-sonnet-5-5", store=None):
        self.clock, self.store = FakeClock(), store or MemoryStore()
        self.model = find_model(model, environ={})
        self.forget()

    def forget(self):
        self.simulator = Simulator(responder=reply_to_request, clock=self.clock)

    def run(self, prompt="Go on.", session="s", tenant="acme", **given):
        line = ModelConnection(
            model=self.model,
            codec=load_codec(self.model.endpoint.family),
            transport=InProcessTransport(lambda outgoing: self.simulator.answer(outgoing)),
        )
        settings = {"instructions": LONG, "tools": [look], "cache_ttl": "5m", **given}
        agent = Agent(line, store=self.store, clock=self.clock, budget=Budget(steps=9), **settings)
        return agent.run_sync(prompt, session=session, tenant=tenant)

    def records(self):
        return asyncio.run(self.store.read("s"))

    def calls(self):
        return list_cache_calls(self.records())


def test_what_could_be_read_was_read():
    world = World()
    world.run()
    world.run()
    calls = world.calls()
    assert [call.outcome for call in calls] == ["cold", "hit", "hit", "hit"]
    assert [call.expected_tokens for call in calls[1:]] == [call.prompt_tokens for call in calls[:-1]]
    assert {call.tenant for call in calls} == {"acme"}
    total = sum_cache_calls(calls)
    assert total.hit_rate is not None
    assert total.hit_rate > 0.97
    assert (total.missed_tokens, total.usd) == (0, Decimal(0))
    assert total.outcomes == {"cold": 1, "hit": 3}


def test_a_prefix_that_moved_is_named_and_priced():
    world = World()
    world.run()
    world.run(instructions="New. " + LONG)
    miss = world.calls()[2]
    assert miss.outcome == "prefix"
    assert miss.why == "system, from instructions on: the agent's instructions changed"
    assert miss.missed_tokens == miss.expected_tokens - miss.read_tokens
    rates = world.model.price.rates(miss.prompt_tokens)
    assert miss.usd == miss.missed_tokens * (rates.cache_write - rates.cache_read) / 1_000_000
    assert miss.usd > 0


@pytest.mark.parametrize(("ttl", "verdict"), [("5m", "ttl"), ("1h", "hit")])
def test_a_long_pause(ttl, verdict):
    world = World()
    world.run(cache_ttl=ttl)
    world.clock.advance(400)
    world.run(cache_ttl=ttl)
    call = world.calls()[2]
    assert call.outcome == verdict
    assert ("400 s since" in call.why) == (verdict == "ttl")


def test_what_nothing_explains_is_the_providers():
    world = World()
    world.run()
    world.forget()
    world.run()
    assert [call.outcome for call in world.calls()] == ["cold", "hit", "provider", "hit"]


def test_a_forced_choice_of_tools_is_told():
    world = World()
    world.run()
    records = [
        replace(
            record, event=replace(record.event, tool_choice=replace(record.event.tool_choice, mode="any"))
        )
        if isinstance(record.event, e.ModelAsked) and record.event.step == 2
        else record
        for record in replace_usage(world.records(), 2, Usage(input=3_000))
    ]
    call = list_cache_calls(records)[1]
    assert (call.outcome, call.why) == ("prefix", "settings: the tool choice is any and was auto")


def replace_usage(records, number, usage):
    """The same log, had the provider counted the call of that number so."""
    told, seen = [], 0
    for record in records:
        if isinstance(record.event, e.ModelReplied):
            seen += 1
            if seen == number:
                reply = replace(record.event.reply, usage=usage)
                record = replace(record, event=replace(record.event, reply=reply))
        told.append(record)
    return told


def test_a_mark_that_did_not_reach_back_is_told():
    world = World()
    world.run()
    world.run(["And on."] * 60)
    call = list_cache_calls(replace_usage(world.records(), 3, Usage(input=2_000, cache_read=700)))[2]
    assert (call.outcome, call.why) == ("lookback", "61 blocks since the previous call")


def test_short_prompts_and_silent_providers_are_no_misses():
    short = World()
    short.run(instructions="")
    assert [call.outcome for call in short.calls()] == ["cold", "minimum"]
    assert "at least 512" in short.calls()[1].why
    store = MemoryStore()
    silence = scripted("one", "two", abilities=Abilities())
    Agent(silence, store=store).run_sync("go", session="s")
    silent = list_cache_calls(asyncio.run(store.read("s")))
    assert [call.outcome for call in silent] == ["unreported"]
    assert sum_cache_calls(silent).hit_rate is None


def test_prompts_kept_in_steps_are_expected_in_steps():
    world = World("deepseek:deepseek-v4-pro")
    world.run()
    world.run()
    calls = world.calls()
    assert [call.outcome for call in calls] == ["cold", "hit", "hit", "hit"]
    assert all(call.expected_tokens % 64 == 0 for call in calls)


def test_the_command_shows_calls_bars_and_the_rate(tmp_path, capsys):
    world = World(store=open_store(tmp_path / "log.db"))
    world.run()
    world.run(instructions="New. " + LONG)
    asyncio.run(world.store.close())
    where = ["s", "--store", str(tmp_path / "log.db")]
    assert main(["cost", "--cache", *where]) == 0
    out = capsys.readouterr().out
    assert "hit rate" in out
    assert "█" in out
    assert "▒" in out
    assert CACHE_OUTCOMES["prefix"] in out
    assert "the agent's instructions changed" in out
    assert main(["cost", "--cache", *where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [call["outcome"] for call in told["calls"]] == ["cold", "hit", "prefix", "hit"]
    assert 0 < told["hit_rate"] < 1
    assert told["sum"]["missed_tokens"] == told["calls"][2]["missed_tokens"] > 0


def test_agents_have_the_name_they_were_given_or_one_made_of_what_they_are():
    named, unnamed, other = World(), World(), World()
    named.run(name="scout")
    unnamed.run()
    unnamed.run(tools=[replace_description()])
    other.run(instructions="Something else. " + LONG)
    assert {call.agent for call in named.calls()} == {"scout"}
    (made,) = {call.agent for call in unnamed.calls()}
    assert made.startswith("agent-")
    assert {call.agent for call in other.calls()}.isdisjoint({made})


def replace_description():
    @tool(effect="read")
    def look(at: int) -> str:
        """Look at one place, in other words."""
        return "nothing"

    return look


def alarms(world):
    return [record.event for record in world.records() if isinstance(record.event, CacheDegraded)]


def test_a_cache_that_stopped_working_is_told_once_an_episode():
    world = World()
    for _ in range(3):
        world.run()
    assert alarms(world) == []
    for turn in range(3):
        world.run(instructions=f"It is turn {turn}. " + LONG)
    (alarm,) = alarms(world)
    assert (alarm.rule, alarm.outcome, alarm.calls) == ("lost", "prefix", 3)
    assert alarm.rate_before > 0.9
    assert alarm.rate < 0.5
    assert "the agent's instructions changed" in alarm.why
    assert alarm.missed_tokens > 3_000
    assert alarm.usd > 0
    for _ in range(3):
        world.run()
    for turn in range(3):
        world.run(instructions=f"It is another turn {turn}. " + LONG)
    assert len(alarms(world)) == 2, "it had been well in between"


def test_an_alarm_that_a_crash_prevented_is_recorded_by_the_next_driver():
    world = World()
    for turn in range(4):
        world.run(instructions=f"It is turn {turn}. " + LONG)
    records = world.records()
    at = next(at for at, record in enumerate(records) if isinstance(record.event, CacheDegraded))
    assert isinstance(records[at - 1].event, e.ModelReplied)
    crashed = MemoryStore()
    asyncio.run(crashed.append("s", 0, records[:at]))
    world.store = crashed
    assert alarms(world) == []
    world.run()
    assert alarms(world) == [records[at].event]


def test_a_reviewed_reply_raises_the_alarm_at_once():
    @after_model()
    def review(run, reply):
        return None

    world, watched = World(), World()
    for turn in range(4):
        world.run(instructions=f"It is turn {turn}. " + LONG)
        watched.run(instructions=f"It is turn {turn}. " + LONG, hooks=[review])
    assert alarms(watched) == alarms(world)
    assert len(alarms(watched)) == 1


def test_an_alarm_is_in_the_log_on_the_terminal_and_in_the_sums(tmp_path, capsys):
    world = World(store=open_store(tmp_path / "log.db"))
    for turn in range(4):
        world.run(instructions=f"It is turn {turn}. " + LONG, name="clockwork")
    asyncio.run(world.store.close())
    where = ["--store", str(tmp_path / "log.db")]
    assert main(["show", "s", *where]) == 0
    assert "hit rate" in capsys.readouterr().out
    assert main(["cost", "--cache", "--by", "agent", *where]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("clockwork"))
    assert row.split()[-1] == "1"
    assert all(len(line) <= 80 for line in out.splitlines())


def test_expected_cached_tokens_never_exceed_the_prompt(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    walk = Walk(FAMILIES["anthropic"], store=open_store(tmp_path / "log.db"))
    walk.run(30)
    calls = list_cache_calls(walk.records)
    asyncio.run(walk.store.close())
    assert len(walk_misses := [call for call in calls if call.missed_tokens]) >= 2
    assert all(call.expected_tokens <= call.prompt_tokens for call in calls)
    # The rates of the simulated model: $2.50 a million written, $0.10 read.
    assert [float(call.usd) for call in walk_misses] == [  # type: ignore[arg-type]
        pytest.approx((call.expected_tokens - call.read_tokens) * 2.4e-6) for call in walk_misses
    ]
    assert main(["show", "s", "--as", "cache", "--store", str(tmp_path / "log.db")]) == 0
    out = capsys.readouterr().out
    assert "the next prompt would fill" in out
    assert max(map(display_width, out.splitlines())) <= 80


def test_rates_by_agent_tenant_session_and_model(tmp_path, capsys):
    store = open_store(tmp_path / "log.db")
    for session, tenant, name in (("a", "acme", "scout"), ("b", "acme", "scribe"), ("c", "", "scout")):
        world = World(store=store)
        world.run(session=session, tenant=tenant, name=name)
    asyncio.run(store.close())
    where = ["--store", str(tmp_path / "log.db"), "--json"]

    def read_cache_report(*how):
        assert main(["cost", "--cache", *how, *where]) == 0
        return json.loads(capsys.readouterr().out)

    assert {row["name"] for row in read_cache_report()["rows"]} == {"a", "b", "c"}
    agents = {row["name"]: row for row in read_cache_report("--by", "agent")["rows"]}
    assert {name: row["sessions"] for name, row in agents.items()} == {"scout": 2, "scribe": 1}
    assert all(row["hit_rate"] > 0.9 for row in agents.values())
    tenants = {row["name"]: row["sum"]["calls"] for row in read_cache_report("--by", "tenant")["rows"]}
    assert tenants == {"acme": 4, "(none)": 2}
    (model,) = read_cache_report("--by", "model")["rows"]
    assert model["sum"] == read_cache_report()["total"]["sum"]
    (one,) = read_cache_report("a", "--by", "agent")["rows"]
    assert one["name"] == "scout"


def test_a_tenant_of_its_own_key_moves_the_prefix_and_is_told():
    world = World("openai:gpt-6.1-sol")
    world.run(cache_by="tenant")
    world.run(cache_by="tenant", tenant=CrossTenant("globex"))
    miss = world.calls()[2]
    assert (miss.outcome, miss.read_tokens) == ("prefix", 0)
    assert miss.why.startswith("settings, from cache key on")
    assert miss.usd > 0


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-5-5", "openai:gpt-6.1-sol"])
def test_what_the_provider_says_itself_explains_a_miss(model):
    """The log is the same, the prompt is not: as when somebody in between has changed it."""
    world = World(model)
    world.run()
    answer = world.simulator.answer

    def meddled(outgoing):
        return answer(replace(outgoing, body=outgoing.body.replace(b"leap", b"jump")))

    world.simulator.answer = meddled
    world.run()
    miss = world.calls()[2]
    reason = "system_changed" if model.startswith("anthropic") else "input_changed"
    assert (miss.outcome, miss.why) == ("prefix", f"the provider says {reason}")
    assert miss.missed_tokens > 0


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ("openai:gpt-6.1-sol", "cache_write"),
        ("openai:gpt-5.4", "input"),
        ("deepseek:deepseek-v4-pro", "input"),
    ],
)
def test_eviction_is_the_providers_and_priced_as_it_bills(model, rate):
    world = World(model)
    world.run()
    world.forget()
    world.run()
    miss = world.calls()[2]
    assert miss.outcome == "provider"
    rates = world.model.price.rates(miss.prompt_tokens)
    assert miss.usd == miss.missed_tokens * (getattr(rates, rate) - rates.cache_read) / 1_000_000


@pytest.mark.parametrize(
    ("model", "pause", "ttl", "verdict"),
    [
        ("openai:gpt-6.1-sol", 1_900, "auto", "ttl"),
        ("openai:gpt-6.1-sol", 1_900, "12h", "hit"),
        ("openai:gpt-5.4", 400, "auto", "ttl"),
        ("openai:gpt-5.4", 400, "24h", "hit"),
        ("gemini:gemini-3.8-flash", 400, "auto", "ttl"),
    ],
)
def test_how_long_a_prompt_is_kept_is_asked_for_and_known(model, pause, ttl, verdict):
    world = World(model)
    long = " ".join([LONG] * 4)
    world.run(cache_ttl=ttl, instructions=long)
    world.clock.advance(pause)
    world.run(cache_ttl=ttl, instructions=long)
    assert world.calls()[2].outcome == verdict


def test_a_replay_explains_by_what_was_asked_not_by_what_would_be_asked_today():
    world = World()
    world.run(cache_ttl="1h")
    asked = [record.event for record in world.records() if isinstance(record.event, e.ModelAsked)]
    assert {mark.ttl for event in asked for mark in event.breakpoints} == {"1h"}
    world.clock.advance(400)
    world.run(cache_ttl="1h")
    records = [
        replace(record, event=replace(record.event, breakpoints=()))
        if isinstance(record.event, e.ModelAsked)
        else record
        for record in replace_usage(world.records(), 3, Usage(input=3_000))
    ]
    assert list_cache_calls(replace_usage(world.records(), 3, Usage(input=3_000)))[2].outcome == "provider"
    assert list_cache_calls(records)[2].outcome == "provider", "old logs have no marks; their settings say it"
