"""The reader of server-sent events: any line ending, any slices, bounded and linear."""

import json
import random

import pytest

from bridle.providers.wire.sse import EVENT_BYTES_MAX, SseReader
from bridle.values.errors import ProviderError
from tests.suite.growth import LINEAR_MAX, assert_growth

STREAM = (
    "event: start\ndata: {}\n\n"
    ": a comment\n\n"
    "event: words\nid: 7\nretry: 10\ndata: Tōkyō 🌡️\n\n"
    "data:tight\n\n"
    "data: one\ndata:  two\ndata\ndata: four\n\n"
    "event: lonely\n\n"
    "data:\n\n"
    "\n\n"
    "event:  spaced\ndata: x: y\n\n"
    "datum: no\ndata: yes\n\n"
)
EVENTS = [
    (b"start", b"{}"),
    (b"words", "Tōkyō 🌡️".encode()),
    (b"", b"tight"),
    (b"", b"one\n two\n\nfour"),
    (b" spaced", b"x: y"),
    (b"", b"yes"),
]


def read(*slices: bytes):
    reader = SseReader()
    events = [event for data in slices for event in reader.feed(data)]
    return events, reader.close()


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
def test_any_line_ending_in_any_slices(ending):
    body = STREAM.replace("\n", ending).encode()
    for size in range(1, len(body) + 1):
        assert read(*(body[at : at + size] for at in range(0, len(body), size))) == (EVENTS, []), size
    for cut in range(len(body)):
        assert read(body[:cut], b"", body[cut:]) == (EVENTS, []), cut


def test_line_endings_may_be_mixed():
    assert read(b"data: a\r\n\ndata: b\r\rdata: c\n\r\n")[0] == [(b"", b"a"), (b"", b"b"), (b"", b"c")]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    body = b"\xef\xbb\xbfdata: a\n\ndata: b\n\n"
    for size in (1, 2, 3, 100):
        assert read(*(body[at : at + size] for at in range(0, len(body), size)))[0] == [
            (b"", b"a"),
            (b"", b"b"),
        ]


def test_an_event_counts_when_only_its_blank_line_is_missing():
    assert read(b"event: end\ndata: 1") == ([], [(b"end", b"1")])
    assert read(b"event: end\ndata: 1\n") == ([], [(b"end", b"1")])
    assert read(b"event: end\ndata: 1\r") == ([], [(b"end", b"1")])
    assert read(b"event: end\n") == ([], [])


@pytest.mark.parametrize("size", [1 << 20, EVENT_BYTES_MAX + 1024])
def test_an_event_may_not_grow_without_end(size):
    line = b"data: " + b"x" * (size - 6)
    with pytest.raises(ProviderError) as refused:
        read(*[line] * (EVENT_BYTES_MAX // size + 2))
    assert refused.value.failure.kind == "garbled"


def test_many_events_in_one_slice_are_not_one_large_event():
    one = b"data: " + b"x" * (1 << 20) + b"\n\n"
    count = EVENT_BYTES_MAX // len(one) + 2
    assert len(SseReader().feed(one * count)) == count


def test_an_event_in_many_slices_costs_its_length_once():
    piece = b"data: " + json.dumps("x" * 4000).encode() + b"\n"

    def prepare(slices):
        reader = SseReader()

        def work():
            for _ in range(slices):
                reader.feed(piece)
            assert len(reader.feed(b"\n")) == 1

        return work

    assert_growth(prepare, 700, 4_200, LINEAR_MAX)


def test_an_object_that_stands_bare_among_the_events_is_one():
    error = b'{\n  "error": {\n    "message": "broken: off"\n  }\n}'
    body = b"data: a\n\n" + error
    for size in (1, 7, 100):
        slices = [body[at : at + size] for at in range(0, len(body), size)]
        events, last = read(*slices)
        assert [event for _, event in (*events, *last)] == [b"a", error + b"\n"]


LINES = (
    b"data: a",
    b"data: {}",
    b"data: ",
    b"data:b",
    b"event: n",
    b"event: ",
    b"event: data: ",
    b": c",
    b"{}",
    b"id: 1",
)


def test_events_that_are_split_together_equal_those_that_arrive_alone():
    draw = random.Random(7)
    for _ in range(3000):
        blocks = [draw.choices(LINES, k=draw.randint(0, 3)) for _ in range(draw.randint(1, 4))]
        if draw.random() < 0.5:  # the form that is split as a whole
            named = draw.random() < 0.5
            blocks += [[b"event: m", b"data: d"] if named else [b"data: d"]] * 3
            blocks = blocks[draw.randint(0, len(blocks) - 1) :]
        wholes = [b"".join(line + b"\n" for line in block) + b"\n" for block in blocks]
        alone = SseReader()
        expected = [event for whole in wholes for byte in whole for event in alone.feed(bytes([byte]))]
        assert read(b"".join(wholes)) == (expected, []), wholes
