"""Field checks as rows of a table: a path, a demand, and what differs from the usual rule.

Every provider checks the same few properties of a field before it looks at what the request means: presence,
JSON type, allowed values, size, length. They differ in how they write a place and in the message. So one
checker serves all families: each gives it an `ErrorStyle` and lists its fields, and each row becomes a rule.

A path is written `tools[].function.name`, with `[]` for every member of a list. A row with a condition of its
own (`refuse`) names the objects it looks at, the condition, and optionally the models it applies to.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bridle.values.model import Abilities

from .engine import ProviderRule, RawRequest, RuleFinding
from .raw_request import JsonObject, RuleFinder, as_list, as_mapping, is_number

ObjectFilter = Callable[[JsonObject], bool]
ObjectCondition = Callable[[JsonObject], object]
"""True for an object that is refused; a mapping adds values for the message."""
ModelFilter = Callable[[Abilities], object]
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
"""JSON names of Python types. By the exact type: true is not an integer."""


NO_FIELDS: JsonObject = {}


class FieldPlace(NamedTuple):
    path: str
    value: object
    parent: JsonObject
    """The object that contains it."""
    parent_path: str
    """Path of that object."""
    is_present: bool = True
    position: int = 0
    """Position in the list that contains it, counted from 0."""


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
    """The error messages and type checks of one family."""

    rule: Callable[..., ProviderRule]
    messages: Mapping[str, FieldMessage]
    """Messages by demand: type, value, required, fields, least, most, length, count, some, pattern.

    `{at}` and the like are blanks of the rule; `<expected>` and `<noun>` are filled when it is made.
    """
    expected_names: Mapping[str, str]
    """Names of the types it may demand."""
    given_names: Mapping[str, str] = OWN_TYPE_NAMES
    """Names of the types it may receive."""
    index_format: str = "[{}]"
    first_index: int = 0
    """Format and first number of list indexes in paths."""
    read_list: Callable[[object], Sequence[object]] = as_list
    """Returns the members of a list; empty for anything that the wire does not accept as one."""
    spell_name: Callable[[str], str] = _same_name
    """Spelling of names in paths; a body may use either spelling."""
    null_is_absent: bool = False
    """True if null is equal to absence everywhere; otherwise the types must include null."""
    null_is_missing: bool = True
    """True if null in a required field is reported as missing, and not as a wrong type."""
    is_of_type: Callable[[object, Sequence[str]], bool] = _is_of_type
    describe_mismatch: Callable[[object, str], RuleFinding] = _no_details
    """Additional values for the message about a wrong type."""
    join_values: Callable[[Sequence[object]], str] = join_quoted
    param: str = ""
    """Template of the offending field."""


def _always(holder: JsonObject) -> bool:
    return True


class FieldRow(NamedTuple):
    """Options of a row beside its demand."""

    id: str = ""
    only: ObjectFilter = _always
    """Selects the parent objects that the demand applies to."""
    at: str = ""
    """Path to report if it differs from the actual one: in a union it includes the chosen kind."""
    evidence: str = "F"
    models: str = "all"
    param: str = ""
    """The field to report, if it is another one."""
    words: str = ""
    """A message of its own."""


DEFAULT_ROW = FieldRow()
FieldCheck = Callable[[FieldPlace], RuleFinding | None]


def find_places(style: ErrorStyle, body: JsonObject, path: str) -> Iterator[FieldPlace]:
    """Yield every place in a body that a path matches, also where the field is absent.

    An empty path is the body itself.
    """
    found = [FieldPlace("", body, {}, "")]
    for step in path.split(".") if path else ():
        name = step.removesuffix("[]")
        found = [_member_place(style, place, name) for place in found if isinstance(place.value, dict)]
        if step != name:
            found = [inner for place in found for inner in _item_places(style, place)]
    yield from found


def _member_place(style: ErrorStyle, place: FieldPlace, name: str) -> FieldPlace:
    holder = as_mapping(place.value)
    key = name if name in holder else style.spell_name(name)
    at = f"{place.path}.{style.spell_name(name)}".lstrip(".")
    return FieldPlace(at, holder.get(key), holder, place.path, key in holder)


def _item_places(style: ErrorStyle, place: FieldPlace) -> Iterator[FieldPlace]:
    for count, value in enumerate(style.read_list(place.value)):
        path = place.path + style.index_format.format(count + style.first_index)
        yield FieldPlace(path, value, place.parent, place.path, position=count)


class FieldRules:
    """Makes rules from rows: each method is one demand on the field at a path."""

    def __init__(self, style: ErrorStyle) -> None:
        self.style = style

    def of_type(
        self, path: str, kinds: str, row: FieldRow = DEFAULT_ROW, *, expected: str = ""
    ) -> ProviderRule:
        """A present value has one of these JSON types (`string|array`)."""
        style, allowed = self.style, _split_types(kinds)
        expected_name = expected or style.expected_names[kinds.removesuffix("|null")]

        def judge(place: FieldPlace) -> RuleFinding | None:
            absent = place.value is None and style.null_is_absent
            if not place.is_present or absent or style.is_of_type(place.value, allowed):
                return None
            shown = msgspec.json.encode(place.value).decode()
            got = style.given_names[JSON_TYPES[type(place.value)]]
            return {"got": got, "shown": shown, **style.describe_mismatch(place.value, expected_name)}

        return self._make_field_rule("type", path, judge, row, filled={"expected": expected_name})

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
            text = place.value if isinstance(place.value, str) else ""
            return {"length": len(text)} if len(text) > most else None

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
            for place in find_places(style, request.body, path):
                for name in as_mapping(place.value):
                    if name not in spellings and row.only(as_mapping(place.value)):
                        return {"at": f"{place.path}.{name}".lstrip("."), "name": name, "inside": place.path}
            return None

        row = row._replace(id=row.id or _rule_id(path, "fields"))
        return self._make_rule(row, find, style.messages["fields" if path else "fields-of-all"])

    def refuse(
        self,
        id: str,  # noqa: A002  the word of `Rule`
        path: str,
        is_wrong: ObjectCondition,
        wording: str,
        *,
        evidence: str,
        models: str = "all",
        when: ModelFilter | None = None,
        code: str = "",
        param: str = "",
    ) -> ProviderRule:
        """Rule that refuses a request if `is_wrong` holds for an object at this path; an empty path is the body.

        With `when`, the rule applies only to known models whose abilities it accepts.
        """

        def find(request: RawRequest) -> RuleFinding | None:
            if when is not None and (request.abilities is None or not when(request.abilities)):
                return None
            for place in find_places(self.style, request.body, path):
                wrong = is_wrong(as_mapping(place.value))
                if wrong:
                    more = wrong if isinstance(wrong, Mapping) else NO_FIELDS
                    return {"at": place.path, "index": place.position, **more}
            return None

        own_code = {"code": code} if code else {}
        made: ProviderRule = self.style.rule(
            id, find, wording, evidence=evidence, models=models, param=param, **own_code
        )
        return made

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

        text, code = style.messages[demand]
        text = row.words or text
        for blank, filling in filled.items():
            text, code = (text.replace(f"<{blank}>", str(filling)) for text in (text, code))
        row = row._replace(id=row.id or _rule_id(path, demand))
        return self._make_rule(row, find, FieldMessage(text, code))

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
