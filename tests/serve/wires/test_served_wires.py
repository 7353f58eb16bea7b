"""Served agents over each wire, with Bridle's own client and with raw requests."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from bridle import Agent, Budget, CodeMode, Memory, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from bridle.run.validate_input import WaitingCaller
from bridle.serve.identity import WIRE_CALLER
from bridle.serve.options import ServeOptions
from bridle.serve.runs import SERVER_NAME
from bridle.serve.wires.conversation import digest_conversation
from bridle.testing.scripted_model import scripted
from bridle.values.errors import Failure
from bridle.values.events import ToolStarted
from bridle.values.message import Media, Message, Text, ToolResult
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name
from tests.serve.wires.wire_clients import CLIENT_MODELS, connect_client
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

wires = pytest.mark.parametrize("wire", CLIENT_MODELS)
PROMPT = '!say let me see\n!call look_up {"name": "m1"}\n!then\n!say asking\n!call confirm {"q": "sure?"}\n!then\n!say fine'
CHAT, MESSAGES = "/openai/v1/chat/completions", "/anthropic/v1/messages"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "confirm", "parameters": {"type": "object", "properties": {}}},
}


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is free"


@tool(effect="read")
def confirm(q: str) -> str:
    """Ask the user."""
    return "yes"


def read_states(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return [fold_log(await served.host.store.read(info.id)).state for info in infos]

    return served.run(read())


def chat(served, messages, headers=(), **more):
    return send(served.url + CHAT, {"model": "helper", "messages": messages, **more}, headers)


def user(text):
    return {"role": "user", "content": text}


@wires
def test_an_agent_uses_a_served_agent_as_its_model(wire):
    with serve_by_name({"helper": Agent("sim:", tools=[look_up], instructions="Own.")}) as served:
        client = Agent(connect_client(wire, served.url), tools=[confirm], instructions="Client.")
        result = client.run_sync(PROMPT)
        assert (result.stop, result.text) == ("done", "fine"), result.reason
        [state] = read_states(served)
        assert state.settings.instructions == "Own.\n\nClient."
        outcomes = [r.text for m in state.conversation.transcript.messages for r in m.results]
        assert outcomes == ["m1 is free", "yes"]
        assert result.usage.total == state.totals.spent.usage.total


TAKEN = (
    "confirm",
    "remember",
    "forget",
    "read_result",
    "search_tools",
    "run_code",
    "transfer_to_other",
    "Answer",
)


def make_full_agent():
    """An agent with a tool of its own and every kind of tool that Bridle adds."""
    return Agent(
        CLAUDE, tools=[confirm, spare, spare_2], memory=Memory(), tools_shown_max=5, code_mode=CodeMode(sandbox=None, tools=["confirm"]),
        handover=[Agent(CLAUDE, name="other", output=ANSWER)], output=ANSWER,
    )  # fmt: skip


@tool
def spare() -> str:
    return "spare"


@tool
def spare_2() -> str:
    return "spare"


ANSWER: dict[str, Any] = {"title": "Answer", "type": "object", "additionalProperties": {"type": "integer"}}
"""A tool asks for it, because the model's own form cannot express it."""
CLAUDE = "sim:anthropic/claude-sonnet-5-5"


@pytest.mark.parametrize("name", TAKEN)
def test_tool_of_the_client_with_a_name_of_the_agents_is_refused(name):
    with serve_by_name({"helper": make_full_agent()}) as served:
        named = {**TOOL, "function": {**TOOL["function"], "name": name}}
        reply = chat(served, [user("hi")], tools=[named])
        assert reply.status == 400
        assert f"a tool named '{name}' of its own" in reply.json["error"]["message"]
        assert not read_states(served)


@pytest.mark.parametrize("name", TAKEN)
def test_tool_of_an_ag_ui_client_with_a_name_of_the_agents_is_refused(name):
    body = {
        "threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}],
        "tools": [{"name": name, "description": "Mine.", "parameters": {"type": "object"}}],
    }  # fmt: skip
    with serve_by_name({"helper": make_full_agent()}) as served:
        reply = send(served.url + "/api/ag-ui/helper", body)
        assert reply.status == 400 and f"a tool '{name}' of its own" in reply.json["error"]["message"]
        assert not read_states(served)


def test_named_session_is_continued_and_shown():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        mine = {"x-bridle-session": "mine"}
        assert chat(served, [user("!say one")], mine).headers["x-bridle-session"] == "mine"
        chat(served, [user("!say two")], mine)
        [state] = read_states(served)
        assert [m.text for m in state.conversation.transcript.messages] == [
            "!say one",
            "one",
            "!say two",
            "two",
        ]


