"""An agent with five hundred tools: which ones the model sees, and that the prompt prefix stays."""

import asyncio
import os
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bridle import Agent, tool
from bridle.core.context.assemble import assemble_request
from bridle.core.context.token_estimate import estimate_tool_tokens
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.events import ToolsRevealed
from bridle.stores.memory import MemoryStore
from bridle.testing.scripted_model import call_reply, scripted
from bridle.values.errors import BadTool, MisuseError
from bridle.values.events import ModelAsked
from bridle.values.result import History
from bridle.values.settings import TOOL_TOKENS_DEFAULT, TOOLS_SHOWN_DEFAULT
from tests.core.calls.catalogue_agent import (
    CALL,
    REFUND,
    SEARCH,
    TOOLS,
    catalogue,
    open_recorded_model,
    script,
)
from tests.core.calls.catalogue_tools import QUESTIONS

PLAIN = "sim:openai-chat/gpt-6.1-sol"
DEFERRING = "sim:anthropic/claude-sonnet-5-5"
"""A model to which tools can be added behind what it has read."""


def events_of(agent: Agent, session: str) -> list[object]:
    return [record.event for record in asyncio.run(agent.store.read(session))]


def shown_in(agent: Agent, session: str) -> list[ToolsRevealed]:
    return [event for event in events_of(agent, session) if isinstance(event, ToolsRevealed)]


def names(specs) -> list[str]:
    return [spec.name for spec in specs]


def before_the_end(body: bytes) -> bytes:
    """A request without what follows its last message, where the next one goes on."""
    return body[: re.search(rb'\],"max_(output_)?tokens":\d', body).start()]


# --- what is shown first ------------------------------------------------------------------------


@pytest.mark.parametrize(("question", "needed"), QUESTIONS[::10])
def test_the_first_request_holds_what_its_words_are_about_and_stays_within_its_budget(question, needed):
    line = scripted("ok")
    Agent(line, tools=TOOLS).run_sync(question)
    (request,) = line.script.requests
    assert len(request.tools) <= TOOLS_SHOWN_DEFAULT
    assert estimate_tool_tokens(request.tools) <= TOOL_TOKENS_DEFAULT
    assert request.tools[0].name == "search_tools"
    assert needed in names(request.tools)


def test_tokens_are_a_limit_of_their_own():
    line = scripted("ok")
    agent = Agent(line, tools=TOOLS, tool_tokens_max=1_000)
    agent.run_sync("Which invoices are there?")
    (request,) = line.script.requests
    assert 1 < len(request.tools) < 10
    assert estimate_tool_tokens(request.tools) <= 1_000
    few = Agent(scripted("ok"), tools=TOOLS[:20], tool_tokens_max=1_000)
    assert names(few.settings.tools) == ["search_tools"]


def test_thirty_tools_are_simply_shown():
    line = scripted("ok")
    agent = Agent(line, tools=TOOLS[:30])
    result = agent.run_sync("hello")
    assert names(line.script.requests[0].tools) == names(tool.spec for tool in TOOLS[:30])
    assert shown_in(agent, result.session) == []
    assert names(Agent(scripted("ok"), tools=TOOLS[:31]).settings.tools) == ["search_tools"]


@tool(always=True)
def ask_a_colleague(question: str) -> str:
    """Ask somebody."""
    return "yes"


def test_always_shown_tools_come_first_for_every_question():
    line = scripted("ok")
    Agent(line, tools=[*TOOLS, ask_a_colleague], tool_choice="hr__get_payslip").run_sync("zzyzx")
    (request,) = line.script.requests
    assert names(request.tools) == ["hr__get_payslip", "ask_a_colleague", "search_tools"]


def test_too_much_that_is_always_shown_is_the_users_to_settle():
    with pytest.raises(MisuseError, match="raise tools_shown_max"):
        Agent("sim:", tools=[*TOOLS, ask_a_colleague], tools_shown_max=1)
    with pytest.raises(MisuseError, match="raise tool_tokens_max"):
        Agent("sim:", tools=TOOLS, tool_tokens_max=10)
    with pytest.raises(MisuseError, match="tools_shown_max must be an integer"):
        Agent("sim:", tools=TOOLS, tools_shown_max=0)
    with pytest.raises(BadTool, match="always"):
        tool(always="yes")(ask_a_colleague.__wrapped__)  # type: ignore[attr-defined, call-overload]


