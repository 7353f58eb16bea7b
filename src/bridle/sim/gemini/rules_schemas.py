"""Rules about schemas in the provider's own dialect, which is smaller and partly stricter than JSON Schema.

Only `parameters` and `responseSchema` use it; their JSON variants accept any schema. A keyword that the
dialect lacks is refused while the JSON is parsed, with the parser's path (the entries of an object are
numbered); other errors are reported later, with the names of the properties.
"""

from collections.abc import Iterator

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping
from bridle.values.base import Value

from .request import (
    as_list,
    generation_setting,
    has_thinking_levels,
    list_declarations,
    member,
    rule,
    to_snake_case,
)

SCHEMA_KEYWORDS = frozenset(
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
KEYWORD_SPELLINGS = SCHEMA_KEYWORDS | {to_snake_case(word) for word in SCHEMA_KEYWORDS}
TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
STRING_FORMATS = ("enum", "date-time")
REQUEST = "GenerateContentRequest"


class SchemaLocation(Value):
    schema: JsonObject
    read_path: str
    """Path as the JSON parser names it."""
    named_path: str
    """Path by the names of the properties."""


def list_schemas(request: RawRequest) -> Iterator[SchemaLocation]:
    """Yield every schema in the dialect, and every schema inside it."""
    for place, item in list_declarations(request):
        yield from _walk_schema(member(item, "parameters"), f"{place}.parameters", f"{place}.parameters")
    place = "generation_config.response_schema"
    yield from _walk_schema(generation_setting(request, "responseSchema"), place, place)


def _walk_schema(value: object, read: str, meant: str) -> Iterator[SchemaLocation]:
    if not isinstance(value, dict):
        return
    yield SchemaLocation(schema=value, read_path=read, named_path=meant)
    for index, (name, inner) in enumerate(as_mapping(value.get("properties")).items()):
        yield from _walk_schema(inner, f"{read}.properties[{index}].value", f"{meant}.properties[{name}]")
    for index, inner in enumerate(as_list(member(value, "anyOf"))):
        yield from _walk_schema(inner, f"{read}.any_of[{index}]", f"{meant}.any_of[{index}]")
    yield from _walk_schema(value.get("items"), f"{read}.items", f"{meant}.items")


def _schema_type(schema: JsonObject) -> str:
    kind = schema.get("type")
    if isinstance(kind, int) and 0 <= kind < len(TYPES):
        return TYPES[kind]
    return kind.upper() if isinstance(kind, str) else ""


def _check_schema_word(request: RawRequest) -> RuleFinding | None:
    for placed in list_schemas(request):
        unknown = next((name for name in placed.schema if name not in KEYWORD_SPELLINGS), None)
        if unknown is not None:
            return {"name": unknown, "at": placed.read_path}
    return None


def _check_schema_one_type(request: RawRequest) -> RuleFinding | None:
    found = (
        placed.read_path for placed in list_schemas(request) if isinstance(placed.schema.get("type"), list)
    )
    return next(({"at": place} for place in found), None)


def _check_schema_type(request: RawRequest) -> RuleFinding | None:
    for placed in list_schemas(request):
        kind = placed.schema.get("type")
        if isinstance(kind, str) and kind.upper() not in TYPES:
            return {"at": placed.read_path, "type": kind}
    return None


def _check_schema_enum_words(request: RawRequest) -> RuleFinding | None:
    for placed in list_schemas(request):
        for index, value in enumerate(as_list(placed.schema.get("enum"))):
            if not isinstance(value, str):
                return {"at": f"{placed.read_path}.enum[{index}]", "value": value}
    return None


def _check_schema_enum_type(request: RawRequest) -> RuleFinding | None:
    for placed in list_schemas(request):
        if placed.schema.get("enum") and _schema_type(placed.schema) not in ("STRING", ""):
            return {"at": placed.named_path}
    return None


def _check_schema_items(request: RawRequest) -> RuleFinding | None:
    for placed in list_schemas(request):
        if _schema_type(placed.schema) == "ARRAY" and not isinstance(placed.schema.get("items"), dict):
            return {"at": placed.named_path}
    return None


def _check_schema_required(request: RawRequest) -> RuleFinding | None:
    for placed in list_schemas(request):
        properties = as_mapping(placed.schema.get("properties"))
        for index, name in enumerate(as_list(placed.schema.get("required"))):
            if name not in properties:
                return {"at": placed.named_path, "index": index}
    return None


def _check_schema_format(request: RawRequest) -> RuleFinding | None:
    for placed in () if has_thinking_levels(request) else list_schemas(request):
        wanted = placed.schema.get("format")
        if wanted and _schema_type(placed.schema) == "STRING" and wanted not in STRING_FORMATS:
            return {"at": placed.named_path}
    return None


def _check_schema_one(request: RawRequest) -> RuleFinding | None:
    for place, item in list_declarations(request):
        if member(item, "parameters") is not None and member(item, "parametersJsonSchema") is not None:
            return {"at": place}
    return None


SCHEMA_RULES = (
    rule(
        "schema-word",
        _check_schema_word,
        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field.",
        evidence="S",
    ),
    rule(
        "schema-one-type",
        _check_schema_one_type,
        "Invalid JSON payload received. Unknown name \"type\" at '{at}': Proto field is not repeating,"
        " cannot start list.",
        evidence="S",
    ),
    rule(
        "schema-type",
        _check_schema_type,
        "Invalid value at '{at}.type' (type.googleapis.com/google.ai.generativelanguage.v1beta.Type),"
        ' "{type}"',
        evidence="S",
    ),
    rule(
        "schema-enum-words",
        _check_schema_enum_words,
        "Invalid value at '{at}' (TYPE_STRING), {value}",
        evidence="S",
    ),
    rule(
        "schema-enum-type",
        _check_schema_enum_type,
        f"* {REQUEST}.{{at}}.enum: only allowed for STRING type\n",
        evidence="S",
    ),
    rule("schema-items", _check_schema_items, f"* {REQUEST}.{{at}}.items: missing field.\n", evidence="S"),
    rule(
        "schema-required",
        _check_schema_required,
        f"* {REQUEST}.{{at}}.required[{{index}}]: property is not defined\n",
        evidence="S",
    ),
    rule(
        "schema-format",
        _check_schema_format,
        f"* {REQUEST}.{{at}}.format: only 'enum' and 'date-time' are supported for STRING type\n",
        evidence="S",
        models="that do not think at levels",
    ),
    rule(
        "schema-one",
        _check_schema_one,
        f"* {REQUEST}.{{at}}: parameters and parameters_json_schema are mutually exclusive\n",
        evidence="F",
    ),
)
