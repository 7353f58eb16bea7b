"""Other people's clients, unmodified, against the simulator over HTTP: conversations with tools.

The oracles are the vendors' own SDKs and agent libraries that have nothing to do with us.
They are not part of a development install (`make oracles` makes one that has them); where one
is missing its tests are skipped, and say so.
"""

import asyncio
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.suite.patience import PATIENCE_SECONDS

SCRIPT = '!say Let me look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n!call look {"city": "Bonn"}\n!then\n!say Rome it is.'
CLAUDE, GPT, CHAT, GEMINI = "claude-sonnet-5-5", "gpt-6.1-sol", "gpt-5.4", "gemini-3.8-flash"
CONVERSE = f"global.anthropic.{CLAUDE}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WANTED = ["Oslo", "Rome", "Bonn"]
pytestmark = pytest.mark.filterwarnings("ignore")  # what others warn about is not ours to mend


LOOP = asyncio.new_event_loop()
"""One for all: some libraries keep their connections for the next run and find them closed."""


@pytest.fixture(scope="session", autouse=True)
def close_loop():
    """Close the loop at the end: a worker may get the tests of this file in several parts."""
    yield
    LOOP.close()


@pytest.fixture(scope="module", autouse=True)
def collect_clients(close_loop):
    """Collect what the libraries left open here, where their warnings are ignored, not in a later file."""
    yield
    LOOP.run_until_complete(LOOP.shutdown_asyncgens())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="module")
def sim(tmp_path_factory):
    """`bridle sim`, as a person would start it; every answer it gave must have been a good one."""
    log = tmp_path_factory.mktemp("sim") / "log.jsonl"
    command = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json", "--log", str(log)]
    source = str(Path(__file__).parents[2] / "src")
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as server:
        ready = json.loads(server.stdout.readline())
        with pytest.MonkeyPatch.context() as patch:
            for name, value in ready["exports"].items():
                patch.setenv(name, value)
            yield ready["url"]
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE_SECONDS) == 0
    statuses = [json.loads(line)["response"]["status"] for line in log.read_text().splitlines()]
    assert statuses == [200] * len(statuses)


def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is fine"


def anthropic_sdk():
    """The SDK; where it is missing, the folder `tests/providers/anthropic` can be imported by that name."""
    pytest.importorskip("anthropic.types")
    return importlib.import_module("anthropic")


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_messages(sim, stream):
    anthropic = anthropic_sdk()
    client = anthropic.Anthropic(base_url=sim, api_key="sim")
    tools = [{"name": "look", "description": "Look.", "input_schema": SCHEMA}]
    messages, looked = [{"role": "user", "content": SCRIPT}], []
    while True:
        asked = {"model": CLAUDE, "max_tokens": 500, "tools": tools, "messages": messages}
        if stream:
            with client.messages.stream(**asked) as events:
                heard = "".join(events.text_stream)
                reply = events.get_final_message()
            assert heard == "".join(block.text for block in reply.content if block.type == "text")
        else:
            reply = client.messages.create(**asked)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        assert reply.stop_reason == "tool_use"
        looked += [call.input["city"] for call in calls]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": look(**call.input)} for call in calls
        ]
        messages.append({"role": "user", "content": results})
    assert looked == WANTED
    assert reply.content[-1].text == "Rome it is."
    assert reply.usage.input_tokens > 0


def test_anthropic_beside_messages(sim):
    anthropic = anthropic_sdk()
    client = anthropic.Anthropic(base_url=sim, api_key="sim")
    assert CLAUDE in [model.id for model in client.models.list()]
    assert client.models.retrieve(CLAUDE).id == CLAUDE
    messages = [{"role": "user", "content": "How long is this?"}]
    assert client.messages.count_tokens(model=CLAUDE, messages=messages).input_tokens > 3


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_openai_responses(sim, stream, kept):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{sim}/v1", api_key="sim")
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    items, looked, previous = [{"role": "user", "content": SCRIPT}], [], None
    while True:
        asked = {
            "model": GPT,
            "input": items,
            "tools": tools,
            "store": kept,
            "previous_response_id": previous,
        }
        if stream:
            with client.responses.stream(**{k: v for k, v in asked.items() if v is not None}) as events:
                heard = "".join(each.delta for each in events if each.type == "response.output_text.delta")
                reply = events.get_final_response()
            assert heard == reply.output_text
        else:
            reply = client.responses.create(**asked)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            break
        looked += [json.loads(call.arguments)["city"] for call in calls]
        results = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": look(**json.loads(call.arguments)),
            }
            for call in calls
        ]
        if kept:
            items, previous = results, reply.id
        else:
            items = [*items, *(item.model_dump(exclude_none=True) for item in reply.output), *results]
    assert looked == WANTED
    assert reply.output_text == "Rome it is."
    if kept:
        assert client.responses.retrieve(reply.id).output_text == "Rome it is."
        assert len(client.responses.input_items.list(reply.id).data) >= 5
        client.responses.delete(reply.id)


