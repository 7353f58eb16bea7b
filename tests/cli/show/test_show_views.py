"""`bridle show --as tree | timeline | events`: everything that happened, once, with its time and its cost."""

import asyncio
import json
import re
from decimal import Decimal

import pytest

from bridle import Agent, tool
from bridle.cli.commands.cost import list_session_entries
from bridle.cli.main import main
from bridle.cli.show.trace_tree import TraceNode, read_trace
from bridle.cli.show.trace_views import format_timeline, format_tree, label_node
from bridle.stores import open_store
from bridle.testing import FakeClock, ProviderSim
from bridle.values.errors import StoreError
from bridle.values.record import NO_SPAN, NO_TRACE, Span
from tests.suite.crashes import CrashingStore

MODEL = "sim:anthropic/claude-sonnet-5-5"
RIGHT_COLUMNS = re.compile(r" +(\d[\d.]* (?:ms|s|min))(?: +(\$[\d.]+|unknown))?$")


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is fine"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("the bank is closed")


@pytest.fixture(autouse=True)
def screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def path(tmp_path):
    """A log with a run that failed once, used an agent as a tool and a tool in vain, and one more run."""
    clock = FakeClock()
    inner = Agent(ProviderSim(clock=clock).model(MODEL), tools=[look], name="weather", clock=clock)
    provider = ProviderSim(clock=clock)
    provider.fail("error-429-wait:7")
    outer = Agent(
        provider.model(MODEL),
        tools=[inner.as_tool(name="ask", description="Ask."), fail],
        store=str(tmp_path / "log.db"),
        clock=clock,
    )
    question = json.dumps({"prompt": '!call look {"city": "Oslo"}\n!then\n!say Fine.'})

    async def fill():
        await outer.run(f"!call ask {question}\n!then\n!call fail {{}}\n!then\n!say ok", session="s")
        await outer.run("!say bye", session="s")
        await outer.store.close()

    asyncio.run(fill())
    return str(tmp_path / "log.db")


def run_and_read(capsys, *words):
    capsys.readouterr()
    assert main([*words]) == 0
    return capsys.readouterr().out


def strip_columns(line):
    return RIGHT_COLUMNS.sub("", line)


def test_the_tree_holds_runs_turns_calls_waits_and_the_runs_inside_tools(capsys, path):
    lines = run_and_read(capsys, "show", "s", "--as", "tree", "--store", path).splitlines()
    assert max(map(len, lines)) <= 80
    tree = [strip_columns(line) for line in lines[2 : lines.index("", 2)]]
    words = [re.sub(r"^[│├└─ ]+", "", line) for line in tree if re.match(r"run|[│ ]*[├└]", line)]
    assert [re.sub(r"session ask-\w+|[:(] ?“?!.*|\(\{.*", "", word) for word in words] == [
        "run 1 (done)",
        "turn 1",
        "model claude-sonnet-5-5: rate limited: Number of",
        "wait before attempt 2: rate limited",
        "model claude-sonnet-5-5, attempt 2",
        "ask",
        "run of weather (done), session",
        "turn 1",
        "model claude-sonnet-5-5",
        "look",
        "turn 2",
        "model claude-sonnet-5-5",
        "turn 2",
        "model claude-sonnet-5-5",
        "fail",
        "turn 3",
        "model claude-sonnet-5-5",
        "run 2 (done)",
        "turn 1",
        "model claude-sonnet-5-5",
    ]
    (waited,) = [line for line in lines if "wait before" in line]
    assert RIGHT_COLUMNS.search(waited)[1] == "7.0 s"


def test_the_costs_in_the_tree_are_those_of_the_ledger(path):
    async def read():
        store = open_store(path)
        runs = await read_trace(store, "s", await store.read("s"))
        entries = await list_session_entries(store, "s")
        await store.close()
        return runs, entries

    runs, entries = asyncio.run(read())
    total = sum((run.sum_usd() for run in runs), Decimal(0))
    assert float(total) == pytest.approx(float(sum(entry.usd for entry in entries)))
    calls = [node.usage for run in runs for _, node in run.walk() if node.span.name.startswith("chat")]
    assert sum(usage.total for usage in calls) == sum(entry.usage.total for entry in entries)
    assert len(calls) == len(entries)


def test_the_timeline_has_a_bar_and_the_tokens_of_every_call(capsys, path):
    lines = run_and_read(capsys, "show", "s", "--as", "timeline", "--store", path).splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if re.match(r" +\+", line)]
    bars = [re.search(r"[█▓░▒·]{14}", row)[0] for row in rows]
    assert [bar.strip("·")[0] for bar in bars] == [*"█░█▓▒█▓██▓██"]
    waited = bars[1].count("░")
    assert waited == max(len(bar.strip("·")) for bar in bars), "the longest bar is that of the longest span"
    assert sum(" out" in line for line in lines[4:-2]) == 6, "the call that was refused used nothing"


