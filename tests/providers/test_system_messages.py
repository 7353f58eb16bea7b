"""System messages in the middle of a conversation: allowed positions per provider."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.providers.wire.system_messages import OPERATOR_PREFIX, place_system_messages
from bridle.sim.families import list_rules
from bridle.sim.rules.engine import RawRequest, find_violation
from bridle.values.message import Media, Message, Opaque, Text, ToolCall, ToolResult
from bridle.values.model import Origin
from bridle.values.request import Request

ORDER = Message(role="system", parts=(Text(text="Be brief."),))
USER = Message(role="user", parts=(Text(text="hello"),))
BLANK = Message(role="user", parts=(Text(text=" "),))
MODEL = Message(role="assistant", parts=(Text(text="hi"),))
CALLING = Message(role="assistant", parts=(ToolCall(id="c1", name="f", arguments="{}"),))
RESULT = Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="ok"),)),))
SEARCHED = Message(
    role="assistant",
    parts=(
        Text(text="let me see"),
        Opaque(kind="web_search_tool_result", native='{"type":"web_search_tool_result"}'),
    ),
    origin=Origin(family="anthropic", endpoint="anthropic", model="m"),
)
SHOWN = Message(role="system", parts=(Media(kind="image", media_type="image/png", data="aGk="),))


@pytest.mark.parametrize(
    ("line", "stands"),
    [
        ((USER, ORDER), True),
        ((USER, ORDER, MODEL, USER), True),
        ((USER, CALLING, RESULT, ORDER), True),
        ((USER, SEARCHED, ORDER), True),
        ((USER, ORDER, ORDER, MODEL), True),
        ((ORDER, USER), False),
        ((BLANK, ORDER), False),
        ((USER, MODEL, ORDER), False),
        ((USER, ORDER, USER), False),
        ((USER, ORDER, BLANK, MODEL, USER), True),
        ((USER, SHOWN), False),
    ],
)
def test_a_system_message_stands_where_it_may(line, stands):
    assert ("system" in {message.role for message in place_system_messages(line, taken=True)}) is stands
    never = place_system_messages(line, taken=False)
    assert "system" not in {message.role for message in never}
    assert len(never) == len(line)
    assert sum(message.text.count(OPERATOR_PREFIX) for message in never) == line.count(ORDER) + line.count(
        SHOWN
    )
    assert place_system_messages(never, taken=False) == never


def test_a_line_without_them_is_not_touched():
    line = (USER, MODEL, USER)
    assert place_system_messages(line, taken=False) is line


def encode_body(model, *messages):
    request = Request(model=find_model(model, environ={"AWS_REGION": "us-east-1"}), messages=messages)
    wire = load_codec(request.model.endpoint.family).encode(request)
    return wire, json.loads(wire.body)


@pytest.mark.parametrize(
    ("model", "roles"),
    [
        ("anthropic:claude-opus-5", ["user", "system", "assistant", "user"]),
        ("anthropic:claude-sonnet-4-6", ["user", "assistant", "user"]),
        ("bedrock:global.anthropic.claude-opus-5", ["user", "assistant", "user"]),
    ],
)
def test_it_goes_out_as_the_model_takes_it(model, roles):
    _, body = encode_body(model, USER, ORDER, MODEL, USER)
    assert [message["role"] for message in body["messages"]] == roles
    if len(roles) == 3:
        told = [block["text"] for block in body["messages"][0]["content"]]
        assert told == ["hello", OPERATOR_PREFIX, "Be brief."]


def test_asking_again_moves_nothing_that_was_answered():
    _, first = encode_body("anthropic:claude-opus-5", USER, ORDER)
    _, second = encode_body("anthropic:claude-opus-5", USER, ORDER, MODEL, USER)
    assert second["messages"][:2] == first["messages"]


lines = st.lists(st.sampled_from([ORDER, USER, BLANK, MODEL, SEARCHED]), min_size=1, max_size=8)


@given(lines, st.sampled_from(["anthropic:claude-opus-5", "anthropic:claude-sonnet-5"]))
def test_no_line_is_refused_for_who_speaks_when(line, model):
    line = [replace(message, id=f"m{n}") for n, message in enumerate((USER, *line), 1)]
    wire, body = encode_body(model, *line)
    abilities = find_model(model, environ={}).abilities
    asked = RawRequest(path=wire.path, body=body, headers=dict(wire.headers), abilities=abilities)
    found = find_violation(list_rules("anthropic"), asked)
    paused = body["messages"][-1]["content"][-1]["type"] == "web_search_tool_result"
    assert found is None or (paused and found.rule.id == "prefill")
    roles = [message["role"] for message in body["messages"]]
    assert "system" not in roles or abilities.system_messages
    for at, role in enumerate(roles):
        if role == "system":
            last = body["messages"][at - 1]["content"][-1]["type"]
            assert at and (roles[at - 1] == "user" or last == "web_search_tool_result")
            assert roles[at + 1 :][:1] in ([], ["assistant"])
    orders = sum(message.role == "system" for message in line)
    assert wire.body.decode().count("Be brief.") == orders
