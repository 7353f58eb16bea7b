"""All events of one call carry the same id; unknown sessions and tools are refused."""

import asyncio
import io
import json

import pytest

from bridle import Agent, tool
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import BadTool, MisuseError, SessionNotFound
from bridle.values.result import CallReady, ToolCallDelta
from bridle.watchers.console import Console

FAMILIES = ("anthropic", "openai", "openai-chat", "gemini", "bedrock")
PROMPT = '!say Let me see.\n!call look {}\n!call pay {"amount": 7}\n!then\n!say done'


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look."""
    return f"seen {where}"


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def shown_by(agent, prompt):
    return [event async for event in agent.stream(prompt)]


@pytest.mark.parametrize("family", FAMILIES)
def test_all_events_of_a_call_have_its_id(family):
    models = {"anthropic": "claude-sonnet-5-5", "gemini": "gemini-3.8-flash"}
    models["bedrock"] = "global.anthropic.claude-sonnet-5-5"
    agent = Agent(f"sim:{family}/{models.get(family, 'gpt-6.1-sol')}", tools=[look, pay])
    shown = asyncio.run(shown_by(agent, PROMPT))
    named = {"c1_0": "look", "c1_1": "pay"}
    deltas = {(delta.call_id, delta.name) for delta in shown if isinstance(delta, ToolCallDelta)}
    assert ("c1_1", "pay") in deltas
    assert deltas <= set(named.items())
    ready = [(each.call.id, each.call.name) for each in shown if isinstance(each, CallReady)]
    assert set(ready) <= set(named.items())
    started = {each.call_id: (each.name, each.arguments) for each in shown if isinstance(each, e.ToolStarted)}
    assert {call: name for call, (name, _) in started.items()} == named
    assert started["c1_1"][1].replace(" ", "") == '{"amount":7}'
    finished = {each.result.call_id: each.name for each in shown if isinstance(each, e.ToolFinished)}
    assert finished == named


# ── id, name and arguments on every event of a call ─────────────────────────

MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai": "sim:openai/gpt-6.1-sol",
    "openai-chat": "sim:openai-chat/gpt-6.1-sol",
    "gemini": "sim:gemini/gemini-3.8-flash",
    "bedrock": "sim:bedrock/global.anthropic.claude-sonnet-5-5",
}
EVENTS_OF_A_CALL = (
    CallReady, e.ToolStarted, e.ToolProbed, e.ToolFinished, e.ApprovalAsked, e.CallReviewed, e.SubrunStarted,
)  # fmt: skip
CALLS = """!call look {"where": "there"}
!call pay {"amount": 7}
!call pay {"amount": 8}
!call pay {"amount": 9}
!call pay {"amount": "many"}
!call ask_another {"question": "!say inner"}
!call gone {"x": 1}
!then
!say done"""
ARGUMENTS = {
    "c1_0": ("look", {"where": "there"}),
    "c1_1": ("pay", {"amount": 7}),
    "c1_2": ("pay", {"amount": 8}),
    "c1_3": ("pay", {"amount": 9}),
    "c1_4": ("pay", {"amount": "many"}),
    "c1_5": ("ask_another", {"question": "!say inner"}),
    "c1_6": ("gone", {"x": 1}),
}
EDITED = {"amount": 80}


@tool(effect="write")
async def ask_another(question: str) -> str:
    """Ask another agent."""
    return (await Agent("sim:").run(question)).text


@tool(name="pay", effect="write", approve=True)
def pay_if_allowed(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def decide(question):
    """Approve 7, change 8 to 80, reject 9."""
    amount = json.loads(question.arguments)["amount"]
    answer = "reject" if amount == 9 else "approve"
    return ApprovalVerdict(answer=answer, arguments=EDITED if amount == 8 else None, reason="", by="ann")  # type: ignore[arg-type]


def tell(call_id, name, arguments):
    return call_id, name, json.loads(arguments)


@pytest.mark.parametrize("deltas", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_event_of_a_call_has_its_id_name_and_arguments(family, deltas):
    agent = Agent(MODELS[family], tools=[look, pay_if_allowed, ask_another], approver=decide)

    async def watch():
        return [item async for item in agent.stream(CALLS, deltas=deltas)]

    shown = asyncio.run(watch())
    assert shown[-1].result.text == "done"
    (reply,) = [item.reply for item in shown if isinstance(item, e.ModelReplied) and item.reply.calls]
    assert {call.id: (call.name, json.loads(call.arguments)) for call in reply.calls} == ARGUMENTS
    pieces = {}
    for item in shown:
        if isinstance(item, ToolCallDelta):
            pieces.setdefault((item.call_id, item.name), []).append(item.arguments)
    assert bool(pieces) is deltas
    for (call_id, name), texts in pieces.items():
        assert tell(call_id, name, "".join(texts) or "{}") == (call_id, *ARGUMENTS[call_id])
    seen = {}
    for item in shown:
        if isinstance(item, EVENTS_OF_A_CALL):
            call_id, name, arguments = tell(item.call_id, item.name, item.arguments)
            seen.setdefault(call_id, []).append(type(item).__name__)
            edited = call_id == "c1_2" and isinstance(item, e.ToolStarted | e.ToolFinished)
            assert (name, arguments) == (("pay", EDITED) if edited else ARGUMENTS[call_id]), item
        elif isinstance(item, e.ApprovalAnswered):
            assert (item.name, json.loads(item.asked_arguments)) == ARGUMENTS[item.call_id]
            assert (item.arguments is not None) is (item.call_id == "c1_2")
    ran = ["ToolStarted", "ToolFinished"]
    events = {call: [name for name in names if name != "CallReady"] for call, names in seen.items()}
    assert events["c1_0"] == ran
    assert events["c1_1"] == events["c1_2"] == ["ApprovalAsked", *ran]
    assert events["c1_3"] == ["ApprovalAsked", "ToolFinished"]
    assert events["c1_4"] == events["c1_6"] == ["ToolFinished"]
    assert events["c1_5"] == ["ToolStarted", "SubrunStarted", "ToolFinished"]


@pytest.mark.parametrize("deltas", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("family", FAMILIES)
def test_calls_of_a_cancelled_run_are_answered_under_their_ids(family, deltas):
    """The end of a run closes the calls that are still open; a viewer closes what it shows as running."""

    @tool(effect="write")
    async def wait_forever(why: str) -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    agent = Agent(MODELS[family], tools=[wait_forever])

    async def watch():
        stream, shown = agent.stream('!call wait_forever {"why": "test"}\n!then\n!say x', deltas=deltas), []
        async for item in stream:
            shown.append(item)
            if isinstance(item, e.ToolStarted):
                stream.cancel()
        return shown

    shown = asyncio.run(watch())
    (started,) = [item for item in shown if isinstance(item, e.ToolStarted)]
    assert tell(started.call_id, started.name, started.arguments) == ("c1_0", "wait_forever", {"why": "test"})
    result = shown[-1].result
    assert result.stop == "cancelled"
    (answered,) = [each for message in result.messages for each in message.results]
    assert (answered.call_id, answered.outcome) == ("c1_0", "unknown")


def test_events_of_an_answer_from_elsewhere_have_name_and_arguments():
    store = MemoryStore()
    script = scripted(call_reply(("pay", {"amount": 7})), "done")
    agent = Agent(script, tools=[pay_if_allowed], store=store)
    assert agent.run_sync("pay", session="s").stop == "waiting"
    (question,) = asyncio.run(agent.approvals("s"))
    asyncio.run(agent.approve("s", question.id))
    events = [record.event for record in asyncio.run(store.read("s"))]
    (asked,) = [event for event in events if isinstance(event, e.ApprovalAsked)]
    (answer,) = [event for event in events if isinstance(event, e.ApprovalAnswered)]
    assert tell(asked.call_id, asked.name, asked.arguments) == (question.call_id, "pay", {"amount": 7})
    assert tell(answer.call_id, answer.name, answer.asked_arguments) == (
        question.call_id,
        "pay",
        {"amount": 7},
    )


def test_a_console_names_tools_that_were_called_before_a_run_was_resumed():
    store, about = MemoryStore(), io.StringIO()
    script = scripted(call_reply(("pay", {"amount": 7})), "done")

    @tool(name="pay", effect="write", approve=True)
    def pay_if_allowed(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    first = Agent(script, tools=[pay_if_allowed], store=store)
    assert first.run_sync("pay", session="s").stop == "waiting"
    (question,) = asyncio.run(first.approvals("s"))
    asyncio.run(first.approve("s", question.id))
    second = Agent(script, tools=[pay_if_allowed], store=store, watchers=[Console(None, about)])
    assert asyncio.run(second.resume("s")).text == "done"
    assert 'pay({"amount":7}) → paid 7' in about.getvalue()


@pytest.mark.parametrize("arguments", [{"amount": 5}, '{"amount": 5}'])
@pytest.mark.parametrize("way", ["approver", "approve"])
def test_a_person_writes_arguments_as_an_object_or_as_text(arguments, way):
    @tool(name="pay", effect="write", approve=True)
    def pay_if_allowed(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def approver(question):
        return ApprovalVerdict(answer="approve", arguments=arguments) if way == "approver" else None

    script = scripted(call_reply(("pay", {"amount": 7})), "done")
    agent = Agent(script, tools=[pay_if_allowed], store=MemoryStore(), approver=approver)
    result = agent.run_sync("pay", session="s")
    if way == "approve":
        (question,) = asyncio.run(agent.approvals("s"))
        asyncio.run(agent.approve("s", question.id, arguments=arguments))
        result = asyncio.run(agent.resume("s"))
    assert "paid 5" in result.messages[2].results[0].text


def test_arguments_that_json_cannot_hold_are_one_line():
    agent = Agent(scripted("ok"), store=MemoryStore())
    with pytest.raises(MisuseError, match="the arguments cannot be encoded"):
        asyncio.run(agent.approve("s", "x", arguments={"amount": object()}))


GONE = "20261116-ejudt95f"


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_generated_id_that_is_unknown_is_refused(way):
    agent = Agent("sim:", store=MemoryStore())
    with pytest.raises(SessionNotFound, match=f"there is no session '{GONE}'"):
        WAYS[way](agent, GONE)


async def seen_in(stream):
    return [event async for event in stream]


WAYS = {
    "run": lambda agent, session: agent.run_sync("hi", session=session),
    "stream": lambda agent, session: asyncio.run(seen_in(agent.stream("hi", session=session))),
    "resume": lambda agent, session: asyncio.run(agent.resume(session)),
}


def test_a_generated_id_that_is_known_goes_on():
    agent = Agent("sim:", store=MemoryStore())
    first = agent.run_sync("hi")
    assert agent.run_sync("hi", session=first.session).session == first.session


def test_a_name_of_ones_own_begins_a_session_unless_it_must_exist():
    agent = Agent("sim:", store=MemoryStore())
    with pytest.raises(SessionNotFound):
        agent.run_sync("hi", session="trip", new=False)
    assert agent.run_sync("hi", session="trip", new=True).session == "trip"
    assert agent.run_sync("hi", session="trip", new=False).session == "trip"
    assert agent.run_sync("hi", session="trip").session == "trip"
    with pytest.raises(MisuseError, match="already exists"):
        agent.run_sync("hi", session="trip", new=True)


@pytest.mark.parametrize("way", ["run", "stream", "resume"])
def test_a_session_that_is_no_id_is_one_line(way):
    agent = Agent("sim:")
    with pytest.raises(MisuseError, match="a session id must be a string, not 5"):
        WAYS[way](agent, 5)


@pytest.mark.parametrize("given", [[print], [len], 5, "look"])
def test_tools_that_are_none_are_one_line(given):
    with pytest.raises(BadTool):
        Agent("sim:", tools=given)


def test_a_tool_that_would_hide_one_of_ours_is_refused():
    @tool(name="read_result", effect="read")
    def mine() -> str:
        """Mine."""
        return ""

    with pytest.raises(BadTool, match="tool `read_result`: Bridle has a tool with that name"):
        Agent("sim:", tools=[mine])
