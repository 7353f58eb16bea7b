"""Items of the Responses wire that want an answer from us, and responses that are not done."""

import asyncio
import json
from typing import Any

import pytest

from bridle import Agent, Media, tool
from bridle.testing import FakeClock
from bridle.testing.conformance.codec_samples import PIXEL_PNG
from bridle.values import events as e
from tests.providers.raw_server import RawServer

MODEL = "sim:openai/gpt-6.1-sol"
ANSWERED = {
    "shell_call": (
        "shell",
        {"id": "sh_1", "call_id": "call_1", "action": {"commands": ["ls"], "timeout_ms": None}},
        {"type": "shell_call_output", "call_id": "call_1"},
    ),
    "local_shell_call": (
        "local_shell",
        {
            "id": "ls_1",
            "call_id": "call_1",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "call_1"},
    ),
    "apply_patch_call": (
        "apply_patch",
        {
            "id": "apc_1",
            "call_id": "call_1",
            "status": "completed",
            "operation": {"type": "create_file", "path": "a", "diff": "+a"},
        },
        {"type": "apply_patch_call_output", "call_id": "call_1", "status": "failed"},
    ),
    "computer_call": (
        "computer",
        {
            "id": "cu_1",
            "call_id": "call_1",
            "action": {"type": "screenshot"},
            "pending_safety_checks": [],
            "status": "completed",
        },
        {"type": "computer_call_output", "call_id": "call_1"},
    ),
    "mcp_approval_request": (
        "mcp_approval",
        {"id": "mcpr_1", "server_label": "deepwiki", "name": "ask", "arguments": '{"q":"x"}'},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
    ),
}


def response(*items, status="completed", **more):
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-6.1-sol",
        "status": status,
        "output": list(items),
        "usage": usage,
        **more,
    }


def says(text):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return response(
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
    )


def run(server, *prompts, **options):
    agent = Agent(server.line(), clock=FakeClock(), **options)

    async def talk():
        return [await agent.run(prompt, session="s") for prompt in prompts]

    return agent, asyncio.run(talk())


@pytest.mark.parametrize("kind", ANSWERED)
def test_an_item_that_wants_an_answer_is_a_call_and_the_session_goes_on(kind):
    name, members, answer = ANSWERED[kind]
    item = {"type": kind, **members}
    server = RawServer(MODEL, response(item), says("I cannot do that."), says("Fine."))
    _, (first, second) = run(server, "do it", "never mind")
    assert (first.stop, first.text) == ("done", "I cannot do that.")
    assert [call.name for call in first.messages[1].calls] == [name]
    assert first.messages[2].results[0].outcome == "invalid"
    assert second.text == "Fine."
    sent = server.sent[1]["input"]
    assert item in sent, "it goes back as it came"
    (given,) = [each for each in sent if each.get("type") == answer["type"]]
    assert {name: given[name] for name in answer} == answer  # type: ignore[attr-defined]
    assert server.sent[2]["input"][: len(sent)] == sent


@tool
def shell(commands: list[str]) -> str:
    """Run commands."""
    return " ".join(commands)


@tool
def local_shell(
    type: str,  # noqa: A002
    command: list[str],
    env: dict[str, str],
) -> str:
    """Run a command."""
    return " ".join(command)


@tool
def apply_patch(
    type: str,  # noqa: A002
    path: str,
    diff: str,
) -> str:
    """Change a file."""
    return path


@tool
def computer(action: dict[str, str]) -> Media:
    """Use the computer."""
    return Media(kind="image", media_type="image/png", data=PIXEL_PNG)


@tool
def mcp_approval(server_label: str, name: str, arguments: str) -> str:
    """Approve a call."""
    return "approve"


