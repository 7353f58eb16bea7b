"""Formats of front ends: well-formed streams, whatever part of the deltas arrives.

`make front-ends` tries them with the packages of the protocols (test_front_ends.py).
"""

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount as StarletteMount

from bridle import Agent, tool
from bridle.hooks import Change, before_tool
from bridle.run.lineage import fork_session
from bridle.serve import Client, ServeOptions, router
from bridle.serve.api.chat_sessions import find_chat_session
from bridle.serve.client import ApiError
from bridle.serve.feeds import FeedItem
from bridle.serve.streams.ag_ui import AgUiAdapter
from bridle.serve.streams.ui_messages import UiMessageAdapter
from bridle.stores.memory import MemoryStore
from bridle.values import events as e
from bridle.values.message import Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Origin
from bridle.values.record import GENESIS, seal_record
from bridle.values.result import AttemptRestarted, CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop

ARGUMENTS = '{"name": "x", "deep": {"a": [1, 2]}}'
ORIGIN = Origin(family="f", endpoint="e", model="m")


def record(event):
    return FeedItem(1, seal_record(1, 1.0, event, GENESIS))


def delta(value):
    return FeedItem(1, None, value)


def make_run(reasoning, text, calls, *, restarts=False):
    """Items of a run: a reply with parts, the results of its calls, and a last reply."""
    pieces = [delta(ReasoningDelta(reasoning=piece)) for piece in reasoning]
    pieces += [delta(TextDelta(text=piece)) for piece in text]
    for index in range(calls):
        for part in (ARGUMENTS[:10], ARGUMENTS[10:]):
            pieces.append(delta(ToolCallDelta(index=index, name="look", arguments=part, call_id=f"c{index}")))
        call = ToolCall(id=f"c{index}", name="look", arguments=ARGUMENTS)
        pieces.append(delta(CallReady(index=index, call=call)))
    parts: Any = [Reasoning(text="".join(reasoning))] if reasoning else []
    parts += [Text(text="".join(text))] if text else []
    parts += [ToolCall(id=f"c{index}", name="look", arguments=ARGUMENTS) for index in range(calls)]
    reply = Reply(parts=tuple(parts), stop=Stop.DONE, origin=ORIGIN)
    broken = [
        delta(TextDelta(text="void")),
        delta(AttemptRestarted(attempt=2, reason="cut", is_text_void=True)),
    ]
    return [
        record(e.Prompted(parts=(Text(text="go"),))),
        record(e.ModelAsked(step=1, attempt=1, digest="d")),
        *(broken if restarts else []),
        *pieces,
        record(e.ModelReplied(reply=reply)),
        *(
            record(
                e.ToolFinished(
                    result=ToolResult(call_id=f"c{index}", parts=(Text(text="here"),)), name="look"
                )
            )
            for index in range(calls)
        ),
        record(e.RunEnded(stop="done")),
    ]


def frames(adapter, items, split=3):
    """The data of all frames of a stream, sent in batches."""
    written = adapter.begin()
    for start in range(0, len(items), split):
        written += adapter.encode(items[start : start + split])
    written += adapter.finish()
    lines = [line.removeprefix(b"data: ") for line in written.split(b"\n") if line]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


PIECES = st.lists(st.text(min_size=1, max_size=5), max_size=4)
RUNS = st.tuples(PIECES, PIECES, st.integers(0, 2), st.booleans())


def drop_deltas(items, kept):
    """The items as a viewer sees them that lost some deltas: all from one point on, or before one."""
    start, end = kept
    numbers = [number for number, item in enumerate(items) if item.delta is not None]
    lost = set(numbers[start:end])
    return [item for number, item in enumerate(items) if number not in lost]