def test_session_of_a_reply_can_be_sent_back():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        first = chat(served, [user("!say one")], {"x-bridle-session": "team a/50%"})
        named = first.headers["x-bridle-session"]
        assert named == "team%20a%2F50%25"
        assert (
            chat(served, [user("!say two")], {"x-bridle-session": named}).headers["x-bridle-session"] == named
        )
        [state] = read_states(served)
        assert state.identity.id == "team a/50%"


def test_session_with_a_generated_name_must_exist():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = chat(served, [user("hi")], {"x-bridle-session": "20260101-abcdefgh"})
        assert reply.status == 404 and "not found" in reply.json["error"]["message"]


def test_requests_at_once_from_one_point_are_forks():
    meeting = threading.Barrier(3)

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def meet() -> str:
        """Wait for the others."""
        await asyncio.to_thread(meeting.wait, PATIENCE_SECONDS)
        return "met"

    with serve_by_name({"helper": Agent("sim:", tools=[meet])}) as served:
        messages = [user("!say one")]
        messages.append(chat(served, messages).json["choices"][0]["message"])
        statuses = {}

        def go_on(number):
            given = [*messages, user(f"!call meet {{}}\n!then\n!say reply {number}")]
            reply = chat(served, given)
            statuses[number] = reply.status, reply.json["choices"][0]["message"]["content"]

        threads = [threading.Thread(target=go_on, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert statuses == {number: (200, f"reply {number}") for number in range(3)}
        assert len(read_states(served)) == 3


def test_unknown_earlier_response_is_not_found():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        body = {"model": "helper", "input": "hi", "previous_response_id": "resp_20260101-abcdefgh_00"}
        reply = send(f"{served.url}/openai/v1/responses", body)
        assert (reply.status, reply.json["error"]["code"]) == (404, "previous_response_not_found")


def test_earlier_response_is_found_after_a_restart(tmp_path):
    store = str(tmp_path / "log.db")
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        first = send(f"{served.url}/openai/v1/responses", {"model": "helper", "input": "!say one"}).json["id"]
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        body = {"model": "helper", "input": "!say two", "previous_response_id": first}
        assert send(f"{served.url}/openai/v1/responses", body).status == 200
        [state] = read_states(served)
        assert len(state.conversation.transcript.messages) == 4


def test_results_find_their_session_after_a_restart(tmp_path):
    store = str(tmp_path / "log.db")
    messages = [user("!call confirm {}\n!then\n!say fine")]
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        said = chat(served, messages, tools=[TOOL]).json["choices"][0]["message"]
    call = said["tool_calls"][0]["id"]
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        given = [*messages, said, {"role": "tool", "tool_call_id": call, "content": "yes"}]
        assert chat(served, given, tools=[TOOL]).json["choices"][0]["message"]["content"] == "fine"
        assert len(read_states(served)) == 1


def test_result_and_message_together_continue_the_conversation():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        messages = [user("!call confirm {}\n!then\n!say fine")]
        said = chat(served, messages, tools=[TOOL]).json["choices"][0]["message"]
        call = said["tool_calls"][0]["id"]
        given = [*messages, said, {"role": "tool", "tool_call_id": call, "content": "yes"}, user("!say more")]
        assert chat(served, given, tools=[TOOL]).json["choices"][0]["message"]["content"] == "more"
        [state] = read_states(served)
        roles = [m.role for m in state.conversation.transcript.messages]
        assert roles == ["user", "assistant", "tool", "user", "assistant"]


def test_conversation_with_results_that_is_not_known_is_imported():
    messages = [
        user("!call confirm {}\n!then\n!say fine"),
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_x", "type": "function", "function": {"name": "confirm", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "call_x", "content": "yes"},
    ]  # fmt: skip
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = chat(served, messages, tools=[TOOL])
        assert reply.json["choices"][0]["message"]["content"] == "fine"
        [state] = read_states(served)
        assert [m.role for m in state.conversation.transcript.messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"model": "helper", "messages": [{"role": "assistant", "content": "hi"}]}),
        (CHAT, {"model": "helper", "messages": []}),
        (CHAT, b"{"),
        (MESSAGES, {"model": "helper"}),
        ("/openai/v1/responses", {"model": "helper", "input": []}),
        ("/gemini/v1beta/models/helper:generateContent", {"contents": []}),
    ],
)
def test_request_without_anything_new_is_invalid(path, body):
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = send(served.url + path, body)
        assert reply.status == 400 and "error" in reply.json
        assert read_states(served) == []


