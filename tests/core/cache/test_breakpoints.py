"""Cache breakpoints: within the provider's limit, on the right blocks, within reach of earlier ones."""

import json
import random
import runpy
from pathlib import Path

import pytest

from bridle import Agent
from bridle.core.cache.breakpoints import LOOKBACK_BLOCKS, choose_ttl, place_breakpoints
from bridle.ports.transport import OutgoingRequest, ResponseTimeline
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Message, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Breakpoint, Request, ToolSpec
from bridle.values.result import Result
from bridle.values.settings import CacheTtl, Settings

BENCH = runpy.run_path(str(Path(__file__).parents[3] / "bench" / "cache_hits.py"))
TOOLS = (ToolSpec(name="look"),)


def make_model(*, automatic: bool = False, marks: int = 4, family: str = "anthropic") -> Model:
    abilities = Abilities(cache_marks=marks, automatic_cache=automatic, cache="marks")
    return Model(id="m", endpoint=Endpoint(name="here", family=family), abilities=abilities)


def settings(model: Model, *, instructions: str = "Be kind.", ttl: CacheTtl = "5m") -> Settings:
    return Settings(model=model, instructions=instructions, tools=TOOLS, cache_ttl=ttl)


def message(role: str, *parts: Part, at: float = 0.0) -> Message:
    return Message(role=role, parts=parts, at=at)  # type: ignore[arg-type]


def words(count: int) -> tuple[Text, ...]:
    return tuple(Text(text=f"word {number}") for number in range(count))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("anthropic:claude-sonnet-5-5", "bursts"),
        ("anthropic-vertex:claude-sonnet-5-5", "bursts"),
        ("openai:gpt-6.1-sol", "bursts"),
        ("deepseek:deepseek-v4-pro", "bursts"),
        ("anthropic:claude-sonnet-5-5", "fork"),
        ("anthropic-foundry:claude-sonnet-5-5", "fork"),
        ("openai:gpt-6.1-sol", "fork"),
        ("deepseek:deepseek-v4-pro", "fork"),
        ("openai-chat:gpt-6.1-sol", "fork"),
        ("gemini:gemini-3.8-flash", "bursts"),
        ("gemini:gemini-3.8-flash", "fork"),
    ],
)
def test_fifty_steps_read_nearly_all_that_could_be_read(model: str, shape: str) -> None:
    row = BENCH["measured"](model, shape, 50)
    assert row["steps"] == (BENCH["FORK_STEPS"] if shape == "fork" else 50)
    assert row["share"] >= 0.95, row


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["anthropic:claude-sonnet-5-5", "openai:gpt-6.1-sol", "deepseek:deepseek-v4-pro"]
)
def test_fifty_steps_with_summaries_on_the_way_do_too(model: str) -> None:
    row = BENCH["measured"](model, "compact", 50)
    assert row["steps"] >= 52, "there were summaries"
    assert row["share"] >= 0.95, row


def test_a_model_that_takes_no_marks_gets_none() -> None:
    assert place_breakpoints(settings(make_model(marks=0)), TOOLS, (message("user", *words(1)),)) == ()


def test_the_end_is_the_providers_where_it_follows_it_by_itself() -> None:
    view = (message("user", *words(1)),)
    assert place_breakpoints(settings(make_model(automatic=True)), TOOLS, view) == (
        Breakpoint(position="system"),
        Breakpoint(position="end"),
    )
    assert place_breakpoints(settings(make_model()), TOOLS, view) == (
        Breakpoint(position="system"),
        Breakpoint(position="message", message=0),
    )
    bare = settings(make_model(), instructions="")
    assert place_breakpoints(bare, TOOLS, view)[0] == Breakpoint(position="tools")
    assert place_breakpoints(bare, (), view) == (Breakpoint(position="message", message=0),)