@settings(max_examples=200)
@given(run=RUNS, kept=st.tuples(st.integers(0, 8), st.integers(0, 12)))
def test_a_ui_message_has_the_whole_reply_and_well_formed_parts(run, kept):
    reasoning, text, calls, restarts = run
    chunks = frames(
        UiMessageAdapter("s"), drop_deltas(make_run(reasoning, text, calls, restarts=restarts), kept)
    )
    assert chunks[0]["type"] == "start" and chunks[-1]["type"] == "finish"
    opened, shown = set(), {"text": "", "reasoning": ""}
    for chunk in chunks:
        kind, _, event = chunk["type"].partition("-")
        if chunk["type"] == "data-restarted":
            shown = dict.fromkeys(shown, "")
        elif kind in shown and event == "start":
            opened.add(chunk["id"])
        elif kind in shown:
            assert chunk["id"] in opened
            shown[kind] += chunk.get("delta", "")
            opened -= {chunk["id"]} if event == "end" else set()
    assert not opened
    assert shown["text"] == "".join(text)
    inputs = [chunk for chunk in chunks if chunk["type"] == "tool-input-available"]
    assert sorted(each["toolCallId"] for each in inputs) == [f"c{index}" for index in range(calls)]
    assert all(each["input"] == json.loads(ARGUMENTS) for each in inputs)
    outputs = [chunk for chunk in chunks if chunk["type"] == "tool-output-available"]
    assert len(outputs) == calls
    steps = [chunk["type"] for chunk in chunks if chunk["type"] in ("start-step", "finish-step")]
    assert steps == ["start-step", "finish-step"]


@settings(max_examples=200)
@given(run=RUNS, kept=st.tuples(st.integers(0, 8), st.integers(0, 12)))
def test_ag_ui_events_are_nested_as_the_protocol_wants(run, kept):
    reasoning, text, calls, restarts = run
    items = drop_deltas(make_run(reasoning, text, calls, restarts=restarts), kept)
    events = frames(AgUiAdapter("s", "r"), items)
    assert events[0]["type"] == "RUN_STARTED" and events[-1]["type"] == "RUN_FINISHED"
    opened, arguments, shown = set(), {}, ""
    for event in events:
        kind, _, stage = event["type"].rpartition("_")
        key = event.get("toolCallId") or event.get("messageId") or event.get("stepName")
        if stage in ("START", "STARTED") and kind != "RUN":
            assert (kind, key) not in opened
            opened.add((kind, key))
        elif stage in ("END", "FINISHED") and kind != "RUN":
            opened.remove((kind, key))
        elif stage in ("CONTENT", "ARGS"):
            assert (kind, key) in opened and event["delta"]
            arguments[key] = arguments.get(key, "") + (event["delta"] if stage == "ARGS" else "")
            shown += event["delta"] if kind == "TEXT_MESSAGE" else ""
        elif event["type"] == "CUSTOM":
            shown = ""
    assert not opened
    assert shown == "".join(text)
    ended = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_END"]
    assert sorted(ended) == [f"c{index}" for index in range(calls)]
    results = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert len(results) == calls


@pytest.mark.parametrize(
    ("stop", "chunk", "event"),
    [
        ("done", ("finish", "stop"), ("RUN_FINISHED", "success")),
        ("waiting", ("finish", "tool-calls"), ("RUN_FINISHED", "interrupt")),
        ("cancelled", ("abort", None), ("RUN_FINISHED", "cancelled")),
        ("failed", ("finish", "error"), ("RUN_ERROR", None)),
        ("budget", ("finish", "other"), ("RUN_ERROR", None)),
        ("refused", ("finish", "content-filter"), ("RUN_FINISHED", "success")),
    ],
)
def test_every_end_has_its_form(stop, chunk, event):
    items = [
        record(e.Prompted(parts=(Text(text="go"),))),
        record(e.ApprovalAsked(call_id="c0", binding="b", rule="asks")),
        record(e.RunEnded(stop=stop, reason="why")),
    ]
    last = frames(UiMessageAdapter("s"), items)[-1]
    assert (last["type"], last.get("finishReason")) == chunk
    last = frames(AgUiAdapter("s"), items)[-1]
    assert (last["type"], last.get("outcome", {}).get("type")) == event


@tool(effect="read")
def look(name: str) -> str:
    """Look something up."""
    return f"{name} is here"


