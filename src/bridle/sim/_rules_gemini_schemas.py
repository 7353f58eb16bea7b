"""Schemas in the provider's own dialect: fewer words than JSON Schema has, and some of them stricter.

Only `parameters` and `responseSchema` are in it; their JSON twins take any schema.  A word
the dialect lacks is refused while the JSON is read, and the place is named as the reader sees
it (the entries of an object are numbered); what breaks the dialect's sense is refused later,
and there the place has the names of the properties.
"""

from collections.abc import Iterator

from ..values.value import Value
from ._rules_gemini_shape import (
    BUDGETS,
    asked,
    config,
    configured,
    declarations,
    leveled,
    listed,
    member,
    rule,
    snake,
    taking,
    tool,
)
from ._rules_reading import (
    Block,
    mapping,
    to,
)
from .rules import Asked, Found

WORDS = frozenset(
    [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxItems",
        "minItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
        "items",
        "minimum",
        "maximum",
        "ref",
        "defs",
        "additionalProperties",
    ]
)
SPELLINGS = WORDS | {snake(word) for word in WORDS}
TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
STRING_FORMATS = ("enum", "date-time")
REQUEST = "GenerateContentRequest"


class Placed(Value):
    schema: Block
    read: str
    """Its place as the reader of the JSON names it."""
    meant: str
    """Its place by the names of the properties."""


def schemas(request: Asked) -> Iterator[Placed]:
    """Every schema in the dialect, and every schema inside it."""
    for place, item in declarations(request):
        yield from _inside(member(item, "parameters"), f"{place}.parameters", f"{place}.parameters")
    place = "generation_config.response_schema"
    yield from _inside(config(request, "responseSchema"), place, place)


def _inside(value: object, read: str, meant: str) -> Iterator[Placed]:
    if not isinstance(value, dict):
        return
    yield Placed(schema=value, read=read, meant=meant)
    for index, (name, inner) in enumerate(mapping(value.get("properties")).items()):
        yield from _inside(inner, f"{read}.properties[{index}].value", f"{meant}.properties[{name}]")
    for index, inner in enumerate(listed(member(value, "anyOf"))):
        yield from _inside(inner, f"{read}.any_of[{index}]", f"{meant}.any_of[{index}]")
    yield from _inside(value.get("items"), f"{read}.items", f"{meant}.items")


def _type(schema: Block) -> str:
    kind = schema.get("type")
    if isinstance(kind, int) and 0 <= kind < len(TYPES):
        return TYPES[kind]
    return kind.upper() if isinstance(kind, str) else ""


def _unknown_word(request: Asked) -> Found | None:
    for placed in schemas(request):
        unknown = next((name for name in placed.schema if name not in SPELLINGS), None)
        if unknown is not None:
            return {"name": unknown, "at": placed.read}
    return None


def _many_types(request: Asked) -> Found | None:
    found = (placed.read for placed in schemas(request) if isinstance(placed.schema.get("type"), list))
    return next(({"at": place} for place in found), None)


def _unknown_type(request: Asked) -> Found | None:
    for placed in schemas(request):
        kind = placed.schema.get("type")
        if isinstance(kind, str) and kind.upper() not in TYPES:
            return {"at": placed.read, "type": kind}
    return None


def _enum_value(request: Asked) -> Found | None:
    for placed in schemas(request):
        for index, value in enumerate(listed(placed.schema.get("enum"))):
            if not isinstance(value, str):
                return {"at": f"{placed.read}.enum[{index}]", "value": value}
    return None


def _enum_elsewhere(request: Asked) -> Found | None:
    for placed in schemas(request):
        if placed.schema.get("enum") and _type(placed.schema) not in ("STRING", ""):
            return {"at": placed.meant}
    return None


def _no_items(request: Asked) -> Found | None:
    for placed in schemas(request):
        if _type(placed.schema) == "ARRAY" and not isinstance(placed.schema.get("items"), dict):
            return {"at": placed.meant}
    return None


def _not_defined(request: Asked) -> Found | None:
    for placed in schemas(request):
        properties = mapping(placed.schema.get("properties"))
        for index, name in enumerate(listed(placed.schema.get("required"))):
            if name not in properties:
                return {"at": placed.meant, "index": index}
    return None


def _string_format(request: Asked) -> Found | None:
    for placed in () if leveled(request) else schemas(request):
        wanted = placed.schema.get("format")
        if wanted and _type(placed.schema) == "STRING" and wanted not in STRING_FORMATS:
            return {"at": placed.meant}
    return None


def _two_schemas(request: Asked) -> Found | None:
    for place, item in declarations(request):
        if member(item, "parameters") is not None and member(item, "parametersJsonSchema") is not None:
            return {"at": place}
    return None


_PARAMETERS = "tools[0].function_declarations[0].parameters"
_STRING = {"type": "STRING"}

