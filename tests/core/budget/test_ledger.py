"""The ledger: every attempt of a session is counted once, and the sum equals the session's total."""

import asyncio
import csv
import io
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle import Agent, tool
from bridle.cli.commands.cost import (
    COST_GROUP_KEYS,
    list_all_entries,
    list_session_entries,
    make_rows,
    make_total,
)
from bridle.cli.format.columns import display_width
from bridle.cli.log_access import fold_state
from bridle.cli.main import main
from bridle.core.budget.ledger import CONVERSATION_SHARE, list_entries
from bridle.core.budget.limits import add_nested_spending
from bridle.providers.catalogue import find_model
from bridle.sessions import CrossTenant
from bridle.sim.simulator import default_simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Reply, Stop, Text
from bridle.values.model import Origin
from bridle.values.record import GENESIS, seal_record
from bridle.values.settings import Settings
from bridle.values.usage import Usage
from tests.suite.campaign import scale
from tests.suite.ledger_sum import sum_entries

MODEL = find_model("anthropic:claude-haiku-5-5", environ={})
COUNTS = st.builds(
    Usage,
    input=st.integers(0, 200_000),
    cache_read=st.integers(0, 9_000),
    cache_write=st.integers(0, 9_000),
    output=st.integers(0, 9_000),
    terms=st.sampled_from([(), (), (), ("batch",), ("nobody-knows",)]),
)
HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(["reply", "fail", "refuse", "cancel", "kill", "prompt"]), COUNTS), max_size=25
)


def log(happenings, session="s"):
    """A session in which these things happened, each after a question to the model."""
    begun = e.Prompted(parts=(Text(text="Hi"),), tenant="acme", caller="ann")
    events = [e.Configured(settings=Settings(model=MODEL), session=session), begun]
    for number, (what, usage) in enumerate(happenings, start=1):
        events.append(e.ModelAsked(step=number, attempt=1, digest="d"))
        usd = MODEL.price.cost(usage)
        match what:
            case "reply" | "prompt":
                origin = Origin(family="f", endpoint="e", model="m")
                said = Reply(parts=(Text(text="Well."),), stop=Stop.DONE, origin=origin, usage=usage)
                events.append(e.ModelReplied(reply=said, usd=usd))
                if what == "prompt":
                    events += [e.RunEnded(stop="done"), begun]
            case "fail":
                broken = Failure(kind="cut", message="it broke off")
                events.append(e.ModelFailed(failure=broken, usage=usage, usd=usd))
            case "refuse":
                events.append(e.ModelFailed(failure=Failure(kind="server", message="later")))
            case "cancel":
                events += [e.RunEnded(stop="cancelled", usage=usage, usd=usd), begun]
            case "kill":
                events.append(e.Resumed())
    records, head = [], GENESIS
    for number, event in enumerate(events, start=1):
        records.append(seal_record(number, 1_794_800_000.0 + number * 7_000, event, head))  # type: ignore[arg-type]
        head = records[-1].hash
    return records


@given(HAPPENINGS)
def test_the_calls_add_up_to_the_session(happenings):
    records = log(happenings)
    booked, state = list_entries("s", records), fold_state(records)
    assert len(booked) == len(happenings), "each attempt once"
    assert sum_entries(booked) == state.totals.spent
    whole = make_total(booked)
    assert whole.usd == state.totals.spent.usd
    assert whole.lost == sum(what == "kill" for what, _ in happenings)
    for by in (*COST_GROUP_KEYS, "tool"):
        table = make_rows(booked, by)
        dollars = [row.usd for row in table]
        assert (None if None in dollars else sum(dollars, Decimal(0))) == whole.usd, by  # type: ignore[type-var]
        if by != "tool":
            assert sum(row.tokens for row in table) == state.totals.spent.usage.total
            assert sum(row.calls for row in table) == len(happenings)