@in_loop
async def test_an_ag_ui_client_runs_its_own_tools(tmp_path):
    agent = Agent("sim:", name="shop", tools=[look])
    tools = [{"name": "choose", "description": "Asks the user.", "parameters": {"type": "object"}}]

    async def run(http, url, messages, **more):
        body = {"threadId": "t", "runId": "r", "messages": messages, **more}
        async with http.post(f"{url}/api/ag-ui/shop", json=body) as reply:
            text = await reply.text()
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")] or text

    async with serve_agents({"shop": agent}, tmp_path / "log.db") as serving, aiohttp.ClientSession() as http:
        asking = {"role": "user", "content": '!call choose {}\n!call look {"name": "x"}\n!then\n!say fine'}
        events = await run(http, serving.url, [asking], tools=tools, state={"a": 1}, context=[])
        assert events[1] == {"type": "CUSTOM", "name": "bridle.ignored", "value": {"fields": ["state"]}}
        calls = {
            each["toolCallName"]: each["toolCallId"] for each in events if each["type"] == "TOOL_CALL_START"
        }
        assert [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"] == ["x is here"]
        assert events[-1]["outcome"] == {"type": "success"} and events[-1]["result"]["stop"] == "waiting"
        result = {"role": "tool", "toolCallId": calls["choose"], "content": "", "error": "the user left"}
        wrong = await run(http, serving.url, [asking, {**result, "toolCallId": "none"}])
        assert "none" in wrong and "error" in wrong
        events = await run(http, serving.url, [asking, result])
        assert events[-1]["result"]["stop"] == "done"
        messages = (await serving.client.messages("t")).messages
        (given,) = [part for part in messages[2].parts if part.call_id == calls["choose"]]
        assert (given.outcome, given.text) == ("error", "the user left")
        taken = await run(http, serving.url, [asking], tools=[{"name": "look"}])
        assert "has a tool 'look' of its own" in taken


@in_loop
async def test_a_router_is_mounted_in_another_application(tmp_path):
    from tests.serve.serving import serve

    options = ServeOptions(trusts_callers=True)
    mounted = router(Agent("sim:", name="shop", tools=[look]), store=tmp_path / "log.db", options=options)
    app = Starlette(
        routes=[StarletteMount("/agents", mounted)],
        lifespan=lambda app: mounted.router.lifespan_context(mounted),  # type: ignore[arg-type]
    )
    async with serve(app) as url:
        client = Client(f"{url}/agents")
        run = await client.prompt('!call look {"name": "x"}\n!then\n!say found', session="a/b", new=True)
        async for _ in client.stream(run.session):
            pass
        assert (await client.session("a/b")).answer == "found"
        with pytest.raises(ApiError, match="no session 'a/b/c'"):
            await client.call("a/b/c", 1)


@in_loop
async def test_a_client_that_leaves_a_chat_cancels_its_run(tmp_path):
    import asyncio

    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        """Wait for the test."""
        entered.set()
        await leave.wait()
        return "over"

    agent = Agent("sim:", name="shop", tools=[hang])
    async with serve_agents({"shop": agent}, tmp_path / "log.db", options=ServeOptions()) as serving:
        for query, ends in (("", "cancelled"), ("?on_leave=continue", "done")):
            entered.clear()
            leave.clear()
            chat = f"chat{query[-3:]}"
            message = {"role": "user", "parts": [{"type": "text", "text": "!call hang\n!then\n!say over"}]}
            body = json.dumps({"id": chat, "messages": [message], "trigger": "submit-message"}).encode()
            head = f"POST /api/chat/shop{query} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            await reader.readuntil(b'"start-step"')
            await entered.wait()
            writer.close()
            if ends == "done":
                while serving.host.feeds.viewers:
                    await asyncio.sleep(0.01)
                leave.set()
            async for _ in serving.client.stream(chat):
                pass
            assert (await serving.client.session(chat)).summary.status == ends


def user(text, **more):
    return {"id": f"u-{text}", "role": "user", "parts": [{"type": "text", "text": text}], **more}


async def chat(http, url, messages, **more):
    """The chunks of one chat request; the JSON of an error."""
    body = {"id": "chat", "messages": messages, "trigger": "submit-message", **more}
    async with http.post(f"{url}/api/chat/shop", json=body) as reply:
        text = await reply.text()
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines] or json.loads(text)


def read_answer(chunks):
    """The text of an answer, and the session that has it."""
    text = "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")
    return text, chunks[0]["messageMetadata"]["session"]


OLD = {"id": "a", "role": "assistant", "parts": [{"type": "text", "text": "an answer"}]}


