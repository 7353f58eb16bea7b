"""Rules about schemas in the provider's own dialect, which is smaller and partly stricter than JSON Schema.

Only `parameters` and `responseSchema` use it; their JSON variants accept any schema. A keyword that the
dialect lacks is refused while the JSON is parsed, with the parser's path (the entries of an object are
numbered); other errors are reported later, with the names of the properties.
"""

from collections.abc import Callable, Iterator, Mapping

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import ModelFilter
from bridle.sim.rules.raw_request import JsonObject, as_mapping
from bridle.values.base import Value

from .request import (
    as_list,
    generation_setting,
    list_declarations,
    member,
    rule,
    to_snake_case,
)
from .rules_fields import refuse

SCHEMA_KEYWORDS = (
    "type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties",
    "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf",
    "propertyOrdering", "default", "items", "minimum", "maximum", "ref", "defs", "additionalProperties",
)  # fmt: skip
KEYWORD_SPELLINGS = frozenset(SCHEMA_KEYWORDS) | {to_snake_case(word) for word in SCHEMA_KEYWORDS}
TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
STRING_FORMATS = ("enum", "date-time")
REQUEST = "GenerateContentRequest"


class SchemaLocation(Value, kw_only=True, gc=True):
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


SchemaCondition = Callable[[JsonObject], object]
"""True for a schema that is refused; a mapping adds values for the message."""


def _schema_rule(
    id_: str,
    is_wrong: SchemaCondition,
    wording: str,
    *,
    by_name: bool = False,
    when: ModelFilter | None = None,
) -> ProviderRule:
    """Make a rule about every schema; `by_name`: its message names places by their properties."""

    def find(request: RawRequest) -> RuleFinding | None:
        if when is not None and request.abilities is not None and not when(request.abilities):
            return None
        for placed in list_schemas(request):
            wrong = is_wrong(placed.schema)
            if wrong:
                more = wrong if isinstance(wrong, Mapping) else {}
                return {"at": placed.named_path if by_name else placed.read_path, **more}
        return None

    models = "that do not think at levels" if when else "all"
    return rule(id_, find, wording, evidence="S", models=models)


def _find_unknown_word(schema: JsonObject) -> RuleFinding | None:
    return next(({"name": name} for name in schema if name not in KEYWORD_SPELLINGS), None)


def _find_unknown_type(schema: JsonObject) -> RuleFinding | None:
    kind = schema.get("type")
    return {"type": kind} if isinstance(kind, str) and kind.upper() not in TYPES else None


def _find_other_value(schema: JsonObject) -> RuleFinding | None:
    values = enumerate(as_list(schema.get("enum")))
    return next(({"index": at, "value": value} for at, value in values if not isinstance(value, str)), None)


def _find_undefined_property(schema: JsonObject) -> RuleFinding | None:
    properties = as_mapping(schema.get("properties"))
    names = enumerate(as_list(schema.get("required")))
    return next(({"index": at} for at, name in names if name not in properties), None)


def _has_other_format(schema: JsonObject) -> bool:
    wanted = schema.get("format")
    return bool(wanted) and _schema_type(schema) == "STRING" and wanted not in STRING_FORMATS


def _has_two_schemas(declaration: JsonObject) -> bool:
    return all(member(declaration, name) is not None for name in ("parameters", "parametersJsonSchema"))


SCHEMA_RULES = (
    _schema_rule(
        "schema-word",
        _find_unknown_word,
        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field.",
    ),
    _schema_rule(
        "schema-one-type",
        lambda schema: isinstance(schema.get("type"), list),
        "Invalid JSON payload received. Unknown name \"type\" at '{at}': Proto field is not repeating,"
        " cannot start list.",
    ),
    _schema_rule(
        "schema-type",
        _find_unknown_type,
        "Invalid value at '{at}.type' (type.googleapis.com/google.ai.generativelanguage.v1beta.Type),"
        ' "{type}"',
    ),
    _schema_rule(
        "schema-enum-words",
        _find_other_value,
        "Invalid value at '{at}.enum[{index}]' (TYPE_STRING), {value}",
    ),
    _schema_rule(
        "schema-enum-type",
        lambda schema: schema.get("enum") and _schema_type(schema) not in ("STRING", ""),
        f"* {REQUEST}.{{at}}.enum: only allowed for STRING type\n",
        by_name=True,
    ),
    _schema_rule(
        "schema-items",
        lambda schema: _schema_type(schema) == "ARRAY" and not isinstance(schema.get("items"), dict),
        f"* {REQUEST}.{{at}}.items: missing field.\n",
        by_name=True,
    ),
    _schema_rule(
        "schema-required",
        _find_undefined_property,
        f"* {REQUEST}.{{at}}.required[{{index}}]: property is not defined\n",
        by_name=True,
    ),
    _schema_rule(
        "schema-format",
        _has_other_format,
        f"* {REQUEST}.{{at}}.format: only 'enum' and 'date-time' are supported for STRING type\n",
        by_name=True,
        when=lambda able: not able.efforts,
    ),
    refuse(
        "schema-one",
        "tools[].functionDeclarations[]",
        _has_two_schemas,
        f"* {REQUEST}.{{at}}: parameters and parameters_json_schema are mutually exclusive\n",
        evidence="F",
    ),
)
