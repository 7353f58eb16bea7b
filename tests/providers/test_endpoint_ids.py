"""Encrypted reasoning goes back only to the endpoint that can decrypt it."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.providers.wire.dialect import is_from_same_origin, match_model_id
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Origin
from bridle.values.request import Request

SKIP = "skip_thought_signature_validator"
DETAIL = '{"detail":{"format":"f","index":0,"type":"reasoning.text"}}'
SEALED = '{"detail":{"id":"rs_1","index":1,"type":"reasoning.encrypted"}}'
ON_CALL = '{"call":{"extra_content":{"google":{"thought_signature":"SECRET-C"}}}}'


def line(model, *parts, answered_by=None):
    """One turn of a model with a call and its result; the provider may name the model in its own way."""
    origin = Origin(
        family=model.endpoint.family, endpoint=model.endpoint.endpoint_id, model=answered_by or model.id
    )
    return (
        Message(role="user", parts=(Text(text="Look."),), id="m1"),
        Message(role="assistant", parts=parts, id="m2", origin=origin),
        Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="Seen."),)),), id="m3"),
    )


def body(model, messages, kept=None):
    return (
        load_codec(model.endpoint.family).encode(Request(model=model, messages=messages), kept).body.decode()
    )


ROUTED = (
    Reasoning(text="Hm.", signature="SECRET-A", native=DETAIL),
    Reasoning(signature="SECRET-B", redacted=True, native=SEALED),
    ToolCall(id="c1", name="look", arguments="{}", wire_id="call_1", native=ON_CALL),
)


@pytest.mark.parametrize(
    ("said_by", "answered_by", "asked", "opens"),
    [
        ("anthropic/claude-opus-5", None, "anthropic/claude-opus-5", True),
        ("anthropic/claude-opus-5", None, "anthropic/claude-sonnet-5", True),
        ("anthropic/claude-opus-5:beta", "anthropic/claude-opus-5", "anthropic/claude-opus-5:beta", True),
        ("anthropic/claude-opus-5", None, "openai/gpt-6-sol", False),
        ("openai/gpt-6-sol", "openai/gpt-6-sol-2026-09-01", "deepseek/deepseek-v4-pro", False),
        ("google/gemini-3.5-flash", None, "google/gemini-3.5-flash", True),
        ("google/gemini-2.5-pro", None, "google/gemini-3.5-flash", False),
        ("openrouter/auto", "anthropic/claude-opus-5", "openrouter/auto", False),
    ],
)
def test_one_server_with_many_makers_gives_each_maker_its_own_back(said_by, answered_by, asked, opens):
    first = find_model(f"openrouter:{said_by}", environ={})
    messages = line(first, *ROUTED, answered_by=answered_by)
    sent = body(find_model(f"openrouter:{asked}", environ={}), messages)
    assert [secret in sent for secret in ("SECRET-A", "SECRET-B", "SECRET-C")] == [opens] * 3
    assert "Seen." in sent


@pytest.mark.parametrize(
    ("asked", "insists"),
    [("deepseek/deepseek-v4-pro", True), ("moonshotai/kimi-k3", True), ("openai/gpt-6-sol", False)],
)
def test_a_model_that_insists_on_reasoning_has_some_behind_a_gateway_too(asked, insists):
    """What another maker thought goes as words it can read; what it sealed stays here."""
    messages = line(find_model("openrouter:anthropic/claude-opus-5", environ={}), *ROUTED)
    turn = json.loads(body(find_model(f"openrouter:{asked}", environ={}), messages))["messages"][1]
    assert turn.get("reasoning") == ("Hm." if insists else None)
    assert "SECRET" not in json.dumps(turn)


def signatures(sent):
    calls = [part for content in json.loads(sent)["contents"] for part in content["parts"]]
    return [part.get("thoughtSignature") for part in calls if "functionCall" in part]


SIGNED = ToolCall(id="c1", name="look", arguments="{}", native='{"thoughtSignature":"c2ln"}')


@pytest.mark.parametrize(
    ("said_by", "answered_by", "asked", "carried"),
    [
        ("gemini-3.5-flash", None, "gemini-3.5-flash", "c2ln"),
        ("gemini-3.5-flash", "gemini-3.5-flash-preview-09-2026", "gemini-3.5-flash", "c2ln"),
        ("gemini-flash-latest", "gemini-3.5-flash", "gemini-flash-latest", "c2ln"),
        ("gemini-2.5-flash", None, "gemini-2.5-flash", "c2ln"),
        ("gemini-2.5-flash", None, "gemini-3.5-flash", SKIP),
        ("gemini-3.5-flash", None, "gemini-3.1-pro-preview", SKIP),
        ("gemini-3.5-flash", None, "gemini-2.5-flash", None),
        ("gemini-2.5-flash", None, "gemini-2.5-flash-lite", None),
    ],
)
def test_a_signature_is_for_the_model_that_made_it(said_by, answered_by, asked, carried):
    messages = line(find_model(f"gemini:={said_by}", environ={}), SIGNED, answered_by=answered_by)
    assert signatures(body(find_model(f"gemini:={asked}", environ={}), messages)) == [carried]


def test_a_model_that_never_signs_needs_no_stand_in():
    unsigned = ToolCall(id="c1", name="look", arguments="{}")
    old, new = (find_model(f"gemini:{name}", environ={}) for name in ("gemini-2.5-pro", "gemini-4-argon"))
    assert signatures(body(old, line(old, unsigned))) == [None]
    assert signatures(body(new, line(old, unsigned))) == [SKIP]
    foreign = [replace(each, origin=None) for each in line(old, unsigned)]
    assert signatures(body(old, foreign)) == [None]


def test_one_conversation_goes_from_model_to_model_and_back():
    """The same memory of messages serves all of them, and must not hand one what is another's."""
    first, second = (
        find_model(f"gemini:{name}", environ={}) for name in ("gemini-3.5-flash", "gemini-4-argon")
    )
    kept = load_codec("gemini").new_history()
    messages = line(first, SIGNED)
    assert [signatures(body(model, messages, kept)) for model in (first, second, first)] == [
        ["c2ln"],
        [SKIP],
        ["c2ln"],
    ]