OURS = {"tools": [shell, local_shell, apply_patch, computer, mcp_approval]}
GIVEN: dict[str, Any] = {
    "shell_call": {"output": [{"stdout": "ls", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    "local_shell_call": {"output": "ls"},
    "apply_patch_call": {"output": "a", "status": "completed"},
    "computer_call": {
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PIXEL_PNG}"}
    },
    "mcp_approval_request": {"approve": True},
}


@pytest.mark.parametrize("kind", ANSWERED)
def test_a_tool_of_that_name_answers_it(kind):
    _, members, answer = ANSWERED[kind]
    server = RawServer(MODEL, response({"type": kind, **members}), says("Done."))
    _, (result,) = run(server, "do it", **OURS)
    assert (result.stop, result.text, result.messages[2].results[0].outcome) == ("done", "Done.", "ok")
    (given,) = [each for each in server.sent[1]["input"] if each.get("type") == answer["type"]]
    assert {name: given[name] for name in GIVEN[kind]} == GIVEN[kind]


def test_a_call_that_the_provider_answered_itself_is_not_ours():
    call = {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": {"commands": ["ls"]}}
    outcome = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    output = {"type": "shell_call_output", "call_id": "call_1", "output": [outcome]}
    done = says("There is one file.")
    server = RawServer(MODEL, {**done, "output": [call, output, *done["output"]]})
    _, (result,) = run(server, "look")
    assert (result.stop, result.text, result.messages[1].calls) == ("done", "There is one file.", ())


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_not_done_is_no_reply_and_the_session_goes_on(status, stream):
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "pay",
        "arguments": "{}",
        "status": status if status == "in_progress" else "completed",
    }
    paid = []

    @tool
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    body = response(call, status=status)
    first = [{"type": "response.completed", "response": body}] if stream else body
    server = RawServer(MODEL, first, says("Fine."))
    agent, (failed, after) = run(server, "pay", "and now?", tools=[pay])
    assert failed.stop == "failed" and status in failed.reason
    assert (after.stop, after.text, paid) == ("done", "Fine.", [])
    assert [item.get("type") for item in server.sent[1]["input"]].count("function_call") == 0
    events = [record.event for record in asyncio.run(agent.store.read("s"))]
    assert sum(isinstance(event, e.ModelFailed) for event in events) == 1


def test_output_only_members_do_not_go_back():
    content = [{"type": "output_text", "text": "Hi.", "annotations": []}]
    message = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }
    done = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    search = {**done, "created_by": "gpt"}
    server = RawServer(MODEL, response(search, {**message, "created_by": "gpt"}), says("Bye."))
    run(server, "hello", "bye")
    assert "created_by" not in json.dumps(server.sent[1])
    assert done in server.sent[1]["input"]


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FREE_TEXT = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "act", "input": "rm a"}


@pytest.mark.parametrize("cut", [True, False])
def test_free_text_that_was_cut_off_never_runs(cut):
    """Half a JSON object shows that it is half; half a text does not, so the end of the reply decides."""
    ran = []

    @tool(effect="write")
    def act(input: str) -> str:  # noqa: A002 - the name that the wire gives to free text
        """Act."""
        ran.append(input)
        return "acted"

    server = RawServer(MODEL, response(FREE_TEXT, **(CUT if cut else {})), says("done"))
    agent = Agent(server.line(), tools=[act], clock=FakeClock())
    assert agent.run_sync("act").text == "done"
    assert ran == ([] if cut else ["rm a"])
    assert [item["input"] for item in server.sent[-1]["input"] if item.get("type") == "custom_tool_call"] == [
        "rm a"
    ]


