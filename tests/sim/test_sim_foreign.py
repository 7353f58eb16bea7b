"""The simulator with other clients: formats of other wires, ends of streams, lists, ids."""

import asyncio
import json
import re
from base64 import b64encode
from typing import Any

import pytest

from bridle import Agent
from bridle.ports.transport import OutgoingRequest, ResponseTimeline
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock

HEADERS = {
    "anthropic": (("anthropic-version", "2023-06-01"), ("x-api-key", "sim")),
    "openai": (("authorization", "Bearer sim"),),
    "gemini": (("x-goog-api-key", "sim"),),
    "bedrock": (("authorization", "Bearer sim"),),
}
CLAUDE, GPT, CHAT_GPT, GEMINI = "claude-sonnet-5", "gpt-5.6-sol", "gpt-5.5", "gemini-3.5-flash"
CHAT_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CLAUDE_TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
FLAT_TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def send(
    vendor: str,
    path: str,
    body: object = None,
    *,
    method: str = "POST",
    simulator: Simulator | None = None,
) -> ResponseTimeline:
    asked = OutgoingRequest(
        method=method,
        url=path,
        headers=(*HEADERS[vendor], ("content-type", "application/json")),
        body=b"" if body is None else json.dumps(body).encode(),
    )
    return asyncio.run((simulator or Simulator()).answer(asked))


def read(timeline: ResponseTimeline) -> dict[str, Any]:
    return json.loads(timeline.body)


def claude(**changes: Any) -> dict[str, Any]:
    return {
        "model": CLAUDE,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hello"}],
        **changes,
    }


def message_of(timeline: ResponseTimeline) -> str:
    error = read(timeline).get("error", read(timeline))
    return error["message"]


def gemini_events(body: dict[str, Any], model: str = GEMINI) -> list[dict[str, Any]]:
    timeline = send("gemini", f"/v1beta/models/{model}:streamGenerateContent?alt=sse", body)
    lines = timeline.body.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("vendor", "path", "body", "says"),
    [
        (
            "anthropic",
            "/v1/messages",
            claude(tools=[CHAT_TOOL]),
            "tools.0: Input tag 'function' found using 'type' does not match any of the expected tags: ",
        ),
        (
            "anthropic",
            "/v1/messages",
            claude(
                tools=[CLAUDE_TOOL],
                messages=[
                    {"role": "user", "content": "Look"},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "a", "name": "look", "input": "{}"}],
                    },
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
                ],
            ),
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        (
            "openai",
            "/v1/chat/completions",
            {"model": CHAT_GPT, "messages": [{"role": "user", "content": "Hi"}], "tools": [CLAUDE_TOOL]},
            "Missing required parameter: 'tools[0].type'.",
        ),
        (
            "openai",
            "/v1/chat/completions",
            {"model": CHAT_GPT, "messages": [{"role": "user", "content": "Hi"}], "tools": [FLAT_TOOL]},
            "Missing required parameter: 'tools[0].function'.",
        ),
        (
            "openai",
            "/v1/chat/completions",
            {
                "model": CHAT_GPT,
                "messages": [{"role": "user", "content": "Hi"}],
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            },
            "Invalid value: 'web_search_20250305'. Supported values are: 'function' and 'custom'.",
        ),
        (
            "openai",
            "/v1/responses",
            {"model": GPT, "input": "Hi", "tools": [CHAT_TOOL]},
            "Missing required parameter: 'tools[0].name'.",
        ),
        (
            "openai",
            "/v1/responses",
            {"model": GPT, "input": "Hi", "tools": [{"type": "bash_20250124", "name": "bash"}]},
            "Invalid value: 'bash_20250124'. Supported values are: ",
        ),
        (
            "openai",
            "/v1/responses",
            {
                "model": GPT,
                "input": [
                    {"role": "user", "content": "Click"},
                    {
                        "type": "computer_call",
                        "id": "cu_1",
                        "call_id": "call_1",
                        "actions": [{"type": "screenshot"}],
                    },
                    {"role": "user", "content": "Well?"},
                ],
                "tools": [{"type": "computer"}],
            },
            "No tool output found for computer call call_1.",
        ),
        (
            "gemini",
            f"/v1beta/models/{GEMINI}:generateContent",
            {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": [CHAT_TOOL]},
            "Invalid JSON payload received. Unknown name \"type\" at 'tools[0]': Cannot find field.",
        ),
        (
            "gemini",
            f"/v1beta/models/{GEMINI}:generateContent",
            {
                "contents": [
                    {"role": "user", "parts": [{"text": "Hi"}]},
                    {
                        "role": "model",
                        "parts": [
                            {"functionCall": {"name": "look", "args": "{}"}, "thoughtSignature": "c2ln"}
                        ],
                    },
                    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {}}}]},
                ],
            },
            "Invalid value at 'contents[1].parts[0].function_call.args'",
        ),
        (
            "bedrock",
            "/model/anthropic.claude-sonnet-5/converse",
            {
                "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
                "toolConfig": {"tools": [CLAUDE_TOOL]},
            },
            "Tool object at toolConfig.tools.0 must set one of the following keys: ",
        ),
    ],
)
def test_shapes_of_other_wires_are_refused_in_the_familys_own_words(vendor, path, body, says):
    timeline = send(vendor, path, body)
    assert timeline.status == 400, timeline.body
    assert message_of(timeline).startswith(says), message_of(timeline)