def test_run_that_waits_for_a_person_says_so():
    @tool(effect="write", approve=True)
    def pay(usd: int) -> str:
        """Pay."""
        return "paid"

    with serve_by_name({"helper": Agent("sim:", tools=[pay, look_up])}) as served:
        reply = chat(
            served, [user('!call look_up {"name": "m"}\n!then\n!call pay {"usd": 5}\n!then\n!say done')]
        )
        text = reply.json["choices"][0]["message"]["content"]
        assert "waits for a person: waiting for an answer about pay. That call goes on only after" in text
        assert "calls before it may have run" in text
        [state] = read_states(served)
        assert state.run.end.stop == "waiting"


@pytest.mark.parametrize(("said", "status"), [("!say so far\n", 200), ("", 500)])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_reply_without_calls_does_not_end_with_calls(path, said, status):
    """A run that ends after calls of the agent's own tools."""
    with serve_by_name({"helper": Agent("sim:", tools=[look_up], budget=Budget(steps=1))}) as served:
        prompt = said + '!call look_up {"name": "m"}\n!then\n!say x'
        reply = send(served.url + path, {"model": "helper", "max_tokens": 99, "messages": [user(prompt)]})
        assert reply.status == status, reply.body
        if status == 200:
            stop = reply.json.get("stop_reason") or reply.json["choices"][0]["finish_reason"]
            assert stop in ("length", "max_tokens")
        else:
            assert "steps" in reply.json["error"]["message"]


def test_failure_of_the_provider_is_not_the_clients():
    broken = scripted(Failure(kind="unauthorized", message="no key", status=401))
    with serve_by_name({"helper": Agent(broken)}) as served:
        reply = send(served.url + MESSAGES, {"model": "helper", "max_tokens": 9, "messages": [user("hi")]})
        assert (reply.status, reply.json["error"]["type"]) == (500, "api_error")
        assert "the model of this agent cannot be used" in reply.json["error"]["message"]


def test_lists_and_counts():
    agents = {"helper": Agent("sim:"), "other": Agent("sim:")}
    with serve_by_name(agents) as served:
        assert [m["id"] for m in send(f"{served.url}/openai/v1/models").json["data"]] == ["helper", "other"]
        assert send(f"{served.url}/anthropic/v1/models/helper").json["type"] == "model"
        assert send(f"{served.url}/gemini/v1beta/models/none").status == 404
        body = {"model": "helper", "messages": [user("hello " * 50)]}
        few = send(f"{served.url}{MESSAGES}/count_tokens", {**body, "messages": [user("hi")]}).json[
            "input_tokens"
        ]
        many = send(f"{served.url}{MESSAGES}/count_tokens", body).json["input_tokens"]
        assert 0 < few < 50 < many < 500
        contents = [{"role": "user", "parts": [{"text": "hello"}]}]
        for asked in (
            {"contents": contents},
            {"generateContentRequest": {"model": "models/helper", "contents": contents}},
        ):
            counted = send(f"{served.url}/gemini/v1beta/models/helper:countTokens", asked)
            assert counted.json["totalTokens"] > 0
        counted = send(
            f"{served.url}/openai/v1/responses/input_tokens", {"model": "helper", "input": "hello"}
        )
        assert counted.json["input_tokens"] > 0


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/gemini/v1beta/models/helper:generateContent"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong-wrong-wrong-wrong"}, 401),
        ({"x-api-key": "t" * 20}, 200),
        ({"x-goog-api-key": "t" * 20}, 200),
        ({"authorization": "Bearer " + "t" * 20}, 200),
        ({"authorization": "Bearer " + "t" * 20, "host": "evil.example"}, 421),
    ],
)
def test_clients_send_the_token_where_they_send_their_key(path, headers, status):
    body = {
        CHAT: {"model": "helper", "messages": [user("!say hi")]},
        MESSAGES: {"model": "helper", "max_tokens": 99, "messages": [user("!say hi")]},
    }.get(path, {"contents": [{"role": "user", "parts": [{"text": "!say hi"}]}]})
    with serve_by_name({"helper": Agent("sim:")}, options=ServeOptions(token="t" * 20)) as served:
        assert send(served.url + path, body, headers).status == status


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_hangs_up_ends_the_run(stream):
    started, ended = threading.Event(), threading.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def wait_long() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    with serve_by_name({"helper": Agent("sim:", tools=[wait_long])}) as served:
        body = b'{"model":"helper","stream":%b,"messages":[{"role":"user","content":"!call wait_long {}"}]}'
        body %= b"true" if stream else b"false"
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            line.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert started.wait(PATIENCE_SECONDS)
        assert ended.wait(PATIENCE_SECONDS)
        served.run(wait_until_idle(served))
        [state] = read_states(served)
        assert state.run.end.stop == "cancelled"