def test_openai_beside_responses(sim):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{sim}/v1", api_key="sim")
    assert {GPT, CHAT} <= {model.id for model in client.models.list()}
    assert client.responses.input_tokens.count(model=GPT, input="How long is this?").input_tokens > 3
    conversation = client.conversations.create(metadata={"about": "cities"})
    first = client.responses.create(model=GPT, input="!say I will remember.", conversation=conversation.id)
    second = client.responses.create(model=GPT, input="!say I do.", conversation=conversation.id)
    assert (first.output_text, second.output_text) == ("I will remember.", "I do.")
    assert len(client.conversations.items.list(conversation.id).data) == 4
    compacted = client.responses.compact(model=GPT, input=[{"role": "user", "content": "Long ago"}])
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert client.conversations.delete(conversation.id).deleted


@pytest.mark.parametrize("stream", [False, True])
def test_openai_chat(sim, stream):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{sim}/v1", api_key="sim")
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    messages, looked = [{"role": "user", "content": SCRIPT}], []
    while True:
        asked = {"model": CHAT, "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**asked).choices[0]
        messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not choice.message.tool_calls:
            break
        assert choice.finish_reason == "tool_calls"
        for call in choice.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            looked.append(arguments["city"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": look(**arguments)})
    assert looked == WANTED
    assert choice.message.content == "Rome it is."


def test_openai_chat_counts_only_for_those_who_ask(sim):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{sim}/v1", api_key="sim")
    asked = {"model": CHAT, "messages": [{"role": "user", "content": "!say Hi"}], "stream": True}
    assert all(chunk.choices for chunk in client.chat.completions.create(**asked))
    *_, last = client.chat.completions.create(**asked, stream_options={"include_usage": True})
    assert last.usage.prompt_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_google_genai(sim, stream):
    genai = pytest.importorskip("google.genai")
    client = genai.Client(api_key="sim", http_options={"base_url": sim})
    types = genai.types
    tool = types.Tool(
        function_declarations=[{"name": "look", "description": "Look.", "parameters_json_schema": SCHEMA}]
    )
    config = types.GenerateContentConfig(tools=[tool])
    contents, looked = [types.Content(role="user", parts=[types.Part(text=SCRIPT)])], []
    while True:
        asked = {"model": GEMINI, "contents": contents, "config": config}
        if stream:
            pieces = list(client.models.generate_content_stream(**asked))
            parts = [part for piece in pieces for part in (piece.candidates[0].content.parts or [])]
        else:
            parts = client.models.generate_content(**asked).candidates[0].content.parts
        contents.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            break
        looked += [call.args["city"] for call in calls]
        contents.append(types.Content(role="user", parts=[
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": look(**call.args)}))
            for call in calls
        ]))  # fmt: skip
    assert looked == WANTED
    assert "".join(part.text or "" for part in parts) == "Rome it is."


def test_google_genai_calls_tools_itself(sim):
    genai = pytest.importorskip("google.genai")
    client = genai.Client(api_key="sim", http_options={"base_url": sim})
    reply = client.models.generate_content(
        model=GEMINI, contents=SCRIPT, config=genai.types.GenerateContentConfig(tools=[look])
    )
    assert reply.text == "Rome it is."
    assert client.models.count_tokens(model=GEMINI, contents="How long is this?").total_tokens > 3
    assert f"models/{GEMINI}" in [model.name for model in client.models.list()]


@pytest.mark.parametrize("stream", [False, True])
def test_boto_converse(sim, stream):
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "bedrock-runtime", endpoint_url=sim, region_name="us-east-1",
        aws_access_key_id="sim", aws_secret_access_key="sim",
    )  # fmt: skip
    tools = {
        "tools": [{"toolSpec": {"name": "look", "description": "Look.", "inputSchema": {"json": SCHEMA}}}]
    }
    messages, looked = [{"role": "user", "content": [{"text": SCRIPT}]}], []
    while True:
        asked = {"modelId": CONVERSE, "messages": messages, "toolConfig": tools}
        if stream:
            content, stop = collect_blocks(client.converse_stream(**asked)["stream"])
        else:
            reply = client.converse(**asked)
            content, stop = reply["output"]["message"]["content"], reply["stopReason"]
        messages.append({"role": "assistant", "content": content})
        calls = [block["toolUse"] for block in content if "toolUse" in block]
        if not calls:
            break
        assert stop == "tool_use"
        looked += [call["input"]["city"] for call in calls]
        messages.append({"role": "user", "content": [
            {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": look(**call["input"])}]}}
            for call in calls
        ]})  # fmt: skip
    assert looked == WANTED
    assert content[-1]["text"] == "Rome it is."


def collect_blocks(events):
    blocks, stop = {}, ""
    for event in events:
        if start := event.get("contentBlockStart"):
            blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
        elif told := event.get("contentBlockDelta"):
            block = blocks.setdefault(told["contentBlockIndex"], {"text": ""})
            if "toolUse" in told["delta"]:
                block["toolUse"]["input"] += told["delta"]["toolUse"]["input"]
            else:
                block["text"] += told["delta"].get("text", "")
        elif end := event.get("messageStop"):
            stop = end["stopReason"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    return list(blocks.values()), stop


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [f"anthropic:{CLAUDE}", f"openai-responses:{GPT}", f"google:{GEMINI}"])
def test_pydantic_ai(sim, name, stream):
    pydantic_ai = pytest.importorskip("pydantic_ai")
    looked = []
    agent = pydantic_ai.Agent(name)

    @agent.tool_plain
    def look(city: str) -> str:
        """Look at a city."""
        looked.append(city)
        return f"{city} is fine"

    async def listen(_, events):
        async for _ in events:
            pass

    async def main():
        if not stream:
            return (await agent.run(SCRIPT)).output
        # Its `run_stream` takes the first words for the answer; a handler makes it stream to the end.
        return (await agent.run(SCRIPT, event_stream_handler=listen)).output

    assert LOOP.run_until_complete(main()) == "Rome it is."
    assert sorted(looked) == sorted(WANTED)


@pytest.mark.parametrize("stream", [False, True])
def test_openai_agents(sim, stream):
    agents = pytest.importorskip("agents")
    looked = []

    @agents.function_tool
    def look(city: str) -> str:
        """Look at a city."""
        looked.append(city)
        return f"{city} is fine"

    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="Scout", model=GPT, tools=[look])

    async def main():
        if not stream:
            return (await agents.Runner.run(agent, SCRIPT)).final_output
        running = agents.Runner.run_streamed(agent, SCRIPT)
        async for _ in running.stream_events():
            pass
        return running.final_output

    assert LOOP.run_until_complete(main()) == "Rome it is."
    assert sorted(looked) == sorted(WANTED)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
def test_langgraph(sim, vendor, stream):
    prebuilt = pytest.importorskip("langgraph.prebuilt")
    package = pytest.importorskip(f"langchain_{vendor}")
    looked = []

    def look(city: str) -> str:
        """Look at a city."""
        looked.append(city)
        return f"{city} is fine"

    if vendor == "anthropic":
        model = package.ChatAnthropic(model=CLAUDE, base_url=sim, api_key="sim")
    else:
        model = package.ChatOpenAI(model=CHAT, base_url=f"{sim}/v1", api_key="sim")
    agent = prebuilt.create_react_agent(model, [look])
    question = {"messages": [("user", SCRIPT)]}
    if stream:
        pieces = [piece for piece, _ in agent.stream(question, stream_mode="messages")]
        said = "".join(piece.text if isinstance(piece.text, str) else piece.text() for piece in pieces)
        assert said.endswith("Rome it is.")
    else:
        last = agent.invoke(question)["messages"][-1]
        assert "Rome it is." in str(last.content)
    assert sorted(looked) == sorted(WANTED)
