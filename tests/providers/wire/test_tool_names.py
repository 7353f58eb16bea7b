"""Tool names on the wire: valid, unique, mapped back exactly."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.providers import load_codec
from bridle.providers.wire.tool_names import NAMES_64, ToolNameRules
from bridle.sim.families import find_family
from bridle.values.message import Message, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request, ToolChoice, ToolSpec
from bridle.values.result import ToolCallDelta

FAMILIES = {
    "anthropic": "[a-zA-Z0-9_-]{1,128}",
    "bedrock_converse": "[a-zA-Z0-9_-]{1,64}",
    "openai_chat": "[a-zA-Z0-9_-]{1,64}",
    "openai_responses": "[a-zA-Z0-9_-]{1,128}",
    "gemini": "[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
}
SAME = "x" * 130
NAMES = ["plain", SAME + "one", SAME + "two", "y" * 64 + "one", "y" * 64 + "two", "a.b", "a b", "a_b", "1st"]


@given(
    st.text(min_size=0, max_size=140),
    st.sampled_from([NAMES_64, ToolNameRules(128, "A-Za-z0-9_.:-", "A-Za-z_")]),
)
def test_every_name_becomes_legal_and_stays_so(name, naming):
    sent = naming.encode_name(name)
    assert 0 < len(sent) <= naming.length_max
    assert naming.encode_name(sent) == sent


def test_names_that_differ_stay_different():
    assert len({NAMES_64.encode_name(name) for name in NAMES}) == len(NAMES)


def names_in(body, found):
    if isinstance(body, dict):
        for key, value in body.items():
            if key == "name" and isinstance(value, str):
                found.append(value)
            elif key != "properties":
                names_in(value, found)
    elif isinstance(body, list):
        for value in body:
            names_in(value, found)
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("streams", [True, False])
def test_a_call_of_a_renamed_tool_comes_back_under_its_own_name(family, streams):
    codec = load_codec(family)
    model = Model(id="m", endpoint=Endpoint(name="there", family=family))
    calls = tuple(
        ToolCall(id=f"c1_{n}", name=name, arguments="{}", wire_id=f"w{n}") for n, name in enumerate(NAMES)
    )
    request = Request(
        model=model,
        tools=tuple(ToolSpec(name=name, description=name[-3:]) for name in NAMES),
        tool_choice=ToolChoice(mode="tool", name=NAMES[1]),
        messages=(
            Message(role="user", parts=(Text(text="go"),), id="m1"),
            Message(role="assistant", parts=calls, id="m2"),
            Message(role="tool", parts=tuple(ToolResult(call_id=c.id) for c in calls), id="m3"),
        ),
        stream=streams,
    )
    body = json.loads(codec.encode(request).body)
    offered = [tool.name for tool in codec.decode_request(codec.encode(request)).tools]
    assert len(set(offered)) == len(NAMES)
    for name in offered:
        assert re.fullmatch(FAMILIES[family], name)
    # What was called before goes by the very names of the tools, and so does the one to be called now.
    assert set(names_in(body, [])) <= {*offered, "there"}
    assert codec.decode_request(codec.encode(request)).tool_choice.name == offered[1]
    said = Reply(
        parts=tuple(
            ToolCall(id="", name=name, arguments="{}", wire_id=f"w{n}") for n, name in enumerate(offered)
        ),
        stop=Stop.TOOLS,
        origin=Origin(family=family, endpoint="there", model="m"),
    )
    spoken = find_family(codec.family).encode_reply(said, stream=streams)
    decoder = codec.new_decoder(request, spoken.status, dict(spoken.headers))
    shown = [delta for frame in spoken.frames for delta in decoder.feed(frame)]
    assert [call.name for call in decoder.close().calls] == NAMES
    assert {delta.name for delta in shown if isinstance(delta, ToolCallDelta)} <= set(NAMES)