@pytest.mark.parametrize("prompt", ["!say Hello there.", "!call look {}"])
def test_streams_of_a_gemini_end_with_an_empty_text(prompt):
    look = {"functionDeclarations": [{"name": "look"}]}
    body = {"contents": [{"role": "user", "parts": [{"text": prompt}]}], "tools": [look]}
    *_, last = gemini_events(body)
    (candidate,) = last["candidates"]
    assert candidate["finishReason"] == "STOP"
    (part,) = candidate["content"]["parts"]
    assert part["text"] == ""
    assert ("thoughtSignature" in part) is ("call" not in prompt)


@pytest.mark.parametrize(
    "signature",
    [
        "skip_thought_signature_validator",
        b64encode(b"skip_thought_signature_validator").decode(),
        b64encode(b"context_engineering_is_the_way_to_go").decode().rstrip("="),
    ],
)
def test_stand_ins_for_a_signature_are_taken(signature):
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "Look"}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": signature}],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"a": 1}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "look"}]}],
    }
    timeline = send("gemini", f"/v1beta/models/{GEMINI}:generateContent", body)
    assert timeline.status == 200, timeline.body


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("vendor", "path", "body"),
    [
        ("anthropic", "/v1/v1/messages", claude()),
        ("openai", "/v1/v1/chat/completions", {"model": CHAT_GPT, "messages": []}),
        ("openai", "/v1/chat/completions/chat/completions", {"model": CHAT_GPT, "messages": []}),
        ("openai", "/v1/v1/responses", {"model": GPT, "input": "Hello"}),
        ("gemini", f"/v1/v1beta/models/{GEMINI}:generateContent", {"contents": []}),
        ("gemini", f"/v1beta/models/models/{GEMINI}:generateContent", {"contents": []}),
    ],
)
def test_doubled_paths_lead_nowhere(vendor, path, body):
    assert send(vendor, path, body).status == 404


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("vendor", "path"),
    [
        ("openai", "/v1/embeddings"),
        ("openai", "/v1/files"),
        ("openai", "/v1/vector_stores/vs_1/files"),
        ("anthropic", "/v1/files"),
        ("anthropic", "/v1/messages/batches"),
        ("gemini", "/v1beta/models/gemini-embedding-001:batchEmbedContents"),
        ("gemini", "/upload/v1beta/files"),
        ("bedrock", "/async-invoke"),
    ],
)
def test_endpoints_that_are_not_simulated_say_so(vendor, path):
    timeline = send(vendor, path, {"input": "Hello"})
    assert timeline.status == 404
    assert (
        message_of(timeline) == f"simulator: POST {path} is an endpoint of the provider that is not simulated"
    )


def test_a_probe_finds_the_simulator_there():
    timeline = send("anthropic", "/", method="HEAD")
    assert (timeline.status, timeline.body) == (200, b"")


def test_bedrock_counts_the_tokens_that_converse_charges():
    model = "/model/anthropic.claude-sonnet-5"
    body = {"messages": [{"role": "user", "content": [{"text": "Count me, please."}]}]}
    counted = send("bedrock", f"{model}/count-tokens", {"input": {"converse": body}})
    charged = read(send("bedrock", f"{model}/converse", body))["usage"]["inputTokens"]
    assert counted.status == 200, counted.body
    assert read(counted) == {"inputTokens": charged}


@pytest.mark.refusals
def test_bedrock_counts_only_what_it_can_read():
    path = "/model/anthropic.claude-sonnet-5/count-tokens"
    timeline = send("bedrock", path, {"input": {"invokeModel": {"body": "e30="}}})
    assert timeline.status == 400
    assert "invokeModel" in message_of(timeline)