SCHEMA_RULES = (
    rule(
        "schema-word",
        _unknown_word,
        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field.",
        evidence="S",
        passes=asked(tools=[taking(city={"anyOf": [_STRING, {"type": "NULL"}], "property_ordering": []})]),
        offends=asked(tools=[taking(city={"anyOf": [_STRING, {"const": "Oslo"}]})]),
        says='Invalid JSON payload received. Unknown name "const" at'
        f" '{_PARAMETERS}.properties[0].value.any_of[1]': Cannot find field.",
    ),
    rule(
        "schema-one-type",
        _many_types,
        "Invalid JSON payload received. Unknown name \"type\" at '{at}': Proto field is not repeating,"
        " cannot start list.",
        evidence="S",
        passes=asked(tools=[taking(city={"type": "string", "nullable": True})]),
        offends=asked(tools=[taking(city={"type": ["string", "null"]})]),
        says=f"Invalid JSON payload received. Unknown name \"type\" at '{_PARAMETERS}.properties[0].value':"
        " Proto field is not repeating, cannot start list.",
    ),
    rule(
        "schema-type",
        _unknown_type,
        "Invalid value at '{at}.type' (type.googleapis.com/google.ai.generativelanguage.v1beta.Type),"
        ' "{type}"',
        evidence="S",
        passes=asked(tools=[taking(city={"type": "null"})]),
        offends=asked(tools=[taking(city={"type": "ARRAY", "items": {"type": "text"}})]),
        says=f"Invalid value at '{_PARAMETERS}.properties[0].value.items.type'"
        ' (type.googleapis.com/google.ai.generativelanguage.v1beta.Type), "text"',
    ),
    rule(
        "schema-enum-words",
        _enum_value,
        "Invalid value at '{at}' (TYPE_STRING), {value}",
        evidence="S",
        passes=asked(tools=[taking(count={"type": "STRING", "enum": ["0", "1"]})]),
        offends=asked(tools=[taking(count={"type": "STRING", "enum": ["0", 1]})]),
        says=f"Invalid value at '{_PARAMETERS}.properties[0].value.enum[1]' (TYPE_STRING), 1",
    ),
    rule(
        "schema-enum-type",
        _enum_elsewhere,
        f"* {REQUEST}.{{at}}.enum: only allowed for STRING type\n",
        evidence="S",
        passes=asked(tools=[taking(count={"type": "string", "enum": ["0"]})]),
        offends=asked(tools=[taking(count={"type": "INTEGER", "enum": ["0"]})]),
        says=f"* {REQUEST}.{_PARAMETERS}.properties[count].enum: only allowed for STRING type\n",
        also=(
            (
                asked(tools=[taking(count={"type": 3, "enum": ["0"]})]),
                f"* {REQUEST}.{_PARAMETERS}.properties[count].enum: only allowed for STRING type\n",
            ),
            (asked(tools=[taking(count={"type": 1, "enum": ["0"]})]), ""),
            (asked(tools=[taking(count={"type": 8, "enum": ["0"]})]), ""),
            (
                asked(tools=[taking(count={"type": 0, "enum": ["0"]})]),
                f"* {REQUEST}.{_PARAMETERS}.properties[count].enum: only allowed for STRING type\n",
            ),
            (asked(tools=[taking(count={"type": -1, "enum": ["0"]})]), ""),
        ),
    ),
    rule(
        "schema-items",
        _no_items,
        f"* {REQUEST}.{{at}}.items: missing field.\n",
        evidence="S",
        passes=asked(tools=[taking(cities={"type": "ARRAY", "items": _STRING})]),
        offends=asked(tools=[taking(cities={"type": "array"})]),
        says=f"* {REQUEST}.{_PARAMETERS}.properties[cities].items: missing field.\n",
    ),
    rule(
        "schema-required",
        _not_defined,
        f"* {REQUEST}.{{at}}.required[{{index}}]: property is not defined\n",
        evidence="S",
        passes=configured(
            responseMimeType="application/json",
            responseSchema={"type": "OBJECT", "properties": {"city": _STRING}, "required": ["city"]},
        ),
        offends=configured(
            responseMimeType="application/json",
            responseSchema={"type": "OBJECT", "properties": {"city": _STRING}, "required": ["city", "day"]},
        ),
        says=f"* {REQUEST}.generation_config.response_schema.required[1]: property is not defined\n",
    ),
    rule(
        "schema-format",
        _string_format,
        f"* {REQUEST}.{{at}}.format: only 'enum' and 'date-time' are supported for STRING type\n",
        evidence="S",
        models="that do not think at levels",
        passes=to(BUDGETS, asked(tools=[taking(day={"type": "STRING", "format": "date-time"})])),
        offends=to(BUDGETS, asked(tools=[taking(day={"type": "STRING", "format": "date"})])),
        says=f"* {REQUEST}.{_PARAMETERS}.properties[day].format: only 'enum' and 'date-time' are supported"
        " for STRING type\n",
        also=(
            (asked(tools=[taking(day={"type": "STRING", "format": "date"})]), ""),
            (to(BUDGETS, asked(tools=[taking(day=_STRING)])), ""),
            (to(BUDGETS, asked(tools=[taking(day={"type": "INTEGER", "format": "int32"})])), ""),
        ),
    ),
    rule(
        "schema-one",
        _two_schemas,
        f"* {REQUEST}.{{at}}: parameters and parameters_json_schema are mutually exclusive\n",
        evidence="F",
        passes=asked(tools=[tool(parametersJsonSchema={"type": "object"})]),
        offends=asked(tools=[tool(parameters={"type": "OBJECT"}, parametersJsonSchema={"type": "object"})]),
        says=f"* {REQUEST}.tools[0].function_declarations[0]: parameters and parameters_json_schema are"
        " mutually exclusive\n",
    ),
)
