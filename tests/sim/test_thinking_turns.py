"""Thinking with a token budget: a tool loop is one turn, and an interrupted loop does not block a session.

The thought stands at the head of the first assistant message after the last prompt.  Later messages of
the loop carry none, and a prompt after unfinished calls begins a turn of its own.
"""

import asyncio
import json
from typing import Any

import pytest

from bridle import Agent, Budget, Thinking, tool
from bridle.ports.transport import OutgoingRequest
from bridle.providers.catalogue import known_models
from bridle.sessions import import_history
from bridle.stores.memory import MemoryStore
from bridle.testing import simulator
from bridle.values.events import ModelReplied
from bridle.values.message import Reasoning
from tests.sim.sim_families import answer_statelessly

ALLOWED = sorted(
    model.id.rpartition("anthropic.")[2]
    for model in known_models({})
    if model.endpoint.name == "anthropic" and "enabled" in model.abilities.thinking
)
MODELS = [f"sim:anthropic/{name}" for name in ALLOWED]
MODELS += [f"sim:bedrock_converse/anthropic.{name}" for name in ALLOWED]
ENABLED = Thinking(mode="enabled", budget_tokens=2_000)
LOOKS = '!call look {"at": "left"}\n!then\n!call look {"at": "right"}\n!then\n!say Seen.'
FOREIGN: list[Any] = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "up"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sky"}]},
]


def test_there_are_models_with_an_allowance():
    assert len(ALLOWED) >= 5


def thinking_of(exchange):
    body = json.loads(exchange.body)
    fields = body.get("additionalModelRequestFields", body)
    return fields.get("thinking", {}).get("type")


class Desk:
    """Agents that share a store and a provider, and a tool that can be held up."""

    def __init__(self, provider):
        self.provider, self.store = provider, MemoryStore()
        self.running, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    def agent(self, model, thinking=ENABLED):
        @tool(effect="read")
        async def look(at: str) -> str:
            """Look somewhere."""
            self.running.set()
            await self.gate.wait()
            return f"saw {at}"

        line = self.provider.model(model)
        return Agent(line, tools=[look], store=self.store, thinking=thinking, max_tokens=8_000)


async def cancel_run(desk, model):
    desk.gate.clear()
    task = asyncio.create_task(desk.agent(model).run(LOOKS, session="s"))
    await desk.running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    desk.gate.set()
    return "s"


async def run_limited(desk, model):
    result = await desk.agent(model).run(LOOKS, session="s", budget=Budget(steps=1))
    assert result.stop == "steps"
    return "s"


async def run_switched(desk, model):
    elsewhere = desk.agent("sim:openai_responses/gpt-6.1-sol", thinking=None)
    result = await elsewhere.run(LOOKS, session="s", budget=Budget(steps=1))
    assert result.stop == "steps"
    return "s"


async def run_imported(desk, model):
    history = import_history("anthropic", FOREIGN)
    await desk.agent(model).run(LOOKS, session="s", history=history, budget=Budget(steps=1))
    return "s"


async def fork_run(desk, model):
    await run_limited(desk, model)
    await desk.agent(model).fork("s", new="t")
    return "t"


@pytest.mark.parametrize("interrupted", [cancel_run, run_limited, run_switched, run_imported, fork_run])
@pytest.mark.parametrize("model", MODELS)
def test_a_prompt_after_an_unfinished_loop_is_answered(model, interrupted):
    async def main():
        async with simulator() as provider:
            desk = Desk(provider)
            session = await interrupted(desk, model)
            provider.exchanges.clear()
            first = await desk.agent(model).run(LOOKS, session=session)
            again = await desk.agent(model).run("!say Bye.", session=session)
            assert (first.stop, first.text) == ("done", "Seen.")
            assert (again.stop, again.text) == ("done", "Bye.")
            assert {thinking_of(each) for each in provider.exchanges} == {"enabled"}

    asyncio.run(main())


@pytest.mark.parametrize("model", MODELS)
def test_a_loop_begun_elsewhere_is_finished_without_thinking_and_the_log_says_so(model):
    async def main():
        async with simulator() as provider:
            desk = Desk(provider)
            await run_switched(desk, model)
            provider.exchanges.clear()
            agent = desk.agent(model)
            result = await agent.resume("s", budget=Budget(steps=9))
            again = await agent.run("!say Bye.", session="s")
            records = [record.event for record in await desk.store.read("s")]
            return result, again, [thinking_of(each) for each in provider.exchanges], records

    result, again, modes, events = asyncio.run(main())
    assert (result.stop, again.stop) == ("done", "done")
    assert modes == ["disabled", "disabled", "enabled"]
    notes = [note for event in events for note in getattr(event, "notes", ())]
    assert any("thinking was switched off for now" in note for note in notes)


@pytest.mark.parametrize("model", MODELS)
def test_only_the_head_of_a_loop_thinks(model):
    async def main():
        async with simulator() as provider:
            desk = Desk(provider)
            result = await desk.agent(model).run("!say Hello.", session="s")
            assert result.stop == "done"
            await desk.agent(model).run(LOOKS, session="s")
            return json.loads(provider.exchanges[-1].body)["messages"]

    messages = asyncio.run(main())
    kinds = [
        [block.get("type") or next(iter(block)) for block in message["content"]]
        for message in messages
        if message["role"] == "assistant"
    ]
    thoughts = {"thinking", "reasoningContent"}
    loop = kinds[-2:]
    assert [bool(thoughts & {*each}) for each in loop] == [True, False]


