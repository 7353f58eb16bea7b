"""Removes content from the data of a record, in a form that can still be read, folded and sent.

A text becomes a placeholder, arguments of a call become a JSON object with the placeholder, an image or a
provider's own item becomes text. What only the provider can read (signatures, native forms) is dropped, because it
may hold the same content. Names, ids, times, usage and outcomes stay.
"""

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from bridle.values.errors import MisuseError
from bridle.values.events import Event, UnknownEvent
from bridle.values.record import decode_event

REMOVED = "[This content was removed from the record.]"
REMOVED_ARGUMENTS = msgspec.json.encode({"removed": REMOVED}).decode()
ARGUMENT_FIELDS = ("arguments", "asked_arguments")
TEXT_FIELDS = (
    "text", "message", "partial_text", "summary", "instructions", "replacement", "preview", "output", "changed",
    "reason",
)  # fmt: skip
"""Fields that hold content of users, models and tools in the events of a log."""
DROPPED_FIELDS = {"native": None, "signature": "", "stored_result": None}
KEPT_FIELDS = ("model", "models", "skipped_models", "usage", "origin", "budget", "policy", "latency")
"""Fields that hold no content of users, models or tools, at any depth."""
REPLACED_PARTS = ("media", "opaque")
"""Types of parts that are content as a whole; text takes their place."""


class RedactedBody(NamedTuple):
    data: bytes
    event: Event
    digest: str
    """SHA-256 of the data before."""
    removed: tuple[str, ...]
    """Texts that were removed."""


def redact_data(seq: int, data: bytes, path: str = "") -> RedactedBody:
    """Data of a record without the content of one field (`result.parts.0.text`), or without any content.

    Raises `MisuseError` if there is no such field, or if the record could not be read without it.
    """
    before, tree = decode_event(data), msgspec.json.decode(data)
    if before is None or isinstance(before, UnknownEvent):
        raise MisuseError(f"record {seq} was written by a newer Bridle: upgrade to redact it")
    removed: list[str] = []
    changed = _redact_path(tree, path.split("."), removed, seq, path) if path else _redact(tree, removed)
    body = msgspec.json.encode(changed)
    after = decode_event(body)
    if not removed:
        raise MisuseError(f"record {seq} has no content to remove{f' at {path}' if path else ''}")
    if after is None or type(after) is not type(before) or after.unique_key != before.unique_key:
        raise MisuseError(
            f"{path or 'its content'} of record {seq} cannot be removed: the log would be unreadable"
        )
    return RedactedBody(body, after, sha256(data).hexdigest(), tuple(removed))


def _redact_path(tree: Any, names: list[str], removed: list[str], seq: int, path: str) -> Any:
    name, *rest = names
    is_list = isinstance(tree, list) and name.isdecimal() and int(name) < len(tree)
    if not is_list and not (isinstance(tree, dict) and name in tree):
        known = ", ".join(
            map(str, tree if isinstance(tree, dict) else range(len(tree) if isinstance(tree, list) else 0))
        )
        raise MisuseError(f"record {seq} has no field {path!r}: at {name!r} there are {known or 'no fields'}")
    key: Any = int(name) if is_list else name
    if rest:
        inner = _redact_path(tree[key], rest, removed, seq, path)
    elif isinstance(tree[key], str):
        inner = _redact_text(name, tree[key], removed)
    else:
        inner = _redact(tree[key], removed)
    if isinstance(tree, list):
        return [*tree[:key], inner, *tree[key + 1 :]]
    return {**tree, **_dropped(tree), key: inner}


def _redact(tree: Any, removed: list[str]) -> Any:
    """The tree without content at any depth."""
    if isinstance(tree, list):
        return [_redact(each, removed) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("type") in REPLACED_PARTS:
        removed.extend(value for name, value in tree.items() if isinstance(value, str) and name != "type")
        return {"type": "text", "text": REMOVED}
    inner = {
        name: _redact_text(name, value, removed)
        if isinstance(value, str) and name in (*TEXT_FIELDS, *ARGUMENT_FIELDS)
        else value
        if name in KEPT_FIELDS
        else _redact(value, removed)
        for name, value in tree.items()
    }
    return {**inner, **_dropped(tree)}


def _redact_text(name: str, text: str, removed: list[str]) -> str:
    if not text or text in (REMOVED, REMOVED_ARGUMENTS):
        return text
    removed.append(text)
    return REMOVED_ARGUMENTS if name in ARGUMENT_FIELDS else REMOVED


def _dropped(tree: dict[str, Any]) -> dict[str, Any]:
    """Fields that may hold the same content in another form; an opaque item is nothing but its native form."""
    return {
        name: empty
        for name, empty in DROPPED_FIELDS.items()
        if name in tree and tree.get("type") not in REPLACED_PARTS
    }