BEDROCK = "/model/anthropic.claude-sonnet-5/converse"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("vendor", "path", "body", "header", "id_"),
    [
        ("anthropic", "/v1/messages", claude(), "request-id", r"req_[0-9a-f]{24}"),
        ("openai", "/v1/responses", {"model": GPT, "input": "Hi"}, "x-request-id", r"req_[0-9a-f]{24}"),
        (
            "openai",
            "/v1/chat/completions",
            {"model": CHAT_GPT, "messages": [{"role": "user", "content": "Hi"}]},
            "x-request-id",
            r"req_[0-9a-f]{24}",
        ),
        (
            "bedrock",
            BEDROCK,
            {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
            "x-amzn-requestid",
            UUID,
        ),
    ],
)
def test_every_answer_has_the_id_of_its_exchange(vendor, path, body, header, id_):
    timeline = send(vendor, path, body)
    assert timeline.status == 200
    (given,) = [value for name, value in timeline.headers if name == header]
    assert re.fullmatch(id_, given)


def test_ids_tiers_and_times_look_as_the_providers_write_them():
    clock = FakeClock()
    simulator, began = Simulator(clock=clock), int(clock.now())
    said = [{"role": "user", "content": "!call look {}"}]
    message = read(send("anthropic", "/v1/messages", claude(messages=said, tools=[CLAUDE_TOOL])))
    assert message["id"].startswith("msg_")
    assert message["content"][-1]["id"].startswith("toolu_")
    assert message["usage"]["service_tier"] == "standard"
    body = {"model": CHAT_GPT, "messages": said, "tools": [CHAT_TOOL], "reasoning_effort": "none"}
    chat = read(send("openai", "/v1/chat/completions", body, simulator=simulator))
    assert chat["id"].startswith("chatcmpl-")
    assert chat["choices"][0]["message"]["tool_calls"][0]["id"].startswith("call_")
    assert (chat["created"], chat["service_tier"]) == (began, "default")
    body = {"model": GPT, "input": said, "tools": [FLAT_TOOL], "service_tier": "flex"}
    response = read(send("openai", "/v1/responses", body, simulator=simulator))
    assert response["id"].startswith("resp_")
    assert response["output"][-1]["call_id"].startswith("call_")
    assert (response["created_at"], response["service_tier"]) == (began, "flex")
    look = {"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}
    body = {
        "messages": [{"role": "user", "content": [{"text": "!call look {}"}]}],
        "toolConfig": {"tools": [look]},
    }
    converse = read(send("bedrock", BEDROCK, body))
    assert converse["output"]["message"]["content"][-1]["toolUse"]["toolUseId"].startswith("tooluse_")


@pytest.mark.parametrize("stream", [True, False])
def test_so_many_choices_are_given_as_are_asked_for(stream):
    body = {
        "model": CHAT_GPT,
        "messages": [{"role": "user", "content": "!say One two."}],
        "stream": stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }
    path = "/v1/chat/completions"
    one, three = (send("openai", path, {**body, "n": count}).body.decode() for count in (1, 3))
    if not stream:
        choices = json.loads(three)["choices"]
        assert [(each["index"], each["message"]["content"]) for each in choices] == [
            (index, "One two.") for index in range(3)
        ]
        counts = [json.loads(each)["usage"]["completion_tokens"] for each in (one, three)]
    else:
        chunks = [
            [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            for text in (one, three)
        ]
        words = dict.fromkeys(range(3), "")
        for chunk in chunks[1]:
            for choice in chunk["choices"]:
                words[choice["index"]] += choice["delta"].get("content") or ""
        assert words == dict.fromkeys(range(3), "One two.")
        counts = [each[-1]["usage"]["completion_tokens"] for each in chunks]
    assert counts[1] == 3 * counts[0]


@pytest.mark.parametrize("stream", [True, False])
def test_so_many_candidates_are_given_as_are_asked_for(stream):
    body = {
        "contents": [{"role": "user", "parts": [{"text": "!say One two."}]}],
        "generationConfig": {"candidateCount": 2},
    }
    events = (
        gemini_events(body)
        if stream
        else [read(send("gemini", f"/v1beta/models/{GEMINI}:generateContent", body))]
    )
    words = {0: "", 1: ""}
    for event in events:
        for candidate in event["candidates"]:
            parts = candidate["content"].get("parts", ())
            words[candidate.get("index", 0)] += "".join(
                part["text"] for part in parts if not part.get("thought")
            )
    assert words == {0: "One two.", 1: "One two."}


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("Your task is to create a detailed summary of the conversation so far, with all requests.", True),
        ("Please summarize our conversation.", True),
        ("Pause. Create a handoff summary for another LLM that will resume the task.", True),
        ("In our last conversation you gave me a summary. What is 2 + 3?", False),
        ("The summary in notes.txt is about a conversation. Is it long?", False),
        ("I wanted to summarize a conversation once.", False),
    ],
)
def test_only_an_order_asks_for_a_summary(prompt, wanted):
    said = [
        {"role": "user", "content": "The word is heron."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": prompt},
    ]
    reply = read(send("anthropic", "/v1/messages", claude(messages=said)))
    assert reply["content"][-1]["text"].startswith("Summary of the conversation so far") is wanted


REMINDER = "<system-reminder>\nCLAUDE.md says:\n!say I am a preamble.\nuse the tool look\n</system-reminder>"


@pytest.mark.parametrize(
    "blocks",
    [
        [REMINDER, "!say Hello."],
        ["!say Hello.\n", REMINDER],
        ["# AGENTS.md instructions for /work\n\n<INSTRUCTIONS>\n!say No.\n</INSTRUCTIONS>\n!say Hello."],
        ["<environment_context>\n  <cwd>/work</cwd>\n!say No.\n</environment_context>", "!say Hello."],
    ],
)
def test_what_a_client_puts_around_a_prompt_is_not_answered(blocks):
    content = [{"type": "text", "text": text} for text in blocks]
    said = [{"role": "user", "content": content}]
    reply = read(send("anthropic", "/v1/messages", claude(messages=said, tools=[CLAUDE_TOOL])))
    assert [block["text"] for block in reply["content"] if block["type"] == "text"] == ["Hello."]


def test_a_reminder_behind_a_result_is_no_new_prompt():
    said = [
        {"role": "user", "content": "!call look {}\n!then\n!say Done."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "seen"},
                {"type": "text", "text": REMINDER},
            ],
        },
    ]
    reply = read(send("anthropic", "/v1/messages", claude(messages=said, tools=[CLAUDE_TOOL])))
    assert reply["content"][-1]["text"] == "Done."


