"""Replies that only Chat Completions has; `tests/providers/kit` holds what every wire must do."""

import pytest
from msgspec.structs import replace

from bridle.values.message import Opaque, Reply, Stop, Text
from bridle.values.usage import HostedRate, Price, Rates, Usage
from tests.providers.openai_chat.openai_chat_replies import (
    ARGUMENTS,
    CALL,
    THREE_CALLS,
    THREE_CALLS_STREAM,
    WIRE,
    completion,
    decode_or_fail,
    piece,
    stream,
)


def test_a_refusal_is_told_apart_from_an_answer():
    reply = decode_or_fail(completion({"content": None, "refusal": "I will not."}))
    assert (reply.stop, reply.text, reply.stop_detail) == (Stop.REFUSED, "I will not.", "stop: I will not.")
    pieces = (piece({"refusal": "I will"}), piece({"refusal": " not."}), piece({}, "stop"))
    assert replace(decode_or_fail(stream(*pieces)), id="", origin=reply.origin) == replace(reply, id="")
    both = decode_or_fail(completion({"content": "Well", "refusal": "No."}))
    assert both.parts == (Text(text="Well"), Text(text="No."))
    assert decode_or_fail(completion({"refusal": ""})).stop is Stop.DONE


def test_a_filter_says_what_it_found():
    found = {"hate": {"filtered": True}, "violence": {"filtered": False}}
    choice = {"index": 0, "finish_reason": "content_filter", "content_filter_results": found}
    assert decode_or_fail({"choices": [choice]}).stop_detail == "content_filter: hate"
    assert (
        decode_or_fail(stream({"choices": [{**choice, "delta": {}}]})).stop_detail == "content_filter: hate"
    )


def test_what_is_no_call_is_left_out():
    broken = [None, 7, {}, {"function": None}, {"function": {"arguments": "{}"}}, {"function": {"name": ""}}]
    reply = decode_or_fail(
        completion({"tool_calls": [*broken, CALL], "function_call": {"name": "", "arguments": ""}})
    )
    assert [call.name for call in reply.calls] == ["look"]


def test_sound_without_data_or_without_words():
    empty = {"id": "", "data": "", "transcript": "", "expires_at": 0}
    assert decode_or_fail(completion({"audio": empty})).parts == (Text(text="Hi"),)
    assert decode_or_fail(completion({"content": None, "audio": {"id": "a"}})).parts == (
        Opaque(kind="audio", native='{"id":"a"}', answers=True),
    )


def test_sources_stay_with_the_words_and_are_not_sent_back():
    reply = decode_or_fail(completion(citations=["https://a"], search_results=[], related_questions=None))
    assert reply.parts == (Text(text="Hi", native='{"reply":{"citations":["https://a"]}}'),)
    told = decode_or_fail(
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
            found = decode_or_fail(body[:cut] + end)
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
            found = decode_or_fail(body.encode())
            assert isinstance(found, Reply) or found.kind in ("garbled", "cut")


COUNTED = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
PRICED = Price(
    tiers=(Rates(input=1, output=1, cache_read=1, cache_write=1, cache_write_1h=None),),  # type: ignore[arg-type]
    hosted=tuple(HostedRate(count=name, usd=1) for name in ("searches", "pages", "containers")),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(
    ("executed", "counts", "is_known"),
    [
        ([{"index": 0, "type": "browser_search"}, {"index": 1, "type": "browser.open"}], {"searches": 1, "pages": 1}, True),
        ([{"type": "function", "name": "browser.search"}], {"searches": 1}, True),
        ([{"type": "python"}, {"type": "python"}], {"containers": 1}, True),
        ([{"type": "wolfram"}, {"type": "wolfram"}, {"type": "search"}], {"searches": 1, "terms": ("wolfram",)}, False),
        ([{}], {"terms": ("server_tool",)}, False),
        ([None, 7], {}, True),
        ("browser_search", {}, True),
    ],
)  # fmt: skip
def test_a_tool_of_unknown_kind_that_the_server_ran_makes_the_cost_unknown(executed, counts, is_known):
    usage = decode_or_fail(completion({"executed_tools": executed}, usage=COUNTED)).usage
    assert usage == Usage(input=3, output=2, **counts)
    assert (PRICED.cost(usage) is not None) == is_known


@pytest.mark.parametrize("executed", [[], [{"type": "python"}], [{"type": "browser_search"}]])
@pytest.mark.parametrize("details", [None, {"tool_calls_executed": 0}, {"web_search_requests": 1}])
def test_of_several_counts_of_searches_the_largest_is_charged(executed, details):
    counted = {
        **COUNTED,
        "server_tool_use": {"web_search_requests": 3},
        "server_tool_use_details": details,
    }
    usage = decode_or_fail(completion({"executed_tools": executed}, usage=counted)).usage
    assert usage == Usage(input=3, output=2, searches=3, containers=int(executed == [{"type": "python"}]))


@pytest.mark.parametrize("member", ["server_tool_use_details", "server_tool_use"])
@pytest.mark.parametrize(
    ("told", "counts", "is_known"),
    [
        ({"web_search_requests": 2}, {"searches": 2}, True),
        ({"web_search_requests": 2, "tool_calls_executed": 2, "tool_calls_requested": 3}, {"searches": 2}, True),
        ({"web_search_requests": 1, "tool_calls_executed": 2}, {"searches": 1, "terms": ("server_tool",)}, False),
        ({"web_search_requests": None, "tool_calls_executed": None}, {}, True),
    ],
)  # fmt: skip
def test_tools_that_a_gateway_ran_besides_searches_make_the_cost_unknown(member, told, counts, is_known):
    usage = decode_or_fail(completion(usage={**COUNTED, member: told})).usage
    assert usage == Usage(input=3, output=2, **counts)
    assert (PRICED.cost(usage) is not None) == is_known


def test_a_stream_that_breaks_off_after_a_search_has_counted_it():
    started = {"index": 0, "type": "function", "name": "browser.search"}
    decoder = WIRE.new_decoder()
    decoder.feed(stream(piece({"executed_tools": [started]}), done=False))
    decoder.feed(stream(piece({"executed_tools": [{**started, "type": "browser_search"}]}), done=False))
    assert decoder.partial_usage == Usage(searches=1, incomplete=True)
