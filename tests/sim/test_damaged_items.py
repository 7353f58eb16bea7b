"""Items of a reply that are damaged: the simulator streams them or refuses with one line."""

import json

import pytest

from bridle import MisuseError
from bridle.providers.openai_responses.encode_reply import encode_reply
from bridle.values.message import Opaque, Reply, Stop
from bridle.values.model import Origin

ORIGIN = Origin(family="openai_responses", endpoint="openai", model="gpt-6.1-sol")


def encode_item(item):
    part = Opaque(kind=item["type"], native=json.dumps(item))
    return encode_reply(Reply(origin=ORIGIN, parts=(part,), stop=Stop.DONE), stream=True)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"type": "message", "content": 5}, "'message' whose content is not a list"),
        ({"type": "message", "content": [5]}, "'message' whose content is not a list"),
        (
            {"type": "message", "content": [{"type": "output_text", "text": 5}]},
            "its text must be a text, not 5",
        ),
        ({"type": "message", "content": [{"type": "refusal"}]}, "its refusal must be a text, not None"),
        ({"type": "reasoning", "summary": 5}, "'reasoning' whose summary is not a list"),
        ({"type": "function_call", "arguments": 5}, "its arguments must be a text, not 5"),
    ],
)
def test_a_damaged_item_is_refused_in_one_line(item, why):
    with pytest.raises(MisuseError, match="the simulator cannot stream") as refused:
        encode_item(item)
    assert why in str(refused.value)


@pytest.mark.parametrize("kind", ["dance", [], 5])
def test_content_of_an_unknown_type_is_streamed_whole(kind):
    content = {"type": kind, "step": 1}
    frames = encode_item({"type": "message", "content": [content]}).frames
    events = [json.loads(frame.split(b"data: ")[1]) for frame in frames]
    parts = [event["part"] for event in events if event["type"] == "response.content_part.done"]
    assert parts == [content]
