"""Field checks as rows of a table: a path, a demand, and what differs from the usual rule.

Every provider checks the same few properties of a field before it looks at what the request means: presence,
JSON type, allowed values, size, length. They differ in how they write a place and in the message. So one
checker serves all families: each gives it an `ErrorStyle` and lists its fields, and each row becomes a rule.

A path is written `tools[].function.name`, with `[]` for every member of a list.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from .engine import ProviderRule, RawRequest, RuleFinding
from .raw_request import JsonObject, RuleFinder, as_list, as_mapping, is_number

ObjectFilter = Callable[[JsonObject], bool]
JSON_TYPES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
    tuple: "array",
}
"""What JSON calls a value.  By the exact type: true is no integer."""


NO_FIELDS: JsonObject = {}


class FieldPlace(NamedTuple):
    path: str
    value: object
    parent: JsonObject
    """What it stands in."""
    parent_path: str
    """Where that stands."""
    is_present: bool = True


class FieldMessage(NamedTuple):
    text: str
    code: str


def _same_name(name: str) -> str:
    return name


def _is_of_type(value: object, kinds: Sequence[str]) -> bool:
    return JSON_TYPES[type(value)] in kinds


def _no_details(value: object, expected: str) -> RuleFinding:
    return {}


def join_quoted(values: Sequence[object], last: str = "and") -> str:
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return f" {last} ".join(quoted)
    return f"{', '.join(quoted[:-1])}, {last} {quoted[-1]}"


OWN_TYPE_NAMES = {kind: kind for kind in JSON_TYPES.values()}


class ErrorStyle(NamedTuple):
    """How a family checks and tells."""

    rule: Callable[..., ProviderRule]
    messages: Mapping[str, FieldMessage]
    """By demand: type, value, required, fields, least, most, length, count, some, pattern.

    `{at}` and the like are blanks of the rule; `<expected>` and `<noun>` are filled when it is made.
    """
    expected_names: Mapping[str, str]
    """The kinds it may ask for, in its own words."""
    given_names: Mapping[str, str] = OWN_TYPE_NAMES
    """The kinds it may be given, in its own words."""
    index_format: str = "[{}]"
    first_index: int = 0
    """How it counts the members of a list, and from what."""
    spell_name: Callable[[str], str] = _same_name
    """How it writes names in places; a body may use either spelling."""
    null_is_absent: bool = False
    """Whether a null is as good as nothing anywhere; where it is not, kinds have to name it."""
    null_is_missing: bool = True
    """Whether a null where something has to be is told as nothing, and not as something else."""
    is_of_type: Callable[[object, Sequence[str]], bool] = _is_of_type
    describe_mismatch: Callable[[object, str], RuleFinding] = _no_details
    """What else it tells of a value that was to be something else."""
    join_values: Callable[[Sequence[object]], str] = join_quoted
    param: str = ""
    """Which blank of a sentence names the field at fault."""


def _always(holder: JsonObject) -> bool:
    return True


class FieldRow(NamedTuple):
    """What a row may say beside its demand."""

    id: str = ""
    only: ObjectFilter = _always
    """The objects around it that the demand is about."""
    at: str = ""
    """The place as it is told, where the path does not say it: in a union the chosen kind is part of it."""
    evidence: str = "F"
    models: str = "all"
    param: str = ""
    """Which field is blamed, where it is another."""
    words: str = ""
    """A sentence of its own."""


DEFAULT_ROW = FieldRow()
FieldCheck = Callable[[FieldPlace], RuleFinding | None]


def find_places(voice: ErrorStyle, body: JsonObject, path: str) -> Iterator[FieldPlace]:
    """Every place in a body that a path means, whether or not something stands there."""
    found = [FieldPlace("", body, {}, "")]
    for step in path.split("."):
        name = step.removesuffix("[]")
        found = [_member_place(voice, spot, name) for spot in found if isinstance(spot.value, dict)]
        if step != name:
            found = [inner for spot in found for inner in _item_places(voice, spot)]
    yield from found


def _member_place(voice: ErrorStyle, spot: FieldPlace, name: str) -> FieldPlace:
    holder = as_mapping(spot.value)
    key = name if name in holder else voice.spell_name(name)
    at = f"{spot.path}.{voice.spell_name(name)}".lstrip(".")
    return FieldPlace(at, holder.get(key), holder, spot.path, key in holder)


def _item_places(voice: ErrorStyle, spot: FieldPlace) -> Iterator[FieldPlace]:
    for count, value in enumerate(as_list(spot.value), voice.first_index):
        yield FieldPlace(spot.path + voice.index_format.format(count), value, spot.parent, spot.path)


class FieldRules:
    """Makes rules from rows: each method is one demand on the field at a path."""

    def __init__(self, style: ErrorStyle) -> None:
        self.style = style

    def of_type(
        self, path: str, kinds: str, row: FieldRow = DEFAULT_ROW, *, expected: str = ""
    ) -> ProviderRule:
        """A present value has one of these JSON types (`string|array`)."""
        style, allowed = self.style, _split_types(kinds)
        words = expected or style.expected_names[kinds.removesuffix("|null")]

        def judge(place: FieldPlace) -> RuleFinding | None:
            absent = place.value is None and style.null_is_absent
            if not place.is_present or absent or style.is_of_type(place.value, allowed):
                return None
            shown = msgspec.json.encode(place.value).decode()
            got = style.given_names[JSON_TYPES[type(place.value)]]
            return {"got": got, "shown": shown, **style.describe_mismatch(place.value, words)}

        return self._make_field_rule("type", path, judge, row, filled={"expected": words})

    def one_of(self, path: str, values: Sequence[str], row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            odd = isinstance(place.value, str) and place.value not in values
            return {"value": place.value} if odd else None

        filled = {"expected": self.style.join_values(values)}
        return self._make_field_rule("value", path, judge, row, filled=filled)

    def required(self, path: str, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            missing = place.value is None and (self.style.null_is_missing or not place.is_present)
            return {} if missing else None

        return self._make_field_rule("required", path, judge, row)

    def minimum(self, path: str, least: float, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            return {"value": place.value} if is_number(place.value) and place.value < least else None

        filled = {"expected": f"{least:g}", "noun": _number_noun(least)}
        return self._make_field_rule("least", path, judge, row, filled=filled)

    def maximum(self, path: str, most: float, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            return {"value": place.value} if is_number(place.value) and place.value > most else None

        filled = {"expected": f"{most:g}", "noun": _number_noun(most)}
        return self._make_field_rule("most", path, judge, row, filled=filled)

    def max_length(self, path: str, most: int, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            words = place.value if isinstance(place.value, str) else ""
            return {"length": len(words)} if len(words) > most else None

        return self._make_field_rule("length", path, judge, row, filled={"expected": most})

    def max_items(self, path: str, most: int, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            count = len(as_list(place.value))
            return {"length": count} if count > most else None

        row = row._replace(id=row.id or _rule_id(path, "most"))
        return self._make_field_rule("count", path, judge, row, filled={"expected": most})

    def not_empty(self, path: str, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        def judge(place: FieldPlace) -> RuleFinding | None:
            return {} if place.value in ([], ()) else None

        return self._make_field_rule("some", path, judge, row)

    def pattern(self, path: str, pattern: str, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        regex = re.compile(pattern)

        def judge(place: FieldPlace) -> RuleFinding | None:
            odd = isinstance(place.value, str) and not regex.search(place.value)
            return {"pattern": pattern} if odd else None

        return self._make_field_rule("pattern", path, judge, row)

    def only_fields(self, path: str, names: Sequence[str], row: FieldRow = DEFAULT_ROW) -> ProviderRule:
        """The objects at a path have no members but these; an empty path is the body itself."""
        style = self.style
        spellings = {*names, *map(style.spell_name, names)}

        def find(request: RawRequest) -> RuleFinding | None:
            whole = (FieldPlace("", request.body, {}, ""),)
            for place in find_places(style, request.body, path) if path else whole:
                for name in as_mapping(place.value):
                    if name not in spellings and row.only(as_mapping(place.value)):
                        return {"at": f"{place.path}.{name}".lstrip("."), "name": name, "inside": place.path}
            return None

        row = row._replace(id=row.id or _rule_id(path, "fields"))
        return self._make_rule(row, find, style.messages["fields" if path else "fields-of-all"])

    def _make_field_rule(
        self, demand: str, path: str, judge: FieldCheck, row: FieldRow, *, filled: JsonObject = NO_FIELDS
    ) -> ProviderRule:
        style = self.style

        def find(request: RawRequest) -> RuleFinding | None:
            for place in find_places(style, request.body, path):
                found = judge(place) if row.only(place.parent) else None
                if found is not None:
                    return {"at": row.at or place.path, "inside": place.parent_path, **found}
            return None

        words, code = style.messages[demand]
        words = row.words or words
        for blank, filling in filled.items():
            words, code = (text.replace(f"<{blank}>", str(filling)) for text in (words, code))
        row = row._replace(id=row.id or _rule_id(path, demand))
        return self._make_rule(row, find, FieldMessage(words, code))

    def _make_rule(self, row: FieldRow, find: RuleFinder, message: FieldMessage) -> ProviderRule:
        made: ProviderRule = self.style.rule(
            row.id,
            find,
            message.text,
            code=message.code,
            evidence=row.evidence,
            models=row.models,
            param=row.param or self.style.param,
        )
        return made


def _split_types(kinds: str) -> tuple[str, ...]:
    names = kinds.split("|")
    return (*names, "integer") if "number" in names else tuple(names)


def _number_noun(limit: float) -> str:
    return "integer" if isinstance(limit, int) else "decimal"


def _rule_id(path: str, suffix: str) -> str:
    name = "-".join(step.removesuffix("[]") for step in path.split("."))
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", f"{name}-{suffix}").lower().lstrip("-")
