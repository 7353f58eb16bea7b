"""The session that a request continues: what the client has seen decides, also after a restart or a crash."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from bridle import Agent, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.errors import Conflict
from bridle.run.archive.sessions import list_sessions
from bridle.serve.identity import WIRE_CALLER
from bridle.serve.wires import sessions
from bridle.serve.wires.client_view import read_client_view
from bridle.stores.memory import MemoryStore
from bridle.values.errors import MisuseError
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name
from tests.serve.wires.wire_clients import CLIENT_MODELS, connect_client
from tests.suite.campaign import IS_WHOLE
from tests.suite.crashes import kill_after_every_record, kill_after_record
from tests.suite.patience import PATIENCE_SECONDS

CHAT, RESPONSES = "/openai/v1/chat/completions", "/openai/v1/responses"
MINE = {"x-bridle-session": "mine"}
wires = pytest.mark.parametrize("wire", CLIENT_MODELS)


def make_tool(name):
    schema = {"type": "object", "properties": {"q": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is free"


@tool(effect="read")
def confirm(q: str) -> str:
    """Ask the user."""
    return "yes " * 10_000


def user(text):
    return {"role": "user", "content": text}


def model(text):
    return {"role": "assistant", "content": text}


def chat(served, messages, headers=(), name="helper", **more):
    return send(served.url + CHAT, {"model": name, "messages": messages, **more}, headers)


def read_message(reply):
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["message"]


def read_states(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return {info.id: fold_log(await served.host.store.read(info.id)).state for info in infos}

    return served.run(read())


def read_texts(state):
    return [message.text for message in state.conversation.transcript.messages]


def test_edited_history_of_a_named_session_decides():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        chat(served, [user("!say one")], MINE)
        edited = [user("!say one"), model("another"), user("!say two")]
        reply = chat(served, edited, MINE)
        assert read_message(reply)["content"] == "two"
        own = reply.headers["x-bridle-session"]
        assert (
            own != "mine" and "session 'mine', which has another history" in reply.headers["x-bridle-dropped"]
        )
        again = chat(served, [*edited, model("two"), user("!say three")], MINE)
        assert again.headers["x-bridle-session"] == own and "x-bridle-dropped" not in again.headers
        states = read_states(served)
        assert read_texts(states["mine"]) == ["!say one", "one"]
        assert read_texts(states[own]) == ["!say one", "another", "!say two", "two", "!say three", "three"]


@pytest.mark.parametrize("restarts", [False, True])
def test_named_session_with_its_history_goes_on_or_is_forked(tmp_path, restarts):
    store = str(tmp_path / "log.db")
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        said = [user("!say one"), read_message(chat(served, [user("!say one")], MINE))]
        if not restarts:
            go_on_and_fork(served, said)
    if restarts:
        with serve_by_name({"helper": Agent("sim:")}, store) as served:
            go_on_and_fork(served, said)


def go_on_and_fork(served, said):
    assert chat(served, [*said, user("!say two")], MINE).headers["x-bridle-session"] == "mine"
    reply = chat(served, [*said, user("!say three")], MINE)
    fork = reply.headers["x-bridle-session"]
    assert fork != "mine" and "x-bridle-dropped" not in reply.headers
    third = chat(served, [*said, user("!say three"), read_message(reply), user("!say four")], MINE)
    assert third.headers["x-bridle-session"] == fork
    texts = {session: read_texts(state) for session, state in read_states(served).items()}
    assert texts == {
        "mine": ["!say one", "one", "!say two", "two"],
        fork: ["!say one", "one", "!say three", "three", "!say four", "four"],
    }


def test_sessions_with_the_same_history_are_told_apart_by_name():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        for name in ("a", "b"):
            chat(served, [user("!say one")], {"x-bridle-session": name})
        for name in ("a", "b"):
            given = [user("!say one"), model("one"), user(f"!say {name}")]
            assert chat(served, given, {"x-bridle-session": name}).headers["x-bridle-session"] == name
        assert {name: read_texts(state)[-1] for name, state in read_states(served).items()} == {
            "a": "a",
            "b": "b",
        }


def test_session_of_another_agent_is_refused():
    with serve_by_name({"helper": Agent("sim:"), "other": Agent("sim:")}) as served:
        chat(served, [user("!say one")], MINE)
        refused = chat(served, [user("!say two")], MINE, name="other")
        assert refused.status == 400
        assert "Session 'mine' belongs to the model 'helper'" in refused.json["error"]["message"]
        first = send(served.url + RESPONSES, {"model": "helper", "input": "!say one"}).json["id"]
        body = {"model": "other", "input": "!say two", "previous_response_id": first}
        assert "belongs to the model 'helper'" in send(served.url + RESPONSES, body).json["error"]["message"]


def test_history_besides_an_earlier_response_is_refused():
    with serve_by_name({"helper": Agent("sim:")}) as served:
        first = send(served.url + RESPONSES, {"model": "helper", "input": "!say one"}).json["id"]
        given = [user("a"), model("b"), user("!say two")]
        reply = send(
            served.url + RESPONSES, {"model": "helper", "input": given, "previous_response_id": first}
        )
        assert reply.status == 400 and "besides 'previous_response_id'" in reply.json["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, "/anthropic/v1/messages"])
def test_result_without_its_call_says_so(path):
    message = {"role": "tool", "tool_call_id": "call_7", "content": "x"}
    if path != CHAT:
        message = {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_7", "content": "x"}],
        }
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = send(served.url + path, {"model": "helper", "max_tokens": 99, "messages": [message]})
        assert reply.status == 400
        assert "result of the tool call 'call_7' has no call before it" in reply.json["error"]["message"]
        assert read_states(served) == {}


@wires
def test_conversation_is_found_after_a_restart(wire, tmp_path):
    """With own tools, client tools and results that are stored as excerpts."""
    store, kept = str(tmp_path / "log.db"), str(tmp_path / "client.db")
    prompt = (
        '!say let me see\n!call look_up {"name": "m1"}\n!then\n!say asking\n!call confirm {"q": "sure?"}\n!then\n'
        "!say  fine \n"
    )
    with serve_by_name({"helper": Agent("sim:", tools=[look_up])}, store) as served:
        client = Agent(connect_client(wire, served.url), tools=[confirm], result_characters=None, store=kept)
        first = client.run_sync(prompt)
        assert first.stop == "done", first.reason
        [session] = read_states(served)
    with serve_by_name({"helper": Agent("sim:", tools=[look_up])}, store) as served:
        client = Agent(connect_client(wire, served.url), tools=[confirm], result_characters=None, store=kept)
        assert client.run_sync("!say bye", session=first.session).text == "bye"
        states = read_states(served)
        assert [*states] == [session]
        assert read_texts(states[session])[-2:] == ["!say bye", "bye"]


def test_log_says_the_same_as_the_memory_of_the_server():
    """Every place that a reply was remembered at is derived from its log too."""
    with serve_by_name({"helper": Agent("sim:", tools=[look_up])}) as served:
        messages = [user("a"), model("b")]
        for text in ("!say one", '!call look_up {"name": "x"}\n!then\n!say two', "!call confirm {}"):
            messages.append(user(text))
            messages.append(read_message(chat(served, messages, tools=[make_tool("confirm")])))
        call = messages[-1]["tool_calls"][0]["id"]
        messages.append({"role": "tool", "tool_call_id": call, "content": "z" * 50_000})
        messages.append(user("!say end"))
        read_message(chat(served, messages, tools=[make_tool("confirm")]))
        [wires_of_host] = [
            route.endpoint.args[1].args[0] for route in served.app.routes if route.path == CHAT
        ]
        remembered = {key for key in wires_of_host.index._places if len(key) == 64}
        [session] = read_states(served)
        view = served.run(read_client_view(served.run(served.host.store.read(session))))
        assert len(remembered) == 4
        assert remembered == {reply.digest for reply in view.replies if not reply.is_imported}


@tool(effect="write", approve=True)
def order(q: int) -> str:
    """Order."""
    return "ordered"


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize(
    ("prompt", "ours"),
    [
        ('!say sure\n!call order {"q": 1}', "This run waits for a person"),
        ('!call order {"q": 1}', "This run waits for a person"),
        ("!cut 900\n!say " + "one two three " * 40, "[reply interrupted; retrying from the start]"),
    ],
)
def test_conversation_with_a_text_of_ours_is_found_after_a_restart(tmp_path, prompt, ours, forks):
    store = str(tmp_path / "log.db")
    agent = Agent("sim:openai-chat/gpt-5.4", tools=[order])
    with serve_by_name({"helper": agent}, store) as served:
        said = [user("!say one"), read_message(chat(served, [user("!say one")]))]
        if forks:
            chat(served, [*said, user("!say two")])
        reply = chat(served, [*said, user(prompt)])
        said += user(prompt), read_message(reply)
        assert ours in said[-1]["content"]
    with serve_by_name({"helper": agent}, store) as served:
        again = chat(served, [*said, user("!say never mind")])
        assert again.headers["x-bridle-session"] == reply.headers["x-bridle-session"]


def test_logs_that_begin_in_another_way_are_not_read_and_others_once(monkeypatch):
    read, openings = [], []
    original, read_opening = sessions.read_view, sessions.read_opening

    async def note(store, session):
        read.append(session)
        return await original(store, session)

    async def note_opening(store, session):
        openings.append(session)
        return await read_opening(store, session)

    with serve_by_name({"helper": Agent("sim:")}) as served:
        for number in range(4):
            chat(served, [user(f"!say {number}")], {"x-bridle-session": f"s{number}"})
        monkeypatch.setattr(sessions, "read_view", note)
        monkeypatch.setattr(sessions, "read_opening", note_opening)
        found = [
            chat(served, [user("x"), model(f"{number}"), user("!say y")]).headers["x-bridle-session"]
            for number in range(3)
        ]
        assert sorted(openings) == sorted([*found[:2], "s0", "s1", "s2", "s3"])
        assert sorted(read) == sorted(found[:2])


def read_twice(served, number):
    """Two turns of one conversation, which are one session."""
    said = [user(f"!say a{number}"), model(f"a{number}"), user(f"!say b{number}"), model(f"b{number}")]
    session = chat(served, said[:1]).headers["x-bridle-session"]
    assert chat(served, said[:3]).headers["x-bridle-session"] == session
    return [*said, user("!say c")], session


@pytest.mark.parametrize("restarts", [False, True])
def test_conversation_that_the_index_has_no_room_for_is_found(tmp_path, monkeypatch, restarts):
    monkeypatch.setattr(sessions, "PLACES_MAX", 20)
    store = str(tmp_path / "log.db")
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        chat(served, [user("q"), model("unknown"), user("!say z")])  # the logs were read once
        held = [read_twice(served, number) for number in range(12)]
        if not restarts:
            assert find_sessions(served, held) == [session for _, session in held]
    if restarts:
        with serve_by_name({"helper": Agent("sim:")}, store) as served:
            assert find_sessions(served, held) == [session for _, session in held]


def find_sessions(served, held):
    return [chat(served, messages).headers["x-bridle-session"] for messages, _ in held]


@pytest.mark.parametrize("without_room", [1, 3])
def test_latest_conversations_stay_in_the_index(tmp_path, monkeypatch, without_room):
    """After a restart, those with the latest replies are remembered; of the others a few are searched each time."""
    monkeypatch.setattr(sessions, "SESSIONS_WITHOUT_ROOM_MAX", without_room)
    store, read = str(tmp_path / "log.db"), []
    original = sessions.read_view

    async def note(store, session):
        read.append(session)
        return await original(store, session)

    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        held = [read_twice(served, number) for number in range(12)]

    async def say_nothing(store, session):
        return ""

    monkeypatch.setattr(sessions, "read_opening", say_nothing)

    async def find_all():
        opened = Agent("sim:", store=store).store
        index = sessions.SessionIndex(opened)
        views = [await original(opened, session) for _, session in held]
        monkeypatch.setattr(sessions, "read_view", note)
        assert await index.find_digest("unknown", "", "") is None
        read.clear()
        found = [await index.find_digest(view.replies[-1].digest, "", "") for view in reversed(views)]
        await opened.close()
        return [place.session if place is not None else None for place in found]

    monkeypatch.setattr(sessions, "PLACES_MAX", 20)
    latest = [session for _, session in reversed(held)]
    assert asyncio.run(find_all()) == latest[: 5 + without_room] + [None] * (7 - without_room)
    assert not {*latest[:5]} & {*read}


def test_search_of_logs_stops_at_the_conversation(tmp_path, monkeypatch):
    store, read = str(tmp_path / "log.db"), []
    original = sessions.read_view

    async def note(store, session):
        read.append(session)
        return await original(store, session)

    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        held = [read_twice(served, number) for number in range(4)]
    monkeypatch.setattr(sessions, "read_view", note)
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        for each, session in reversed(held):
            assert chat(served, each).headers["x-bridle-session"] == session
            assert {*read} <= {other for _, other in held[held.index((each, session)) :]}


def test_request_at_once_with_results_and_a_message_is_not_refused():
    """Recording the results takes time, in which another request of the conversation must not start a run."""
    with serve_by_name({"helper": Agent("sim:")}) as served:
        messages = [user("!call confirm {}")]
        messages.append(read_message(chat(served, messages, tools=[make_tool("confirm")])))
        call, statuses = messages[-1]["tool_calls"][0]["id"], {}

        def go_on(number):
            given = [
                *messages,
                {"role": "tool", "tool_call_id": call, "content": "yes"},
                user(f"!say {number}"),
            ]
            statuses[number] = read_message(chat(served, given, tools=[make_tool("confirm")]))["content"]

        threads = [threading.Thread(target=go_on, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert statuses == {number: f"{number}" for number in range(4)}


def test_run_of_another_server_makes_a_fork(tmp_path):
    store = str(tmp_path / "log.db")
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        said = [user("!say one"), read_message(chat(served, [user("!say one")]))]
        [session] = read_states(served)

        async def hold_lease():
            other = Agent("sim:", store=store).store
            async with other.lease(session):
                with pytest.raises(Conflict):
                    await Agent("sim:", store=store).run("x", session=session)
                reply = await asyncio.to_thread(chat, served, [*said, user("!say two")])
            await other.close()
            return reply

        reply = asyncio.run(hold_lease())
        assert read_message(reply)["content"] == "two"
        assert reply.headers["x-bridle-session"] != session


@pytest.mark.parametrize("path", [CHAT, "/anthropic/v1/messages"])
@pytest.mark.parametrize("streams", [False, True])
def test_run_that_is_taken_over_is_not_started_again(tmp_path, path, streams):
    store, runs = str(tmp_path / "log.db"), []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        runs.append(1)
        other = Agent("sim:", store=store).store
        [info] = await list_sessions(other, 2)
        async with other.lease(info.id, take_over=True):
            pass
        await other.close()
        return "paid"

    with serve_by_name({"helper": Agent("sim:", tools=[pay])}, store) as served:
        body = {"model": "helper", "messages": [user("!call pay {}\n!then\n!say done")], "max_tokens": 99}
        reply = send(served.url + path, {**body, "stream": streams})
        assert runs == [1] and len(read_states(served)) == 1
        assert b"was taken over by another process" in reply.body
        if not streams:
            assert reply.status == 409 and reply.headers["x-should-retry"] == "false"


def test_failed_request_that_is_sent_again_goes_on():
    """The run that failed is resumed: its tools do not run again."""
    runs = []

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        runs.append(1)
        return "paid"

    with serve_by_name({"helper": Agent("sim:", tools=[pay])}) as served:
        said = [user("!say one"), read_message(chat(served, [user("!say one")]))]
        said.append(user("!call pay {}\n!then\n!error 400\n!then\n!say two"))
        first = chat(served, said)
        assert first.status >= 400, first.body
        chat(served, said)
        assert len(runs) == 1 and len(read_states(served)) == 1


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("keeps_text", [False, True])
def test_request_that_failed_after_some_text_goes_on_in_its_session(tmp_path, restarts, keeps_text):
    """The client sends it again, or keeps the text and goes on: neither makes a fork, and no tool runs again."""
    runs, store = [], str(tmp_path / "log.db")

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        runs.append(1)
        return "paid"

    agents = {"helper": Agent("sim:", tools=[pay], attempts_max=1)}
    failing = "!say before\n!call pay {}\n!then\n!cut 900\n!say " + " ".join(["word"] * 60)
    said = [user("!say one"), model("one"), user(failing)]

    def go_on(served, text):
        after = [model(text), user("!say on")] if keeps_text else []
        again = chat(served, [*said, *after])
        answer = read_message(again)
        # Resumed, the model continues the text, which the client gets whole.
        assert (
            answer["content"] == "on" if keeps_text else answer["content"].startswith(text + "I am a simul")
        )
        more = chat(served, [*said, *after, answer, user("!say end")])
        assert read_message(more)["content"] == "end"
        assert (
            again.headers["x-bridle-session"]
            == more.headers["x-bridle-session"]
            == first.headers["x-bridle-session"]
        )
        assert len(runs) == 1 and len(read_states(served)) == 1

    with serve_by_name(agents, store) as served:
        chat(served, said[:1])
        first = chat(served, said, stream=True)
        deltas = [each["choices"][0]["delta"] for each in first.events if each.get("choices")]
        text = "".join(each.get("content") or "" for each in deltas)
        assert text.startswith("before") and "word" in text and "error" in first.events[-1]
        if not restarts:
            go_on(served, text)
    if restarts:
        with serve_by_name(agents, store) as served:
            go_on(served, text)


def respond(served, text, after=None):
    body = {"model": "helper", "input": text} | ({"previous_response_id": after} if after else {})
    reply = send(served.url + RESPONSES, body)
    assert reply.status == 200, reply.body
    return reply.json["id"], reply.headers["x-bridle-session"]


def test_id_of_an_earlier_response_names_its_place_after_a_restart(tmp_path):
    store = str(tmp_path / "log.db")
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        first, session = respond(served, "!say one")
        second, _ = respond(served, "!say two", first)
        branch, fork = respond(served, "!say three", first)
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        assert respond(served, "!say five", second)[1] == session
        assert respond(served, "!say six", branch)[1] == fork
        _, late = respond(served, "!say four", first)
        assert read_texts(read_states(served)[late]) == ["!say one", "one", "!say four", "four"]
        unknown = f"resp_{session}_{'0' * 16}"  # without the number of its place
        body = {"model": "helper", "input": "!say seven", "previous_response_id": unknown}
        assert send(served.url + RESPONSES, body).status == 404


def test_imported_conversation_is_no_numbered_response(tmp_path):
    store = str(tmp_path / "log.db")
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        given = [user("a"), model("b"), user("!say one")]
        first, _ = respond(served, given)
        respond(served, "!say two", first)
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        _, fork = respond(served, "!say three", first)
        assert read_texts(read_states(served)[fork]) == ["a", "b", "!say one", "one", "!say three", "three"]


def test_response_that_is_asked_for_again_after_a_restart_is_given_again(tmp_path):
    store, runs = str(tmp_path / "log.db"), []

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        runs.append(1)
        return "paid"

    paying = "!call pay {}\n!then\n!say done"
    with serve_by_name({"helper": Agent("sim:", tools=[pay])}, store) as served:
        first, session = respond(served, "!say one")
        respond(served, paying, first)
    with serve_by_name({"helper": Agent("sim:", tools=[pay])}, store) as served:
        again, same = respond(served, paying, first)
        assert same == session and runs == [1]
    with serve_by_name({"helper": Agent("sim:", tools=[pay])}, store) as served:
        assert respond(served, "!say two", again)[1] == session


def test_first_request_of_a_named_session_is_answered_once(tmp_path):
    """Sent again after a restart, it gets the recorded reply; then it is a new message."""
    store, runs = str(tmp_path / "log.db"), []

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        runs.append(1)
        return "paid"

    paying = [user("!call pay {}\n!then\n!say done")]
    for _ in range(2):
        with serve_by_name({"helper": Agent("sim:", tools=[pay])}, store) as served:
            reply = chat(served, paying, MINE)
            assert read_message(reply)["content"] == "done" and len(runs) == 1
            assert reply.headers["x-bridle-session"] == "mine" and len(read_states(served)) == 1
    with serve_by_name({"helper": Agent("sim:", tools=[pay])}, store) as served:
        chat(served, paying, MINE)
        assert read_message(chat(served, paying, MINE))["content"] == "done" and len(runs) == 2
        assert [*read_states(served)] == ["mine"]


PROMPT = (
    '!call append {"text": "one"}\n!then\n!say asking\n!call confirm {"q": 1}\n!call check {"q": 2}\n!then\n'
    '!say so\n!call append {"text": "two"}\n!then\n!call confirm {"q": 3}\n!then\n'
    '!call append {"text": "three"}\n!then\n!say fine'
)
CLIENT_TOOLS = [make_tool("confirm"), make_tool("check")]


def make_agent(folder):
    @tool(effect="write", on_unknown="retry")
    def append(text: str) -> str:
        """Append a line to a file."""
        with (Path(folder) / "appended").open("a") as file:
            file.write(f"{text}\n")
        return "appended"

    return Agent("sim:", tools=[append])


def warm_up():
    with serve_by_name({"helper": Agent("sim:")}):
        pass


class KeptClient:
    """A client that keeps its conversation in a file before it sends it, and sends it again after a crash."""

    def __init__(self, folder):
        self._folder, self._file = folder, folder / "messages.json"
        self.messages = json.loads(self._file.read_text()) if self._file.exists() else [user(PROMPT)]

    def ask(self, served):
        self._file.write_text(json.dumps(self.messages))
        self.messages.append(read_message(chat(served, self.messages, tools=CLIENT_TOOLS)))
        return self.messages[-1]

    def run_tools(self):
        for call in self.messages[-1]["tool_calls"]:
            with (self._folder / "client_runs").open("a") as file:
                file.write(f"{call['function']['arguments']}\n")
            result = {"role": "tool", "tool_call_id": call["id"], "content": f"yes {call['id']}"}
            self.messages.append(result)

    def finish(self, served):
        while self.ask(served).get("tool_calls"):
            self.run_tools()
        return [message["content"] for message in self.messages if message["role"] == "assistant"]


def run_and_kill(folder, count):
    folder = Path(folder)
    with serve_by_name({"helper": make_agent(folder)}, str(folder / "log.db")) as served:
        client = KeptClient(folder)
        client.ask(served)
        client.run_tools()
        kill_after_record(count - 1)
        client.finish(served)


@pytest.mark.slow
def test_client_goes_on_after_a_kill_at_every_record(tmp_path):
    """While its tool calls are out: no tool of the agent and none of the client runs twice, and no text is lost."""
    kills = 0
    for _, folder in kill_after_every_record(tmp_path, __file__):
        kills += 1
        with serve_by_name({"helper": make_agent(folder)}, str(folder / "log.db")) as served:
            assert KeptClient(folder).finish(served) == ["asking", "so", "fine"]
            assert len(read_states(served)) == 1
        assert (folder / "appended").read_text().split() == ["one", "two", "three"]
        assert len((folder / "client_runs").read_text().splitlines()) == 3
    assert kills > (15 if IS_WHOLE else 3)


class SplitStore(MemoryStore):
    """Notes the events of every append."""

    def __init__(self):
        super().__init__()
        self.appends = []

    async def append(self, session, after, records, *, epoch=None):
        await super().append(session, after, records, epoch=epoch)
        self.appends.append([type(record.event).__name__ for record in records])


def test_imported_conversation_and_its_prompt_are_one_append():
    """A crash leaves both or neither, so that no session has a conversation without its prompt."""
    store = SplitStore()
    with serve_by_name({"helper": Agent("sim:")}, store) as served:
        read_message(chat(served, [user("a"), model("b"), user("!say c")]))
        assert ["Imported", "Prompted"] in store.appends


def test_name_of_wire_clients_cannot_be_taken():
    """Runs of wire clients are not resumed, so that another caller must not look like one."""
    with serve_by_name({"helper": Agent("sim:")}) as served:
        agent = served.host.agents["helper"]
        with pytest.raises(MisuseError, match="'wire client' is reserved"):
            served.run(served.host.prompt(agent, "hi", caller=WIRE_CALLER))
        assert read_states(served) == {}