def test_a_paused_reply_is_gone_on_with_by_the_model_that_paused():
    first, second = (
        find_model(f"gemini:{name}", environ={}) for name in ("gemini-4-argon", "gemini-3.5-flash")
    )
    token = Opaque(kind="continuation", native='{"continuationToken":"tok"}')
    messages = line(first, Text(text="Half."), token)[:2]
    assert "tok" in body(first, messages)
    assert "tok" not in body(second, messages)


def test_where_any_model_may_look_everything_goes_back():
    """What a model cannot read is passed over in silence there, and dropping it would lose it for good."""
    thought = Reasoning(signature="gAAA", native='{"id":"rs_1"}')
    said = Text(text="Yes.", native='{"message":{"id":"msg_1"}}')
    first, second = (find_model(f"openai:{name}", environ={}) for name in ("gpt-6-sol", "gpt-5.6-luna"))
    assert "gAAA" in body(second, line(first, thought, said)[:2])


def test_the_same_holds_for_sealed_items_where_a_server_of_that_wire_says_so():
    endpoint = Endpoint(
        name="many", family="openai_responses", reasoning="signed", dialect='{"sealed_by":"[^/]+/"}'
    )
    first, second = (
        replace(find_model("openai:gpt-6-sol", environ={}), id=name, endpoint=endpoint)
        for name in ("a/x", "b/y")
    )
    thought = Reasoning(signature="gAAA", native='{"id":"rs_1"}')
    messages = line(first, thought, Text(text="Yes.", native='{"message":{"id":"msg_1"}}'))[:2]
    kept = load_codec("openai_responses").new_history()
    assert ["gAAA" in body(model, messages, kept) for model in (first, second, first)] == [True, False, True]


def test_whose_it_is():
    here = Endpoint(name="here", family="f")
    origin = Origin(family="f", endpoint="here", model="a/x")
    assert is_from_same_origin(origin, "f", here) and is_from_same_origin(origin, "f", None)
    assert not is_from_same_origin(None, "f", here)
    assert not is_from_same_origin(origin, "g", here)
    assert not is_from_same_origin(replace(origin, endpoint="there"), "f", here)
    assert is_from_same_origin(origin, "f", here, sealed_by="[^/]+/", model_id="any-model")


def test_a_pattern_that_is_none_is_named():
    with pytest.raises(MisuseError, match="is not a regular expression"):
        match_model_id("(", "model")