@pytest.mark.parametrize("automatic", [True, False])
def test_the_end_before_is_marked_when_a_turn_adds_sixty_blocks(automatic: bool) -> None:
    view = (
        message("user", *words(2)),
        message("assistant", *words(1)),
        message("user", *words(1)),
        message("assistant", *words(2)),
        message("user", *words(60)),
    )
    asked = settings(make_model(automatic=automatic))
    assert Breakpoint(position="message", message=2) in place_breakpoints(asked, TOOLS, view)
    assert Breakpoint(position="message", message=2) not in place_breakpoints(asked, TOOLS, view[:4])
    few = place_breakpoints(settings(make_model(automatic=automatic, marks=2)), TOOLS, view)
    assert [mark.position for mark in few] == ["message", "end" if automatic else "message"]


def test_reasoning_and_blank_words_are_passed_over() -> None:
    view = (
        message("user", *words(1)),
        message("assistant", Reasoning(text="hm", signature="s")),
        message("user", Text(text="  ")),
    )
    assert place_breakpoints(settings(make_model()), TOOLS, view)[-1] == Breakpoint(
        position="message", message=0
    )


def test_five_minutes_or_an_hour_by_the_pauses_there_were() -> None:
    def at(*times: float) -> tuple[Message, ...]:
        return tuple(message("user", *words(1), at=time) for time in times)

    auto = settings(make_model(), ttl="auto")
    assert choose_ttl(auto, at(0, 10, 200)) == "5m"
    assert choose_ttl(auto, at(0, 10, 1_000)) == "1h"
    assert choose_ttl(auto, at(0, 10, 100_000)) == "5m", "an hour would not have helped"
    assert choose_ttl(auto, at(0, 1_000, *range(1_001, 1_100))) == "5m", "that was long ago"
    assert choose_ttl(settings(make_model(), ttl="1h"), at(0)) == "1h"


def make_spaced_messages(*times: float) -> tuple[Message, ...]:
    return tuple(message("user", *words(1), at=time) for time in times)


@pytest.mark.parametrize(
    ("name", "wanted", "taken"),
    [
        ("anthropic:claude-sonnet-5-5", "30m", "1h"),
        ("anthropic:claude-sonnet-5-5", "24h", "1h"),
        ("openai:gpt-6.1-sol", "5m", "30m"),
        ("openai:gpt-6.1-sol", "1h", "12h"),
        ("openai-chat:gpt-6.1-sol", "12h", "30m"),
        ("openai:gpt-5.4", "5m", "5m"),
        ("openai:gpt-5.4", "30m", "24h"),
    ],
)
def test_what_is_asked_for_is_the_least_that_is_taken(name: str, wanted: CacheTtl, taken: str) -> None:
    asked = settings(find_model(name, environ={}), ttl=wanted)
    assert choose_ttl(asked, make_spaced_messages(0)) == taken


def test_an_unpriced_cache_ttl_is_never_chosen_automatically() -> None:
    """Twelve hours have no price on any card, and a budget with an unknown in it holds nothing."""
    hours = make_spaced_messages(0, 7_200)
    assert choose_ttl(settings(find_model("openai:gpt-6.1-sol", environ={}), ttl="auto"), hours) == "30m"
    free = settings(find_model("openai:gpt-5.4", environ={}), ttl="auto")
    assert choose_ttl(free, hours) == "24h", "there it costs nothing"
    assert place_breakpoints(free, TOOLS, hours) == (Breakpoint(position="end", ttl="24h"),)
    assert place_breakpoints(free, TOOLS, make_spaced_messages(0, 10)) == (), "what is usual need not be said"


