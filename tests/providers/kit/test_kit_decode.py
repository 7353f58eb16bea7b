"""Replies on every wire: whole and streamed, sliced, cut, damaged and failed."""

import json
from functools import cache
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bridle.testing.conformance.codec import check_codec
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Reply
from bridle.values.result import CallReady, TextDelta
from tests.providers.anthropic.anthropic_replies import DECODE as ANTHROPIC
from tests.providers.bedrock.bedrock_replies import DECODE as BEDROCK
from tests.providers.gemini.gemini_replies import DECODE as GEMINI
from tests.providers.kit.decode_kit import NOT_COUNTED, damage_bytes
from tests.providers.kit.wire_kit import list_rows
from tests.providers.openai_chat.openai_chat_replies import DECODE as OPENAI_CHAT
from tests.providers.openai_responses.openai_responses_replies import DECODE as OPENAI_RESPONSES
from tests.suite.campaign import list_seeds
from tests.suite.growth import assert_cost_per_item

CASES: dict[str, Any] = {
    each.wire.family: each for each in (ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES)
}
SIZES = (1, 2, 3, 7, 64, 1024)
for_families = pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
for_samples = pytest.mark.parametrize(("cases", "sample"), list_rows(CASES, "samples"))


@pytest.mark.slow
@for_families
def test_all_laws_hold_for_what_only_this_family_says(cases):
    check_codec(cases.wire.codec, replies=cases.replies, requests=cases.requests, forget=cases.forget)


# What a stream says


@for_samples
def test_a_stream_says_what_the_whole_says_and_shows_it_on_the_way(cases, sample):
    assert cases.wire.decode(sample.body) == (sample.reply, list(sample.deltas))
    if sample.whole:
        assert cases.wire.decode(sample.whole)[0] == sample.reply


@for_samples
def test_any_slices_give_the_same_reply_and_the_same_deltas(cases, sample):
    whole = cases.wire.decode(sample.body)
    for size in SIZES:
        assert cases.wire.decode(sample.body, size=size) == whole, size
    for seed in range(20):
        random, decoder, deltas, at = Random(seed), cases.wire.new_decoder(), [], 0
        while at < len(sample.body):
            size = random.randint(1, 400)
            deltas += decoder.feed(sample.body[at : at + size])
            at += size
        assert (decoder.close(), deltas) == whole, seed


@for_samples
def test_cut_after_every_byte_it_is_no_reply_and_offers_no_half_call(cases, sample):
    ready = [delta for delta in sample.deltas if isinstance(delta, CallReady)]
    for cut in range(len(sample.body)):
        decoder = cases.wire.new_decoder()
        deltas = list(decoder.feed(sample.body[:cut]))
        assert deltas == list(sample.deltas[: len(deltas)]), cut
        offered = [delta for delta in deltas if isinstance(delta, CallReady)]
        assert offered == ready[: len(offered)], cut
        assert sample.reply.text.startswith(decoder.partial_text), cut
        if cut < len(sample.body) - sample.tail:
            with pytest.raises(ProviderError) as failed:
                decoder.close()
            assert failed.value.failure.kind == "cut", cut
        else:  # counts that come after the end may be missing
            found = decoder.close()
            usage = sample.reply.usage if found.usage.incomplete else found.usage
            assert replace(found, usage=usage) == sample.reply, cut
    for cut in range(len(sample.whole)):
        assert cases.wire.fail(sample.whole[:cut]).kind == "cut", cut


@for_families
def test_half_a_character_is_made_whole_by_its_other_half(cases):
    reply, deltas = cases.wire.decode(cases.torn)
    assert reply.text == "X😀"
    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert shown.isprintable()


@for_families
def test_partial_is_what_was_said_before_the_cut(cases):
    decoder = cases.wire.new_decoder()
    assert decoder.partial_usage == NOT_COUNTED
    decoder.feed(cases.partial)
    assert decoder.partial_text == "half a"
    assert decoder.partial_usage == cases.partial_usage
    with pytest.raises(ProviderError) as failed:
        decoder.close()
    assert failed.value.failure.kind == "cut"


@pytest.mark.parametrize(("cases", "bodies", "arguments"), list_rows(CASES, "arguments"))
def test_arguments_are_the_text_that_arrived(cases, bodies, arguments):
    for body in bodies:
        assert cases.wire.decode(body)[0].calls[-1].arguments == arguments


@pytest.mark.parametrize(("cases", "bodies", "stop", "detail"), list_rows(CASES, "stops"))
def test_why_it_stopped(cases, bodies, stop, detail):
    for body in bodies:
        reply = cases.wire.decode(body)[0]
        assert (reply.stop, reply.stop_detail) == (stop, detail)


