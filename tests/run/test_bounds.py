"""The work for one reply, one page and one log is bounded, and grows with its size and not with its square.

Times are compared as ratios of CPU seconds, of the same work at two sizes (`growth.py`), so that a slow
machine changes nothing.
"""

import asyncio
import contextlib
import io
from decimal import Decimal
from typing import Any

import pytest

from bridle import Agent, tool
from bridle.cli.show.transcript import SessionPrinter
from bridle.core.budget.ledger import list_entries
from bridle.core.loop import apply_event, next_effects
from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import State
from bridle.providers.wire.failures import to_one_line
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply, text_reply
from bridle.values import events as e
from bridle.values.calls import ResourceClaim
from bridle.values.message import Reply, Stop, Text, ToolCall, ToolResult, ViewChange, ViewChanged
from bridle.values.model import Origin
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.settings import Settings
from bridle.values.usage import Usage
from tests.suite.growth import LINEAR_MAX, assert_growth
from tests.suite.ledger_sum import sum_entries

PAGE_BYTES_MAX = 1024 * 1024
MODEL = find_model_by_name("sim:")
ORIGIN = Origin(family=MODEL.endpoint.family, endpoint=MODEL.endpoint.endpoint_id, model=MODEL.id)


@tool
async def send(to: str) -> str:
    """Send."""
    return to


@tool(effect="write", resource="file:{to}")
async def append(to: str) -> str:
    """Append."""
    return to


@tool(effect="read")
async def look(to: str) -> str:
    """Look."""
    return to


def book():
    @tool(effect="write", once_per="session")
    async def book(to: str) -> str:
        """Book."""
        return to

    return book


def dispatch_calls(used, count: int, *, name: str = "") -> None:
    """Fold and dispatch one reply with so many calls, without a provider or a store."""
    spec = (used() if used is book else used).spec
    said = tuple(
        ToolCall(id=f"c1_{at}", name=name or spec.name, arguments=f'{{"to":"{at}"}}', wire_id=f"w{at}")
        for at in range(count)
    )
    claims = (
        tuple(ResourceClaim(call_id=call.id, resource="file:one") for call in said)
        if spec.claims_resource
        else ()
    )
    state = State()
    for event in (
        e.Configured(settings=Settings(model=MODEL, tools=(spec,)), session="s"),
        e.Prompted(parts=(Text(text="go"),)),
        e.ModelAsked(step=1, attempt=1, digest="x"),
        e.ModelReplied(reply=Reply(parts=said, stop=Stop.TOOLS, origin=ORIGIN), resource_claims=claims),
    ):
        state = apply_event(state, event)
    while state.calls.batch.pending:
        for effect in next_effects(state):
            call = effect.call
            if type(effect).__name__ == "RunTool":
                state = apply_event(state, e.ToolStarted(call_id=call.id, name=call.name, key="k", attempt=1))
            result = ToolResult(call_id=call.id, parts=(Text(text="x"),))
            state = apply_event(state, e.ToolFinished(result=result, name=call.name))


@pytest.mark.parametrize(
    ("used", "name"), [(send, ""), (append, ""), (look, ""), (book, ""), (look, "nobody")],
    ids=["exclusive", "one resource", "read", "once", "unknown"],
)  # fmt: skip
def test_the_work_for_a_reply_grows_with_the_number_of_its_calls(used, name):
    assert_growth(lambda count: lambda: dispatch_calls(used, count, name=name), 150, 900, LINEAR_MAX)


def test_a_thousand_calls_in_one_reply_all_run_in_order():
    ran = []

    @tool
    async def act(number: int) -> str:
        """Act."""
        ran.append(number)
        return "x"

    script = call_reply(*(("act", {"number": number}) for number in range(1_000)))
    line = scripted(script, "ok", model="sim:gemini/gemini-2.5-pro")
    result = Agent(line, tools=[act], max_tokens=60_000).run_sync("go")
    assert result.stop == "done"
    assert ran == list(range(1_000))


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_with_more_calls_than_allowed_ends_the_run_and_runs_none(stream):
    ran, store = [], MemoryStore()

    @tool
    def act(number: int) -> str:
        """Act."""
        ran.append(number)
        return "x"

    script = call_reply(*(("act", {"number": number}) for number in range(11)))
    agent = Agent(scripted(script, "ok"), tools=[act], reply_calls_max=10, store=store)

    async def main():
        if stream:
            return await agent.stream("go", session="s").start().result()
        return await agent.run("go", session="s")

    result = asyncio.run(main())
    assert result.stop == "failed"
    assert "11 tool calls" in result.reason
    assert "reply_calls_max" in result.reason
    assert not ran
    again = Agent(scripted(script, "fine"), tools=[act], reply_calls_max=10, store=store)
    assert again.run_sync("and now?", session="s").text == "fine"


class Endless:
    """A server whose answer never ends; it counts what was read of it."""

    def __init__(self, status: int, chunk: bytes) -> None:
        self.status, self.headers, self.read = status, {"content-type": "text/event-stream"}, 0
        self._chunk = chunk

    def open(self, outgoing):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def chunks(self):
        while self.read < 40 * PAGE_BYTES_MAX:
            self.read += len(self._chunk)
            yield self._chunk


def make_endless_agent(server: Endless, **options):
    line: Any = scripted("x")
    line = ModelConnection(model=line.model, codec=line.codec, transport=server)
    return Agent(line, attempts_max=1, **options).run_sync("go")


