"""What a provider says it changed in a request is an event, and ends a strict run."""

import json
from typing import Any

import pytest

from bridle.core.effects import EndRun, RecordFinding, RunTool
from bridle.core.loop import apply_event, next_effects
from bridle.core.state import State
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.providers.wire.input_changes import CHANGES_MAX, describe_input_changes
from bridle.values import events as e
from bridle.values.message import Message, Reply, Stop, Text, ToolCall
from bridle.values.model import make_origin
from bridle.values.request import Request, ToolSpec
from bridle.values.settings import Settings
from bridle.values.usage import Usage

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-6.1-sol",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
    "input_transformations": [
        {"id": "rs_1", "action": "removed", "reason": "model_mismatch", "type": "reasoning"},
        {"id": "rs_2", "action": "removed", "reason": "prefix_mismatch", "type": "reasoning"},
    ],
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [{"type": "text", "text": "Yes."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 2},
    "input_transformations": [
        {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}
    ],
}
RESPONSES_WORDS = (
    "the provider changed the request: reasoning rs_1 removed (model_mismatch)",
    "the provider changed the request: reasoning rs_2 removed (prefix_mismatch)",
)
MESSAGES_WORDS = (
    "the provider changed the request: thinking_dropped messages.1.content.0 (prefix_binding_mismatch)",
)


def events(*named):
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in named)


WHOLE = {
    "openai:gpt-6.1-sol": (json.dumps(RESPONSE).encode(), RESPONSES_WORDS),
    "anthropic:claude-sonnet-5-5": (json.dumps(MESSAGE).encode(), MESSAGES_WORDS),
}
STREAMED = {
    "openai:gpt-6.1-sol": (
        events(
            {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "output": []}},
            {
                "type": "response.output_item.done",
                "sequence_number": 1,
                "output_index": 0,
                "item": RESPONSE["output"][0],
            },
            {"type": "response.completed", "sequence_number": 2, "response": RESPONSE},
        ),
        RESPONSES_WORDS,
    ),
    "anthropic:claude-sonnet-5-5": (
        events(
            {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ),
        MESSAGES_WORDS,
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_the_changes_that_a_reply_reports_are_read(name, stream):
    model = find_model(name, environ={})
    body, words = (STREAMED if stream else WHOLE)[name]
    request = Request(
        model=model, messages=(Message(id="m", role="user", parts=(Text(text="?"),)),), stream=stream
    )
    kind = "text/event-stream" if stream else "application/json"
    decoder = load_codec(model.endpoint.family).new_decoder(request, 200, {"content-type": kind})
    list(decoder.feed(body))
    reply = decoder.close()
    assert (reply.text, reply.input_changes) == ("Yes.", words)


def test_a_long_or_odd_list_is_described_in_bounds():
    many = [{"type": "reasoning", "id": f"rs_{each}", "action": "removed"} for each in range(1_000)]
    found = describe_input_changes(many)
    assert len(found) == CHANGES_MAX + 1
    assert found[-1] == f"the provider changed {1_000 - CHANGES_MAX} more parts of the request"
    assert describe_input_changes(None) == describe_input_changes("x") == describe_input_changes([]) == ()
    assert describe_input_changes([7, {}]) == ("the provider changed the request: a part",)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("calls", [False, True])
def test_a_reported_change_is_an_event_and_ends_a_strict_run(calls, strict):
    model = find_model("anthropic:claude-sonnet-5-5", environ={})
    settings = Settings(
        model=model,
        tools=(ToolSpec(name="pay"),),
        on_adjusted="error" if strict else "event",
    )
    said = ToolCall(id="", name="pay", arguments="{}", wire_id="t1") if calls else Text(text="Done.")
    reply = Reply(
        parts=(said,),
        stop=Stop.TOOLS if calls else Stop.DONE,
        origin=make_origin(model),
        usage=Usage(input=5, output=2),
        input_changes=MESSAGES_WORDS,
    )
    state = State()
    for at, event in enumerate((
        e.Configured(settings=settings, session="s"),
        e.Prompted(parts=(Text(text="?"),)),
        e.ModelAsked(step=1, attempt=1, digest="d"),
        e.ModelReplied(reply=reply),
    )):  # fmt: skip
        state = apply_event(state, event, at=float(at + 1))  # type: ignore[arg-type]
    (finding,) = next_effects(state)
    assert finding == RecordFinding(event=e.RequestAdjusted(adjustments=MESSAGES_WORDS))
    state = apply_event(state, finding.event, at=9.0)
    (effect,) = next_effects(state)
    if strict:
        assert isinstance(effect, EndRun)
        assert effect.stop == "failed"
        assert MESSAGES_WORDS[0] in effect.reason
    else:
        assert isinstance(effect, RunTool if calls else EndRun)
        assert calls or effect.stop == "done"
