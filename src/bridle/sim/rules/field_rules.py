"""Fields against their definitions, as rows: a path, a demand, a value that passes and one that does not.

Every provider checks the same few things of a field before it asks what the request means: whether it is
there, what kind of JSON it is, whether it is one of a list, how large, how long.  They differ in how
they write a place down and in the sentence.  So there is one checker for all of them.  A family lends it a
`Voice` and lists its fields; each row becomes a rule with an id, its sentence and its examples.

A path is written `tools[].function.name`, with `[]` for every member of a list.  Examples are made
of the row alone and never by what a rule runs, so that a rule which looks wrongly is found out by them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bridle.values.model import Abilities

from .engine import ProviderRule, RawRequest, RuleFinding
from .raw_request import JsonObject, MoreExamples, RuleFinder, as_list, as_mapping, for_model, is_number

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

    example: Callable[..., RawRequest]
    """A small legal request with these fields changed."""
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
    within: JsonObject = NO_FIELDS
    """What else the object around it holds in the examples."""
    beside: JsonObject = NO_FIELDS
    """What else the request says in the examples."""
    model: Abilities | None = None
    only: ObjectFilter = _always
    """The objects around it that the demand is about."""
    at: str = ""
    """The place as it is told, where the path does not say it: in a union the chosen kind is part of it."""
    evidence: str = "F"
    also: MoreExamples = ()
    models: str = "all"
    param: str = ""
    """Which field is blamed, where it is another."""
    words: str = ""
    """A sentence of its own."""
    says: str = ""
    """What the offender is told, where the row cannot tell by itself."""


DEFAULT_ROW = FieldRow()
EMPTY_LIST: tuple[object, ...] = ()
ABSENT = object()
"""In an example: the field is not there."""
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
    """Makes rules of rows: each row says what is demanded, what passes and what does not."""

    def __init__(self, voice: ErrorStyle) -> None:
        self.style = voice

    def of_type(
        self,
        path: str,
        kinds: str,
        takes: object,
        refuses: object,
        row: FieldRow = DEFAULT_ROW,
        *,
        expected: str = "",
    ) -> ProviderRule:
        """A value that is there is of one of these kinds (`string|array`)."""
        voice, allowed = self.style, _split_types(kinds)
        words = expected or voice.expected_names[kinds.removesuffix("|null")]

        def judge(spot: FieldPlace) -> RuleFinding | None:
            absent = spot.value is None and voice.null_is_absent
            if not spot.is_present or absent or voice.is_of_type(spot.value, allowed):
                return None
            shown = msgspec.json.encode(spot.value).decode()
            got = voice.given_names[JSON_TYPES[type(spot.value)]]
            return {"got": got, "shown": shown, **voice.describe_mismatch(spot.value, words)}

        told = json.dumps(refuses, separators=(",", ":")) if not isinstance(refuses, RawRequest) else ""
        blanks = {"got": voice.given_names.get(JSON_TYPES.get(type(refuses), ""), ""), "shown": told}
        return self._make_field_rule(
            "type", path, judge, takes, refuses, row, filled={"expected": words}, blanks=blanks
        )

    def one_of(
        self, path: str, values: Sequence[str], takes: object, refuses: object, row: FieldRow = DEFAULT_ROW
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            odd = isinstance(spot.value, str) and spot.value not in values
            return {"value": spot.value} if odd else None

        filled = {"expected": self.style.join_values(values)}
        return self._make_field_rule(
            "value", path, judge, takes, refuses, row, filled=filled, blanks={"value": refuses}
        )

    def required(
        self, path: str, takes: object, row: FieldRow = DEFAULT_ROW, *, refuses: object = ABSENT
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            missing = spot.value is None and (self.style.null_is_missing or not spot.is_present)
            return {} if missing else None

        return self._make_field_rule("required", path, judge, takes, refuses, row)

    def minimum(
        self, path: str, least: float, takes: object, refuses: object, row: FieldRow = DEFAULT_ROW
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            return {"value": spot.value} if is_number(spot.value) and spot.value < least else None

        filled = {"expected": f"{least:g}", "noun": _number_noun(least)}
        return self._make_field_rule(
            "least", path, judge, takes, refuses, row, filled=filled, blanks={"value": refuses}
        )

    def maximum(
        self, path: str, most: float, takes: object, refuses: object, row: FieldRow = DEFAULT_ROW
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            return {"value": spot.value} if is_number(spot.value) and spot.value > most else None

        filled = {"expected": f"{most:g}", "noun": _number_noun(most)}
        return self._make_field_rule(
            "most", path, judge, takes, refuses, row, filled=filled, blanks={"value": refuses}
        )

    def max_length(
        self, path: str, most: int, takes: object, refuses: object, row: FieldRow = DEFAULT_ROW
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            words = spot.value if isinstance(spot.value, str) else ""
            return {"length": len(words)} if len(words) > most else None

        filled, blanks = {"expected": most}, {"length": _example_length(refuses)}
        return self._make_field_rule("length", path, judge, takes, refuses, row, filled=filled, blanks=blanks)

    def max_items(
        self, path: str, most: int, takes: object, refuses: object, row: FieldRow = DEFAULT_ROW
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            count = len(as_list(spot.value))
            return {"length": count} if count > most else None

        filled, blanks = {"expected": most}, {"length": _example_length(refuses)}
        row = row._replace(id=row.id or _rule_id(path, "most"))
        return self._make_field_rule("count", path, judge, takes, refuses, row, filled=filled, blanks=blanks)

    def not_empty(
        self, path: str, takes: object, row: FieldRow = DEFAULT_ROW, *, refuses: object = EMPTY_LIST
    ) -> ProviderRule:
        def judge(spot: FieldPlace) -> RuleFinding | None:
            return {} if spot.value in ([], ()) else None

        return self._make_field_rule("some", path, judge, takes, refuses, row)

    def pattern(
        self, path: str, pattern: str, takes: object, refuses: object, row: FieldRow = DEFAULT_ROW
    ) -> ProviderRule:
        regex = re.compile(pattern)

        def judge(spot: FieldPlace) -> RuleFinding | None:
            odd = isinstance(spot.value, str) and not regex.search(spot.value)
            return {"pattern": pattern} if odd else None

        return self._make_field_rule("pattern", path, judge, takes, refuses, row, blanks={"pattern": pattern})

    def only_fields(
        self,
        path: str,
        names: Sequence[str],
        takes: object,
        refuses: str | RawRequest,
        row: FieldRow = DEFAULT_ROW,
    ) -> ProviderRule:
        """Nothing but these names in the objects at a path; an empty path is the body itself."""
        voice = self.style
        spellings = {*names, *map(voice.spell_name, names)}

        def find(request: RawRequest) -> RuleFinding | None:
            whole = (FieldPlace("", request.body, {}, ""),)
            for spot in find_places(voice, request.body, path) if path else whole:
                for name in as_mapping(spot.value):
                    if name not in spellings and row.only(as_mapping(spot.value)):
                        return {"at": f"{spot.path}.{name}".lstrip("."), "name": name, "inside": spot.path}
            return None

        place = _first_path(voice, path)
        blanks = {"at": f"{place}.{refuses}".lstrip("."), "name": refuses, "inside": place}
        refused = refuses if isinstance(refuses, RawRequest) else {**row.within, refuses: 1}
        row = row._replace(id=row.id or _rule_id(path, "fields"), within={})
        sentence = voice.messages["fields" if path else "fields-of-all"]
        return self._make_rule(
            row,
            find,
            sentence,
            self._make_example(row, path, takes),
            self._make_example(row, path, refused),
            blanks,
        )

    def _make_field_rule(
        self,
        demand: str,
        path: str,
        judge: FieldCheck,
        takes: object,
        refuses: object,
        row: FieldRow,
        *,
        filled: JsonObject = NO_FIELDS,
        blanks: RuleFinding = NO_FIELDS,
    ) -> ProviderRule:
        voice = self.style

        def find(request: RawRequest) -> RuleFinding | None:
            for spot in find_places(voice, request.body, path):
                found = judge(spot) if row.only(spot.parent) else None
                if found is not None:
                    return {"at": row.at or spot.path, "inside": spot.parent_path, **found}
            return None

        words, code = voice.messages[demand]
        words = row.words or words
        for blank, filling in filled.items():
            words, code = (said.replace(f"<{blank}>", str(filling)) for said in (words, code))
        passes, offends = self._make_example(row, path, takes), self._make_example(row, path, refuses)
        told = {"at": row.at or _first_path(voice, path), **blanks}
        row = row._replace(id=row.id or _rule_id(path, demand))
        return self._make_rule(row, find, FieldMessage(words, code), passes, offends, told)

    def _make_rule(
        self,
        row: FieldRow,
        find: RuleFinder,
        sentence: FieldMessage,
        passes: RawRequest,
        offends: RawRequest,
        blanks: RuleFinding,
    ) -> ProviderRule:
        made: ProviderRule = self.style.rule(
            row.id,
            find,
            sentence.text,
            code=sentence.code,
            evidence=row.evidence,
            passes=passes,
            offends=offends,
            says=row.says or sentence.text.format(**blanks),
            models=row.models,
            also=row.also,
            param=row.param or self.style.param,
        )
        return made

    def _make_example(self, row: FieldRow, path: str, value: object) -> RawRequest:
        """An example: this value at the path of a small legal request, or a whole request as it is."""
        if isinstance(value, RawRequest):
            return value
        fields = _nest_value(path.split("."), value, row.within) if path else as_mapping(value)
        if value is ABSENT and "." not in path:
            fields = {path: None}  # the way to ask for a request without it
        asked = self.style.example(**{**row.beside, **fields})
        return for_model(row.model, asked) if row.model is not None else asked


def _split_types(kinds: str) -> tuple[str, ...]:
    names = kinds.split("|")
    return (*names, "integer") if "number" in names else tuple(names)


def _example_length(example: object) -> int:
    return len(example) if isinstance(example, str | list) else 0


def _number_noun(limit: float) -> str:
    return "integer" if isinstance(limit, int) else "decimal"


def _rule_id(path: str, suffix: str) -> str:
    name = "-".join(step.removesuffix("[]") for step in path.split("."))
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", f"{name}-{suffix}").lower().lstrip("-")


def _first_path(voice: ErrorStyle, path: str) -> str:
    index = voice.index_format.format(voice.first_index)
    names = (step.partition("[") for step in path.split("."))
    return ".".join(voice.spell_name(name) + (index if bracket else "") for name, bracket, _ in names)


def _nest_value(steps: Sequence[str], value: object, within: JsonObject) -> dict[str, object]:
    """The fields of a body with this value at a path."""
    step, *rest = steps
    if value is ABSENT and not rest:
        return dict(within)
    inner = _nest_value(rest, value, within) if rest else value
    held = [inner] if step.endswith("[]") else inner
    return {**({} if rest else within), step.removesuffix("[]"): held}
