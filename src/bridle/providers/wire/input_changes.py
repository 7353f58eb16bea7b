"""Describes what a provider says it changed in a request before the model read it (`input_transformations`)."""

from .json import text_or_empty

CHANGES_MAX = 20
"""Changes described one by one; a longer list is counted."""


def describe_input_changes(listed: object) -> tuple[str, ...]:
    """One sentence per change that a reply reports; empty if it reports none."""
    if not isinstance(listed, list):
        return ()
    found = [_describe_change(each) for each in listed[:CHANGES_MAX] if isinstance(each, dict)]
    more = len(listed) - CHANGES_MAX
    if more > 0:
        found.append(f"the provider changed {more} more parts of the request")
    return tuple(dict.fromkeys(found))


def _describe_change(change: dict[str, object]) -> str:
    kind, action, reason = (text_or_empty(change.get(name)) for name in ("type", "action", "reason"))
    place = text_or_empty(change.get("id")) or text_or_empty(change.get("path"))
    what = " ".join(filter(None, (kind or "a part", place, action)))
    return f"the provider changed the request: {what}" + (f" ({reason})" if reason else "")