def test_where_ends_are_looked_up_the_earlier_one_is_marked_after_many_messages() -> None:
    """As when a key had run out and somebody tried again and again."""
    model = find_model("openai:gpt-6.1-sol", environ={})
    talk = (message("user", *words(1)), message("assistant", *words(60)), message("user", *words(60)))
    assert [mark.position for mark in place_breakpoints(settings(model), TOOLS, talk)] == ["system", "end"]
    again = (*talk, *(message("user", *words(1)) for _ in range(20)))
    assert Breakpoint(position="message", message=0, ttl="30m") in place_breakpoints(
        settings(model), TOOLS, again
    )
    bare = place_breakpoints(settings(model, instructions=""), TOOLS, talk)
    assert [mark.position for mark in bare] == ["end"], "tools cannot be marked there"


def test_many_failed_tries_do_not_lose_the_kept_prefix() -> None:
    world = World("openai:gpt-6.1-sol")
    world.ask("One.")
    for _ in range(25):
        assert world.ask("Now?", reachable=False).stop == "failed"
    assert world.ask("At last.").usage.cache_read > 0.9 * world.first.usage.prompt


@pytest.mark.parametrize(
    "name",
    ["anthropic:claude-sonnet-5-5", "openai:gpt-6.1-sol", "openai-chat:gpt-6.1-sol", "openai:gpt-5.4"],
)
def test_another_session_of_the_same_agent_reads_tools_and_instructions(name: str) -> None:
    world = World(name)
    first = world.ask("One thing.", session="a").usage
    other = world.ask("Quite another thing.", session="b").usage
    assert first.cache_read == 0
    assert other.cache_read > 0.9 * first.prompt


@pytest.mark.parametrize(
    ("name", "apart"), [("openai:gpt-6.1-sol", True), ("anthropic:claude-sonnet-5-5", False)]
)
def test_tenants_are_kept_apart_where_there_are_keys(name: str, apart: bool) -> None:
    world = World(name, cache_by="tenant")
    world.ask("One thing.", session="a", tenant="acme")
    assert (world.ask("Another.", session="b", tenant="globex").usage.cache_read == 0) == apart


class World:
    """An agent with long instructions, at a simulated provider that may turn it away."""

    def __init__(self, name: str, **options) -> None:
        self._reachable = True
        clock = FakeClock()
        simulator = Simulator(clock=clock)

        async def answer(outgoing: OutgoingRequest) -> ResponseTimeline:
            if not self._reachable:
                raise ProviderError(Failure(kind="unauthorized", message="no such key"))
            return await simulator.answer(outgoing)

        located = find_model(name, environ={})
        line = ModelConnection(
            model=located, codec=load_codec(located.endpoint.family), transport=InProcessTransport(answer)
        )
        self._agent = Agent(
            line, instructions=BENCH["INSTRUCTIONS"] * 2, clock=clock, attempts_max=1, **options
        )
        self.first: Result[str]

    def ask(
        self, prompt: str, *, session: str = "s", tenant: str = "", reachable: bool = True
    ) -> Result[str]:
        self._reachable = reachable
        result = self._agent.run_sync(prompt, session=session, tenant=tenant)
        if not hasattr(self, "first"):
            self.first = result
        return result


def random_view(chance: random.Random) -> tuple[Message, ...]:
    view: list[Message] = []
    calls = 0
    for _ in range(chance.randint(1, 8)):
        view.append(message("user", *words(chance.choice((1, 1, 3, 60))), at=chance.random() * 2_000))
        for _ in range(chance.randint(0, 3)):
            many = chance.choice((1, 2, 40))
            names = [f"c{calls + number}" for number in range(many)]
            calls += many
            thought = (Reasoning(text="hm", signature="s"),) if chance.random() < 0.5 else ()
            asked = tuple(ToolCall(id=name, name="look", arguments="{}") for name in names)
            view.append(message("assistant", *thought, *words(chance.randint(0, 2)), *asked))
            view.append(message("tool", *(ToolResult(call_id=name, parts=words(1)) for name in names)))
        view.append(message("assistant", *words(1)))
    return tuple(view[:-1])