def test_a_tool_of_ones_own_that_is_called_like_the_search_is_refused_only_when_both_are_there():
    @tool
    def search_tools(query: str) -> str:
        """Mine."""
        return query

    Agent("sim:", tools=[search_tools])
    with pytest.raises(MisuseError, match="rename your tool of that name"):
        Agent("sim:", tools=[*TOOLS, search_tools])


# --- finding and calling ------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("deferring", [False, True])
def test_a_tool_is_searched_found_and_called_on_the_simulator(deferring, streamed):
    line, bodies = open_recorded_model(deferring=deferring)
    agent = catalogue(line)

    async def run(prompt, session=None):
        if not streamed:
            return await agent.run(prompt, session)
        return [event async for event in agent.stream(prompt, session)][-1].result

    session = asyncio.run(run(SEARCH)).session
    result = asyncio.run(run(CALL, session))
    assert (result.stop, result.text) == ("done", "Paid.")
    searched, paid = [part for message in result.messages for part in message.results]
    assert REFUND in searched.reveals_tools
    assert paid.text == 'done with {"fields": "20 euros"}'
    first, found = shown_in(agent, result.session)
    assert (first.initial, first.names) == (True, ())
    assert REFUND in found.names
    assert found.tokens > 0
    assert (found.uncached_tokens > 0) is not deferring
    assert len(bodies) == 4


@pytest.mark.parametrize("model", ["sim:", "sim:openai/gpt-6-astra"])
def test_where_tools_can_be_outside_the_prompt_no_byte_of_it_ever_moves(model):
    line, bodies = open_recorded_model(model)
    agent = catalogue(line, instructions="Be brief.")
    session = agent.run_sync(SEARCH).session
    agent.run_sync(CALL, session=session)
    agent.run_sync(script('!call search_tools {"query": "epic changes"}', "!say Found."), session=session)
    assert len(bodies) == 6
    for earlier, later in pairwise(bodies):
        assert later.startswith(before_the_end(earlier))
    assert [event.uncached_tokens for event in shown_in(agent, session)] == [0, 0, 0]
    inside = [each["name"] for each in tools_on_wire(bodies[-1]) if not each.get("defer_loading")]
    assert inside == ["search_tools"]
    let_in = re.findall(rb'"(?:tool_name|function","name)":"([^"]+)"', before_the_end(bodies[-1]))
    assert REFUND.encode() in let_in
    assert len(let_in) == len(set(let_in))


@pytest.mark.parametrize("deferring", [False, True])
def test_the_providers_cache_agrees_about_what_moved(deferring):
    line, _ = open_recorded_model(deferring=deferring)
    agent = catalogue(line, instructions="Be brief. " * 2_000)
    result = agent.run_sync(SEARCH)
    searching, found = [message.usage for message in result.messages if message.role == "assistant"]
    assert searching.cache_write > 4_000
    assert (found.cache_read > 4_000) is deferring


def test_a_tool_in_the_prompt_is_not_let_in_a_second_time():
    line, bodies = open_recorded_model()
    Agent(line, tools=TOOLS).run_sync(SEARCH)
    declared = tools_on_wire(bodies[-1])
    inside = {each["name"] for each in declared if not each.get("defer_loading")}
    named = {name.decode() for name in re.findall(rb'"tool_name":"([^"]+)"', bodies[-1])}
    assert len(declared) == 1 + 500 + 1  # the search, the tools, and the reader of long results
    assert REFUND in inside
    assert not named & inside


def test_elsewhere_the_prompt_moves_with_a_recorded_event_only_and_tools_are_appended():
    line, bodies = open_recorded_model(deferring=False)
    agent = catalogue(line)
    session = agent.run_sync(SEARCH).session
    agent.run_sync(script("!call search_tools {}", CALL), session=session)
    moved = False
    asked = 0
    for event in events_of(agent, session):
        if isinstance(event, ToolsRevealed):
            moved = True
        elif isinstance(event, ModelAsked):
            if asked and not moved:
                assert bodies[asked].startswith(before_the_end(bodies[asked - 1]))
            moved, asked = False, asked + 1
    assert asked == len(bodies) == 5
    lists = [[each["name"] for each in tools_on_wire(body)] for body in bodies]
    for earlier, later in pairwise(lists):
        assert later[: len(earlier)] == earlier
    assert b"tool_reference" not in b"".join(bodies)
    assert b"defer_loading" not in b"".join(bodies)


def tools_on_wire(body: bytes) -> list[dict[str, Any]]:
    return msgspec.json.decode(body)["tools"]


