"""What a refusal is about: providers name the item they stumble over, each in its own spelling.

    messages.3.content.1.image.source.base64: …       messages[3].content[1]: …
    input[4].content[0].image_url …                    contents[2].parts[0].inline_data …

The numbers along such a path are all that is read.  Some refusals of pictures and files name no
place at all; they are known by their words, and what they are about must be found by its age.
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


class RejectedItem(Value):
    path: tuple[int, ...] = ()
    """Which item of the conversation as it was sent, which piece of it, and so on inwards."""
    about_media: bool = False


def find_rejected_item(message: str, listed: str) -> RejectedItem | None:
    """What a refusal says it is about; `listed` is the wire's word for the conversation."""
    about_media = MEDIA_REJECTED_WORDS.search(message) is not None
    path = re.search(_ITEM_PATH.format(listed=re.escape(listed)), message)
    numbers = tuple(int(found) for found in _INDEX.findall(path.group(1))) if path else ()
    if not numbers and not about_media:
        return None
    return RejectedItem(path=numbers[:_STEPS_MAX], about_media=about_media)


# The size of a model's window, where a provider names it in refusing a prompt as too long.


_WINDOW = re.compile(
    r"maximum context length (?:is|of) (\d[\d,]*)"
    r"|context (?:window|length|size|limit)[^\d]{0,20}(\d[\d,]*) tokens"
    r"|context (?:window|length|size|limit) \((\d[\d,]*)|> (\d[\d,]*) maximum"
    r"|maximum prompt length is (\d[\d,]*)|number of tokens allowed \(?(\d[\d,]*)"
    r"|exceeded model token limit: (\d[\d,]*)",
    re.IGNORECASE,
)


def find_window_tokens(message: str) -> int | None:
    """The window in tokens that these words name; None when they name none."""
    found = _WINDOW.search(message)
    told = next((group for group in found.groups() if group), None) if found else None
    return int(told.replace(",", "")) if told else None


# Optional parameters that a server may refuse: a forced tool choice, and cache parameters.
#
# Gateways and servers of one's own often take only a part of a wire.  The field that they name decides
# (`param`, a field violation); their words decide where they name no field.


_PARAMETER_PATTERNS: dict[OptionalParameter, re.Pattern[str]] = {
    "tool_choice": re.compile(r"tool[ _]?choice|function[ _]?calling[ _]?config", re.IGNORECASE),
    "cache": re.compile(
        r"cache[ _]?(?:control|point)|prompt[ _]cach(?:ing|e[ _](?:key|retention|options|breakpoint))",
        re.IGNORECASE,
    ),
}
_EMPTY_FIELD_NAMES = ("", "None", "null")
"""Some gateways write the absence of a field as a word."""


def find_rejected_parameter(message: str, error: Mapping[str, Any] | None = None) -> OptionalParameter | None:
    """The optional parameter that a refusal is about; None when it is about something else."""
    fields = " ".join(_named_fields(error or {}))
    said = fields or message
    return next((name for name, pattern in _PARAMETER_PATTERNS.items() if pattern.search(said)), None)


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
