"""Invalid JSON that providers send and strict parsers refuse."""

import pytest

from bridle.providers.wire.json import dumps, is_object, loads, repair_surrogates, split_array, split_object


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b'"\\ud83d"', "\ud83d"),
        (b'"caf\xff"', "caf\ufffd"),
        (b'"line\nbreak"', "line\nbreak"),
        (b"\xef\xbb\xbf[]", []),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_real_json_is_read(data, value):
    assert loads(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"[1,", b"\xff", b"[" * 100_000, b"nothing"])
def test_what_is_no_json_is_a_value_error(data):
    with pytest.raises(ValueError):  # noqa: PT011
        loads(data)
    with pytest.raises(ValueError):  # noqa: PT011
        split_object(data)
    with pytest.raises(ValueError):  # noqa: PT011
        split_array(data)


def test_members_keep_their_spelling():
    assert split_object(b'{"a": {"b" : 1.50}, "c":"\\u00e9"}') == {"a": b'{"b" : 1.50}', "c": b'"\\u00e9"'}
    assert split_object(b'{"a":"\\ud83d"}') == {"a": '"\ufffd"'.encode()}
    with pytest.raises(ValueError, match="object"):
        split_object(b"[NaN]")


def test_elements_keep_their_spelling():
    assert split_array(b'[{"b" : 1.50}, "\\u00e9" ]') == [b'{"b" : 1.50}', b'"\\u00e9"']
    assert split_array(b'["\\ud83d"]') == ['"\ufffd"'.encode()]
    with pytest.raises(ValueError, match="array"):
        split_array(b'{"a":NaN}')


def test_what_is_written_can_be_read_by_the_strict():
    assert dumps({"\ud83d": ["a\ude00", "\ud83d\ude00"]}) == '{"\ufffd":["a\ufffd","😀"]}'.encode()
    assert dumps(loads(b'[1.10,"\xc3\xa9"]')) == '[1.1,"é"]'.encode()


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("plain", "plain"),
        ("é", "é"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_torn_characters_are_mended(text, whole):
    assert repair_surrogates(text) == whole


def test_objects_are_told_from_the_rest():
    assert is_object('{"a": 1}')
    for text in ("", "[]", "{", '{"a": "\\ud83d"}', "[" * 10_000):
        assert not is_object(text)