@pytest.mark.parametrize(
    "name",
    [
        "ollama/qwen3:8b",
        "local/anything",
        "openrouter/anthropic/claude-sonnet-5",
        "vllm/some/model",
        "llamacpp/m",
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_endpoints_that_serve_any_model_are_simulated_with_any_model(name, stream):
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    async def run() -> str:
        agent = Agent(f"sim:{name}", tools=[add])
        prompt = '!call add {"a": 1, "b": 2}\n!then\n!say Three.'
        if not stream:
            return (await agent.run(prompt)).text
        events = [event async for event in agent.stream(prompt)]
        return events[-1].result.text

    assert asyncio.run(run()) == "Three."


@pytest.mark.refusals
def test_an_unserved_model_is_still_unknown():
    assert asyncio.run(Agent("sim:=openai/no-such-model").run("Hello")).stop == "failed"


def test_models_that_clients_ask_for_by_themselves_are_known():
    contents = [{"role": "user", "parts": [{"text": "!say Hello."}]}]
    path = "/v1beta/models/gemini-3.5-flash-lite:generateContent"
    assert send("gemini", path, {"contents": contents}).status == 200
    assert send("openai", "/v1/responses", {"model": "gpt-5.4-nano", "input": "!say Hello."}).status == 200
    about = read(send("openai", "/v1/models/gpt-5.4-nano", method="GET"))
    assert (about["id"], about["object"], about["owned_by"]) == ("gpt-5.4-nano", "model", "openai")


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("user", {"type": "input_text", "text": "Hello"}),
        ("user", {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
        ("assistant", {"type": "output_text", "text": "Hello"}),
        ("assistant", {"type": "reasoning", "text": "Hm."}),
    ],
)
def test_blocks_of_other_wires_are_refused_by_anthropic(role, block):
    messages = [{"role": "user", "content": "Hello"}, {"role": role, "content": [block]}]
    timeline = send(
        "anthropic", "/v1/messages", claude(messages=[*messages, {"role": "user", "content": "Go"}])
    )
    assert timeline.status == 400
    words = f"messages.1.content.0: Input tag '{block['type']}' found using 'type' does not match any of the"
    assert message_of(timeline).startswith(words)


@pytest.mark.refusals
def test_a_thought_in_a_result_is_refused_by_anthropic():
    called = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    inside = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]
    answered = {"type": "tool_result", "tool_use_id": "toolu_1", "content": inside}
    messages = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [answered]},
    ]
    timeline = send("anthropic", "/v1/messages", claude(messages=messages, tools=[CLAUDE_TOOL]))
    assert timeline.status == 400
    assert message_of(timeline) == (
        "messages.2.content.0.tool_result.content.0: Input tag 'thinking' found using 'type' does not match any"
        " of the expected tags: 'document', 'image', 'search_result', 'text', 'tool_reference'"
    )
