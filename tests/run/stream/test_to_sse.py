"""Server-sent events: one frame per item, which a client reads back as the same item."""

import asyncio
import json
from dataclasses import dataclass
from typing import get_args

import msgspec
import pytest
from msgspec import inspect as types

from bridle import Agent, MisuseError, TextDelta, to_sse, tool
from bridle.events import ToolCallDelta
from bridle.run.context.shown_deltas import StreamItem
from bridle.sessions import ApprovalVerdict
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Text, ToolCall, ToolResult
from bridle.values.result import AttemptRestarted, CallReady, DeltasSkipped, FinalAnswer, ReasoningDelta
from bridle.values.usage import Budget, Limits, RateLimit
from tests.suite.wire_models import MODELS

DECODER = msgspec.json.Decoder(StreamItem)


def read_frames(text):
    """A client as the specification describes it: lines end in CR LF, LF or CR, and a blank line dispatches."""
    frames, name, data = [], "", []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            frames.append((name, "\n".join(data)))
            name, data = "", []
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)
    assert not data and not name
    return frames


@tool(effect="read")
def look(where: str) -> str:
    """Look."""
    return f"seen {where}\r\n\nevent: forged\ndata: {{}}"


@tool(effect="write", approve=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def approve(question):
    return ApprovalVerdict(answer="approve", by="ann")


@pytest.mark.parametrize("model", MODELS)
def test_a_whole_run_is_read_back(model):
    agent = Agent(model, tools=[look, pay], approver=approve)
    prompt = '!think Hm.\n!call look {"where": "here"}\n!call pay {"amount": 7}\n!then\n!say One\u2028two\r\n\nthree'

    async def watch():
        return [item async for item in agent.stream(prompt)]

    shown = asyncio.run(watch())
    frames = read_frames("".join(to_sse(item, full=True) for item in shown))
    assert len(frames) == len(shown)
    for (name, data), item in zip(frames[:-1], shown[:-1], strict=True):
        assert DECODER.decode(data) == item
        assert json.loads(data)["type"] == name
    name, data = frames[-1]
    last = json.loads(data)
    assert name == last["type"] == "final_answer"
    assert (last["text"], last["stop"], last["session"]) == (
        shown[-1].result.text,
        "done",
        shown[-1].result.session,
    )
    assert last["output"] == last["text"]
    assert last["usage"]["output"] == shown[-1].result.usage.output


@pytest.mark.parametrize(
    "item",
    [
        CallReady(index=0, call=ToolCall(id="c1_0", name="pay", arguments='{"amount":7}')),
        e.ToolStarted(call_id="c1_0", name="pay", key="k", arguments='{"amount":7}'),
        e.ApprovalAsked(call_id="c1_0", binding="b", rule="r", name="pay", arguments='{"amount":7}'),
        e.ToolFinished(result=ToolResult(call_id="c1_0"), name="pay", arguments='{"amount":7}'),
        ToolCallDelta(index=0, call_id="c1_0", name="pay", arguments='{"amount":7}'),
    ],
)
def test_every_frame_about_a_call_has_the_same_fields(item):
    ((_, data),) = read_frames(to_sse(item, full=True))
    assert {**json.loads(data), "type": ""}.items() >= {
        "call_id": "c1_0",
        "name": "pay",
        "arguments": '{"amount":7}',
    }.items()
    assert DECODER.decode(data) == item


def test_text_that_utf8_cannot_encode_is_repaired():
    ((name, data),) = read_frames(to_sse(TextDelta(text="a\ud800b")))
    assert (name, json.loads(data)["text"]) == ("text_delta", "a\ufffdb")


@dataclass
class Weather:
    city: str
    degrees: float


def test_a_structured_answer_is_json():
    result = Agent("sim:", output=Weather).run_sync('!say {"city": "Oslo", "degrees": 3.5}')
    ((_, data),) = read_frames(to_sse(FinalAnswer(result=result)))
    assert json.loads(data)["output"] == {"city": "Oslo", "degrees": 3.5}


def test_a_partial_answer_is_a_frame():
    async def main():
        stream = Agent("sim:", output=Weather).stream('!say {"city": "Oslo", "degrees": 3.5}')
        return [to_sse(partial) async for partial in stream.partial()]

    frames = asyncio.run(main())
    shown = [(name, json.loads(data)) for name, data in read_frames("".join(frames))]
    assert {name for name, _ in shown} == {data["type"] for _, data in shown} == {"partial_output"}
    assert [data["complete"] for _, data in shown] == [False] * (len(shown) - 1) + [True]
    assert shown[0][1]["value"] != shown[-1][1]["value"] == {"city": "Oslo", "degrees": 3.5}
    assert shown[-1][1]["answer"] == 1


@pytest.mark.parametrize("wrong", ["text", None, 5, Text(text="x"), {"type": "text_delta"}])
def test_only_items_of_a_stream_are_taken(wrong):
    with pytest.raises(MisuseError, match="to_sse takes an item of a stream, not"):
        to_sse(wrong)


def test_the_names_are_stable():
    """A browser matches on these; a change breaks it."""
    names = {item.__name__: item.__struct_config__.tag for item in get_args(StreamItem)}
    deltas = {
        "TextDelta": "text_delta",
        "ReasoningDelta": "reasoning_delta",
        "ToolCallDelta": "tool_call_delta",
        "CallReady": "call_ready",
        "AttemptRestarted": "attempt_restarted",
        "DeltasSkipped": "skipped",
        "ModelAsked": "model_asked",
        "ModelReplied": "model_replied",
        "ModelFailed": "model_failed",
        "ToolStarted": "tool_started",
        "ToolFinished": "tool_finished",
        "ApprovalAsked": "approval_asked",
        "ApprovalAnswered": "approval_answered",
        "RunEnded": "run_ended",
    }
    assert {name: names[name] for name in deltas} == deltas
    shown = (
        ReasoningDelta(reasoning="r"),
        AttemptRestarted(attempt=2, reason="r"),
        DeltasSkipped(count=1),
        e.ModelFailed(failure=Failure(kind="overloaded", message="m")),
    )
    for item in shown:
        ((name, data),) = read_frames(to_sse(item, full=True))
        assert name == deltas[type(item).__name__]
        assert DECODER.decode(data) == item


ALLOWED = {
    "text_delta": "text",
    "attempt_restarted": "attempt is_text_void",
    "skipped": "count",
    "progress": "call_id name fraction",
    "tool_started": "call_id name attempt",
    "tool_finished": "call_id name outcome",
    "approval_asked": "call_id name arguments preview question expires_at binding",
    "approval_answered": "call_id answer",
    "run_ended": "stop",
}
"""What a browser gets by default. Who adds an event or a field decides here whether a user may see it."""
DEPTH_MAX = 6


def fill(kind, owner, depth=0):
    """JSON of a type with every field set; each text says where it is."""
    match kind:
        case types.StrType() | types.AnyType() | types.RawType():
            return f"<{owner}>"
        case types.StructType() if kind.cls is RateLimit:
            return {"per": "tool", "tool": "<RateLimit.tool>", "requests": 1}
        case types.StructType() if kind.cls is Budget:
            return {"usd": "1", "tenant": {"usd": "1", "period": "day", "zone": "UTC"}}
        case types.StructType() if kind.cls is Limits:
            return {"usd": "1", "period": "day", "zone": "UTC"}
        case types.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            fields = {
                each.encode_name: fill(each.type, f"{kind.cls.__name__}.{each.name}", depth + 1)
                for each in kind.fields
                if depth < DEPTH_MAX or each.required
            }
            return {**tag, **fields}
        case types.UnionType():
            chosen = next(each for each in kind.types if not isinstance(each, types.NoneType))
            return fill(chosen, owner, depth)
        case types.ListType() | types.VarTupleType():
            item = kind.item_type
            items = item.types if isinstance(item, types.UnionType) else (item,)
            return [] if depth > DEPTH_MAX else [fill(each, owner, depth + 1) for each in items]
        case types.TupleType():
            return [fill(each, owner, depth) for each in kind.item_types]
        case types.DictType():
            return {fill(kind.key_type, owner): fill(kind.value_type, owner, depth)}
        case types.LiteralType():
            return kind.values[0]
        case types.EnumType():
            return next(iter(kind.cls)).value
        case types.BoolType():
            return True
        case types.DecimalType():
            return "1"
        case types.FloatType():
            return 0.5
    return 1


@pytest.mark.parametrize("kind", get_args(StreamItem), ids=lambda kind: kind.__name__)
def test_a_browser_gets_only_the_listed_fields(kind):
    item = msgspec.convert(fill(types.type_info(kind), ""), kind, strict=False)
    tag = kind.__struct_config__.tag
    frame = to_sse(item)
    if tag not in ALLOWED:
        assert frame == ""
        return
    ((name, data),) = read_frames(frame)
    sent = json.loads(data)
    assert name == sent.pop("type") == tag
    assert sent.keys() == {*ALLOWED[tag].split()}


@pytest.mark.parametrize("model", MODELS)
def test_no_instruction_description_policy_argument_or_result_reaches_a_browser(model):
    @tool(effect="read")
    def find(where: str) -> str:
        """Find with the SECRET-DESCRIPTION."""
        return f"SECRET-RESULT {where}"

    agent = Agent(model, tools=[find], instructions="SECRET-INSTRUCTIONS")

    async def watch():
        prompt = '!think SECRET-THOUGHT\n!call find {"where": "SECRET-ARGUMENT"}\n!then\n!say hello'
        return [item async for item in agent.stream(prompt)]

    shown = asyncio.run(watch())
    assert "SECRET-INSTRUCTIONS" in "".join(to_sse(item, full=True) for item in shown)
    frames = "".join(map(to_sse, shown))
    assert "SECRET" not in frames
    names = [name for name, _ in read_frames(frames)]
    assert {"tool_started", "tool_finished", "run_ended", "final_answer"} <= {*names}
    assert [json.loads(data)["text"] for name, data in read_frames(frames) if name == "final_answer"] == [
        "hello"
    ]
