"""Clients that change what the model wrote beside its calls: crewai drops it, litellm writes a text of its own there.

Their conversation is still that of the session whose calls they answer, and what the agent did in it stays done.
"""

import json

import pytest

from bridle import Agent, tool
from bridle.run.archive.sessions import list_sessions
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name, serving_gateway
from tests.serve.wires.wire_bodies import WIRES, post

wires = pytest.mark.parametrize("name", WIRES)
SCRIPT = "Look.\n!call own_notes {}\n!then\n!say Let me look.\n!call ask {}\n!then\n!say And again.\n!call ask {}\n!then\n!say fine"
FILLER = "[empty content]"


class Notes:
    """A tool of the agent, with an effect that must not happen twice."""

    def __init__(self):
        self.taken = 0

        @tool
        def own_notes() -> str:
            """Take a note."""
            self.taken += 1
            return "noted"

        self.tool = own_notes


def change_texts(messages, change):
    """The messages of a reply with other texts beside its calls."""
    text = json.dumps(messages)
    for written in ("Let me look.", "And again."):
        text = text.replace(json.dumps(written), json.dumps(change))
    return [drop_empty(each) for each in json.loads(text)]


def drop_empty(message):
    """Without parts of text that have none."""
    for field in ("content", "parts"):
        if isinstance(message.get(field), list):
            message[field] = [part for part in message[field] if part.get("text") != ""]
    return message


def list_ids(served):
    return [info.id for info in served.run(list_sessions(served.host.store, 100))]


@wires
@pytest.mark.parametrize("change", ["", FILLER], ids=["dropped", "replaced"])
def test_the_session_goes_on_and_the_agent_s_own_calls_are_not_made_again(name, change):
    wire, notes = WIRES[name], Notes()
    with serve_by_name({"helper": Agent("sim:", tools=[notes.tool])}) as served:
        messages = [wire.user(SCRIPT)]
        for _ in range(2):
            reply = post(served, wire, messages, ["ask"])
            added, calls, _ = wire.read(reply.json)
            assert [called for _, called in calls] == ["ask"], reply.body
            messages += [each for each in change_texts(added, change) if each.get("content") != []]
            messages += wire.results(calls)
        reply = post(served, wire, messages, ["ask"])
        added, _, text = wire.read(reply.json)
        assert text == "fine"
        assert "text beside tool calls" in reply.headers["x-bridle-dropped"]
        reply = post(served, wire, [*messages, *added, wire.user("!say more")], ["ask"])
        assert wire.read(reply.json)[2] == "more"
        assert (notes.taken, len(list_ids(served))) == (1, 1)


@wires
def test_a_changed_question_is_another_conversation(name):
    """What the user said is not the model's to keep."""
    wire, notes = WIRES[name], Notes()
    with serve_by_name({"helper": Agent("sim:", tools=[notes.tool])}) as served:
        reply = post(served, wire, [wire.user(SCRIPT)], ["ask"])
        added, calls, _ = wire.read(reply.json)
        other = [wire.user("What about the other one?"), *change_texts(added, FILLER), *wire.results(calls)]
        reply = post(served, wire, other, ["ask"])
        assert reply.status == 200
        assert "text beside tool calls" not in reply.headers.get("x-bridle-dropped", "")
        assert len(list_ids(served)) == 2


def test_the_text_of_an_answer_is_no_text_beside_calls():
    wire = WIRES["openai_chat"]
    with serve_by_name({"helper": Agent("sim:")}) as served:
        [added], _, _ = wire.read(post(served, wire, [wire.user("!say one")]).json)
        changed = [wire.user("!say one"), {**added, "content": "two"}, wire.user("!say three")]
        assert post(served, wire, changed).status == 200
        assert len(list_ids(served)) == 2


@wires
def test_a_gateway_carries_the_texts_that_it_is_sent(name):
    """It has done nothing that the conversation lacks, so the client's own words count."""
    wire = WIRES[name]
    with serving_gateway({"models": {"helper": {"chain": ["sim:"]}}}) as served:
        messages = [wire.user("!say Let me look.\n!call ask {}\n!then\n!say fine")]
        added, calls, _ = wire.read(post(served, wire, messages, ["ask"]).json)
        messages += [*change_texts(added, FILLER), *wire.results(calls)]
        reply = post(served, wire, messages, ["ask"])
        assert wire.read(reply.json)[2] == "fine"
        [second] = {*list_ids(served)} - {reply.headers["x-bridle-session"]}
        records = served.run(served.host.store.read(reply.headers["x-bridle-session"]))
        assert FILLER in str(records) and second


def test_a_stream_of_responses_counts_its_events_and_repeats_the_request():
    """langchain parses the text only if the response repeats `text.format`; numbers began with the first words."""
    wire = WIRES["openai_responses"]
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    shape = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    more = {"text": shape, "instructions": "Be brief.", "tool_choice": "auto", "metadata": {"a": "b"}}
    with serve_by_name({"helper": Agent("sim:")}) as served:
        for stream in (True, False):
            body = {**wire.body([wire.user('!say {"a": 7}')], stream), **wire.with_tools(["ask"]), **more}
            reply = send(served.url + wire.path, body)
            if stream:
                assert [event["sequence_number"] for event in reply.events] == [*range(len(reply.events))]
                assert reply.events[0]["type"] == "response.created"
            for response in (
                [event["response"] for event in reply.events if "response" in event]
                if stream
                else [reply.json]
            ):
                assert {field: response[field] for field in more} == more
                assert [each["name"] for each in response["tools"]] == ["ask"]
                assert response["created_at"] > 1_700_000_000


@pytest.mark.parametrize("stream", [True, False])
def test_chat_says_when_a_reply_was_begun(stream):
    wire = WIRES["openai_chat"]
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = send(served.url + wire.path, wire.body([wire.user("!say hi")], stream))
        told = reply.events if stream else [reply.json]
        assert all(each["created"] > 1_700_000_000 for each in told)