@pytest.mark.parametrize(("cases", "bodies", "usage"), list_rows(CASES, "counts"))
def test_counts_never_overlap_and_a_reply_without_counts_does_not_say_nought(cases, bodies, usage):
    for body in bodies:
        assert cases.wire.decode(body)[0].usage == usage


@pytest.mark.parametrize(("cases", "bodies", "parts"), list_rows(CASES, lambda each: each.same.values()))
def test_the_same_thing_said_in_other_ways_is_the_same_reply(cases, bodies, parts):
    first = cases.wire.decode(bodies[0])[0].parts
    assert parts is None or first == parts
    for body in bodies[1:]:
        assert cases.wire.decode(body)[0].parts == first


@for_families
def test_what_the_headers_say_matters_less_than_what_arrives(cases):
    whole, stream = cases.say("hi")
    types = ("text/event-stream; charset=utf-8", "application/json")
    for headers in ({}, *({"content-type": each} for each in types)):
        for body in (whole, b" \r\n" + whole, stream):
            for size in (1, None):
                assert cases.wire.decode(body, headers=headers, size=size)[0].text == "hi"


# What is no reply


@for_families
def test_an_error_inside_a_stream_ends_it_for_good(cases):
    decoder = cases.wire.new_decoder()
    whole = cases.say("hi")[1]
    for step in (lambda: decoder.feed(cases.broken), lambda: decoder.feed(whole), decoder.close):
        with pytest.raises(ProviderError) as failed:
            step()
        assert failed.value.failure == cases.failure


EVERYWHERE = (
    (b"", "cut"),
    (b"  \n", "cut"),
    (b"<html><title>Sign in</title></html>", "garbled"),
    (b'{"hello":"world"}', "garbled"),
)


@pytest.mark.parametrize(
    ("cases", "body", "kind"), list_rows(CASES, lambda each: (*EVERYWHERE, *each.no_replies))
)
def test_what_is_no_reply_says_so(cases, body, kind):
    assert cases.wire.fail(body).kind == kind


@for_families
def test_nothing_counts_after_the_end(cases):
    body, extras = cases.after_end
    for extra in extras:
        assert cases.wire.decode(body + extra)[0].text == "x", extra


# Damage and cost


ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "\ud83d",
    [],
    {},
    [None],
    [[]],
    {"type": "text"},
    {"index": 0},
)


def damage_json(piece, random):
    """Lose members and change the types of values; what is no JSON stays."""
    start = piece.find(b"{")
    try:
        value, end = json.JSONDecoder().raw_decode(piece[start:].decode())
    except ValueError:
        return piece
    node = value
    while isinstance(node, dict | list) and node:
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        if random.random() < 0.3 or not isinstance(node[key], dict | list) or not node[key]:
            if random.random() < 0.3:
                del node[key]
            else:
                node[key] = random.choice(ODD)
            break
        node = node[key]
    return piece[:start] + json.dumps(value).encode() + piece[start:].decode()[end:].encode()


@for_families
def test_damaged_replies_end_in_a_reply_or_a_provider_error(cases):
    """Seeded: the number of a failing try is enough to see it again; BRIDLE_CAMPAIGN multiplies the tries."""
    seen = set()
    for number in list_seeds(3_000):
        random = Random(number)
        pieces = list(random.choice(cases.rich))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(pieces))
            pieces[at] = (damage_json if number % 2 else damage_bytes)(pieces[at], random)
        if number % 7 == 0:
            random.shuffle(pieces)
        body = cases.join(pieces)
        if number % 5 == 0:
            body = damage_bytes(body, random)
        status = random.choice((200, 200, 200, 200, 204, 302, 400, 429, 503))
        size = random.choice((7, 64, 5_000))
        try:
            found = cases.wire.decode_or_fail(body, status, size=size)
        except Exception as error:
            raise AssertionError(f"try {number}: {type(error).__name__}: {error} from {body!r}") from error
        assert isinstance(found, Reply | Failure), number
        seen.add(found.kind if isinstance(found, Failure) else "reply")
        if isinstance(found, Reply):
            json.loads(b"".join(cases.wire.server.encode_reply(found, stream=False).frames))
    assert {"reply", "cut", "garbled"} <= seen


@pytest.mark.parametrize(
    ("cases", "make_slices", "text"), list_rows(CASES, lambda each: each.deltas.values())
)
def test_a_delta_costs_the_same_however_many_came_before(cases, make_slices, text):
    slices_of = cache(make_slices)

    def prepare(count):
        slices, decoder = slices_of(count), cases.wire.new_decoder()

        def work():
            for each in slices:
                decoder.feed(each)
            assert decoder.close().text == text * count

        return work

    assert_cost_per_item(prepare)
