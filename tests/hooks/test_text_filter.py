"""Text filters give the same text in any pieces, and find personal data in the middle of other text."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle.hooks import PII, PatternFilter, RedactPii, TextBlocked, TextPattern
from bridle.hooks.pii import redact_pii
from tests.suite.growth import LINEAR_MAX, assert_growth

SAMPLES = {
    "email": "ann.lee+x@mail.example.org",
    "card number": "4111 1111 1111 1111",
    "IBAN": "DE89 3704 0044 0532 0130 00",
    "phone number": "+49 (30) 1234-5678",
    "US social security number": "123-45-6789",
    "IP address": "192.168.10.254",
}
MORE_SAMPLES = ("378282246310005", "AT61 1904 3002 3457 3201", "GB82WEST12345698765432", "x@y.zz", "6666")
PIECES = st.one_of(
    st.sampled_from([*SAMPLES.values(), *MORE_SAMPLES]),
    st.sampled_from([sample[:half] for sample in SAMPLES.values() for half in (4, 9, 12)]),
    st.text(alphabet="aZ7 0.-+@_()\n,é٣", max_size=8),
)
TEXTS = st.lists(PIECES, max_size=7).map("".join)
KINDS = st.lists(st.sampled_from(list(PII)), min_size=1, unique=True)


def feed_pieces(patterns, text, cuts):
    filtering = PatternFilter(patterns)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    shown = [filtering.feed(text[start:end]) for start, end in itertools.pairwise(places)]
    return "".join(shown) + filtering.finish()


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 400), max_size=12), kinds=KINDS)
def test_pieces_give_the_same_text_as_the_whole(text, cuts, kinds):
    patterns = [PII[kind] for kind in kinds]
    assert feed_pieces(patterns, text, cuts) == PatternFilter(patterns).replace(text)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, kinds=KINDS)
def test_single_characters_give_the_same_text_as_the_whole(text, kinds):
    patterns = [PII[kind] for kind in kinds]
    assert feed_pieces(patterns, text, range(len(text))) == PatternFilter(patterns).replace(text)


@pytest.mark.parametrize("kind", PII)
@pytest.mark.parametrize("around", ["{}", "Send it to {}.", "({})", "{}, please", "a {}\nb", "“{}”"])
def test_every_kind_is_found_at_every_split(kind, around):
    text, expected = around.format(SAMPLES[kind]), around.format(f"[{kind}]")
    for cut in range(len(text) + 1):
        assert feed_pieces(list(PII.values()), text, [cut]) == expected, cut


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("charge 2 4111 1111 1111 1111", "charge 2 [card number]"),
        ("4111 1111 1111 1111 12/27", "[card number] 12/27"),
        ("2026 4111 1111 1111 1111 123", "2026 [card number] 123"),
        ("AT61 1904 3002 3457 3201 EUR 20", "[IBAN] EUR 20"),
        ("BE68 5390 0754 7034 OK", "[IBAN] OK"),
        ("the server is 10.0.0.1.", "the server is [IP address]."),
        ("version 1.2.3.4.5", "version 1.2.3.4.5"),
        ("xxDE89370400440532013000", "xxDE89370400440532013000"),
        ("order 41111111111111112", "order 41111111111111112"),
    ],
)
def test_data_is_found_beside_other_numbers(text, expected):
    assert feed_pieces(list(PII.values()), text, range(len(text))) == expected
    assert PatternFilter(list(PII.values())).replace(text) == expected


@pytest.mark.parametrize("kind", PII)
def test_nothing_of_the_data_is_shown_before_it_is_blocked(kind):
    filtering, shown = PatternFilter(list(PII.values()), block=True), []

    def feed_all():
        for character in f"It is: {SAMPLES[kind]} ok ":
            shown.append(filtering.feed(character))

    with pytest.raises(TextBlocked, match=kind):
        feed_all()
    assert "".join(shown) == "It is: "


@pytest.mark.parametrize(
    "text", ["A" * 20_000, "DE89 " + "AAAA " * 4_000, "1" * 20_000, "1 " * 10_000, "a@" * 10_000]
)
def test_long_texts_take_time_in_proportion_to_their_length(text):
    def measure(given_text):
        start = time.process_time()
        PatternFilter(list(PII.values())).replace(given_text)
        return time.process_time() - start

    short = min(measure(text[: len(text) // 8]) for _ in range(3))
    assert measure(text) < 40 * short + 0.05


def test_your_own_pattern_may_look_at_the_text_before_it():
    badge = TextPattern(name="badge", pattern=r"(?<=badge )\d{4}\b", open_end=r"(?<=badge )\d{1,4}")
    assert feed_pieces([badge], "my badge 1234 and 1234", range(25)) == "my badge [badge] and 1234"
    assert RedactPii(kinds=[], patterns=[badge]).text_filter().replace("badge 77") == "badge 77"


HOSTILE = {
    "digits": "1 ",
    "cards": "4111 1111 1111 1112 ",
    "dashes": "1-",
    "addresses": "a@a.",
    "names": "a" * 64,
    "banks": "DE89 3704 ",
    "phones": "+1 (2) ",
    "hosts": "1.2.3.",
    "numbers": "123-45-",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_work_of_the_patterns_is_linear(kind):
    """Text from outside has no other limit here: every pattern looks at a bounded number of characters."""

    def prepare(size):
        text = (HOSTILE[kind] * size)[:size]
        return lambda: redact_pii(text)

    assert_growth(prepare, 2_000, 12_000, LINEAR_MAX)


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_work_of_a_stream_is_linear(kind):
    def prepare(size):
        text = (HOSTILE[kind] * size)[:size]

        def work():
            each = PatternFilter(tuple(PII.values()))
            for at in range(0, size, 20):
                each.feed(text[at : at + 20])
            each.finish()

        return work

    assert_growth(prepare, 2_000, 12_000, LINEAR_MAX)
