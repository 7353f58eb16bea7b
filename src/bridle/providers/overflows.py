"""The size of a model's window, where a provider names it in refusing a prompt as too long."""

import re

_WINDOW = re.compile(
    r"maximum context length (?:is|of) (\d[\d,]*)"
    r"|context (?:window|length|size|limit)[^\d]{0,20}(\d[\d,]*) tokens"
    r"|context (?:window|length|size|limit) \((\d[\d,]*)|> (\d[\d,]*) maximum"
    r"|maximum prompt length is (\d[\d,]*)|number of tokens allowed \(?(\d[\d,]*)"
    r"|exceeded model token limit: (\d[\d,]*)",
    re.IGNORECASE,
)


def window_in(message: str) -> int | None:
    """The window in tokens that these words name; None when they name none."""
    found = _WINDOW.search(message)
    told = next((group for group in found.groups() if group), None) if found else None
    return int(told.replace(",", "")) if told else None
