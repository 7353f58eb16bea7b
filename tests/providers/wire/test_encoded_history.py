"""Incremental encoding of messages gives the same bytes as encoding all of them."""

from hashlib import blake2b

import pytest
from msgspec.structs import replace

from bridle.providers.wire.encoded_history import DIGEST_BYTES, EncodedMessages, WireTurn
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Text
from bridle.values.model import Endpoint


class Counting:
    """A writer that merges neighbours of one role, can put a mark on each message, and counts its work."""

    def __init__(self):
        self.written = []
        self.endpoints = []

    def __call__(self, endpoint):
        self.endpoints.append(endpoint)
        return self._write

    def _write(self, message):
        self.written.append(message.id)
        if message.text == "bad":
            raise MisuseError("this cannot be written")
        if not message.text:
            return ()
        data = f'"{message.text}"'.encode()
        return (
            WireTurn(b"<%b:" % message.role.encode(), data, b">", len(data) - 1, merges_with_previous=True),
        )


def line(*texts, start=1):
    roles = ("user", "assistant")
    return tuple(
        Message(role=roles[(start + n) % 2], parts=(Text(text=text),), id=f"m{start + n}")  # type: ignore[arg-type]
        for n, text in enumerate(texts)
    )


def test_each_message_is_written_once():
    writer = Counting()
    kept = EncodedMessages(writer)
    messages = line("a", "b", "c", "d")
    for count in (1, 2, 2, 4, 4):
        kept.join_messages(messages[:count])
    assert writer.written == ["m1", "m2", "m3", "m4"]
    assert kept.join_messages(messages)[0] == b'<assistant:"a">,<user:"b">,<assistant:"c">,<user:"d">'


def test_the_digest_is_that_of_the_joined_bytes():
    kept = EncodedMessages(Counting())
    for count in range(5):
        data, digest = kept.join_messages(line("a", "b", "c", "d")[:count])
        assert digest == blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def test_neighbours_that_open_alike_become_one_turn():
    messages = tuple(replace(message, role="user") for message in line("a", "b", "", "c"))
    kept = EncodedMessages(Counting())
    assert kept.join_messages(messages[:1])[0] == b'<user:"a">'
    assert kept.join_messages(messages)[0] == b'<user:"a","b","c">'
    assert kept.join_messages((*messages, *line("z")))[0] == b'<user:"a","b","c">,<assistant:"z">'


def test_nothing_said_is_nothing_sent():
    assert EncodedMessages(Counting()).join_messages(())[0] == b""
    assert EncodedMessages(Counting()).join_messages(line("", ""))[0] == b""


@pytest.mark.parametrize(
    "other",
    [
        line("a", "b"),
        line("b", "c", "d"),
        line("a", "changed", "c", "d"),
        line("a", "b", "c", "d", start=9),
        (),
    ],
    ids=["shorter", "beheaded", "edited", "renumbered", "empty"],
)
def test_a_conversation_that_does_not_continue_is_rewritten(other):
    kept = EncodedMessages(Counting())
    kept.join_messages(line("a", "b", "c", "d"))
    assert kept.join_messages(other) == EncodedMessages(Counting()).join_messages(other)
    longer = (*other, *line("x", "y"))
    assert kept.join_messages(longer) == EncodedMessages(Counting()).join_messages(longer)


def test_equal_messages_read_from_disk_are_not_written_again():
    writer = Counting()
    kept = EncodedMessages(writer)
    kept.join_messages(line("a", "b"))
    kept.join_messages(line("a", "b", "c"))
    assert writer.written == ["m1", "m2", "m3"]


def test_another_endpoint_starts_a_new_body():
    writer = Counting()
    kept = EncodedMessages(writer)
    here, there = Endpoint(name="here", family="f"), Endpoint(name="there", family="f")
    kept.set_endpoint(here)
    kept.join_messages(line("a"))
    kept.set_endpoint(Endpoint(name="here", family="f"))
    kept.join_messages(line("a"))
    assert writer.written == ["m1"]
    kept.set_endpoint(there)
    kept.join_messages(line("a"))
    assert writer.written == ["m1", "m1"]
    assert writer.endpoints[-1] == there


def test_a_message_that_cannot_be_written_leaves_nothing_half_done():
    kept = EncodedMessages(Counting())
    kept.join_messages(line("a"))
    with pytest.raises(MisuseError):
        kept.join_messages(line("a", "b", "bad"))
    assert kept.join_messages(line("a", "b")) == EncodedMessages(Counting()).join_messages(line("a", "b"))


def test_marks_are_put_into_the_copy_only():
    kept = EncodedMessages(Counting())
    kept.set_head("h", lambda: b"[")
    messages = line("a", "b", "c")
    plain, plain_digest = kept.build_body(messages, b"]")
    marked, digest = kept.build_body(messages, b"]", {0: b"!", 2: b"?"})
    assert marked == b'[<assistant:"a!">,<user:"b">,<assistant:"c?">]'
    assert digest != plain_digest
    assert kept.build_body(messages, b"]") == (plain, plain_digest)
    assert kept.build_body(line("a", "b", "c", "d"), b"]")[0].startswith(plain[:-1])


def test_a_mark_on_a_message_that_says_nothing_is_left_out():
    kept = EncodedMessages(Counting())
    assert kept.build_body(line("a", ""), b"", {1: b"!"})[0] == b'<assistant:"a">'


def test_the_head_is_made_again_only_when_it_changes():
    made = []
    kept = EncodedMessages(Counting())

    def make(what):
        made.append(what)
        return what

    for made_of in (("m", (1, 2)), ("m", (1, 2)), ("n", (1, 2))):
        kept.set_head(made_of, lambda made_of=made_of: make(made_of[0].encode()))  # type: ignore[misc]
    assert made == [b"m", b"n"]
    assert kept.build_body(line("a"), b"")[0] == b'n<assistant:"a">'


def test_the_digest_of_a_body_sees_every_part_but_the_delivery():
    def digest(head=b"h", texts=("a",), tail=b"t", marks=None, ending=b""):
        kept = EncodedMessages(Counting())
        kept.set_head(head, lambda: head)
        return kept.build_body(line(*texts), tail, marks or {}, ending=ending)[1]

    different = [
        digest(),
        digest(head=b"i"),
        digest(texts=("b",)),
        digest(tail=b"u"),
        digest(marks={0: b"!"}),
    ]
    assert len(set(different)) == len(different)
    assert digest(ending=b"!") == digest()
