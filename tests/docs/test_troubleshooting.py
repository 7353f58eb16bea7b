"""The messages that docs/troubleshooting.md explains are those of the source."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.compile(r"^\| (`{1,2} ?)(.+?)\1(?:, | \(| \|)", re.MULTILINE)
PLACEHOLDER = re.compile(r"…|`|'[^']*'|\b[A-Z_]{2,}\b|\b[NT]\b|\banthropic:|ValueError.*|RuntimeWarning: ")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
MESSAGES = [
    found[1]
    for section in SECTIONS
    if not section.startswith("A run ends")
    for found in QUOTED.findall(section)
]


@cache
def read_texts() -> str:
    """Every text of the source, one per line, with a mark in place of what is filled in."""
    texts = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            if isinstance(node, ast.JoinedStr):
                pieces = [each.value if isinstance(each, ast.Constant) else "\0" for each in node.values]
                texts.append("".join(map(str, pieces)))
    return "\n".join(texts)


def test_there_are_messages_to_compare():
    assert len(MESSAGES) > 25


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_source(message):
    pieces = [piece.strip(" ;:") for piece in PLACEHOLDER.split(message)]
    for piece in pieces:
        assert piece in read_texts(), f"{piece!r} of {message!r} is in no text of src"