@pytest.mark.parametrize("reason", ["length", "tool_calls"])
def test_free_text_that_was_cut_off_never_runs_on_chat(reason):
    ran = []

    @tool(effect="write")
    def act(input: str) -> str:  # noqa: A002 - the name that the wire gives to free text
        """Act."""
        ran.append(input)
        return "acted"

    def completion(reason, **message):
        choice = {
            "index": 0,
            "finish_reason": reason,
            "message": {"role": "assistant", "content": None, **message},
        }
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}

    call = {"id": "call_1", "type": "custom", "custom": {"name": "act", "input": "rm a"}}
    server = RawServer(
        "sim:openai-chat/gpt-5.4", completion(reason, tool_calls=[call]), completion("stop", content="done")
    )
    agent = Agent(server.line(), tools=[act], clock=FakeClock())
    assert agent.run_sync("act").text == "done"
    assert ran == ([] if reason == "length" else ["rm a"])
    sent = next(message for message in server.sent[-1]["messages"] if "tool_calls" in message)
    assert sent["tool_calls"][0]["custom"]["input"] == "rm a"


SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
GEMINI, CLAUDE = "sim:gemini/gemini-3.8-flash", "sim:anthropic/claude-sonnet-5-5"
CODE = [
    {"executableCode": {"language": "PYTHON", "code": "print(4)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n"}},
]
FOUND = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]


def gemini_says(*parts):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2}}


def claude_says(*blocks):
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": list(blocks),
            "stop_reason": "end_turn", "usage": usage}  # fmt: skip


WORDLESS = [
    (MODEL, response(SEARCH), says("Found."), "web_search_call"),
    (GEMINI, gemini_says(*CODE), gemini_says({"text": "Found."}), "executableCode, codeExecutionResult"),
    (CLAUDE, claude_says(*FOUND), claude_says({"type": "text", "text": "Found."}), "server_tool_use"),
]


def check_wordless(model, silent, spoken, kinds):
    server = RawServer(model, silent, spoken)
    agent, (result,) = run(server, "look")
    assert (result.stop, result.text) == ("done", "Found.")
    nudges = [
        record.event
        for record in asyncio.run(agent.store.read("s"))
        if isinstance(record.event, e.Reprompted)
    ]
    assert [kinds in nudge.why for nudge in nudges] == [True]
    _, (result,) = run(RawServer(model, silent, silent, silent), "look")
    assert (result.stop, result.text) == ("no_progress", "")
    assert kinds in result.reason


@pytest.mark.parametrize(("model", "silent", "spoken", "kinds"), WORDLESS)
def test_a_reply_of_items_without_a_word_is_no_answer(model, silent, spoken, kinds):
    """What the provider's own tools did is work on the way: the model is asked for words, and the stop says why."""
    check_wordless(model, silent, spoken, kinds)


def test_a_response_of_unknown_items_is_no_answer():
    check_wordless(MODEL, response({"type": "dream_call", "id": "d_1"}), says("Found."), "dream_call")


@pytest.mark.refusals
def test_a_gemini_reply_of_unknown_parts_is_no_answer():
    check_wordless(GEMINI, gemini_says({"dream": {"of": "x"}}), gemini_says({"text": "Found."}), "dream")


PICTURE = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PIXEL_PNG}


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        (MODEL, response(PICTURE)),
        (GEMINI, gemini_says({"inlineData": {"mimeType": "image/png", "data": PIXEL_PNG}})),
        (CLAUDE, claude_says({"type": "container_upload", "file_id": "file_1"})),
    ],
)
def test_a_reply_that_is_a_picture_or_a_file_is_an_answer(model, answer):
    _, (result,) = run(RawServer(model, answer), "draw")
    assert (result.stop, result.text) == ("done", "")


@pytest.mark.refusals
@pytest.mark.parametrize("content", [5, [{"type": "dance", "step": 1}]])
def test_a_message_that_cannot_be_read_is_no_answer(content):
    unread = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }
    server = RawServer(MODEL, response(unread), says("In words."))
    _, (result,) = run(server, "go")
    assert (result.stop, result.text) == ("done", "In words.")
    server = RawServer(MODEL, *[response(unread)] * 3)
    _, (result,) = run(server, "go")
    assert (result.stop, result.text) == ("no_progress", "")
    assert "only items of the provider (message)" in result.reason
