"""Finds calls and results in a request's JSON that do not belong together, on any wire.

Providers refuse a call without a result and a result without a call, so we add the former and drop the
latter. To distinguish this from a loss, exactly these are removed on both sides before the comparison: orphan
results in the recorded request, and in ours the results added for unanswered calls.

Calls and results are recognized by their shape, which differs on every wire. Without ids they are paired by
name; a result with neither belongs to some call that cannot be determined.
"""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Literal, NamedTuple

_CALL_ID_FIELDS = {"tool_use": "id", "function_call": "call_id", "custom_tool_call": "call_id"}
_RESULT_ID_FIELDS = {
    "tool_result": "tool_use_id",
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
}
"""Field that holds the id, by the type of the object."""
_WRAPPED_KINDS: dict[str, tuple[Literal["call", "result"], tuple[str, ...]]] = {
    "toolUse": ("call", ("toolUseId",)),
    "toolResult": ("result", ("toolUseId",)),
    "functionCall": ("call", ("id", "name")),
    "function_call": ("call", ("id", "name")),
    "functionResponse": ("result", ("id", "name")),
    "function_response": ("result", ("id", "name")),
}
"""Objects that hold a call or a result under its kind."""


_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class UnpairedCalls(NamedTuple):
    orphan_results: list[Any]
    """Results without a call, or of a call that already has a result."""
    unanswered_calls: Counter[str]
    """Calls without a result, by id."""


def find_unpaired(body: Any) -> UnpairedCalls:
    unanswered: Counter[str] = Counter()
    orphans = []
    for kind, call_id, value in _list_calls_and_results(body):
        if kind == "call":
            unanswered[call_id] += 1
        elif unanswered[call_id] > 0:
            unanswered[call_id] -= 1
        elif call_id:
            orphans.append(value)
    return UnpairedCalls(orphans, +unanswered)


def drop_unpaired(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Drop orphan results from theirs, and from ours the results added for unanswered calls."""
    orphans, unanswered = find_unpaired(theirs)
    if _has_stored_history(theirs):
        orphans = []  # an orphan result may answer a call that the provider stores
    added = _find_added_results(theirs, ours, unanswered)
    return _drop_objects(theirs, orphans), _drop_objects(ours, added)


def renumber_calls(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Number the calls of both bodies in order, if theirs has ids that cannot be kept."""
    ids = Counter(
        call_id
        for kind, call_id, value in _list_calls_and_results(theirs)
        if kind == "call" and _find_id_field(value)
    )
    must_renumber = any(count > 1 or not _PLAIN_ID.fullmatch(call_id) for call_id, count in ids.items())
    return (_number_calls(theirs), _number_calls(ours)) if must_renumber else (theirs, ours)


def _number_calls(body: Any) -> Any:
    body = deepcopy(body)
    waiting: dict[str, deque[str]] = defaultdict(deque)
    for number, (kind, call_id, value) in enumerate(list(_list_calls_and_results(body))):
        if (place := _find_id_field(value)) is None:
            continue
        holder, name = place
        if kind == "call":
            holder[name] = f"call {number}"
            waiting[call_id].append(holder[name])
        elif waiting[call_id]:
            holder[name] = waiting[call_id].popleft()
    return body


def _find_id_field(value: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Return the object and field that hold the id of a call or result; None if it needs none."""
    named, function = value.get("type"), value.get("function")
    if value.get("role") == "tool":
        return value, "tool_call_id"
    if isinstance(function, dict) and "arguments" in function:
        return value, "id"
    if isinstance(named, str) and (known := _CALL_ID_FIELDS.get(named) or _RESULT_ID_FIELDS.get(named)):
        return value, known
    inner = value.get("toolUse") or value.get("toolResult")
    return (inner, "toolUseId") if isinstance(inner, dict) else None


def _has_stored_history(body: Any) -> bool:
    """True if part of the conversation is stored by the provider."""
    if not isinstance(body, dict):
        return False
    items = body.get("input")
    listed = items if isinstance(items, list) else []
    kept = any(isinstance(item, dict) and item.get("type") == "item_reference" for item in listed)
    return kept or bool(body.get("previous_response_id") or body.get("conversation"))


def describe_unpaired(theirs: Any) -> str:
    """Describe what does not belong together; empty if everything does."""
    orphans, unanswered = find_unpaired(theirs)
    ids = [
        call_id
        for kind, call_id, value in _list_calls_and_results(theirs)
        if any(value is each for each in orphans)
    ]
    lines = [f"the result for {call_id!r} answers no call" for call_id in ids]
    lines += [f"the call {call_id!r} had no result" for call_id in unanswered.elements()]
    return "; ".join(lines)


def _find_added_results(theirs: Any, ours: Any, unanswered: Counter[str]) -> list[Any]:
    """Find results in ours that were added for unanswered calls, no more than were missing."""
    existing = [value for kind, _, value in _list_calls_and_results(theirs) if kind == "result"]
    missing, added = Counter(unanswered), []
    for kind, call_id, value in _list_calls_and_results(ours):
        if kind == "result" and missing[call_id] > 0 and value not in existing:
            missing[call_id] -= 1
            added.append(value)
    return added


def _list_calls_and_results(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield calls and results in order: the kind, the id, and the object itself."""
    if isinstance(value, list):
        for each in value:
            yield from _list_calls_and_results(each)
    elif isinstance(value, dict):
        if (kind := _call_kind(value)) is not None:
            yield *kind, value
        else:
            for each in value.values():
                yield from _list_calls_and_results(each)


def _call_kind(value: dict[str, Any]) -> tuple[str, str] | None:
    named, function = value.get("type"), value.get("function")
    if value.get("role") == "tool":
        return "result", _read_id(value, "tool_call_id")
    if isinstance(function, dict) and "arguments" in function:
        return "call", _read_id(value, "id")
    if isinstance(named, str) and named in _CALL_ID_FIELDS:
        return "call", _read_id(value, _CALL_ID_FIELDS[named])
    if isinstance(named, str) and named in _RESULT_ID_FIELDS:
        return "result", _read_id(value, _RESULT_ID_FIELDS[named])
    for holder, (what, places) in _WRAPPED_KINDS.items():
        inner = value.get(holder)
        if isinstance(inner, dict):
            return what, next((known for place in places if (known := _read_id(inner, place))), "")
    return None


def _read_id(value: dict[str, Any], place: str) -> str:
    found = value.get(place)
    return found if isinstance(found, str) else "" if found is None else json.dumps(found)


def _drop_objects(value: Any, dropped: list[Any]) -> Any:
    if isinstance(value, list):
        return [_drop_objects(each, dropped) for each in value if not any(each is other for other in dropped)]
    if isinstance(value, dict):
        return {name: _drop_objects(each, dropped) for name, each in value.items()}
    return value