@pytest.mark.parametrize("model", [PLAIN, DEFERRING])
def test_a_tool_that_was_never_shown_can_be_called_and_is_shown_from_then_on(model):
    line = scripted(
        call_reply((REFUND, {"fields": "5"})),
        call_reply(("hr__get_payslip", {"id": "7"})),
        "Done.",
        model=model,
    )
    agent = Agent(line, tools=TOOLS)
    result = agent.run_sync("zzyzx")
    first, refund, payslip = shown_in(agent, result.session)
    assert (first.names, refund.names, payslip.names) == ((), (REFUND,), ("hr__get_payslip",))
    outcomes = [part.outcome for message in result.messages for part in message.results]
    assert outcomes == ["ok", "ok"]
    last = line.script.requests[-1]
    if model == DEFERRING:
        assert names(last.tools) == ["search_tools"]
        assert len(last.deferred_tools) == 501
        assert [part.reveals_tools for message in result.messages for part in message.results] == [
            (REFUND,),
            ("hr__get_payslip",),
        ]
        assert (refund.uncached_tokens, payslip.uncached_tokens) == (0, 0)
    else:
        assert names(last.tools) == ["search_tools", REFUND, "hr__get_payslip"]
        assert last.deferred_tools == ()
        assert refund.uncached_tokens > 0


@pytest.mark.parametrize("model", [PLAIN, DEFERRING])
def test_a_tool_that_was_called_unseen_is_shown_with_its_schema(model):
    line = scripted(call_reply((REFUND, {"wrong": 1})), "Sorry.", model=model)
    agent = Agent(line, tools=TOOLS)
    result = agent.run_sync("zzyzx")
    assert [part.outcome for message in result.messages for part in message.results] == ["invalid"]
    # An error can name no tool, so it goes where all tools are, and the event says what that costs.
    assert names(line.script.requests[-1].tools) == ["search_tools", REFUND]
    assert REFUND not in names(line.script.requests[-1].deferred_tools)
    assert shown_in(agent, result.session)[1].uncached_tokens > 0


@pytest.mark.parametrize("model", [PLAIN, DEFERRING])
def test_the_reader_of_long_results_comes_like_any_other_tool(model):
    @tool(always=True, effect="read")
    def recite() -> str:
        """Something long."""
        return "word " * 2_000

    line = scripted(call_reply(("recite", {})), "Done.", model=model)
    agent = Agent(line, tools=[*TOOLS, recite], result_characters=1_000)
    result = agent.run_sync("zzyzx")
    _, reader = shown_in(agent, result.session)
    assert reader.names == ("read_result",)
    assert (reader.uncached_tokens == 0) is (model == DEFERRING)
    last = line.script.requests[-1]
    assert ("read_result" in names(last.tools)) is (model == PLAIN)
    assert [part.reveals_tools for message in result.messages for part in message.results] == [
        ("read_result",)
    ]


def test_a_name_that_is_no_tool_is_still_a_mistake():
    line = scripted(call_reply(("billing__create_refunt", {})), "Sorry.")
    result = Agent(line, tools=TOOLS).run_sync("zzyzx")
    (wrong,) = [part for message in result.messages for part in message.results]
    assert wrong.outcome == "invalid"
    assert REFUND in wrong.text


def test_a_forced_call_of_a_tool_that_was_not_shown_shows_it_first():
    line = scripted(call_reply((REFUND, {"fields": "5"})), "Done.")
    agent = Agent(line, tools=TOOLS, tool_choice=lambda step: REFUND if step == 1 else "auto")
    result = agent.run_sync("zzyzx")
    assert names(line.script.requests[0].tools) == ["search_tools", REFUND]
    assert [event.names for event in shown_in(agent, result.session)] == [(), (REFUND,)]


def test_what_a_history_called_is_shown_from_the_beginning():
    first = scripted(call_reply((REFUND, {"fields": "5"})), "Done.", model=PLAIN)
    past = Agent(first, tools=TOOLS).run_sync("zzyzx").messages
    line = scripted("", "", "ok", model=PLAIN)
    Agent(line, tools=TOOLS).run_sync("zzyzx again", history=History(messages=past))
    assert names(line.script.requests[0].tools) == ["search_tools", REFUND]


# --- the same again: resumed, replayed, with another model, in another process -------------------


