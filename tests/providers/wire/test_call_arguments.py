"""Arguments of calls, on wires that want an object."""

import re

import pytest

from bridle.providers import load_codec
from bridle.providers.wire.call_arguments import INVALID_JSON_KEY, decode_arguments, encode_arguments
from bridle.providers.wire.json import dumps
from bridle.values.message import Message, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request


@pytest.mark.parametrize("arguments", ["{}", '{"n": 1.50, "a":  [null]}', '{"x":"é"}'])
def test_objects_go_out_as_they_are_spelled(arguments):
    assert dumps(encode_arguments(arguments)).decode() == arguments
    assert decode_arguments(arguments) == arguments


@pytest.mark.parametrize("arguments", ['{"city": "Tok', "[1]", '"x"', "null", "\ud83d"])
def test_what_is_no_object_travels_in_one_and_comes_out_again(arguments):
    written = dumps(encode_arguments(arguments)).decode()
    assert written.startswith(f'{{"{INVALID_JSON_KEY}":')
    assert decode_arguments(written) == arguments.replace("\ud83d", "�")


@pytest.mark.parametrize("arguments", ["", " \n"])
def test_no_arguments_are_an_empty_object(arguments):
    assert dumps(encode_arguments(arguments)) == b"{}"


@pytest.mark.parametrize(
    "family", ["anthropic", "openai_responses", "openai_chat", "gemini", "bedrock_converse"]
)
def test_a_call_without_arguments_has_none_on_every_wire(family):
    """Other servers say nothing where they mean an empty object; it must not become a complaint here."""
    call = ToolCall(id="c1", name="now", arguments="")
    origin = Origin(family="elsewhere", endpoint="elsewhere", model="m")
    line = (
        Message(role="user", parts=(Text(text="q"),)),
        Message(role="assistant", parts=(call,), origin=origin),
        Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="noon"),)),)),
    )
    model = Model(id="m", endpoint=Endpoint(name="here", family=family))
    body = load_codec(family).encode(Request(model=model, messages=line)).body.decode()
    assert INVALID_JSON_KEY not in body
    assert re.search(r'"(input|args|arguments)":("?)\{\}\2', body)


def test_an_object_that_only_looks_like_it_is_left_alone():
    for written in (
        f'{{"{INVALID_JSON_KEY}":1}}',
        f'{{"{INVALID_JSON_KEY}":"x","more":1}}',
        f'{{"a":"{INVALID_JSON_KEY}"}}',
    ):
        assert decode_arguments(written) == written
