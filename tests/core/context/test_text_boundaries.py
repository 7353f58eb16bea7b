"""Cuts that leave characters and lines whole."""

from hypothesis import given
from hypothesis import strategies as st

from bridle.core.context.excerpt import CHARACTER_LENGTH_MAX, cut_after, cut_before, is_boundary

WHOLE = (
    "e\u0301",
    "\r\n",
    "👩‍👩‍👧",
    "👍🏽",
    "🇫🇷",
    "❤️",
    "\u1112\u1161\u11ab",
    "क्",
    "🏴\U000e0067\U000e007f",
)
PIECES = st.lists(st.sampled_from([*WHOLE, "a", " ", "é", "羽", "🪶"]), min_size=1, max_size=40)


def starts(pieces):
    """Where one ends and the next begins."""
    places, at = {0}, 0
    for piece in pieces:
        at += len(piece)
        places.add(at)
    return places


@given(PIECES, st.data())
def test_no_cut_is_inside_what_looks_like_one_character(pieces, data):
    text = "".join(pieces)
    at = data.draw(st.integers(-2, len(text) + 2))
    whole = starts(pieces)
    before, after = cut_before(text, at, 0), cut_after(text, at, 0)
    assert before in whole
    assert after in whole
    assert before <= max(at, 0)
    assert after >= min(at, len(text))


@given(st.text(max_size=200), st.integers(0, 200), st.integers(0, 50))
def test_a_cut_is_near_and_on_a_line_when_one_is_near(text, at, slack):
    for cut in (cut_before(text, at, slack), cut_after(text, at, slack)):
        assert 0 <= cut <= len(text)
        assert abs(cut - min(at, len(text))) <= max(slack, CHARACTER_LENGTH_MAX)
    if 0 < at < len(text) and "\n" in text[max(0, at - slack) : at]:
        assert text[cut_before(text, at, slack) - 1] == "\n"
    if 0 < at < len(text) and "\n" in text[at - 1 : at + slack]:
        assert text[cut_after(text, at, slack) - 1] == "\n"


def test_endless_accents_are_cut_all_the_same():
    text = "a" + "\u0301" * 1_000
    assert cut_before(text, 500, 0) == 500
    assert cut_after(text, 500, 0) == 500


def test_flags_are_counted_from_the_first():
    text = "🇫🇷🇩🇪🇯🇵"
    assert [at for at in range(len(text) + 1) if is_boundary(text, at)] == [0, 2, 4, 6]