@in_loop
async def test_a_message_is_answered_again_in_a_fork_and_the_chat_goes_on_there(tmp_path):
    agent = Agent("sim:", name="shop", tools=[look])
    asking, more = user('!call look {"name": "x"}\n!then\n!say found'), user("!say more")
    async with serve_agents({"shop": agent}, tmp_path / "log.db") as serving, aiohttp.ClientSession() as http:
        url = serving.url
        assert read_answer(await chat(http, url, [asking])) == ("found", "chat")
        assert read_answer(await chat(http, url, [asking, OLD, more])) == ("more", "chat")
        again = {"trigger": "regenerate-message"}
        assert read_answer(await chat(http, url, [asking, OLD, more], **again)) == ("more", "chat~2")
        # The first message of the chat, with the id of its answer.
        chunks = await chat(http, url, [asking], messageId="a", **again)
        assert read_answer(chunks) == ("found", "chat~3")
        assert [each["output"] for each in chunks if each["type"] == "tool-output-available"] == ["x is here"]
        assert read_answer(await chat(http, url, [asking, OLD, user("!say on")])) == ("on", "chat~3")
        texts = [message.text for message in (await serving.client.messages("chat~3")).messages]
        assert texts == [asking["parts"][0]["text"], "", "", "found", "!say on", "on"]
        # Nothing is lost: the answers before are sessions.
        assert (await serving.client.session("chat")).answer == "more"
        branches = (await serving.client.branches("chat")).branches
        assert {(each.session, each.parent) for each in branches} >= {("chat~2", "chat")}
        async with http.get(f"{url}/api/chat/shop/chat/stream") as reply:
            assert reply.status == 204


@in_loop
async def test_an_edited_message_takes_the_place_of_the_one_in_the_chat(tmp_path):
    agent = Agent("sim:", name="shop", tools=[look])
    async with serve_agents({"shop": agent}, tmp_path / "log.db") as serving, aiohttp.ClientSession() as http:
        url, first, second = serving.url, user("!say one"), user("!say two")
        await chat(http, url, [first])
        await chat(http, url, [first, OLD, second])
        edited = await chat(http, url, [first, OLD, user("!say 2")], messageId="u-!say two")
        assert read_answer(edited) == ("2", "chat~2")
        texts = [message.text for message in (await serving.client.messages("chat~2")).messages]
        assert texts == ["!say one", "one", "!say 2", "2"]
        # `sendMessage()` without a message asks for an answer to the last one; the client may send only that.
        assert read_answer(await chat(http, url, [user("!say 2")], messageId="u-!say 2")) == ("2", "chat~3")
        texts = [message.text for message in (await serving.client.messages("chat~3")).messages]
        assert texts == ["!say one", "one", "!say 2", "2"]


@in_loop
async def test_what_cannot_be_answered_again_says_why(tmp_path):
    agent = Agent("sim:", name="shop", tools=[look])
    async with serve_agents({"shop": agent}, tmp_path / "log.db") as serving, aiohttp.ClientSession() as http:
        url, again = serving.url, {"trigger": "regenerate-message"}
        await chat(http, url, [user("!say one")])
        for messages, code in (
            ([user("!say other")], "no_such_message"),
            ([user("!say one"), OLD], "invalid_request"),
            ([], "invalid_request"),
        ):
            error = (await chat(http, url, messages, **again))["error"]
            assert (error["code"], bool(error["hint"])) == (code, True)
        error = (await chat(http, url, [user("!say one")], trigger="rewind"))["error"]
        assert error["code"] == "invalid_request" and "trigger" in error["message"]
        # Somebody else's session with the name of a fork is neither continued nor changed.
        await serving.client.prompt("!say mine", session="chat~2", new=True)
        async for _ in serving.client.stream("chat~2"):
            pass
        assert read_answer(await chat(http, url, [user("!say one"), OLD, user("!say b")])) == ("b", "chat")
        assert read_answer(await chat(http, url, [user("!say one")], **again)) == ("one", "chat~3")
        # A fork that its request left without a prompt is used by the next one.
        await fork_session(serving.host.store, "chat~3", 1, "chat~4")
        assert read_answer(await chat(http, url, [user("!say one")], **again)) == ("one", "chat~4")


