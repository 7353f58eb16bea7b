"""Token estimates: deterministic, in the right region, and a limit that holds."""

from typing import Any

import pytest

from bridle.sim.cache.token_estimate import (
    TOKENS_PER_CALL,
    TOKENS_PER_IMAGE,
    count_prompt_tokens,
    count_tokens,
    measure_reply,
)
from bridle.values.message import Media, Message, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request, ToolSpec

MODEL = Model(id="m", endpoint=Endpoint(name="sim", family="f"))
ORIGIN = Origin(family="f", endpoint="sim", model="m")


def make_request(*parts: Any, **fields: Any) -> Request:
    return Request(model=MODEL, messages=(Message(role="user", parts=parts),), **fields)


def make_reply(*parts: Any) -> Reply:
    return Reply(parts=parts, stop=Stop.DONE, origin=ORIGIN)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("Hello, world!", 3, 5),
        ("The quick brown fox jumps over the lazy dog.", 9, 12),
        ("incomprehensibilities", 3, 5),
        ('{"city": "Tokyo", "degrees": 17.5}', 12, 20),
        ("日本語のテキスト", 6, 10),
        ("12345678901234567890", 6, 9),
        ("a" * 7000, 900, 1100),
    ],
)
def test_counts_are_in_the_region_of_real_ones(text, least, most):
    assert least <= count_tokens(text) <= most


def test_nothing_in_a_request_is_free():
    bare = count_prompt_tokens(make_request(Text(text="Hello")))
    assert count_prompt_tokens(make_request(Text(text="Hello there"))) > bare
    assert count_prompt_tokens(make_request(Text(text="Hello"), system=(Text(text="Be brief."),))) > bare
    assert count_prompt_tokens(make_request(Text(text="Hello"), tools=(ToolSpec(name="look"),))) > bare
    assert (
        count_prompt_tokens(make_request(Text(text="Hello"), Media(kind="image", data="AAAA")))
        == bare + TOKENS_PER_IMAGE
    )
    assert (
        count_prompt_tokens(
            make_request(Text(text="Hello"), ToolResult(call_id="c", parts=(Text(text="one two"),)))
        )
        > bare
    )


def test_a_reply_gets_its_usage():
    reply = measure_reply(
        make_request(Text(text="Hello")),
        make_reply(
            Reasoning(text="hm hm"), Text(text="one two three"), ToolCall(id="c", name="look", arguments="{}")
        ),
    )
    assert reply.usage.reasoning == 2
    assert reply.usage.output == 2 + 3 + TOKENS_PER_CALL + 1 + 2
    assert reply.usage.input == count_prompt_tokens(make_request(Text(text="Hello")))
    assert (reply.usage.cache_read, reply.usage.cache_write) == (0, 0)
    assert reply.stop is Stop.DONE


@pytest.mark.parametrize("room", range(1, 12))
def test_a_reply_stops_where_its_room_ends(room):
    whole = "one two three four five six seven"
    reply = measure_reply(make_request(Text(text="Hello"), max_tokens=room), make_reply(Text(text=whole)))
    assert whole.startswith(reply.text)
    assert reply.usage.output == min(room, 7)
    assert reply.stop is (Stop.DONE if room >= 7 else Stop.LENGTH)


def test_half_a_call_is_no_call():
    call = ToolCall(id="c", name="look", arguments='{"at": "everything"}')
    reply = measure_reply(
        make_request(Text(text="Hello"), max_tokens=20), make_reply(Text(text="I look."), call)
    )
    assert reply.parts == (Text(text="I look."),)
    assert reply.stop is Stop.LENGTH
