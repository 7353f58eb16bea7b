"""Clients that change what they send between two requests of one conversation: hand-offs, other tools, other options.

A request says everything: the model is offered the tools of the request, and nothing that an earlier one set.
"""

import random
from typing import Any

import pytest

from bridle import Agent, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from bridle.values.events import Configured, ModelAsked
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name, serving_gateway
from tests.serve.wires.wire_bodies import WIRES, post
from tests.serve.wires.wire_clients import PROVIDERS

NAMES = ("ask", "book", "count", "draw", "transfer_to_billing")
wires = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


@tool
def own_notes(at: int = 0) -> str:
    """Read notes."""
    return f"note {at}"


def serve_kind(kind, model="sim:"):
    if kind == "gateway":
        return serving_gateway({"models": {"helper": {"chain": [model]}}})
    return serve_by_name({"helper": Agent(model, tools=[own_notes] if kind == "own tool" else [])})


def read_logs(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return {info.id: await served.host.store.read(info.id) for info in infos}

    return served.run(read())


def list_offered(records):
    """The names of the tools of every model call, in order."""
    now: Any
    offered, now = [], ()
    for record in records:
        if isinstance(record.event, Configured):
            now = tuple(spec.name for spec in fold_log(records[: record.seq]).state.settings.tools)
        if isinstance(record.event, ModelAsked):
            offered.append(now)
    return offered


def converse(served, wire, plan):
    """Hold the conversation of a plan: each entry has the tools of a request and the calls of its reply."""
    script = "\n!then\n".join(
        "\n".join(f'!call {name} {{"at": {at}}}' for at, name in enumerate(called)) for _, called in plan[:-1]
    )
    messages = [wire.user(f"{script}\n!then\n!say fine")]
    for names, called in plan:
        reply = post(served, wire, messages, names)
        assert reply.status == 200, reply.body
        added, calls, text = wire.read(reply.json)
        assert [name for _, name in calls] == called
        messages += [*added, *(wire.results(calls) if calls else ())]
    assert text.endswith("fine")
    return messages


HANDOFF = [(["ask", "transfer_to_billing"], ["transfer_to_billing"]), (["book"], ["book"]), ([], [])]


@wires
@pytest.mark.parametrize("kind", ["gateway", "served", "own tool"])
def test_a_hand_off_goes_on_with_the_tools_of_the_next_agent(wire, kind):
    """openai-agents: the result of `transfer_to_…` comes with the tools and the system prompt of another agent."""
    with serve_kind(kind) as served:
        converse(served, wire, HANDOFF)
        [records] = read_logs(served).values()
        own = ("own_notes",) if kind == "own tool" else ()
        assert list_offered(records) == [(*own, *names) for names, _ in HANDOFF]


@wires
@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_a_hand_off_at_the_gateway_reaches_every_provider(wire, provider):
    with serve_kind("gateway", provider) as served:
        converse(served, wire, [*HANDOFF[:2], (["count"], [])])


def make_plan(rng):
    """Requests with any tools in any order; a reply calls one or more of them, also one twice."""
    plan = []
    for _ in range(rng.randint(1, 4)):
        names = rng.sample(NAMES, rng.randint(1, len(NAMES)))
        plan.append((names, [rng.choice(names) for _ in range(rng.randint(1, 3))]))
    return [*plan, (rng.sample(NAMES, rng.randint(0, len(NAMES))), [])]


@pytest.mark.sampled
@wires
@pytest.mark.parametrize("kind", ["gateway", "own tool"])
def test_any_sequence_of_tool_lists(wire, kind):
    """Tools are added, removed and reordered between requests, and results are for tools that are gone."""
    rng = random.Random(f"{kind} {wire.path}")
    with serve_kind(kind) as served:
        own = ("own_notes",) if kind == "own tool" else ()
        for _ in range(25):
            known = set(read_logs(served))
            plan = make_plan(rng)
            converse(served, wire, plan)
            logs = read_logs(served)
            [session] = set(logs) - known or [max(logs)]
            assert list_offered(logs[session]) == [(*own, *names) for names, _ in plan]


SYSTEM = {
    "openai_responses": lambda text: {"instructions": text},
    "anthropic": lambda text: {"system": text},
    "gemini": lambda text: {"systemInstruction": {"parts": [{"text": text}]}},
}


@pytest.mark.parametrize("name", SYSTEM)
@pytest.mark.parametrize("second", ["You are billing.", ""])
def test_the_system_prompt_is_that_of_the_request(name, second):
    """The agent after a hand-off has a system prompt of its own, or none."""
    wire = WIRES[name]
    with serve_kind("served") as served:
        messages = [wire.user("!call ask {}\n!then\n!say fine")]
        reply = post(served, wire, messages, ["ask"], SYSTEM[name]("You are triage."))
        added, calls, _ = wire.read(reply.json)
        messages += [*added, *wire.results(calls)]
        reply = post(served, wire, messages, ["book"], SYSTEM[name](second) if second else {})
        assert reply.status == 200, reply.body
        [records] = read_logs(served).values()
        assert fold_log(records).state.settings.instructions == second


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("openai_chat", {"temperature": 0.3, "max_tokens": 77}),
        ("openai_responses", {"max_output_tokens": 77, "reasoning": {"effort": "low"}}),
        ("anthropic", {"temperature": 0.3, "tool_choice": {"type": "any"}}),
        ("gemini", {"generationConfig": {"temperature": 0.3, "maxOutputTokens": 77}}),
    ],
)
def test_an_option_of_an_earlier_request_does_not_stay(name, first):
    wire = WIRES[name]
    with serve_kind("gateway") as served:
        messages = [wire.user("!call ask {}\n!then\n!say fine")]
        reply = post(served, wire, messages, ["ask"], first)
        added, calls, _ = wire.read(reply.json)
        messages += [*added, *wire.results(calls)]
        assert post(served, wire, messages, ["ask"]).status == 200
        [records] = read_logs(served).values()
        asked = fold_log(records).state.settings
        with serve_kind("gateway") as fresh:
            assert post(fresh, wire, [wire.user("!say hi")], ["ask"]).status == 200
            [other] = read_logs(fresh).values()
        plain = fold_log(other).state.settings
        for field in ("sampling", "thinking", "tool_choice"):
            assert getattr(asked, field) == getattr(plain, field)
        if name != "anthropic":  # the field is required there
            assert asked.max_tokens == plain.max_tokens