@in_loop
async def test_a_session_with_the_name_of_a_fork_is_not_the_chat(tmp_path):
    store = MemoryStore()
    agent = Agent("sim:", store=store)
    for session in ("a", "private"):
        await agent.run("!say yes", session)
    await fork_session(store, "private", None, "a~2")
    async with serve_agents({"shop": Agent("sim:", name="shop")}, store) as serving:
        assert await find_chat_session(serving.host, "a") == "a"


def shown_by_version_7(chunks):
    """The parts of a message as version 7 of the AI SDK keeps them: `reset-step` removes those of the step."""
    parts, inputs = [], []
    for chunk in chunks:
        match chunk["type"]:
            case "start-step":
                parts.append("step")
            case "reset-step":
                del parts[len(parts) - parts[::-1].index("step") :]
                inputs.clear()
            case "text-start" | "reasoning-start":
                parts.append({"id": chunk["id"], "kind": chunk["type"].partition("-")[0], "text": ""})  # type: ignore[arg-type]
            case "text-delta" | "reasoning-delta":
                [part] = [each for each in parts if each != "step" and each.get("id") == chunk["id"]]  # type: ignore[attr-defined]
                part["text"] += chunk["delta"]
            case "tool-input-start":
                parts.append({"call": chunk["toolCallId"]})  # type: ignore[arg-type]
            case "tool-input-available":
                inputs.append({"call": chunk["toolCallId"]})
    assert all(each in parts for each in inputs)
    assert all(part in inputs for part in parts if "call" in part)
    return [part for part in parts if part != "step"]


@settings(max_examples=200)
@given(run=RUNS, kept=st.tuples(st.integers(0, 8), st.integers(0, 12)))
def test_version_7_takes_back_what_a_broken_attempt_left(run, kept):
    """No part of a void attempt stays: `reset-step` came with version 7 of the AI SDK."""
    reasoning, text, calls, _ = run
    items = drop_deltas(make_run(reasoning, text, calls, restarts=True), kept)
    parts = shown_by_version_7(frames(UiMessageAdapter("s", 7), items))
    assert "".join(part["text"] for part in parts if part.get("kind") == "text") == "".join(text)
    shown = [part["call"] for part in parts if "call" in part]
    assert sorted(shown) == [f"c{index}" for index in range(calls)]


def test_a_call_of_a_broken_attempt_begins_again_for_version_7():
    piece = delta(ToolCallDelta(index=0, name="look", arguments="{", call_id="c0"))
    call = ToolCall(id="c0", name="look", arguments=ARGUMENTS)
    items = [
        record(e.Prompted(parts=(Text(text="go"),))),
        record(e.ModelAsked(step=1, attempt=1, digest="d")),
        piece,
        delta(AttemptRestarted(attempt=2, reason="cut", is_text_void=True)),
        record(e.ModelReplied(reply=Reply(parts=(call,), stop=Stop.TOOLS, origin=ORIGIN))),
        record(e.RunEnded(stop="done")),
    ]
    kinds = [chunk["type"] for chunk in frames(UiMessageAdapter("s", 7), items)]
    assert kinds.count("tool-input-start") == 2
    assert kinds.index("reset-step") < kinds.index("data-restarted") < kinds.index("tool-input-available")
    assert "reset-step" not in [chunk["type"] for chunk in frames(UiMessageAdapter("s"), items)]


@pytest.mark.parametrize("version", [6, 7])
def test_parts_that_came_with_version_7_are_sent_to_it_only(version):
    items = [
        record(e.Prompted(parts=(Text(text="go"),))),
        record(e.Steered(message="be brief", by="ann")),
        record(e.ApprovalAsked(call_id="c0", binding="b", rule="asks")),
        record(e.RunEnded(stop="waiting")),
    ]
    chunks = {chunk["type"]: chunk for chunk in frames(UiMessageAdapter("s", version), items)}
    assert chunks["tool-approval-request"].get("reason") == ("asks" if version == 7 else None)
    if version == 7:
        assert chunks["steering-message"]["parts"] == [{"type": "text", "text": "be brief"}]
    else:
        assert "steering-message" not in chunks