def ask_simulator(url, headers, body):
    """The answer of the simulator to a client that is not ours."""
    outgoing = OutgoingRequest(method="POST", url=url, headers=headers, body=json.dumps(body).encode())
    reply = answer_statelessly(outgoing)
    assert reply.status == 200, reply.frames
    return json.loads(b"".join(reply.frames))


@pytest.mark.parametrize("name", ALLOWED)
def test_a_client_that_echoes_what_it_got_is_never_refused_on_the_messages_wire(name):
    """Whatever the reply holds goes back; only the first of a loop thinks."""
    tools = [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]
    messages = [{"role": "user", "content": LOOKS}]
    thoughts = []
    for _ in range(2):
        stop = ""
        while stop != "end_turn":
            body = {
                "model": name,
                "max_tokens": 8_000,
                "thinking": {"type": "enabled", "budget_tokens": 2_000},
                "tools": tools,
                "messages": messages,
            }
            reply = ask_simulator(
                "/v1/messages", (("anthropic-version", "2026-10-21"), ("x-api-key", "k")), body
            )
            stop, content = reply["stop_reason"], reply["content"]
            thoughts.append(content[0]["type"] == "thinking")
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": each, "content": "seen"} for each in calls]
            messages += [{"role": "assistant", "content": content}]
            messages += [{"role": "user", "content": results}] if results else []
        messages.append({"role": "user", "content": LOOKS})
    assert thoughts == [True, False, False] * 2


@pytest.mark.parametrize("name", ALLOWED)
def test_a_client_that_echoes_what_it_got_is_never_refused_on_the_converse_wire(name):
    schema = {"json": {"type": "object", "properties": {"at": {"type": "string"}}}}
    tools = {"tools": [{"toolSpec": {"name": "look", "description": "Look.", "inputSchema": schema}}]}
    messages = [{"role": "user", "content": [{"text": LOOKS}]}]
    thoughts, stop = [], ""
    while stop != "end_turn":
        body = {
            "messages": messages,
            "inferenceConfig": {"maxTokens": 8_000},
            "toolConfig": tools,
            "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
        }
        reply = ask_simulator(
            f"/model/anthropic.{name}-v1:0/converse", (("authorization", "Bearer k"),), body
        )
        stop, content = reply["stopReason"], reply["output"]["message"]["content"]
        thoughts.append("reasoningContent" in content[0])
        calls = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
        results = [{"toolResult": {"toolUseId": each, "content": [{"text": "seen"}]}} for each in calls]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    assert thoughts == [True, False, False]


SHOWN = [
    ("sim:anthropic/claude-opus-4-7", Thinking(mode="adaptive"), ""),
    ("sim:anthropic/claude-sonnet-5-5", None, ""),
    ("sim:anthropic/claude-sonnet-5-5", Thinking(display="summarized"), "Hm."),
    ("sim:anthropic/claude-opus-4-6", Thinking(mode="adaptive"), "Hm."),
    ("sim:anthropic/claude-opus-4-6", Thinking(mode="adaptive", display="omitted"), ""),
    ("sim:bedrock_converse/anthropic.claude-opus-4-7", Thinking(mode="adaptive"), ""),
    ("sim:bedrock_converse/anthropic.claude-opus-4-7", Thinking(display="summarized"), "Hm."),
    ("sim:openai_responses/gpt-6.1-sol", Thinking(effort="low"), ""),
    ("sim:openai_responses/gpt-6.1-sol", Thinking(display="summarized"), "Hm."),
    ("sim:gemini/gemini-3.8-flash", Thinking(effort="low"), None),
    ("sim:gemini/gemini-3.8-flash", Thinking(display="summarized"), "Hm."),
]


@pytest.mark.parametrize(("model", "thinking", "shown"), SHOWN)
def test_thoughts_are_shown_by_the_request_or_by_the_default_of_the_model(model, thinking, shown):
    """None: there is no thought in the reply at all.  A hidden one is signed, paid for, and goes back."""

    async def main():
        async with simulator() as provider:
            desk = Desk(provider)
            agent = desk.agent(model, thinking)
            await agent.run("!think Hm.\n!call look {}\n!then\n!say Seen.", session="s")
            return [record.event for record in await desk.store.read("s")]

    replies = [event.reply for event in asyncio.run(main()) if isinstance(event, ModelReplied)]
    thoughts = [part for part in replies[0].parts if isinstance(part, Reasoning)]
    assert [part.text for part in thoughts] == ([] if shown is None else [shown])
    assert all(part.signature or "gemini" in model for part in thoughts)
    assert replies[0].usage.reasoning > 0 or "bedrock" in model  # which counts them with the rest


@pytest.mark.parametrize(
    "wire", ["sim:anthropic/claude-sonnet-5-5", "sim:bedrock/anthropic.claude-sonnet-5-5"]
)
def test_a_reply_that_paused_in_plain_words_goes_on_and_so_does_the_session(wire):
    agent = Agent(wire)
    result = agent.run_sync("!say One, two\n!stop paused")
    assert result.done
    again = agent.run_sync("!say three", session=result.session)
    assert (again.stop, again.text) == ("done", "three")