def test_what_failed_is_paid_for_and_shown_apart():
    used = Usage(input=1_000, output=10)
    booked = list_entries("s", log([("fail", used), ("refuse", used), ("reply", used), ("cancel", used)]))
    assert [entry.outcome for entry in booked] == ["failed", "failed", "answered", "cancelled"]
    each = MODEL.price.cost(used)
    whole = make_total(booked)
    assert (whole.usd, whole.wasted_usd) == (3 * each, 2 * each)
    assert (whole.failed, whole.cancelled, whole.lost) == (2, 1, 0)
    assert {entry.tenant for entry in booked} == {"acme"}


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city, told at great length."""
    return "It is sunny and warm. " * 200


@tool(effect="read")
def get_time(city: str) -> str:
    """The time in a city."""
    return "noon"


def test_a_tool_pays_for_its_schema_and_for_its_results_in_later_prompts():
    store = MemoryStore()
    agent = Agent("sim:", tools=[get_weather, get_time], store=store)
    result = agent.run_sync("What is the weather in Paris?")
    booked = list_entries(result.session, asyncio.run(store.read(result.session)))
    first, second = ({share.tool: share for share in entry.shares} for entry in booked)
    assert first["get_weather"].result_tokens == 0
    assert first["get_weather"].call_tokens > 0
    assert second["get_weather"].result_tokens > 1_000
    assert second["get_time"].schema_tokens > 0
    assert first["get_time"].schema_tokens > 0
    table = {row.name: row.usd for row in make_rows(booked, "tool")}
    assert table["get_weather"] > table["get_time"] > 0
    assert table[CONVERSATION_SHARE] > 0
    assert sum(table.values()) == pytest.approx(Decimal(str(result.cost)))  # type: ignore[arg-type]


def test_the_command_tells_it_as_a_table_as_json_and_as_csv(tmp_path, capsys):
    path = str(tmp_path / "log.db")
    agent = Agent("sim:", tools=[get_time], store=path)
    result = agent.run_sync("What is 2 + 2?", tenant="acme")
    other = agent.run_sync("What is 3 + 3?", tenant="bolt")
    assert main(["cost", "--store", path, "--by", "tenant", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in told["rows"]} == {"acme", "bolt"}
    assert float(told["total"]["usd"]) == pytest.approx(result.cost + other.cost)
    assert main(["cost", result.session, "--store", path, "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["name"].startswith(result.session)
    assert float(row["usd"]) == pytest.approx(result.cost)
    assert main(["cost", "--store", path]) == 0
    assert "total" in capsys.readouterr().out
    assert main(["cost", "--store", path, "--since", "2999-01-01"]) == 0
    assert "nothing spent" in capsys.readouterr().out


def test_a_day_that_is_none_is_refused(tmp_path, capsys):
    path = str(tmp_path / "log.db")
    Agent("sim:", store=path).run_sync("Hi")
    with pytest.raises(SystemExit, match="2"):
        main(["cost", "--store", path, "--since", "someday"])
    assert "--since: 'someday' is not a date" in capsys.readouterr().err


TALK = st.lists(
    st.tuples(
        st.sampled_from(["get_weather", "get_time", "ask", "nothing"]),
        st.sampled_from(["", "!error 500\n", "!cut 300\n"]),
        st.integers(1, 3),
    ),
    max_size=5,
)


@given(TALK, st.booleans(), st.booleans())
@settings(max_examples=scale(15))
def test_every_grouping_adds_up_to_what_was_spent(talk, stream, apart):
    """Whatever was called, whatever failed, inside tools too, and in whichever store that is kept."""
    store = MemoryStore()
    inner = Agent("sim:", tools=[get_time], store=MemoryStore() if apart else store, name="inner")

    @tool(effect="read")
    async def ask(city: str) -> str:
        """Ask somebody else."""
        return (await inner.run('!call get_time {"city": "Oslo"}\n!then\n!say noon')).text

    agent = Agent(
        "sim:", tools=[get_weather, get_time, ask], store=store, random_source=lambda: 0.0, clock=FakeClock()
    )
    call = '!call {} {{"city": "Paris"}}\n'
    script = (
        "".join(trouble + call.format(name) * many + "!then\n" for name, trouble, many in talk) + "!say so"
    )

    async def run():
        first = agent.stream(script, "s", deltas=stream)
        async for _ in first:
            pass
        await agent.run("!say and again", "s", tenant=CrossTenant("acme"))
        return fold_state(await store.read("s")), await everything(store), await everything(store, "s")

    state, of_all, of_one = asyncio.run(run())
    assert sum_entries(list_entries("s", asyncio.run(store.read("s")))) == state.totals.spent
    both = add_nested_spending(state.totals.spent, state.totals.nested_spent)
    for booked in (of_all, of_one):
        whole = make_total(booked)
        assert (whole.usd, whole.tokens) == (both.usd, both.usage.total)
        for by in (*COST_GROUP_KEYS, "tool"):
            table = make_rows(booked, by)
            assert sum((row.usd for row in table), Decimal(0)) == whole.usd, by  # type: ignore[type-var]
            assert sum(row.tokens for row in table) == whole.tokens, by
            assert all(row.usd >= 0 and row.tokens >= 0 for row in table), by
    assert {row.name for row in make_rows(of_all, "tenant")} == {"(none)", "acme"}


async def everything(store, session=None):
    return await list_session_entries(store, session) if session else await list_all_entries(store)


def test_a_log_that_had_to_be_mended_is_added_up_too():
    records = log([("reply", Usage(input=1_000, output=10)), ("reply", Usage(input=2_000, output=10))])
    head, kept = GENESIS, []
    for event in [record.event for record in records if not isinstance(record.event, e.Prompted)]:
        kept.append(seal_record(len(kept) + 1, 1.0, event, head))
        head = kept[-1].hash
    assert [entry.usage.input for entry in list_entries("s", kept)] == [1_000, 2_000]


def test_streamed_and_whole_runs_cost_the_same():
    def cost(stream):
        default_simulator.cache_clear()  # a provider that has never heard of it
        agent = Agent("sim:", tools=[get_weather], store=MemoryStore())

        async def run():
            events = [event async for event in agent.stream("What is the weather in Paris?", deltas=stream)]
            return events[-1].result

        return asyncio.run(run())

    whole, streamed = cost(stream=False), cost(stream=True)
    assert (whole.usage, whole.cost) == (streamed.usage, streamed.cost)


def test_a_table_is_no_wider_than_the_screen(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = str(tmp_path / "log.db")
    agent = Agent(
        "sim:", tools=[get_time], store=path, name="a name that is longer than any table is wide, by far"
    )
    agent.run_sync('!error 500\n!call get_time {"city": "Paris"}\n!then\n!say noon', tenant="x" * 200)

    async def broken_off(tenant):
        async for shown in agent.stream("!say " + "word " * 90, tenant=tenant):
            if shown.text:
                break

    agent.run_sync("!error 500\n!say noon", tenant="東京" * 30)
    asyncio.run(broken_off("東京" * 30))
    for by in (*COST_GROUP_KEYS, "tool"):
        assert main(["cost", "--store", path, "--by", by]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(display_width, lines)) <= 80, by
        assert len({display_width(line) for line in lines if line.endswith(tuple("0123456789%"))}) == 1, (
            "one below the other"
        )
    assert "cancelled" in lines[-2] and "simulated" in lines[-1]


def test_what_a_fork_shares_is_spent_once():
    store = MemoryStore()
    agent = Agent("sim:", store=store)

    async def fork():
        first = await agent.run("!say one", "s")
        await agent.fork("s", new="other")
        second = await agent.run("!say two", "other")
        return first, second, await list_all_entries(store), await list_session_entries(store, "other")

    first, second, everything, other = asyncio.run(fork())
    assert [entry.session for entry in everything] == ["other", "s"]
    assert float(make_total(everything).usd) == pytest.approx(first.cost + second.cost)  # type: ignore[arg-type]
    assert float(make_total(other).usd) == pytest.approx(first.cost + second.cost)  # type: ignore[arg-type]
