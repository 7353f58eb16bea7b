"""Text, JSON and HTML that are safe to store, send and print.

An unpaired surrogate (half of a character) cannot be encoded as UTF-8. One of them in a stored message would
make every later request fail, so text is repaired on input: pairs are joined, the rest is replaced.

Foreign text is printed only through `escape_text`: terminals interpret control characters, and readers cannot
see invisible ones. Warnings have no messages of exceptions, which stay in the session's log (`locate_error`).

JSON written by a model is parsed only here. Deeply nested text is rejected in one place, so that validation,
permission, receipts and progress agree and none of them overflows the stack.

HTML shows messages and results in notebooks. The text of a model, a tool or a person is untrusted: all of it is
escaped, control and invisible characters included, and stands in `pre`, which no notebook searches for
mathematics or Markdown. Nothing is fetched: a URL is shown as text, and a picture only if its data is in the
message. The functions take the JSON form of messages (`msgspec.to_builtins`), so that message.py can use them.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that are invisible on a screen."""
BLANK_PATTERN = "\u2800"
"""A pattern of Braille without dots, which looks like a space."""
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


def locate_error(error: BaseException) -> str:
    """Type and place of an exception, for a warning: its message may contain personal data or a key."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return type(error).__name__
    file = re.split(r"[\\/]", place.tb_frame.f_code.co_filename)[-1]
    return f"{type(error).__name__} at {file}:{place.tb_lineno}"


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
    # guard: invisible-text-escaped
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
    if unicodedata.category(letter) == "Zs" or letter == BLANK_PATTERN:
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


JsonObject = Mapping[str, Any]
# not from outside: our own text, shown to a person or a model
HTML_CHARACTERS_MAX = 20_000
"""Longer texts are cut: a page with megabytes of a tool's output cannot be used."""
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types that cannot contain a program."""
BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_FRAME = "margin:0.3em 0;padding:0.2em 0.7em;border-left:3px solid {};font-size:90%"
_PRE = "margin:0.2em 0;white-space:pre-wrap;overflow-wrap:anywhere;background:none;border:0;padding:0"
_COLOURS = {"user": "#4c78a8", "assistant": "#54a24b", "tool": "#e8a838", "system": "#888"}
_ERROR = "#d62728"


def render_messages(messages: Iterable[JsonObject]) -> str:
    return _wrap("".join(_render_message(message) for message in messages))


def render_result(result: JsonObject, messages: Iterable[JsonObject]) -> str:
    """The outcome of a run: how it ended, its answer, and the conversation, folded."""
    done, shown = result["stop"] == "done", list(messages)
    facts = " · ".join(_escape_html(fact) for fact in result["facts"] if fact)
    colour = _COLOURS["assistant"] if done else _ERROR
    head = f"<b>{_escape_html(result['stop'])}</b> · {facts}"
    reason = _pre(result["reason"]) if result["reason"] else ""
    folded = _fold(f"{len(shown)} messages", "".join(map(_render_message, shown)))
    return _wrap(_frame(colour, head, reason + _pre(result["text"])) + folded)


def render_note(text: str, *, is_error: bool = False) -> str:
    """One line beside the conversation, such as a tool that is running."""
    return _wrap(_frame(_ERROR if is_error else "#888", _escape_html(text), ""))


def _render_message(message: JsonObject) -> str:
    role = message.get("role", "")
    body = "".join(_render_part(part) for part in message.get("parts", ()))
    return _frame(
        _COLOURS.get(role, "#888"), f"<b>{_escape_html(role)}</b> {_escape_html(message.get('id', ''))}", body
    )


def _render_part(part: JsonObject) -> str:
    match part.get("type"):
        case "text":
            return _pre(part.get("text", ""))
        case "reasoning":
            hidden = "(not shown by the provider)"
            return _fold("reasoning", _pre(part.get("text") or hidden))
        case "tool_call":
            return _pre(f"{part.get('name', '')}({part.get('arguments', '')})", f"{part.get('id', '')} → ")
        case "tool_result":
            outcome = part.get("outcome", "ok")
            inner = "".join(_render_part(each) for each in part.get("parts", ()))
            return _pre("" if outcome == "ok" else outcome, f"{part.get('call_id', '')} ← ") + inner
        case "media":
            return _render_media(part)
        case _:
            return _pre(part.get("text", ""), f"[{part.get('kind', 'part')}] ")


def _render_media(part: JsonObject) -> str:
    media_type, data = part.get("media_type", ""), part.get("data", "")
    label = " ".join(filter(None, (part.get("kind", ""), media_type, part.get("name", ""))))
    place = part.get("url") or part.get("file_id") or f"{len(data) * 3 // 4:,} bytes"
    if media_type in PICTURE_TYPES and data and BASE64.issuperset(data):
        source = f"data:{media_type};base64,{data}"
        return f'<img alt="{_escape_html(label)}" src="{source}" style="max-width:24em;max-height:24em">'
    return _pre(f"[{label}: {place}]")


def _pre(text: str, lead: str = "") -> str:
    cut = len(text) - HTML_CHARACTERS_MAX
    shown = _escape_html(text[:HTML_CHARACTERS_MAX]) + (
        f"\n<i>… {cut:,} more characters</i>" if cut > 0 else ""
    )
    opening = f"<b>{_escape_html(lead)}</b>" if lead else ""
    return f'<pre style="{_PRE}">{opening}{shown}</pre>' if shown or opening else ""


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{_escape_html(title)}</summary>{body}</details>"


def _frame(colour: str, head: str, body: str) -> str:
    return f'<div style="{_FRAME.format(colour)}"><div style="opacity:0.75">{head}</div>{body}</div>'


def _wrap(body: str) -> str:
    return f'<div class="bridle tex2jax_ignore mathjax_ignore">{body}</div>'


def _escape_html(text: str) -> str:
    return escape_text(text, prose=True).translate(_ENTITIES)
