"""Call ids in which a gateway stores state."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.values.message import Message, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request

FAMILIES = ("anthropic", "openai_responses", "openai_chat", "gemini")
LONG = "call_1__thought__" + "aB3+/" * 200 + "=="


def sent_to(family, endpoint):
    gateway = Endpoint(name="gateway", family=family, base_url="http://127.0.0.1:4000")
    call = ToolCall(id="c2_0", name="look", arguments="{}", wire_id=LONG)
    origin = Origin(family=family, endpoint=gateway.endpoint_id, model="m")
    messages = (
        Message(role="user", id="m1", parts=(Text(text="go"),)),
        Message(role="assistant", id="m2", parent="m1", parts=(call,), origin=origin),
        Message(
            role="tool", id="m3", parent="m2", parts=(ToolResult(call_id="c2_0", parts=(Text(text="x"),)),)
        ),
    )
    target = (
        gateway if endpoint == "same" else replace(gateway, name="other", base_url="https://other.example")
    )
    request = Request(model=Model(id="m", endpoint=target), messages=messages, max_tokens=10)
    return load_codec(family).encode(request).body.decode()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_id_goes_back_unchanged_to_the_server_that_gave_it(family):
    assert sent_to(family, "same").count(json.dumps(LONG)) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_id_goes_nowhere_else(family):
    assert LONG not in sent_to(family, "other")