def test_a_message_of_a_person_stays_when_version_7_takes_a_step_back():
    """`reset-step` removes all parts of the step: the message was shown, and gone after the next attempt."""
    items = [
        record(e.Prompted(parts=(Text(text="go"),))),
        record(e.ModelAsked(step=1, attempt=1, digest="d")),
        delta(TextDelta(text="void")),
        record(e.Steered(message="be brief", by="ann")),
        delta(AttemptRestarted(attempt=2, reason="cut", is_text_void=True)),
        delta(AttemptRestarted(attempt=3, reason="cut", is_text_void=True)),
        record(e.ModelReplied(reply=Reply(parts=(Text(text="ok"),), stop=Stop.DONE, origin=ORIGIN))),
        record(e.RunEnded(stop="done")),
    ]
    chunks = frames(UiMessageAdapter("s", 7), items)
    last = max(at for at, chunk in enumerate(chunks) if chunk["type"] == "reset-step")
    steering = [chunk for chunk in chunks[last:] if chunk["type"] == "steering-message"]
    assert [chunk["parts"][0]["text"] for chunk in steering] == ["be brief"]
    assert len({chunk["id"] for chunk in chunks if chunk["type"] == "steering-message"}) == 1


@pytest.mark.parametrize(("answer", "approved"), [("approve", True), ("reject", False), ("done", True)])
@pytest.mark.parametrize("version", [6, 7])
def test_an_answer_that_was_given_elsewhere_is_shown_to_version_7(version, answer, approved):
    """A page that reconnects showed buttons for a call that somebody had approved and that was running."""
    items = [
        record(e.Prompted(parts=(Text(text="go"),))),
        record(e.ApprovalAsked(call_id="c0", binding="b", rule="asks")),
        record(e.ApprovalAnswered(call_id="c0", binding="b", answer=answer, reason="why", by="ann")),
        record(e.ApprovalAnswered(call_id="c9", binding="of an earlier message", answer=answer)),
    ]
    chunks = frames(UiMessageAdapter("s", version), items)
    [asked] = [chunk for chunk in chunks if chunk["type"] == "tool-approval-request"]
    shown = [chunk for chunk in chunks if chunk["type"] == "tool-approval-response"]
    response = {"type": "tool-approval-response", "approvalId": asked["approvalId"], "approved": approved}
    assert shown == ([{**response, "reason": "why"}] if version == 7 else [])


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0YK"
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
MP4 = "AAAAGGZ0eXBtcDQyAAAAAG1wNDJpc29t"
MEDIA = [
    ({"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}}, "image"),
    ({"type": "image", "source": {"type": "url", "value": "https://a.example/x.png"}}, "image"),
    ({"type": "image", "source": {"type": "url", "value": f"data:image/png;base64,{PNG}"}}, "image"),
    ({"type": "image", "source": {"type": "url", "value": "https://a.example/no-ending"}}, "image"),
    (
        {"type": "document", "source": {"type": "data", "value": PDF, "mimeType": "application/pdf"}},
        "document",
    ),
    ({"type": "audio", "source": {"type": "data", "value": WAV, "mimeType": "audio/wav"}}, "audio"),
    ({"type": "video", "source": {"type": "data", "value": MP4, "mimeType": "video/mp4"}}, "video"),
    ({"type": "binary", "mimeType": "image/png", "data": PNG, "filename": "x.png"}, "image"),
    ({"type": "binary", "mimeType": "image/png", "url": "https://a.example/x.png"}, "image"),
]
"""Every part with media of AG-UI 1.0, and the one of the versions before; with the kind that it becomes."""


async def post_ag_ui(url, thread, messages, tools=()):
    body = {"threadId": thread, "runId": "r", "messages": messages, "tools": list(tools)}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/api/ag-ui/shop", json=body) as reply:
        return reply.status, await reply.text()


@in_loop
async def test_every_medium_of_ag_ui_becomes_a_part_of_the_prompt(tmp_path):
    """Pictures got 400: version 1.0 has parts for images, audio, video and documents."""
    agent = Agent("sim:gemini/gemini-3.5-flash", name="shop")
    async with serve_agents({"shop": agent}, tmp_path / "log.db") as serving:
        for number, (part, kind) in enumerate(MEDIA):
            content = [{"type": "text", "text": "!say seen"}, part]
            status, body = await post_ag_ui(
                serving.url, f"t{number}", [{"id": "1", "role": "user", "content": content}]
            )
            assert status == 200, body
            records = await serving.host.store.read(f"t{number}")
            [prompted] = [each.event for each in records if isinstance(each.event, e.Prompted)]
            assert [part.kind for part in prompted.parts[1:]] == [kind]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image", "source": {"type": "file", "value": "file_1", "provider": "openai"}}, "handle"),
        ({"type": "image"}, "handle"),
        ({"type": "binary", "mimeType": "image/png", "id": "file_1"}, "handle"),
        ({"type": "image", "source": {"type": "data", "value": "***", "mimeType": "image/png"}}, "base64"),
        ({"type": "hologram"}, "hologram"),
    ],
)
@in_loop
async def test_media_that_cannot_be_taken_are_refused(tmp_path, part, words):
    async with serve_agents({"shop": Agent("sim:", name="shop")}, tmp_path / "log.db") as serving:
        status, body = await post_ag_ui(serving.url, "t", [{"id": "1", "role": "user", "content": [part]}])
        assert status == 400 and words in body