def test_spans_are_data_with_json(capsys, path):
    tree = json.loads(run_and_read(capsys, "show", "s", "--as", "tree", "--json", "--store", path))
    rows = json.loads(run_and_read(capsys, "show", "s", "--as", "timeline", "--json", "--store", path))[
        "rows"
    ]

    def count(node):
        return 1 + sum(map(count, node["children"]))

    assert sum(map(count, tree["runs"])) == len(rows)
    assert rows[0]["offset"] == 0.0
    assert all(row["offset"] >= 0 and row["seconds"] >= 0 for row in rows)
    assert {row["session"] == "s" for row in rows if row["depth"] > 2} == {False}


def test_events_are_one_entry_per_record(capsys, path):
    records = run_and_read(capsys, "show", "s", "--json", "--store", path).splitlines()
    lines = run_and_read(capsys, "show", "s", "--as", "events", "--store", path).splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if re.match(r" *\d+ +\+", line)]
    told = [json.loads(line) for line in records]
    assert [(int(head[0]), head[2]) for head in heads] == [(row["seq"], row["event"]["type"]) for row in told]
    assert (
        run_and_read(capsys, "show", "s", "--as", "events", "--json", "--store", path).splitlines() == records
    )


@pytest.mark.parametrize("left", range(3, 9))
def test_a_run_whose_process_was_killed_is_shown_as_far_as_it_got(left):
    """At every record: what was open then is named as not finished."""
    store = CrashingStore(left)
    agent = Agent(MODEL, tools=[look], store=store)
    with pytest.raises(StoreError):
        agent.run_sync('!call look {"city": "Oslo"}\n!then\n!say ok', session="s")

    async def read():
        return await read_trace(store, "s", await store.read("s"))

    runs = asyncio.run(read())
    is_open = "\n".join(format_tree(runs)).count("not finished")
    assert is_open == sum(
        node.is_open for run in runs for _, node in run.walk() if "turn" not in node.span.name
    )
    assert runs[0].is_open
    assert [*format_timeline(runs)]


def test_a_run_inside_a_tool_whose_log_is_missing_is_named(capsys, path, tmp_path):
    async def copy():
        store, other = open_store(path), open_store(str(tmp_path / "other.db"))
        await other.append("s", 0, await store.read("s"))
        await store.close()
        await other.close()

    asyncio.run(copy())
    shown = run_and_read(capsys, "show", "s", "--as", "tree", "--store", str(tmp_path / "other.db"))
    assert re.search(r"session ask-\w+ is not in this\s.*log", shown)


def shown_lines(agent, *, view=format_tree):
    async def read():
        return [*view(await read_trace(agent.store, "s", await agent.store.read("s")))]

    return [strip_columns(line) for line in asyncio.run(read())]


def test_a_run_that_waited_for_approval_and_was_resumed_is_one_run():
    @tool(approve=True)
    def pay(usd: int) -> str:
        """Pay."""
        return f"paid {usd}"

    agent = Agent(MODEL, tools=[pay])

    async def run():
        waiting = await agent.run('!call pay {"usd": 7}\n!then\n!say ok', session="s")
        assert waiting.stop == "waiting"
        (question,) = await agent.approvals("s")
        await agent.approve("s", question.id)
        await agent.resume("s")

    asyncio.run(run())
    assert shown_lines(agent) == [
        'run 1 (done): “!call pay {"usd": 7} !then !say ok”',
        "├─ turn 1",
        "│  ├─ model claude-sonnet-5-5",
        "│  └─ approval of pay: approve",
        "└─ resumed (done)",
        '   ├─ pay({"usd": 7})',
        "   └─ turn 2",
        "      └─ model claude-sonnet-5-5",
    ]
    assert any("░" in line and "approval" in line for line in shown_lines(agent, view=format_timeline)[1:])


def test_a_run_that_was_handed_over_shows_the_other_agent_and_why_the_cache_missed():
    other = Agent(MODEL, name="billing", instructions="Billing.")
    agent = Agent(MODEL, name="front", instructions="Front.", handover=[other])
    agent.run_sync("!call transfer_to_billing {}\n!then\n!say hello", session="s")
    shown = shown_lines(agent)
    assert "└─ handed over to billing (done)" in shown
    assert any(
        line.startswith("   ├─ · prefix moved: tools, settings changed, uncached tokens ") for line in shown
    )


@pytest.mark.parametrize(
    ("attributes", "label"),
    [
        (
            {"bridle.compaction.before_tokens": 9000, "bridle.compaction.after_tokens": 10},
            "9,000 -> 10 tokens",
        ),
        ({}, "without effect"),
    ],
)
def test_a_compaction_is_named_with_its_sizes_if_it_has_some(attributes, label):
    span = Span(
        trace_id=NO_TRACE, span_id=NO_SPAN, parent_id=NO_SPAN, name="compaction", kind="internal",
        start=1.0, end=2.0, attributes=attributes,
    )  # fmt: skip
    assert label_node(TraceNode(span, "s")) == f"compaction: {label}"
