"""Validates a call before it runs, and explains problems to the model.

Strict where a mistake could pass for a valid command: arguments must be one complete JSON object that
satisfies the tool's schema, formats included. Undeclared fields (argument_schema.py), duplicate names,
numbers out of range and text after the end are rejected. A truncated object is never completed by guessing:
half a command can be a valid command. The only exception: empty text is an empty object, because several
models call tools without parameters that way.

An `ArgumentProblem` is written for the model. It names each field by its path, states what was expected, and
suggests the nearest existing name, so that the next attempt succeeds.
"""

import difflib
import functools
import importlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import msgspec

from bridle.values.base import Value
from bridle.values.request import ToolSpec
from bridle.values.schema_limits import (
    BACKTRACKS_MAX,
    STEPS_MAX,
    check_schema_limits,
    count_validation_steps,
)
from bridle.values.text import JsonTooDeep, parse_json

from .argument_schema import ProblemWording, argument_wording, close_schema

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

PROBLEMS_MAX = 5
NAMES_MAX = 12
# not from outside: our own text, shown to a person or a model
SHOWN_CHARS_MAX = 60
VALIDATORS_MAX = 1024
_ERRORS_READ_MAX = 100
TOO_DEEP = "are nested too deeply to be checked"

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
PathStep = str | int


class ArgumentProblem(Value, kw_only=True):
    """Reason why a call was not run, as text for the model."""

    text: str
    kind: Literal["truncated", "malformed", "mismatch", "broken_tool"]


def check_arguments(
    spec: ToolSpec, arguments: str, wording: ProblemWording | None = None
) -> Mapping[str, Json] | ArgumentProblem:
    """The arguments as data, or the problem with them, phrased with `wording`."""
    phrases = wording or argument_wording(spec.name)
    try:
        parsed = parse_json(arguments or "{}")
    except ValueError as error:
        if not arguments.strip():
            return check_arguments(spec, "{}", phrases)
        return _explain_unreadable(phrases, arguments, error)
    if not isinstance(parsed, dict):
        # guard: arguments-are-object
        return _explain_malformed(phrases, f"must be a JSON object, not {_name_json_kind(parsed)}")
    try:
        # Every key has a colon: with as many colons as keys, no key is duplicated.
        duplicate = None if arguments.count(":") == len(parsed) else _find_duplicate_field(arguments)
    except (ValueError, RecursionError):
        return _explain_malformed(phrases, TOO_DEEP)
    if duplicate is not None:
        return _explain_malformed(phrases, f"give the field `{_shorten_name(duplicate)}` twice")
    if not spec.is_checked:
        return parsed
    try:
        validator = _load_validator(spec.parameters)
    except ValueError as error:
        why = _first_line(error)
        return ArgumentProblem(
            text=f"`{spec.name}` cannot be called: its schema is broken ({why}). Go on without it.",
            kind="broken_tool",
        )
    try:
        return parsed if validator.is_valid(parsed) else _explain_mismatch(spec, validator, parsed, phrases)
    except (ValueError, RecursionError):
        return _explain_malformed(phrases, TOO_DEEP)


def explain_unknown_tool(name: str, names: Iterable[str]) -> str:
    """Notice for a model that called an unknown tool."""
    known = list(names)
    label = _shorten_name(name)
    if not known:
        return f"There is no tool named `{label}`; there are no tools at all. Answer in words."
    near = _find_nearest(name, known)
    offer = f"Did you mean `{near}`?" if near else f"The tools are {_list_names(known)}."
    return f"There is no tool named `{label}`. {offer}"


@functools.lru_cache(maxsize=VALIDATORS_MAX)
def _load_closed_schema(schema: str) -> dict[str, Json]:
    data = msgspec.json.decode(schema)
    check_schema_limits(data, len(schema))
    return close_schema(data) if isinstance(data, dict) else data


@functools.lru_cache(maxsize=VALIDATORS_MAX)
def _load_validator(schema: str) -> "Validator":
    # Imported lazily: it loads slower than all of values and core, and a run without tools never needs it.
    # Offline, so that a schema can never make the core fetch anything.
    module = importlib.import_module("jsonschema_rs")
    try:
        # guard: schema-offline
        validator: Validator = module.validator_for(
            _load_closed_schema(schema),
            validate_formats=True,
            offline=True,
            pattern_options=module.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX),
        )
    except module.ReferencingError as error:
        raise ValueError(error.message) from error
    except RecursionError:
        raise ValueError("its definitions lead too deep into one another") from None
    return validator


