"""Calls and results in a request's JSON that do not belong together, whatever the wire.

Providers refuse a call without a result and a result without a call, so we answer the one and leave out
the other.  To tell this from a loss, exactly these are set aside on both sides: results nobody asked for
in the recorded request, and in ours the answers to calls that had none.  Everything else stays and is
compared.

Calls and results are known by their shape: each wire has one, and no two are alike.  Where they have no
ids they go by their names; a result with neither belongs to some call, and nobody here can tell to which.
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
"""Objects with a type, and where they have the id."""
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
    """Results of calls that nobody made, or that had one already."""
    unanswered_calls: Counter[str]
    """Calls without a result, by id."""


def find_unpaired(body: Any) -> UnpairedCalls:
    waiting: Counter[str] = Counter()
    strangers = []
    for what, known, value in _list_calls_and_results(body):
        if what == "call":
            waiting[known] += 1
        elif waiting[known] > 0:
            waiting[known] -= 1
        elif known:
            strangers.append(value)
    return UnpairedCalls(strangers, +waiting)


def drop_unpaired(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Both bodies without what does not belong together in theirs."""
    strangers, waiting = find_unpaired(theirs)
    if _has_stored_history(theirs):
        strangers = []  # what answers no call here may answer one that the provider keeps
    answers = _find_added_results(theirs, ours, waiting)
    return _drop_objects(theirs, strangers), _drop_objects(ours, answers)


def renumber_calls(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Both bodies with their calls numbered in order, when theirs has ids that cannot stay as they are."""
    ids = Counter(
        known
        for what, known, value in _list_calls_and_results(theirs)
        if what == "call" and _find_id_field(value)
    )
    odd = any(count > 1 or not _PLAIN_ID.fullmatch(known) for known, count in ids.items())
    return (_number_calls(theirs), _number_calls(ours)) if odd else (theirs, ours)


def _number_calls(body: Any) -> Any:
    body = deepcopy(body)
    waiting: dict[str, deque[str]] = defaultdict(deque)
    for number, (what, known, value) in enumerate(list(_list_calls_and_results(body))):
        if (place := _find_id_field(value)) is None:
            continue
        holder, name = place
        if what == "call":
            holder[name] = f"call {number}"
            waiting[known].append(holder[name])
        elif waiting[known]:
            holder[name] = waiting[known].popleft()
    return body


def _find_id_field(value: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Where a call or a result has the id it needs; None where it needs none."""
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
    """Whether part of the conversation is with the provider and not in the body."""
    if not isinstance(body, dict):
        return False
    items = body.get("input")
    listed = items if isinstance(items, list) else []
    kept = any(isinstance(item, dict) and item.get("type") == "item_reference" for item in listed)
    return kept or bool(body.get("previous_response_id") or body.get("conversation"))


def describe_unpaired(theirs: Any) -> str:
    """What does not belong together, in words; empty when all does."""
    strangers, waiting = find_unpaired(theirs)
    ids = [
        known
        for what, known, value in _list_calls_and_results(theirs)
        if any(value is each for each in strangers)
    ]
    words = [f"the result for {known!r} answers no call" for known in ids]
    words += [f"the call {known!r} had no result" for known in waiting.elements()]
    return "; ".join(words)


def _find_added_results(theirs: Any, ours: Any, waiting: Counter[str]) -> list[Any]:
    """The results in ours of calls that had none: as many as were missing, and none that was there before."""
    there = [value for what, _, value in _list_calls_and_results(theirs) if what == "result"]
    left, answers = Counter(waiting), []
    for what, known, value in _list_calls_and_results(ours):
        if what == "result" and left[known] > 0 and value not in there:
            left[known] -= 1
            answers.append(value)
    return answers


def _list_calls_and_results(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Calls and results in the order they stand: what it is, the id it goes by, and the object itself."""
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


def _drop_objects(value: Any, gone: list[Any]) -> Any:
    if isinstance(value, list):
        return [_drop_objects(each, gone) for each in value if not any(each is other for other in gone)]
    if isinstance(value, dict):
        return {name: _drop_objects(each, gone) for name, each in value.items()}
    return value
