"""Replies that only the Responses wire has; `tests/providers/kit` holds what every wire must do."""

import json

import pytest

from bridle.values.errors import ProviderError
from bridle.values.message import Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.usage import Usage
from tests.providers.openai_responses.openai_responses_replies import (
    CALL,
    HERE,
    THOUGHT,
    decode_message,
    words,
)


def test_items_become_parts_in_their_order():
    searched = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}
    summary = [{"type": "summary_text", "text": "Hm."}]
    reply = decode_message(
        {**THOUGHT, "summary": summary, "status": "completed", "content": None},
        searched,
        {**words("One,", "two."), "status": "completed", "phase": "final_answer"},
        {**CALL, "namespace": "n"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": 'a"b'},
        usage={
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30,
                                     "cache_write_tokens_details": {"ttl_12h_tokens": 10}},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 20},
        },
    )  # fmt: skip
    assert reply == Reply(
        id="resp_1",
        stop=Stop.TOOLS,
        stop_detail="completed",
        origin=HERE,
        usage=Usage(
            input=10, cache_read=60, cache_write=30, output=50, reasoning=20, cache_write_1h=10, searches=1
        ),
        parts=(
            Reasoning(text="Hm.", signature="gAAA", native='{"id":"rs_1"}'),
            Opaque(kind="web_search_call", native=json.dumps(searched, separators=(",", ":"))),
            Text(
                text="One,",
                native='{"message":{"id":"msg_1","status":"completed","phase":"final_answer"},"part":{"logprobs":[]}}',
            ),
            Text(text="two.", native='{"part":{"logprobs":[]}}'),
            ToolCall(
                id="", name="look", arguments='{"a": 1}', wire_id="call_1",
                native='{"id":"fc_1","status":"completed","namespace":"n"}',
            ),
            ToolCall(
                id="", name="patch", arguments='{"input":"a\\"b"}', wire_id="call_2",
                native='{"type":"custom_tool_call","id":"ctc_1"}',
            ),
        ),
    )  # fmt: skip


def test_words_beside_a_refusal_say_that_they_are_none():
    content = [{"type": "output_text", "text": "Sorry. "}, {"type": "refusal", "refusal": "No."}]
    reply = decode_message({"type": "message", "role": "assistant", "content": content})
    assert reply.parts == (Text(text="Sorry. ", native='{"part":{"type":"output_text"}}'), Text(text="No."))
    assert reply.stop is Stop.REFUSED


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_a_response_that_is_not_done_is_no_reply(status):
    with pytest.raises(ProviderError, match=status) as caught:
        decode_message(CALL, status=status)
    assert caught.value.failure.kind == "invalid"


def test_trains_of_thought_in_several_pieces_are_kept_once():
    pieces = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    reply = decode_message(
        {**THOUGHT, "summary": pieces, "content": [{"type": "reasoning_text", "text": "raw"}]}
    )
    assert reply.parts == (
        Reasoning(
            text="One.\n\nTwo.\n\nraw",
            signature="gAAA",
            native='{"id":"rs_1","lengths":{"summary":[4,4],"content":[3]}}',
        ),
    )


def test_words_may_have_their_plain_name():
    reply = decode_message(
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    )
    assert reply.text == "hi"