# Text that is not JSON


def _explain_unreadable(words: ProblemWording, arguments: str, error: Exception) -> ArgumentProblem:
    if isinstance(error, JsonTooDeep):
        return _explain_malformed(words, "are nested too deeply")
    if "truncated" not in str(error):
        return _explain_malformed(
            words, f"are not valid JSON: {_first_line(error).removeprefix('JSON is malformed: ')}"
        )
    if _is_complete_json(arguments):
        return _explain_malformed(words, "contain half of a surrogate pair, which is not a character")
    return ArgumentProblem(text=f"{words.subject} {words.truncated}", kind="truncated")


def _is_complete_json(arguments: str) -> bool:
    """True if the JSON is complete; the decoder reports an unpaired surrogate as truncation, too."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _explain_malformed(words: ProblemWording, what: str) -> ArgumentProblem:
    return ArgumentProblem(text=f"{words.subject} {what}. {words.malformed_end}", kind="malformed")


def _find_duplicate_field(arguments: str) -> str | None:
    found: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        if len(pairs) != len({name for name, _ in pairs}):
            names = [name for name, _ in pairs]
            found.append(next(name for name in names if names.count(name) > 1))

    json.loads(arguments or "{}", object_pairs_hook=note)
    return found[0] if found else None


# JSON that violates the schema


def _explain_mismatch(
    spec: ToolSpec, validator: "Validator", value: object, words: ProblemWording
) -> ArgumentProblem:
    schema = _load_closed_schema(spec.parameters)
    # guard: validation-step-limit
    if count_validation_steps(schema, value) > STEPS_MAX:
        # Listing the errors of every alternative of a recursive schema is exponential in the depth of the value.
        text = f"{words.subject} {words.mismatch}\n- they are too complex for the errors to be listed"
        return ArgumentProblem(text=f"{text}\n{words.mismatch_end}", kind="mismatch")
    errors = itertools.islice(validator.iter_errors(value), _ERRORS_READ_MAX)
    lines = sorted(
        {(_error_order(error), line) for error in errors for line in _describe_error(error, schema)}
    )
    shown = [f"- {line}" for _, line in lines[:PROBLEMS_MAX]]
    if len(lines) > PROBLEMS_MAX:
        shown.append(f"- and {len(lines) - PROBLEMS_MAX} more")
    text = "\n".join([f"{words.subject} {words.mismatch}", *shown])
    return ArgumentProblem(text=f"{text}\n{words.mismatch_end}", kind="mismatch")


def _error_order(error: "ValidationError") -> tuple[int, str]:
    return len(error.instance_path), _format_path(error.instance_path)


def _describe_error(error: "ValidationError", schema: Json) -> list[str]:
    """One line per error; if no option of a union fits, the lines of the closest option."""
    keyword = error.kind.name
    if keyword in ("anyOf", "oneOf") and hasattr(error.kind, "context"):
        return _describe_closest_option(error, schema)
    describe = _DESCRIBERS.get(keyword)
    if describe is None:
        return [_locate_problem(error.instance_path, error.message)]
    return describe(error, schema)


def _describe_closest_option(error: "ValidationError", schema: Json) -> list[str]:
    options = cast("list[list[ValidationError]]", getattr(error.kind, "context", []))
    here = list(error.instance_path)
    candidates = [
        option for option in options if option and not any(_is_other_option(one, here) for one in option)
    ]
    if candidates:
        best = min(candidates, key=len)
        return [line for one in best for line in _describe_error(one, schema)]
    tags = [one for option in options for one in option if _is_tag(one, here)]
    if tags:
        where = list(tags[0].instance_path)
        wanted = [words for one in tags for words in _list_expected(one, where)]
        return [
            _locate_problem(
                where, f"expected {_join_alternatives(wanted)}, got {_show_value(tags[0].instance)}"
            )
        ]
    wanted = [words for option in options for one in option for words in _list_expected(one, here)]
    return [
        _locate_problem(
            here,
            f"expected {_join_alternatives(wanted)}, got {_show_value(error.instance)}"
            if wanted
            else error.message,
        )
    ]


def _is_other_option(error: "ValidationError", here: list[PathStep]) -> bool:
    """True if the error shows that another option was intended: its type or tag does not fit."""
    is_here = list(error.instance_path) == here
    return (is_here and error.kind.name in ("type", "const", "enum")) or _is_tag(error, here)


def _is_tag(error: "ValidationError", here: list[PathStep]) -> bool:
    """True for a direct member with one legal value, which distinguishes the options of a union."""
    options = getattr(error.kind, "options", [])
    fixed = error.kind.name == "const" or (error.kind.name == "enum" and len(options) == 1)
    return fixed and len(error.instance_path) == len(here) + 1


def _list_expected(error: "ValidationError", where: list[PathStep]) -> list[str]:
    if list(error.instance_path) != where:
        return []
    match error.kind.name:
        case "type":
            return [str(kind) for kind in getattr(error.kind, "types", [])]
        case "enum":
            return [_show_value(option) for option in getattr(error.kind, "options", [])]
        case "const":
            return [_show_value(getattr(error.kind, "expected_value", None))]
    return []


def _describe_missing(error: "ValidationError", schema: Json) -> list[str]:
    name = str(getattr(error.kind, "property", ""))
    field_schema = _find_properties(error, schema).get(name)
    kind = field_schema.get("type") if isinstance(field_schema, dict) else None
    hint = f" ({kind})" if isinstance(kind, str) else ""
    return [f"missing field `{_format_path([*error.instance_path, name])}`{hint}"]


def _describe_unknown(error: "ValidationError", schema: Json) -> list[str]:
    known = list(_find_properties(error, schema))
    lines: list[str] = []
    for name in cast("list[str]", getattr(error.kind, "unexpected", []))[:_ERRORS_READ_MAX]:
        # Comparing names is slow, and only the first few lines are shown.
        near = _find_nearest(name, known) if len(lines) < PROBLEMS_MAX else None
        hint = (
            f"did you mean `{near}`?"
            if near
            else f"the fields are {_list_names(known)}"
            if known
            else "none is allowed"
        )
        lines.append(f"unknown field `{_format_path([*error.instance_path, _shorten_name(name)])}`; {hint}")
    return lines


def _describe_wrong_type(error: "ValidationError", _: Json) -> list[str]:
    kinds = [str(kind) for kind in getattr(error.kind, "types", [])]
    return [
        _locate_problem(
            error.instance_path, f"expected {_join_alternatives(kinds)}, got {_show_value(error.instance)}"
        )
    ]


def _describe_wrong_choice(error: "ValidationError", _: Json) -> list[str]:
    options = cast("list[Json]", getattr(error.kind, "options", []))
    listed = _join_alternatives([_show_value(option) for option in options[:NAMES_MAX]])
    more = f" or one of {len(options) - NAMES_MAX} more" if len(options) > NAMES_MAX else ""
    near = _find_nearest(error.instance, [option for option in options if isinstance(option, str)])
    hint = f"; did you mean {_show_value(near)}?" if near and len(options) > 1 else ""
    return [
        _locate_problem(
            error.instance_path, f"expected {listed}{more}, got {_show_value(error.instance)}{hint}"
        )
    ]


def _describe_wrong_constant(error: "ValidationError", _: Json) -> list[str]:
    wanted = _show_value(getattr(error.kind, "expected_value", None))
    return [_locate_problem(error.instance_path, f"expected {wanted}, got {_show_value(error.instance)}")]


def _describe_wrong_format(error: "ValidationError", _: Json) -> list[str]:
    name = str(getattr(error.kind, "format", ""))
    wanted = _FORMAT_EXAMPLES.get(name, f"the format {name}")
    return [_locate_problem(error.instance_path, f"expected {wanted}, got {_show_value(error.instance)}")]


def _describe_wrong_name(error: "ValidationError", schema: Json) -> list[str]:
    inner = getattr(error.kind, "error", None)
    if inner is None:
        return [_locate_problem(error.instance_path, error.message)]
    reasons = [
        line.removeprefix(_locate_problem(inner.instance_path, "")) for line in _describe_error(inner, schema)
    ]
    return [
        _locate_problem(error.instance_path, f"has a key that is not allowed: {reason}") for reason in reasons
    ]


def _make_limit_describer(
    words: str, attribute: str = "limit"
) -> "Callable[[ValidationError, Json], list[str]]":
    def say(error: "ValidationError", _: Json) -> list[str]:
        limit = _show_value(getattr(error.kind, attribute, None))
        return [
            _locate_problem(
                error.instance_path, f"must {words.format(limit)}, got {_show_value(error.instance)}"
            )
        ]

    return say


_DESCRIBERS: "dict[str, Callable[[ValidationError, Json], list[str]]]" = {
    "required": _describe_missing,
    "additionalProperties": _describe_unknown,
    "unevaluatedProperties": _describe_unknown,
    "type": _describe_wrong_type,
    "enum": _describe_wrong_choice,
    "const": _describe_wrong_constant,
    "format": _describe_wrong_format,
    "propertyNames": _describe_wrong_name,
    "minimum": _make_limit_describer("be at least {}"),
    "maximum": _make_limit_describer("be at most {}"),
    "exclusiveMinimum": _make_limit_describer("be more than {}"),
    "exclusiveMaximum": _make_limit_describer("be less than {}"),
    "multipleOf": _make_limit_describer("be a multiple of {}", "multiple_of"),
    "minLength": _make_limit_describer("have at least {} characters"),
    "maxLength": _make_limit_describer("have at most {} characters"),
    "minItems": _make_limit_describer("have at least {} items"),
    "maxItems": _make_limit_describer("have at most {} items"),
    "minProperties": _make_limit_describer("have at least {} fields"),
    "maxProperties": _make_limit_describer("have at most {} fields"),
    "pattern": _make_limit_describer("match the pattern {}", "pattern"),
    "uniqueItems": _make_limit_describer("not contain an item twice"),
}
_FORMAT_EXAMPLES = {
    "date-time": "a moment such as 2026-05-01T10:00:00Z",
    "date": "a date such as 2026-05-01",
    "time": "a time such as 10:00:00Z",
    "duration": "a duration such as PT1H30M",
    "uuid": "a UUID such as 123e4567-e89b-12d3-a456-426614174000",
    "email": "an e-mail address",
    "uri": "a URI such as https://example.org",
}


# Wording


def _find_properties(error: "ValidationError", schema: Json) -> dict[str, Json]:
    """Fields of the object that violates the rule."""
    place = schema
    for step in error.schema_path[:-1]:
        if isinstance(place, list) and isinstance(step, int):
            place = place[step]
        elif isinstance(place, dict):
            place = place.get(str(step))
    found = place.get("properties") if isinstance(place, dict) else None
    return found if isinstance(found, dict) else {}


def _find_nearest(name: object, known: Sequence[str]) -> str | None:
    if not isinstance(name, str):
        return None
    by_normalized_name = {_normalize_name(other): other for other in reversed(known)}
    wanted = _normalize_name(name[:SHOWN_CHARS_MAX])
    if wanted in by_normalized_name:
        return by_normalized_name[wanted]
    close = difflib.get_close_matches(wanted, by_normalized_name, n=1, cutoff=0.6)
    return by_normalized_name[close[0]] if close else None


def _normalize_name(name: str) -> str:
    """Normalized name: names that differ only in case or word separators become equal."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _format_path(steps: Sequence[PathStep]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _shorten_name(name: str) -> str:
    name = _escape_line_breaks(name)
    return name if len(name) <= SHOWN_CHARS_MAX else name[:SHOWN_CHARS_MAX] + "…"


def _locate_problem(steps: Sequence[PathStep], what: str) -> str:
    return f"`{_format_path(steps)}`: {what}" if steps else f"the arguments: {what}"


def _show_value(value: object) -> str:
    text = _escape_line_breaks(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


def _escape_line_breaks(text: str) -> str:
    """Escape line breaks in text from a model, so that one problem stays one line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _name_json_kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _join_alternatives(words: Sequence[str]) -> str:
    distinct = sorted(dict.fromkeys(words), key="null".__eq__)
    return distinct[0] if len(distinct) == 1 else f"{', '.join(distinct[:-1])} or {distinct[-1]}"


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:NAMES_MAX])
    return f"{shown} and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else shown


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