def test_a_result_by_the_id_of_the_response_comes_with_other_tools():
    """Responses: the call is in no message of the request."""
    wire = WIRES["openai_responses"]
    with serve_kind("own tool") as served:
        script = "!call transfer_to_billing {}\n!then\n!call book {}\n!then\n!say fine"
        reply = post(served, wire, [wire.user(script)], ["transfer_to_billing"])
        for names in (["book"], []):
            _, calls, _ = wire.read(reply.json)
            more = {"previous_response_id": reply.json["id"]}
            reply = post(served, wire, wire.results(calls), names, more)
            assert reply.status == 200, reply.body
        assert wire.read(reply.json)[2] == "fine"


def large_tool(name):
    return f"{name}_" + "x" * 40


@wires
@pytest.mark.parametrize("count", [5, 60, 300])
@pytest.mark.parametrize("own", ["few", "many"])
def test_tools_of_a_client_do_not_count_against_the_agent_s_limits(wire, count, own):
    """A coding agent brings 20 to 100 tools of 15,000 tokens: the agent's own are laid out as without it."""
    own_tools = [own_notes]
    if own == "many":
        own_tools += [tool(name=f"own_{at}", description="Word. " * 30)(lambda: "x") for at in range(60)]  # type: ignore[arg-type, misc]
    agent = Agent("sim:", tools=own_tools, tool_tokens_max=900)
    before = tuple(spec.name for spec in agent.settings.tools)
    with serve_by_name({"helper": agent}) as served:
        names = [large_tool(f"client{at}") for at in range(count)]
        messages = [wire.user(f"!call own_notes {{}}\n!call {names[-1]} {{}}\n!then\n!say fine")]
        if own == "many":
            messages = [wire.user(f"!call {names[-1]} {{}}\n!then\n!say fine")]
        reply = post(served, wire, messages, names)
        assert reply.status == 200, reply.body
        _, calls, _ = wire.read(reply.json)
        assert [name for _, name in calls] == [names[-1]]
        [records] = read_logs(served).values()
        assert list_offered(records)[0] == (*before, *names)


def continue_thread(served, previous, content):
    body = {
        "model": "helper",
        "max_tokens": 1000,
        "thread": {"type": "continue", "previous_message_id": previous},
        "messages": [{"role": "user", "content": content}],
    }
    return send(served.url + "/anthropic/v1/messages", body)


@pytest.mark.parametrize("kind", ["gateway", "served", "own tool"])
def test_a_thread_keeps_the_tools_and_the_system_prompt(kind):
    """Anthropic's SDKs send only what is new by default; a new prompt lost the conversation before it."""
    wire = WIRES["anthropic"]
    with serve_kind(kind) as served:
        more = {"thread": {"type": "create"}, "system": "Be kind."}
        script = "!call ask {}\n!then\n!call book {}\n!then\n!say fine"
        reply = post(served, wire, [wire.user(script)], ["ask", "book"], more)
        for _ in range(2):
            assert "x-bridle-dropped" not in reply.headers
            _, calls, _ = wire.read(reply.json)
            reply = continue_thread(served, reply.json["id"], wire.results(calls)[0]["content"])
            assert reply.status == 200, reply.body
        assert wire.read(reply.json)[2] == "fine"
        reply = continue_thread(served, reply.json["id"], "!call ask {}")
        assert [name for _, name in wire.read(reply.json)[1]] == ["ask"]
        [records] = read_logs(served).values()
        own = ("own_notes",) if kind == "own tool" else ()
        assert set(list_offered(records)) == {(*own, "ask", "book")}
        assert fold_log(records).state.settings.instructions == "Be kind."


def test_a_thread_that_is_gone_has_the_vendor_s_error():
    """The SDKs then send the whole conversation."""
    with serve_kind("served") as served:
        reply = continue_thread(served, "msg_20260101-abcdefgh_0_00", "!say hi")
        assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
        assert reply.json["error"]["details"]["error_code"] == "thread_not_found"
        assert "previous_message_id" in reply.json["error"]["message"]
