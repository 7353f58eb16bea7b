"""Text and JSON that are safe to store, send and print.

An unpaired surrogate (half of a character) cannot be encoded as UTF-8. One of them in a stored message would
make every later request fail, so text is repaired on input: pairs are joined, the rest is replaced.

Foreign text is printed only through `escape_text`: terminals interpret control characters, and readers cannot
see invisible ones.

JSON written by a model is parsed only here. Deeply nested text is rejected in one place, so that validation,
permission, receipts and progress agree and none of them overflows the stack.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any

import msgspec

IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that are invisible on a screen."""
PROSE_CHARACTERS = "\n\t\u200c\u200d\ufe0e\ufe0f"
"""Line ends, tabs, and joiners of letters and emoji, which prose needs."""
_NOT_ASCII = re.compile(r"[^ -~]")
_SPACES = re.compile(r"[ \t\r\n]+")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def describe_error(error: BaseException) -> str:
    """Message of an exception from foreign code, whose `__str__` may itself raise."""
    try:
        return repair_surrogates(str(error))
    except BaseException as second:  # noqa: BLE001 - not swallowed: the message names it
        return f"(its own message raised {type(second).__name__})"


def repair_surrogates(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def join_lines(text: str) -> str:
    """The text on one line; only plain white space is lost."""
    return _SPACES.sub(" ", text).strip(" ")


def escape_text(text: str, *, prose: bool = False, exact: bool = False) -> str:
    r"""Text for a screen: invisible and control characters are written as JSON escapes (`\u001b`).

    `prose` keeps line ends, tabs and joiners, for long model output. `exact` also escapes spaces other than
    the plain one, for text that a person approves. JSON text remains equivalent JSON.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = PROSE_CHARACTERS if prose else ""
    text = text.replace("\r\n", "\n") if prose else text
    escape = _escape_exactly if exact else _escape
    return _NOT_ASCII.sub(lambda found: found[0] if found[0] in kept else escape(found[0]), text)


@lru_cache(maxsize=4096)
def _escape(letter: str) -> str:
    if unicodedata.category(letter) not in _UNSEEN and not IGNORABLE.match(letter):
        return letter
    if letter in _SHORT:
        return _SHORT[letter]
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _escape_exactly(letter: str) -> str:
    if unicodedata.category(letter) == "Zs":
        return f"\\u{ord(letter):04x}"
    return _escape(letter)


NESTING_MAX = 100
"""Maximum nesting depth of objects and lists."""


class JsonTooDeep(ValueError):
    """Raised for JSON nested deeper than `NESTING_MAX`."""


def parse_json(text: str) -> Any:
    """Parse JSON text. Raises `ValueError` if it is not JSON, `JsonTooDeep` if nested too deeply."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise JsonTooDeep from None
    if _may_be_deep(text) and _is_deep(value):
        raise JsonTooDeep
    return value


def is_too_deep(text: str) -> bool:
    if _may_be_deep(text):
        try:
            parse_json(text)
        except ValueError as error:
            return isinstance(error, JsonTooDeep)
    return False


def _may_be_deep(text: str) -> bool:
    return len(text) > NESTING_MAX and text.count("[") + text.count("{") > NESTING_MAX


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(NESTING_MAX + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return False
        level = [
            member for each in containers for member in (each.values() if isinstance(each, dict) else each)
        ]
    return True