def test_a_session_goes_on_with_what_it_had_even_if_the_index_has_changed():
    class Fickle:
        def __init__(self, *found: str) -> None:
            self.found = found

        async def find(self, query, tools, limit):
            return self.found

    store = MemoryStore()
    first = scripted("one", "two")
    session = Agent(first, tools=TOOLS, store=store, tool_index=Fickle(REFUND)).run_sync("a").session
    second = scripted("one", "two")
    other = Agent(second, tools=TOOLS, store=store, tool_index=Fickle("get_survey"))
    other.run_sync("b", session=session)
    assert names(second.script.requests[0].tools) == ["search_tools", REFUND]
    state = State()
    for record in asyncio.run(store.read(session)):
        state = apply_event(state, record.event, record.at, record.hash)
    assert names(assemble_request(state)[0].tools) == ["search_tools", REFUND]


def test_an_index_that_fails_costs_a_guess_and_not_the_run():
    class Broken:
        async def find(self, query, tools, limit):
            raise OSError("no such host")

    line = scripted(call_reply(("search_tools", {"query": "refund"})), "Well.")
    agent = Agent(line, tools=TOOLS, tool_index=Broken())
    result = agent.run_sync("refund")
    (first,) = shown_in(agent, result.session)
    assert (first.names, first.initial) == ((), True)
    assert "OSError" in first.why
    assert (result.stop, result.text) == ("done", "Well.")
    (told,) = [part for message in result.messages for part in message.results]
    assert (told.outcome, "no such host" in told.text) == ("error", True)


def test_a_model_that_takes_over_gets_the_tools_its_own_way():
    store = MemoryStore()
    replies = (call_reply(("search_tools", {"query": "pay money back to a customer"})), "one", "two", "three")
    plain, deferring = scripted(*replies, model=PLAIN), scripted(*replies, model=DEFERRING)
    session = Agent(plain, tools=TOOLS, store=store).run_sync("zzyzx").session
    Agent(deferring, tools=TOOLS, store=store).run_sync("again", session=session)
    Agent(plain, tools=TOOLS, store=store).run_sync("and again", session=session)
    before, after = plain.script.requests[1], plain.script.requests[2]
    assert before.tools == after.tools
    assert REFUND in names(before.tools)
    between = deferring.script.requests[0]
    assert names(between.tools) == ["search_tools"]
    assert REFUND in names(between.deferred_tools)


OTHER_PROCESS = """
import asyncio, hashlib
from bridle.tools.search.lexical_index import LexicalIndex
from tests.core.calls.catalogue_agent import CALL, SEARCH, TOOLS, catalogue, open_recorded_model
from tests.core.calls.catalogue_tools import QUESTIONS
line, bodies = open_recorded_model()
agent = catalogue(line)
agent.run_sync(CALL, agent.run_sync(SEARCH).session)
print([hashlib.sha256(body).hexdigest() for body in bodies])
index, specs = LexicalIndex(), tuple(tool.spec for tool in TOOLS)
print([asyncio.run(index.find(question, specs, 30)) for question, _ in QUESTIONS])
"""


@pytest.mark.slow
def test_two_processes_with_other_hash_seeds_find_the_same_and_send_the_same_bytes():
    command = [sys.executable, "-c", OTHER_PROCESS]
    running = [
        subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE)
        for seed in ("1", "2")
    ]
    one, other = (process.communicate()[0] for process in running)
    assert b"mcp__forge__delete_branch" in one
    assert one == other


def test_a_tool_that_was_found_earlier_and_is_always_shown_now_is_still_there():
    """Another agent may go on with a session in which the tool had to be found."""
    store = MemoryStore()

    def named(name, **options):
        async def run() -> str:
            return "fine"

        run.__name__, run.__doc__ = name, f"Do {name}."
        return tool(effect="read", **options)(run)

    many = [named(f"tool_{number}") for number in range(12)]
    finder = Agent("sim:anthropic/claude-haiku-4-5", tools=many, tools_shown_max=4, store=store)
    finder.run_sync("!say hello", session="s")
    script = '!call search_tools {"query": "Do tool_11."}\n!then\n!call tool_11 {}\n!then\n!say done'
    finder.run_sync(script, session="s")
    always = [*many[:-1], named("tool_11", always=True)]
    agent = Agent(
        "sim:anthropic/claude-haiku-4-5", tools=always, tools_shown_max=4, tool_choice="tool_11", store=store
    )
    result = agent.run_sync("!call tool_11 {}\n!then\n!say again", session="s")
    assert (result.stop, result.text) == ("done", "again")
