"""Replies that only Chat Completions has; `tests/providers/kit` holds what every wire must do."""

import pytest
from msgspec.structs import replace
from openai_chat_replies import (
    ARGUMENTS,
    CALL,
    THREE_CALLS,
    THREE_CALLS_STREAM,
    WIRE,
    completion,
    heard,
    piece,
    stream,
)

from bridle.values.message import Opaque, Reply, Stop, Text


def test_a_refusal_is_told_apart_from_an_answer():
    reply = heard(completion({"content": None, "refusal": "I will not."}))
    assert (reply.stop, reply.text, reply.stop_detail) == (Stop.REFUSED, "I will not.", "stop: I will not.")
    pieces = (piece({"refusal": "I will"}), piece({"refusal": " not."}), piece({}, "stop"))
    assert replace(heard(stream(*pieces)), id="", origin=reply.origin) == replace(reply, id="")
    both = heard(completion({"content": "Well", "refusal": "No."}))
    assert both.parts == (Text(text="Well"), Text(text="No."))
    assert heard(completion({"refusal": ""})).stop is Stop.DONE


def test_a_filter_says_what_it_found():
    found = {"hate": {"filtered": True}, "violence": {"filtered": False}}
    choice = {"index": 0, "finish_reason": "content_filter", "content_filter_results": found}
    assert heard({"choices": [choice]}).stop_detail == "content_filter: hate"
    assert heard(stream({"choices": [{**choice, "delta": {}}]})).stop_detail == "content_filter: hate"


def test_what_is_no_call_is_left_out():
    broken = [None, 7, {}, {"function": None}, {"function": {"arguments": "{}"}}, {"function": {"name": ""}}]
    reply = heard(completion({"tool_calls": [*broken, CALL], "function_call": {"name": "", "arguments": ""}}))
    assert [call.name for call in reply.calls] == ["look"]


def test_sound_without_data_or_without_words():
    empty = {"id": "", "data": "", "transcript": "", "expires_at": 0}
    assert heard(completion({"audio": empty})).parts == (Text(text="Hi"),)
    assert heard(completion({"content": None, "audio": {"id": "a"}})).parts == (
        Opaque(kind="audio", native='{"id":"a"}', answers=True),
    )


def test_sources_stay_with_the_words_and_are_not_sent_back():
    reply = heard(completion(citations=["https://a"], search_results=[], related_questions=None))
    assert reply.parts == (Text(text="Hi", native='{"reply":{"citations":["https://a"]}}'),)
    told = heard(
        stream(piece({"content": "Hi"}, citations=["https://x"]), piece({}, "stop", citations=["https://a"]))
    )
    assert told.parts == reply.parts
    assert WIRE.server.encode_reply(reply, stream=True) == WIRE.server.encode_reply(
        replace(told, origin=reply.origin), stream=True
    )


def test_cut_anywhere_no_tool_is_offered_with_half_its_arguments():
    reply, body = replace(THREE_CALLS, stop_detail=""), THREE_CALLS_STREAM
    accepted = 0
    for cut in range(len(body)):
        for end in (b"", b"\n\n", b"\n\ndata: [DONE]\n\n"):
            found = heard(body[:cut] + end)
            if isinstance(found, Reply):
                accepted += 1
                for call in found.calls:
                    assert call.arguments in ARGUMENTS
                if not end:
                    assert replace(found, usage=reply.usage, stop_detail="") == reply
    assert 0 < accepted < len(body)


@pytest.mark.parametrize("depth", [50, 300, 600, 900, 2_000, 20_000])
def test_deep_nesting_is_a_reply_or_the_servers_fault(depth):
    for member in ('"mood": %s', '"tool_calls": [{"function": {"name": "f", "arguments": %s}}]'):
        inside = member % ("[" * depth + "]" * depth)
        message = '{"role": "assistant", "content": "Hi", %s}' % inside  # noqa: UP031
        whole = '{"choices": [{"index": 0, "message": %s, "finish_reason": "stop"}]}' % message  # noqa: UP031
        told = f"data: {whole.replace('message', 'delta')}\n\ndata: [DONE]\n\n"
        for body in (whole, told):
            found = heard(body.encode())
            assert isinstance(found, Reply) or found.kind in ("garbled", "cut")
