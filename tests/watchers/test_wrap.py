"""Streamed text on a terminal: lines break between words, and nothing is lost or added."""

import re

from hypothesis import given
from hypothesis import strategies as st

from bridle.watchers.wrap import WordWrap

PIECES = st.lists(st.text(alphabet="ab \n", max_size=12), max_size=20)


def wrap_pieces(pieces, width):
    wrap = WordWrap(width=lambda: width)
    return "".join(map(wrap.feed, pieces)) + wrap.flush()


@given(PIECES, st.integers(4, 30))
def test_pieces_of_any_size_wrap_like_the_whole(pieces, width):
    assert wrap_pieces(pieces, width) == wrap_pieces(["".join(pieces)], width)


@given(PIECES, st.integers(4, 30))
def test_words_stay_whole_and_lines_fit(pieces, width):
    text = "".join(pieces)
    wrapped = wrap_pieces(pieces, width)
    assert wrapped.split() == text.split()
    for line in wrapped.split("\n"):
        code = line.startswith("    ")
        assert code or len(line.rstrip()) <= width or len(line.split()) == 1


def test_code_is_left_alone():
    code = "```\n" + "x = 1 " * 30 + "\n```\n" + "    " + "y = 2 " * 30
    assert wrap_pieces([code], 20) == code
    assert max(map(len, wrap_pieces([code + "\n" + "word " * 30], 20).split("\n")[4:])) <= 20


def test_wide_letters_take_two_columns():
    lines = wrap_pieces(["東京 " * 20], 20).split("\n")
    assert {len(re.sub(" ", "", line)) for line in lines[:-1]} == {8}
