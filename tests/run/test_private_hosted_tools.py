"""The values in a hosted tool's JSON reach the provider and nothing else: no log, recording, terminal or error text."""

import asyncio
import io
import json
from typing import Any

import pytest

from bridle import Agent, MisuseError
from bridle.cli.main import main
from bridle.errors import BadTool
from bridle.ports.codec import HttpReply
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, recording, scripted
from bridle.transports.inprocess import InProcessTransport
from bridle.values.cache import PrefixMoved, PromptDropped, PromptStored
from bridle.values.errors import Failure
from bridle.values.events import Configured
from bridle.values.message import Message, Text
from bridle.values.request import Request, ToolSpec
from bridle.watchers.console import Console
from tests.run.private_settings import PHRASE, TOKEN, connect_recorded, events, files_in

LONG = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(1_500))
MCP = {
    "type": "mcp",
    "server_label": "crm",
    "server_url": f"https://crm.example/{TOKEN}",
    "authorization": TOKEN,
    "headers": {"X-Note": PHRASE},
    "require_approval": "never",
}
TOOLS = {
    "anthropic/claude-sonnet-5-5": {
        "type": "web_search_20250305",
        "name": "web_search",
        "allowed_domains": [f"{TOKEN}.example"],
    },
    "openai/gpt-6.1-sol": MCP,
    "gemini/gemini-3.8-flash": {"fileSearch": {"fileSearchStoreNames": [f"fileSearchStores/{TOKEN}"]}},
}
RESPONSES = "openai/gpt-6.1-sol"


class Hosted:
    """A tool that the provider runs."""

    def __init__(self, native):
        self.spec = ToolSpec(name="hosted", native=json.dumps(native), effect="read")

    def run(self, arguments, context):
        raise AssertionError("the provider runs it")


def close(agent):
    asyncio.run(agent.store.close())


@pytest.mark.parametrize("wire", TOOLS)
def test_the_provider_gets_the_definition_and_no_log_recording_or_terminal_does(wire, tmp_path):
    connection, transport = connect_recorded(wire)
    shown, noted = io.StringIO(), io.StringIO()
    with recording(tmp_path / "traffic.jsonl") as recorded:
        agent = Agent(
            recorded(connection),
            store=tmp_path / "log.db",
            tools=[Hosted(TOOLS[wire])],
            watchers=[Console(shown, noted)],
        )
        agent.run_sync("!say Hello.", session="s")
        close(agent)
    ((sent,),) = [body["tools"] for body in transport.bodies]
    assert {name: value for name, value in sent.items() if name != "cache_control"} == TOOLS[wire]
    kept = files_in(tmp_path) + (shown.getvalue() + noted.getvalue() + repr(agent.settings)).encode()
    assert TOKEN.encode() not in kept
    assert PHRASE.encode() not in kept
    assert b"[secret]" in (tmp_path / "traffic.jsonl").read_bytes()


def test_the_type_and_the_words_of_the_wire_stay_in_the_log():
    (spec,) = Agent(f"sim:{RESPONSES}", tools=[Hosted(MCP)]).settings.tools
    shown = json.loads(spec.native)  # type: ignore[arg-type]
    assert (shown["type"], shown["require_approval"], list(shown)) == ("mcp", "never", list(MCP))
    assert {shown["server_url"], shown["authorization"], shown["headers"]["X-Note"]} == {"[hidden]"}
    plain = {"type": "web_search"}
    (spec,) = Agent(f"sim:{RESPONSES}", tools=[Hosted(plain)]).settings.tools
    assert (json.loads(spec.native), spec.native_digest) == (plain, "")  # type: ignore[arg-type]


def test_an_error_that_repeats_any_value_is_kept_without_it(tmp_path):
    refusal = Failure(kind="invalid", message=f"tools: {TOKEN} and {PHRASE} are not allowed", status=400)
    with recording(tmp_path / "traffic.jsonl") as recorded:
        model = recorded(scripted(refusal, model="openai:gpt-6.1-sol"))
        agent = Agent(model, store=tmp_path / "log.db", tools=[Hosted(MCP)])
        result = agent.run_sync("Hello.", session="s")
        close(agent)
    assert "tools: [key] and [key] are not allowed" in result.reason
    assert not [text for text in (TOKEN, PHRASE) if text.encode() in files_in(tmp_path)]


def test_not_given_again_no_mark_is_sent_and_the_omission_is_an_event(tmp_path, capsys):
    first = Agent(f"sim:{RESPONSES}", store=tmp_path / "log.db", tools=[Hosted(MCP)])
    first.run_sync("!say Hello.", session="s")
    close(first)
    connection, transport = connect_recorded(RESPONSES)
    second = Agent(connection, store=tmp_path / "log.db")
    assert second.run_sync("!say Again.", session="s").text == "Again."
    close(second)
    assert "[hidden]" not in json.dumps(transport.bodies)
    configured = [event for event in events(tmp_path / "log.db") if isinstance(event, Configured)]
    assert [event.omitted_tools for event in configured] == [(), ("hosted",)]
    assert main(["show", "s", "--store", str(tmp_path / "log.db")]) == 0
    assert "the hosted tool 'hosted': its definition is not in the log" in capsys.readouterr().out


