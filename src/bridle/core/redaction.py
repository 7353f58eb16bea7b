"""Removes content from the data of a record, in a form that can still be read, folded and sent.

A text becomes a placeholder, arguments of a call become a JSON object with the placeholder, an image or a
provider's own item becomes text. What only the provider can read (signatures, native forms) is dropped, because it
may hold the same content. Names, ids, times, usage and outcomes stay.
"""

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from bridle.core.budget.limits import WRAP_UP_WHY
from bridle.values.calls import ContentRedacted
from bridle.values.errors import MisuseError
from bridle.values.events import Event, UnknownEvent
from bridle.values.record import decode_event

REMOVED = "[This content was removed from the record.]"
REMOVED_ARGUMENTS = msgspec.json.encode({"removed": REMOVED}).decode()
ERASED_CALLER = "[erased]"
"""Name of a caller whose data was erased from a log that stays."""
JSON_FIELDS = ("arguments", "asked_arguments", "content", "edited")
"""Fields with a JSON object as text."""
TEXT_FIELDS = (
    "text", "message", "partial_text", "summary", "instructions", "summary_words", "replacement", "preview", "output",
    "changed", "reason", "resource", "traceback",
)  # fmt: skip
"""Fields that hold content of users, models and tools in the events of a log."""
EXPLANATION_FIELDS = (
    "why", "error", "output_error", "write_error", "load_error", "stop_detail", "cache_miss_reason", "voids",
)  # fmt: skip
"""Explanations, which may quote content. They are removed, but not searched for in other records."""
LIST_FIELDS = ("facts", "repairs", "dropped_parts", "input_changes")
"""Lists of texts, or of lists of them."""
CONTENT_OF = {"server_asked": ("request",)}
"""Fields with a JSON object as text in events with this tag only; elsewhere the field is a hash."""
MARKS = ("output", "repeating", WRAP_UP_WHY)
"""Values of `Reprompted.why` that the loop depends on."""
DROPPED_FIELDS: dict[str, Any] = {
    "native": None, "signature": "", "stored_result": None, "raw": None, "native_parts": [], "native_origin": None,
}  # fmt: skip
KEPT_FIELDS = (
    "model", "models", "skipped_models", "usage", "origin", "budget", "policy", "latency", "tools", "hidden_tools",
    "added",
)  # fmt: skip
"""Fields that hold no content of users, models or tools, at any depth: counts, and definitions of models and tools."""
RAW = "raw."
"""Beginning of the paths of kept bytes; the field is a hash, and is emptied."""
REPLACED_PARTS = ("media", "opaque")
"""Types of parts that are content as a whole; text takes their place."""


class NoContent(MisuseError):
    """A record has no content to remove, or none any more."""


class RedactedBody(NamedTuple):
    data: bytes
    event: Event
    digest: str
    """SHA-256 of the data before."""
    removed: tuple[str, ...]
    """Texts that were removed."""


def redact_data(seq: int, data: bytes, path: str = "", caller: str = "") -> RedactedBody:
    """Data of a record without the content of one field (`result.parts.0.text`), or without any content.

    The name of `caller` is removed as well, wherever the record names its caller or an author.
    Raises `MisuseError` if there is no such field, or if the record could not be read without it.
    """
    before, tree = decode_event(data), msgspec.json.decode(data)
    if before is None or isinstance(before, UnknownEvent):
        raise MisuseError(f"record {seq} was written by a newer Bridle: upgrade to redact it")
    if isinstance(before, ContentRedacted):
        raise MisuseError(f"record {seq} says who removed content and why; it cannot be redacted itself")
    removed: list[str] = []
    changed = _redact_path(tree, path.split("."), removed, seq, path) if path else _redact(tree, removed)
    changed = _remove_caller(changed, caller) if caller else changed
    body = msgspec.json.encode(changed)
    after = decode_event(body)
    if changed == tree:
        raise NoContent(f"record {seq} has no content to remove")
    if after is None or type(after) is not type(before) or after.unique_key != before.unique_key:
        raise MisuseError(
            f"{path or 'its content'} of record {seq} cannot be removed: the log would be unreadable"
        )
    return RedactedBody(body, after, sha256(data).hexdigest(), tuple(removed))


def _remove_caller(tree: Any, caller: str) -> Any:
    """The tree without the name of this caller, as the caller of a run or the author of a message."""
    if isinstance(tree, list):
        return [_remove_caller(each, caller) for each in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        name: ERASED_CALLER if name in ("caller", "by") and value == caller else _remove_caller(value, caller)
        for name, value in tree.items()
    }


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
    else:
        inner = _redact_field(tree, key, path, removed)
        if inner == tree[key]:
            raise MisuseError(f"record {seq} has no content to remove at {path}")
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
        name: value
        if name in KEPT_FIELDS
        else _redact_text(tree, name, value, removed)
        if isinstance(value, str) and _is_content(tree, name)
        else _redact_list(value, removed)
        if name in LIST_FIELDS
        else _redact(value, removed)
        for name, value in tree.items()
    }
    return {**inner, **_dropped(tree)}


def _redact_field(tree: Any, key: Any, path: str, removed: list[str]) -> Any:
    """The field that a path names, without its content; a text is content whatever its name is."""
    value = tree[key]
    if isinstance(tree, dict) and key in _dropped(tree):
        return DROPPED_FIELDS[key]
    if isinstance(value, str):
        return "" if path.startswith(RAW) else _redact_text(tree, key, value, removed)
    return _redact_list(value, removed) if key in LIST_FIELDS else _redact(value, removed)


def _is_content(tree: dict[str, Any], name: str) -> bool:
    if name == "message" and "part" in tree:  # the id of the message that a `ViewChange` is about
        return False
    if name == "source" and "text" in tree:  # of a `Chunk`
        return True
    return name in (*TEXT_FIELDS, *EXPLANATION_FIELDS, *_list_json_fields(tree))


def _list_json_fields(tree: Any) -> tuple[str, ...]:
    return (*JSON_FIELDS, *CONTENT_OF.get(tree.get("type", ""), ())) if isinstance(tree, dict) else ()


def _redact_list(tree: Any, removed: list[str]) -> Any:
    """The same lists with every text removed."""
    if isinstance(tree, list):
        return [_redact_list(each, removed) for each in tree]
    return _redact_text(None, "", tree, removed) if isinstance(tree, str) else _redact(tree, removed)


def _redact_text(tree: Any, name: str, text: str, removed: list[str]) -> str:
    if not text or text in (REMOVED, REMOVED_ARGUMENTS) or (name == "why" and text in MARKS):
        return text
    if name not in EXPLANATION_FIELDS:
        removed.append(text)
    return REMOVED_ARGUMENTS if name in _list_json_fields(tree) else REMOVED


def _dropped(tree: dict[str, Any]) -> dict[str, Any]:
    """Fields that may hold the same content in another form; an opaque item is nothing but its native form."""
    return {
        name: empty
        for name, empty in DROPPED_FIELDS.items()
        if name in tree and not isinstance(tree[name], bool) and tree.get("type") not in REPLACED_PARTS
    }