@pytest.mark.parametrize("automatic", [True, False])
def test_marks_on_the_wire_are_few_legal_and_in_reach(automatic: bool) -> None:
    """Over random conversations: what a request had kept is within reach of a mark of the next one."""
    chance, codec = random.Random(3), load_codec("anthropic")
    model = make_model(automatic=automatic)
    for _ in range(60):
        view, kept, before = random_view(chance), codec.new_history(), None
        asked = settings(model, ttl=chance.choice(("5m", "1h", "auto")))
        ends = [at for at, told in enumerate(view) if told.role == "assistant"]
        for end in (*ends, len(view)):
            marks = place_breakpoints(asked, TOOLS, view[:end])
            request = Request(
                model=model,
                system=words(1),
                tools=TOOLS,
                messages=view[:end],
                max_tokens=9,
                breakpoints=marks,
            )
            body = json.loads(codec.encode(request, kept).body)
            blocks = [block for told in body["messages"] for block in told["content"]]
            marked = [at for at, block in enumerate(blocks) if "cache_control" in block]
            whole = [*marked, *([len(blocks) - 1] if "cache_control" in body else [])]
            lifetimes = {
                json.dumps(block["cache_control"])
                for block in (body, *body["system"], *body["tools"], *blocks)
                if "cache_control" in block
            }
            assert len(lifetimes) == 1
            assert len(whole) + sum("cache_control" in block for block in body["system"]) <= 4
            assert all(blocks[at]["type"] not in ("thinking", "redacted_thinking") for at in marked)
            assert whole[-1] == len(blocks) - 1
            if before is not None:
                assert any(0 <= at - before < LOOKBACK_BLOCKS for at in whole)
            before = len(blocks) - 1


def test_with_notes_there_is_a_mark_behind_what_is_shared_and_one_behind_the_notes() -> None:
    view = (message("user", *words(1)),)
    asked = settings(make_model(automatic=True))
    shared, notes = Breakpoint(position="system", block=0), Breakpoint(position="system")
    assert place_breakpoints(asked, TOOLS, view, remembers=True) == (
        shared,
        notes,
        Breakpoint(position="end"),
    )
    bare = settings(make_model(automatic=True), instructions="")
    assert place_breakpoints(bare, TOOLS, view, remembers=True) == (
        Breakpoint(position="tools"),
        notes,
        Breakpoint(position="end"),
    )
    assert place_breakpoints(bare, (), view, remembers=True) == (notes, Breakpoint(position="end"))
    long = (*view, message("assistant", *words(1)), message("user", *words(30)))
    assert len(place_breakpoints(asked, TOOLS, long, remembers=True)) == 4
    few = place_breakpoints(settings(make_model(automatic=True, marks=3)), TOOLS, long, remembers=True)
    assert shared not in few
    assert notes in few


@pytest.mark.parametrize("family", ["anthropic", "bedrock_converse"])
def test_marks_within_the_system_survive_the_wire(family: str) -> None:
    codec = load_codec(family)
    request = Request(
        model=make_model(family=family),
        system=(Text(text="Shared."), Text(text="Own.")),
        messages=(message("user", *words(1)),),
        breakpoints=(Breakpoint(position="system", block=0, ttl="1h"), Breakpoint(position="system")),
    )
    heard = codec.decode_request(codec.encode(request))
    assert heard.breakpoints == request.breakpoints
    assert [text.text for text in heard.system] == ["Shared.", "Own."]


def test_a_text_that_says_nothing_leaves_its_mark_to_the_one_before() -> None:
    system = (Text(text="Shared."), Text(text=" "), Text(text="Own."))
    request = Request(
        model=make_model(),
        system=system,
        messages=(message("user", *words(1)),),
        breakpoints=(Breakpoint(position="system", block=1),),
    )
    blocks = json.loads(load_codec("anthropic").encode(request).body)["system"]
    assert [("cache_control" in block, block["text"]) for block in blocks] == [
        (True, "Shared."),
        (False, "Own."),
    ]
