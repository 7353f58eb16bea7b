"""The text of a call that a person approves: exact, with the changes of an edit."""

import json

import pytest

from bridle.core.calls.argument_changes import list_changes, show_arguments
from bridle.values.text import escape_text


def test_emoji_and_other_scripts_in_an_answer_stay_readable():
    words = "👩\u200d👩\u200d👧 ❤\ufe0f \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 שלום\n\tcode"
    assert escape_text(words, prose=True) == words
    assert escape_text("日本語 é ß\u3000x") == "日本語 é ß\u3000x"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"path": "a  b\u00a0c\t"}, r'{"path": "a  b\u00a0c\t"}'),
        ({"path": "\u202egnp\u200b"}, r'{"path": "\u202egnp\u200b"}'),
        ({"p\u200bath": "\u3000"}, r'{"p\u200bath": "\u3000"}'),
        ({"path": "\\u200b"}, r'{"path": "\\u200b"}'),
        ({"a": "\x1b[2J"}, r'{"a": "\u001b[2J"}'),
    ],
)
def test_a_question_shows_the_arguments_exactly(given, shown):
    text = json.dumps(given, ensure_ascii=False)
    assert show_arguments(text) == shown
    assert json.loads(show_arguments(text)) == given


def test_an_edit_is_shown_as_a_difference():
    before = '{"amount": 7, "to": {"name": "shop", "tags": ["a", "b"]}, "gone": 1}'
    after = '{"amount": 40, "to": {"name": "sh\u200bop", "tags": ["a"]}, "new": null}'
    assert list_changes(before, after) == [
        "amount: 7 → 40",
        r'to.name: "shop" → "sh\u200bop"',
        'to.tags[1]: - "b"',
        "gone: - 1",
        "new: + null",
    ]
