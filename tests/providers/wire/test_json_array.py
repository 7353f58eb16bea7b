"""The streaming reader of JSON arrays: any slices, no partial items, bounded memory."""

import json

import pytest

from bridle.providers.gemini.json_array import ELEMENT_BYTES_MAX, JsonArrayReader
from bridle.values.errors import ProviderError

ELEMENTS = [
    {"text": 'quotes " and \\ and \\" and ]}[{'},
    {},
    {"deep": [[{"er": "}"}], [], {"é": "🌡️\n"}]},
    {"text": "\\"},
]


def read(*slices: bytes):
    reader = JsonArrayReader()
    found = [element for data in slices for _, element in reader.feed(data)]
    return [json.loads(element) for element in found], reader.closed


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_elements_come_out_whole_in_any_slices(indent, ascii_only):
    body = b"\r\n " + json.dumps(ELEMENTS, indent=indent, ensure_ascii=ascii_only).encode() + b"\n"
    for size in range(1, len(body) + 1):
        assert read(*(body[at : at + size] for at in range(0, len(body), size))) == (ELEMENTS, True), size


def test_an_element_is_handed_out_with_its_last_brace_and_not_before():
    reader = JsonArrayReader()
    assert reader.feed(b'[{"a":{"b":1}') == []
    assert reader.feed(b"}") == [(b"", b'{"a":{"b":1}}')]
    assert reader.feed(b' , null, 7, "[{", {}') == [(b"", b"{}")]
    assert not reader.closed
    assert reader.feed(b"] {}") == []
    assert reader.closed


def test_a_cut_array_is_not_closed():
    body = json.dumps(ELEMENTS).encode()
    for cut in range(len(body)):
        elements, closed = read(body[:cut])
        assert not closed
        assert elements == ELEMENTS[: len(elements)]


def test_an_element_may_not_grow_without_end():
    piece = b"x" * (1 << 20)
    with pytest.raises(ProviderError) as refused:
        read(b'[{"a":"', *[piece] * (ELEMENT_BYTES_MAX // len(piece) + 2))
    assert refused.value.failure.kind == "garbled"
