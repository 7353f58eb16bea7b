"""Pages of a long text, and positions in it."""

import re

from hypothesis import given
from hypothesis import strategies as st

from bridle.core.context.excerpt import LEAD_CHARACTERS_MAX, SEARCH_STRIDE, read_page, search_text

TEXTS = st.text(alphabet=st.sampled_from("ab\n\r é\u0301🪶🇫🇷"), min_size=1, max_size=300)
LEAD = re.compile(r"\[characters (\d+)-(\d+) of (\d+); (?:read on with offset=(\d+)|this is the end)\]\n")


def pages(text, limit, offset=0):
    """The text as somebody gets it who follows what each page says."""
    while offset is not None:
        given_ = read_page(text, offset, limit)
        lead = LEAD.match(given_)
        assert lead, given_[:80]
        body = given_[lead.end() :]
        start, end, total, following = (int(group) if group else None for group in lead.groups())
        assert (start, len(body), total) == (offset, end - start, len(text))
        yield body
        offset = following


@given(TEXTS, st.integers(1, 120))
def test_pages_put_end_to_end_are_the_text(text, limit):
    bodies = list(pages(text, limit))
    assert "".join(bodies) == text
    assert all(0 < len(body) <= limit for body in bodies)


def test_beyond_the_end_there_is_nothing_and_it_says_so():
    assert read_page("abc", 3, 10) == "[nothing at 3: the result ends after 3 characters]\n"
    assert "ends after 3" in read_page("abc", 99, 10)


@given(TEXTS, st.text(alphabet="ab\né", min_size=1, max_size=3), st.integers(0, 300), st.integers(20, 400))
def test_every_place_is_found_by_searching_on(text, words, offset, limit):
    expected = {at for at in range(offset, len(text)) if re.match(re.escape(words), text[at:], re.IGNORECASE)}
    seen, at = set(), offset
    while True:
        told = search_text(text, words, at, limit)
        lead, *lines = told.removesuffix("\n").split("\n")
        for line in lines:
            place, _, around = line.partition(": ")
            shown = text.replace("\n", " ")
            assert int(place) in expected
            first = shown.rindex(around, 0, int(place) + len(around))
            seen |= {hit for hit in expected if first <= hit <= first + len(around) - len(words)}
        more = re.search(r"offset=(\d+)\]$", lead)
        if not more:
            break
        assert int(more[1]) > at
        at = int(more[1])
    assert seen == expected


def test_words_across_two_strides_are_found():
    for shift in range(-8, 3):
        text = "." * (SEARCH_STRIDE + shift) + "needle" + "." * 50
        assert f"\n{SEARCH_STRIDE + shift}: " in search_text(text, "NEEDLE", 0, 1_000)


def test_what_is_found_in_one_endless_line_is_shown_with_a_little_around_it():
    text = "x" * 1_000_000 + "Needle" + "y" * 1_000_000
    told = search_text(text, "needle", 0, 10_000)
    assert len(told) < 400 + LEAD_CHARACTERS_MAX
    assert f"1000000: {'x' * 100}Needle{'y' * 100}\n" in told


def test_what_is_not_there_is_said_plainly():
    assert search_text("abc", "z", 1, 100) == "[no 'z' from character 1 on, of 3]\n"


def test_a_pattern_is_only_words():
    assert "[no '(a+)+$'" in search_text("a" * 5_000, "(a+)+$", 0, 100)