def test_an_error_page_is_not_read_to_its_end():
    server = Endless(500, b"<p>Nothing but trouble here.</p>\n" * 1_000)
    result = make_endless_agent(server)
    assert result.stop == "failed"
    assert "Nothing but trouble" in result.reason
    assert server.read < 2 * PAGE_BYTES_MAX


def test_a_reply_that_is_too_long_is_given_up_and_not_asked_for_again():
    server = Endless(200, b": still here\n\n" * 1_000)
    result = make_endless_agent(server, reply_bytes_max=1_000_000)
    assert result.stop == "failed"
    assert "1,000,000 bytes (reply_bytes_max)" in result.reason
    assert server.read < 1_100_000


@pytest.mark.parametrize("opening", [b"<script>", b"<", b"<title>", b"<style ", b"<script><style>"])
def test_markup_that_is_never_closed_is_read_in_linear_time(opening):
    def prepare(size):
        page = opening * (size // len(opening))
        return lambda: [to_one_line(page) for _ in range(20)]

    assert_growth(prepare, 10_000, 60_000, LINEAR_MAX)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (b"<html><script>var a='<b>';</script><style>p{}</style><h1>502 Bad</h1><hr>nginx", "502 Bad nginx"),
        (b"<head><title>Gone\n away</title></head><p>x", "Gone away"),
        (b"1 < 2 and nothing else", "1 < 2 and nothing else"),
        (b"<p>a</p><script>never closed", "a"),
    ],
)
def test_a_page_is_told_without_its_markup(page, words):
    assert to_one_line(page) == words


def long_log(length: int) -> list[Record]:
    records: list[Record] = []

    def put(event: e.Event) -> None:
        head = records[-1].hash if records else GENESIS
        records.append(seal_record(len(records) + 1, 1_000.0 + len(records), event, head))

    put(e.Configured(settings=Settings(model=MODEL, tools=(look.spec,)), session="s"))
    put(e.Prompted(parts=(Text(text="go"),)))
    usage, usd, turn = Usage(input=100, output=5), Decimal("0.001"), 0
    while len(records) < length:
        turn += 1
        call = ToolCall(id=f"c{turn}_0", name="look", arguments='{"to":"x"}', wire_id=f"w{turn}")
        reply = Reply(parts=(Text(text="hm"), call), stop=Stop.TOOLS, origin=ORIGIN, usage=usage)
        put(e.ModelAsked(step=turn, attempt=1, digest="x"))
        put(e.ModelReplied(reply=reply, usd=usd))
        put(e.ToolStarted(call_id=call.id, name="look", key="k", attempt=1, arguments=call.arguments))
        put(e.ToolFinished(result=ToolResult(call_id=call.id, parts=(Text(text=f"{turn}"),)), name="look"))
    put(e.RunEnded(stop="cancelled"))
    return records


def print_records(records: list[Record]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        SessionPrinter(colour=False).print_session("s", records)


@pytest.mark.parametrize(
    "work", [lambda log: list_entries("s", log), print_records, fold_log], ids=["cost", "show", "load"]
)
def test_a_long_log_is_read_in_linear_time(work):
    logs = {length: long_log(length) for length in (700, 4_200)}
    assert_growth(lambda length: lambda: work(logs[length]), *logs, LINEAR_MAX)  # type: ignore[arg-type, call-arg]


def test_the_share_of_a_tool_falls_when_its_results_are_cut():
    """Sums that are carried on from reply to reply are made again when something earlier changed."""
    told = [record.event for record in long_log(40)[:-1]]
    first = next(at for at, event in enumerate(told) if isinstance(event, e.ToolFinished))
    long = ToolResult(call_id="c1_0", parts=(Text(text="x" * 9_000),))
    told[first] = e.ToolFinished(result=long, name="look")
    change = ViewChanged(changes=(ViewChange(message="m3", part=0, inner=0, text="short"),), why="test")
    end = Reply(parts=(Text(text="end"),), stop=Stop.DONE, origin=ORIGIN, usage=Usage(input=9_000))
    shares = []
    for between in ((), (change,)):
        log: list[Record] = []
        asked = e.ModelAsked(step=50, attempt=1, digest="x")
        for event in (*told, *between, asked, e.ModelReplied(reply=end, usd=Decimal("0.01"))):
            log.append(seal_record(len(log) + 1, float(len(log)), event, log[-1].hash if log else GENESIS))
        found = list_entries("s", log)
        assert sum_entries(found).usd == fold_log(log).state.totals.spent.usd
        shares.append(found[-1].shares[0].result_tokens)
    whole, cut = shares
    assert cut < 0.7 * whole


@pytest.mark.parametrize("nested", [150, 900, 5_000])
@pytest.mark.parametrize("options", [{}, {"once_per": "run"}, {"approve": True}], ids=str)
def test_arguments_nested_too_deeply_are_an_error_for_the_model(nested, options):
    """Whatever looks at the arguments of a call survives them, and the tool does not run."""
    ran = []

    @tool(effect="write", **options)
    def keep(value: Any) -> str:
        """Keep something."""
        ran.append(value)
        return "kept"

    deep = f'{{"value":{"[" * nested}{"]" * nested}}}'
    reply = text_reply("", ToolCall(id="", name="keep", arguments=deep))
    result = Agent(scripted(reply, "done"), tools=[keep]).run_sync("keep")
    assert (result.stop, result.text, ran) == ("done", "done", [])
    told = [part.text for message in result.messages if message.role == "tool" for part in message.parts]
    assert "nested too deeply" in told[0]
