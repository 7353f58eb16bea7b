"""A call's arguments, on wires that want them as an object and not as text.

Our calls keep arguments as the text they arrived in.  Most of it is an object and goes out as it is
written.  The rest (arguments cut in two, a list, plain nonsense, objects nested too deeply to be run) has to
travel all the same, because a call that was answered cannot be left out: it becomes the one member of an
object that says so, and is taken out of it again on the way back.
"""

from typing import Any

from bridle.values.text import is_too_deep

from .json import dumps, is_object, loads, raw_json, repair_surrogates

INVALID_JSON_KEY = "INVALID_JSON"


def encode_arguments(arguments: str) -> Any:
    """The arguments as an object, spelled as they were wherever possible; none at all are an empty one."""
    if is_object(arguments) and not is_too_deep(arguments):
        return raw_json(arguments)
    if not arguments.strip():
        return {}
    try:
        value = None if is_too_deep(arguments) else loads(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON_KEY: repair_surrogates(arguments)}


def wrap_text(text: str, *, cut: bool = False) -> str:
    """The free text of a call as an object.  Text that was cut off leaves it open, so that it never runs."""
    written = dumps({"input": text}).decode()
    return written.removesuffix("}") if cut else written


def unwrap_text(arguments: str) -> str:
    """The free text in what `wrap_text` wrote; any other arguments as they are."""
    for written in (arguments, arguments + "}"):
        try:
            value = loads(written)
        except ValueError:
            continue
        given = value.get("input") if isinstance(value, dict) else None
        return given if isinstance(given, str) else arguments
    return arguments


def decode_arguments(written: str) -> str:
    """The arguments in an object that was written by `object_of`, or by anybody else."""
    if INVALID_JSON_KEY not in written:
        return written
    try:
        value = loads(written)
    except ValueError:
        return written
    only = value[INVALID_JSON_KEY] if isinstance(value, dict) and list(value) == [INVALID_JSON_KEY] else None
    return only if isinstance(only, str) else written


def parse_arguments(written: str) -> Any:
    """The value of arguments that came in pieces; text that is no JSON is wrapped."""
    if not written:
        return {}
    try:
        return loads(written)
    except ValueError:
        return {INVALID_JSON_KEY: written}