def test_given_again_nothing_is_recorded_and_another_value_is_a_change(tmp_path):
    for changed in ({}, {}, {"authorization": TOKEN[::-1]}):
        agent = Agent(f"sim:{RESPONSES}", store=tmp_path / "log.db", tools=[Hosted(MCP | changed)])
        agent.run_sync("!say Hello.", session="s")
        close(agent)
    seen = events(tmp_path / "log.db")
    assert len([event for event in seen if isinstance(event, Configured)]) == 2
    assert len([event for event in seen if isinstance(event, PrefixMoved)]) == 1


def test_the_command_line_names_the_hosted_tools_that_it_leaves_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    path = str(tmp_path / "log.db")
    agent = Agent(f"sim:{RESPONSES}", store=path, tools=[Hosted(MCP)])
    agent.run_sync("!say Hello.", session="s")
    close(agent)
    assert main(["run", "!say Again.", "--session", "s", "--store", path]) == 0
    assert (
        "the hosted tool 'hosted' of the log has values that the log does not hold" in capsys.readouterr().err
    )


@pytest.mark.parametrize("wire", TOOLS)
def test_a_mark_from_a_log_is_refused_as_a_tool_and_never_encoded(wire):
    given = Hosted(TOOLS[wire])
    (given.spec,) = Agent(f"sim:{wire}", tools=[given]).settings.tools
    with pytest.raises(MisuseError, match="the hosted tool 'hosted' comes from a log"):
        Agent(f"sim:{wire}", tools=[given])
    model = find_model(f"sim:{wire}", environ={})
    asked = (Message(role="user", parts=(Text(text="Hello."),)),)
    with pytest.raises(BadTool, match="the hosted tool 'hosted' comes from a log"):
        load_codec(model.endpoint.family).encode(Request(model=model, messages=asked, tools=(given.spec,)))


def test_text_that_is_no_json_is_refused_at_once_and_not_repeated():
    given = Hosted(MCP)
    given.spec = ToolSpec(name="hosted", native=f'{{"authorization": {TOKEN}')
    with pytest.raises(BadTool, match="the native definition of tool 'hosted' is not JSON") as caught:
        Agent("sim:", tools=[given])
    assert TOKEN not in str(caught.value)


class StoredPrompts:
    """A provider that stores prompts by name, or refuses to and repeats what it was sent."""

    def __init__(self, *, refuses=False):
        self.clock, self.store, self.sent = FakeClock(1_794_787_200.0), MemoryStore(), []
        self.simulator, self.refuses = Simulator(clock=self.clock), refuses

    async def answer(self, outgoing):
        self.sent.append(outgoing)
        if self.refuses and "cachedContents" in outgoing.url:
            headers = dict(outgoing.headers)
            said = f"{headers.get('x-goog-api-key')} {json.loads(outgoing.body)['tools']}"
            body = json.dumps({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": said}})
            return HttpReply(
                status=400, headers=(("content-type", "application/json"),), frames=(body.encode(),)
            )
        return await self.simulator.answer(outgoing)

    def ask(self, native, pause=0.0):
        self.clock.advance(pause)
        model = find_model("gemini:gemini-3.8-flash", environ={})
        connection = ModelConnection(
            model=model,
            codec=load_codec(model.endpoint.family),
            transport=InProcessTransport(self.answer),
            headers=(("x-goog-api-key", "AIzaSecretKeyOfThisTest0123"),),
        )
        given: Any = {"instructions": LONG, "tools": [Hosted(native)], "cache_by_name": True}
        Agent(connection, store=self.store, clock=self.clock, **given).run_sync("Say yes.", session="s")

    def events(self, *kinds):
        records = asyncio.run(self.store.read("s"))
        return [record.event for record in records if isinstance(record.event, kinds)]


def test_a_stored_prompt_has_the_definition_and_is_replaced_when_it_changes():
    world, native = StoredPrompts(), TOOLS["gemini/gemini-3.8-flash"]
    world.ask(native)
    world.ask(native, 900)
    (sent,) = [each for each in world.sent if each.url.endswith("cachedContents")]
    assert native in json.loads(sent.body)["tools"]
    assert TOKEN in sent.private_texts or any(TOKEN in text for text in sent.private_texts)
    world.ask({"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/other"]}}, 900)
    assert [event.why for event in world.events(PromptDropped)] == ["tools or instructions have changed"]


def test_a_refusal_to_store_a_prompt_is_kept_without_key_and_values():
    world, native = StoredPrompts(refuses=True), TOOLS["gemini/gemini-3.8-flash"]
    world.ask(native)
    world.ask(native, 900)
    (dropped,) = world.events(PromptDropped)
    assert not world.events(PromptStored)
    assert "AIzaSecretKeyOfThisTest0123" not in dropped.why
    assert TOKEN not in dropped.why