async def wait_until_idle(served):
    async with asyncio.timeout(PATIENCE_SECONDS):
        if served.host.adoption.resuming is not None:
            await served.host.adoption.resuming
        while len(served.host.runs):
            await asyncio.sleep(0)


def test_run_whose_client_is_gone_is_not_resumed(tmp_path):
    """Other runs that the shutdown of a server ended are."""
    store, paused = str(tmp_path / "log.db"), asyncio.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def wait_for_pause() -> str:
        """Wait."""
        await paused.wait()
        return ""

    async def pause_run(session, caller):
        paused.clear()
        agent = Agent("sim:", name="helper", tools=[wait_for_pause], store=store)
        run = agent.stream("!call wait_for_pause {}\n!then\n!say on", session, caller=caller).start()
        async for item in run.view():
            if isinstance(item, ToolStarted):
                await run.pause(by=SERVER_NAME)
                paused.set()
        assert (await run.result()).stop == "paused"

    async def pause_runs():
        await pause_run("of-wire", WIRE_CALLER)
        await pause_run("of-wire-of-ann", WaitingCaller("ann"))
        await pause_run("of-api", "")

    asyncio.run(pause_runs())
    with serve_by_name({"helper": Agent("sim:", tools=[wait_for_pause])}, store) as served:
        served.run(wait_until_idle(served))
        stops = {state.identity.id: state.run.end.stop for state in read_states(served)}
        assert stops == {"of-wire": "paused", "of-wire-of-ann": "paused", "of-api": "done"}


def test_runs_of_wires_are_marked():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        chat(served, [user("!say hi")])
        [state] = read_states(served)
        assert state.run.origin.caller == WIRE_CALLER


def test_failure_after_the_first_words_ends_the_stream():
    """The status is sent already, so the failure is an event of the stream."""

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "x"

    with serve_by_name({"helper": Agent("sim:", tools=[look], budget=Budget(steps=1, usd=0.02))}) as served:
        reply = send(
            served.url + MESSAGES,
            {
                "model": "helper",
                "max_tokens": 99,
                "stream": True,
                "messages": [user("!say so far\n!call look {}\n!then\n!say x")],
            },
        )
        kinds = [event["type"] for event in reply.events]
        assert reply.status == 200 and kinds[0] == "message_start"
        assert kinds[-1] in ("error", "message_stop")


@in_loop
async def test_empty_prompt_is_refused_without_results():
    agent = Agent("sim:")
    with pytest.raises(Exception, match="the prompt is empty"):
        await agent.run(())


def test_conversation_with_too_many_messages_is_refused():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = chat(served, [user("a"), {"role": "assistant", "content": "b"}] * 10_000 + [user("c")])
        assert reply.status == 413
        assert "20,001 items; the limit is 20,000" in reply.json["error"]["message"]
        assert read_states(served) == []


def test_digest_covers_what_is_inside_results():
    def digest(**result):
        message = Message(role="tool", parts=(ToolResult(call_id="c", **result),))
        return digest_conversation((), [message])

    one, other = (Media(kind="image", media_type="image/png", data=data) for data in ("YQ==", "Yg=="))
    text = Text(text="x")
    digests = [
        digest(parts=(one,)), digest(parts=(other,)), digest(parts=(text,)),
        digest(parts=(text,), outcome="error"),
    ]  # fmt: skip
    assert len(set(digests)) == 4
    assert digest(parts=(one,)) == digests[0]


def test_many_clients_at_once_do_not_mix():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        found, threads = {}, []

        def talk(number):
            messages = [user(f"!say first {number}")]
            said = chat(served, messages).json["choices"][0]["message"]
            messages += [said, user(f"!say second {number}")]
            found[number] = said["content"], chat(served, messages).json["choices"][0]["message"]["content"]

        for number in range(20):
            threads.append(threading.Thread(target=talk, args=(number,)))
            threads[-1].start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert found == {n: (f"first {n}", f"second {n}") for n in range(20)}
        assert len(read_states(served)) == 20
