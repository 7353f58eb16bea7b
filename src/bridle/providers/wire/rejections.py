"""Finds the item, parameter or limit that a provider's error message is about.

Providers name the rejected item in different spellings:

    messages.3.content.1.image.source.base64: …       messages[3].content[1]: …
    input[4].content[0].image_url …                    contents[2].parts[0].inline_data …

Only the numbers of such a path are used. Some errors about images and files name no item; they are recognised
by their wording, and the caller has to find the item by its age.

Gateways and self-hosted servers often support only a part of a wire. The optional parameter they refuse (a
forced tool choice, cache parameters) is taken from the field they name (`param`, a field violation), or from
the wording if they name none.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bridle.values.base import Value
from bridle.values.errors import OptionalParameter

_STEPS_MAX = 3
_INDEX = re.compile(r"(?:\.|\[)(\d{1,6})\]?")
_ITEM_PATH = r"(?<!\w){listed}((?:\.\w+|\[\d+\])+)"
MEDIA_REJECTED_WORDS = re.compile(
    r"could not process (?:the )?(?:image|pdf|document|file)"
    r"|(?:image|picture|pdf|document|video|audio|file)[^.]{0,80}"
    r"(?:not valid|invalid|unsupported|not supported|corrupt|cannot be (?:read|decoded)"
    r"|too (?:large|many)|exceed)"
    r"|(?:invalid|unsupported|failed to (?:decode|download|process|load))[^.]{0,60}"
    r"(?:image|pdf|document|media|file|base64)"
    r"|unable to (?:process|download|decode)[^.]{0,60}(?:image|input|media|file)",
    re.IGNORECASE,
)


class RejectedItem(Value, kw_only=True):
    path: tuple[int, ...] = ()
    """Index of the item in the conversation as sent, index of the piece in it, and so on inwards."""
    about_media: bool = False


def find_rejected_item(message: str, listed: str) -> RejectedItem | None:
    """Return the item a message refers to; `listed` is the wire's field for the conversation."""
    about_media = MEDIA_REJECTED_WORDS.search(message) is not None
    path = re.search(_ITEM_PATH.format(listed=re.escape(listed)), message)
    numbers = tuple(int(found) for found in _INDEX.findall(path.group(1))) if path else ()
    if not numbers and not about_media:
        return None
    return RejectedItem(path=numbers[:_STEPS_MAX], about_media=about_media)


_WINDOW = re.compile(
    r"maximum context length (?:is|of) (\d[\d,]*)"
    r"|context (?:window|length|size|limit)[^\d]{0,20}(\d[\d,]*) tokens"
    r"|context (?:window|length|size|limit) \((\d[\d,]*)|> (\d[\d,]*) maximum"
    r"|maximum prompt length is (\d[\d,]*)|number of tokens allowed \(?(\d[\d,]*)"
    r"|exceeded model token limit: (\d[\d,]*)",
    re.IGNORECASE,
)


def find_window_tokens(message: str) -> int | None:
    """Return the context window in tokens that a message names; None if it names none."""
    found = _WINDOW.search(message)
    digits = next((group for group in found.groups() if group), None) if found else None
    return int(digits.replace(",", "")) if digits else None


_PARAMETER_PATTERNS: dict[OptionalParameter, re.Pattern[str]] = {
    "tool_choice": re.compile(r"tool[ _]?choice|function[ _]?calling[ _]?config", re.IGNORECASE),
    "cache": re.compile(
        r"cache[ _]?(?:control|point)|prompt[ _]cach(?:ing|e[ _](?:key|retention|options|breakpoint))",
        re.IGNORECASE,
    ),
}
_EMPTY_FIELD_NAMES = ("", "None", "null")
"""Words that some gateways write instead of omitting the field."""


def find_rejected_parameter(message: str, error: Mapping[str, Any] | None = None) -> OptionalParameter | None:
    """Return the optional parameter that an error is about; None if it is about something else."""
    fields = " ".join(_named_fields(error or {}))
    searched = fields or message
    return next((name for name, pattern in _PARAMETER_PATTERNS.items() if pattern.search(searched)), None)


def _named_fields(error: Mapping[str, Any]) -> Iterator[str]:
    named = error.get("param")
    if isinstance(named, str) and named not in _EMPTY_FIELD_NAMES:
        yield named
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        violations = detail.get("fieldViolations") if isinstance(detail, dict) else None
        for violation in violations if isinstance(violations, list) else ():
            field = violation.get("field") if isinstance(violation, dict) else None
            if isinstance(field, str) and field:
                yield field