@in_loop
async def test_a_result_of_an_ag_ui_client_has_media_and_brings_its_tools(tmp_path):
    """The picture of a result was lost, and the tools of the request were those of the one before."""
    choose = {"name": "choose", "description": "Asks.", "parameters": {"type": "object"}}
    draw = {**choose, "name": "draw"}
    async with serve_agents({"shop": Agent("sim:", name="shop")}, tmp_path / "log.db") as serving:
        messages = [
            {"id": "1", "role": "user", "content": "!call choose {}\n!then\n!call draw {}\n!then\n!say ok"}
        ]
        status, body = await post_ag_ui(serving.url, "t", messages, [choose])
        assert status == 200, body
        content = [{"type": "text", "text": "blue"}, MEDIA[0][0]]
        messages.append({"id": "2", "role": "tool", "toolCallId": "c1_0", "content": content})
        status, body = await post_ag_ui(serving.url, "t", messages, [draw])
        assert status == 200, body
        assert '"toolCallName":"draw"' in body.replace(" ", "")
        records = await serving.host.store.read("t")
        [finished] = [each.event for each in records if isinstance(each.event, e.ToolFinished)]
        assert [type(part).__name__ for part in finished.result.parts] == ["Text", "Media"]


@pytest.mark.parametrize("version", [6, 7])
@in_loop
async def test_front_ends_show_the_arguments_that_a_question_is_about(tmp_path, version):
    """A hook may have changed those that the model wrote; numbers are as they are written."""

    @tool(effect="write", approve=True)
    def pay(account: int, amount: float) -> str:
        """Pay."""
        return "paid"

    @before_tool()
    def limit(run, call):
        return Change(arguments={"account": 1234567890123456789, "amount": 5})

    agent = Agent("sim:", name="bank", tools=[pay], hooks=[limit])
    asked = '!call pay {"account": 1234567890123456789, "amount": 12345678901234567.89}'
    store = tmp_path / "log.db"
    async with serve_agents({"bank": agent}, store) as serving, aiohttp.ClientSession() as client:
        parts = {"id": "v", "messages": [{"role": "user", "parts": [{"type": "text", "text": asked}]}]}
        headers = {"x-ai-sdk": str(version)}
        reply = await client.post(f"{serving.url}/api/chat/bank", json=parts, headers=headers)
        written = await reply.text()
        chunks = [json.loads(line[6:]) for line in written.split("\n") if line.startswith("data: {")]
        kinds = [each["type"] for each in chunks]
        inputs = [each["input"] for each in chunks if each["type"] == "tool-input-available"]
        assert '"amount": 12345678901234567.89' in written
        assert inputs[-1] == {"account": 1234567890123456789, "amount": 5}
        last = max(at for at, kind in enumerate(kinds) if kind == "tool-input-available")
        assert last < kinds.index("tool-approval-request")
        request = chunks[kinds.index("tool-approval-request")]
        assert ("approvalDescriptor" in request) == (version == 7)
        body = {"threadId": "a", "runId": "r", "messages": [{"role": "user", "content": asked}]}
        written = await (await client.post(f"{serving.url}/api/ag-ui/bank", json=body)).text()
        [interrupt] = json.loads(written.strip().split("data: ")[-1])["outcome"]["interrupts"]
        assert interrupt["metadata"] == {
            "tool": "pay", "arguments": '{"account": 1234567890123456789, "amount": 5}', "question": "run",
        }  # fmt: skip
