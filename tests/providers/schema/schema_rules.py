"""Schema rules of the providers as checks of finished JSON.

Written from their errors (quoted above each rule) and not from the compiler, so that the two can
disagree.  A rule yields a line for each thing that is wrong; none is best.
"""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip


def walk(schema, at="#") -> Iterator[tuple[str, Any]]:
    """Every schema in a schema, itself first."""
    yield at, schema
    if not isinstance(schema, dict):
        return
    for word in NAMED:
        for name, part in schema.get(word, {}).items():
            yield from walk(part, f"{at}/{word}/{name}")
    for word in LISTED:
        for n, part in enumerate(schema.get(word, [])):
            yield from walk(part, f"{at}/{word}/{n}")
    for word in SINGLE:
        if word in schema and not (word == "additionalProperties" and schema[word] is False):
            yield from walk(schema[word], f"{at}/{word}")


def types(schema):
    held = schema.get("type", [])
    return [held] if isinstance(held, str) else held


# ── JSON Schema itself ──────────────────────────────────────────────────────


def valid_json_schema(schema):
    # "tools.{i}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12."
    judged = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    if not jsonschema_rs.meta.is_valid(judged):
        yield "JSON schema is invalid. It must match JSON Schema draft 2020-12"
        return
    try:
        jsonschema_rs.validator_for(judged, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        yield f"cannot be compiled: {str(error).splitlines()[0]}"


def messages_tool(schema):
    yield from valid_json_schema(schema)
    # "tools.{i}.custom.input_schema.type: Field required" / "Input should be 'object'"
    if schema.get("type") != "object":
        yield "input_schema.type: Input should be 'object'"
    # "tools.{i}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    if {"oneOf", "allOf", "anyOf"} & schema.keys():
        yield "input_schema does not support oneOf, allOf, or anyOf at the top level"
    # "…input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'": top level only
    for name in schema.get("properties", {}):
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
            yield f"Property keys should match pattern: {name!r}"


WRITTEN_OUT_MAX = 500
"""Nobody wants more shapes than these for the sake of a model that follows no references."""


def converse_tool(schema):
    # The same check stands behind it for some models; others follow no reference that could be written out.
    yield from messages_tool(schema)
    yield from shared_without_need(schema)


def shared_without_need(schema):
    defined = schema.get("$defs", {})

    def reached(held):
        found, waiting = set(), [held]
        while waiting:
            for _, part in walk(waiting.pop()):
                target = part.get("$ref", "").rpartition("/")[2] if isinstance(part, dict) else ""
                if target in defined and target not in found:
                    found.add(target)
                    waiting.append(defined[target])
        return found

    if sum(1 for _ in walk(schema)) > WRITTEN_OUT_MAX:
        return
    for name in reached({**schema, "$defs": {}}):
        if name not in reached(defined[name]):
            yield f"#/$defs/{name} could be written in place"


# ── strict tools of the Messages API ────────────────────────────────────────

MESSAGES_STRICT_WORDS = {
    "type", "enum", "const", "anyOf", "allOf", "properties", "required", "additionalProperties", "items",
    "minItems", "format", "pattern", "title", "description", "default", "$ref", "$defs", "definitions",
    "$schema",
}  # fmt: skip
MESSAGES_FORMATS = {
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
}  # fmt: skip


def messages_strict_tool(schema):
    yield from messages_tool(schema)
    yield from messages_answer(schema)


def messages_answer(schema):
    yield from valid_json_schema(schema)
    for at, part in walk(schema):
        if not isinstance(part, dict):
            yield f"{at}: boolean schema"
            continue
        # "For 'integer' type, property 'minimum' is not supported"
        for word in part.keys() - MESSAGES_STRICT_WORDS:
            yield f"{at}: property {word!r} is not supported"
        if "object" in types(part) and part.get("additionalProperties") is not False:
            yield f"{at}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        if part.get("minItems", 0) > 1:
            yield f"{at}: 'minItems' values other than 0 or 1 are not supported"
        if "format" in part and part["format"] not in MESSAGES_FORMATS:
            yield f"{at}: format {part['format']!r}"
        if any(isinstance(value, dict | list) for value in part.get("enum", [])):
            yield f"{at}: complex types within enums"
        # "Unsupported regex feature in pattern field: …"
        if re.search(r"\(\?[=!<]|\\[1-9bB]", part.get("pattern", "")):
            yield f"{at}: Unsupported regex feature in pattern field"
        if not {"type", "anyOf", "$ref", "allOf"} & part.keys():
            yield f"{at}: no type"
        if "$ref" in part and not part["$ref"].startswith("#"):
            yield f"{at}: external $ref"
    # "Circular reference detected in schema definitions: Node -> Node."
    if find_circular(schema):
        yield "Circular reference detected in schema definitions"
    yield from messages_strict_request([schema])


def messages_strict_request(schemas):
    """What is counted over all strict tools of a request."""
    # "Too many strict tools (21). The maximum number of strict tools supported is 20."
    if len(schemas) > 20:
        yield f"Too many strict tools ({len(schemas)})"
    parts = [part for schema in schemas for _, part in walk(schema) if isinstance(part, dict)]
    # "Schemas contains too many optional parameters (25), … (limit: 24)."
    optional = sum(len(part.get("properties", {}).keys() - set(part.get("required", []))) for part in parts)
    if optional > 24:
        yield f"Schemas contains too many optional parameters ({optional})"
    unions = sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts)
    if unions > 16:
        yield f"too many union parameters ({unions})"


def find_circular(schema):
    defined = {"#": {**schema, "$defs": {}, "definitions": {}}}
    for word in ("$defs", "definitions"):
        defined |= {f"#/{word}/{name}": held for name, held in schema.get(word, {}).items()}
    edges = {place: set(find_references(held)) for place, held in defined.items()}
    return any(place in find_reachable(target, edges) for place in edges for target in edges[place])


# ── functions of the Responses and Chat APIs ────────────────────────────────


def loose_function(schema):
    yield from loose_answer(schema)
    # "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    if schema.get("type") != "object" or {"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys():
        yield "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    # "In context=(), object schema missing properties"
    if "properties" not in schema:
        yield "In context=(), object schema missing properties"


def loose_answer(schema):
    yield from valid_json_schema(schema)
    for at, part in walk(schema):
        # "In context=('properties', 'x'), array schema missing items"
        if (
            isinstance(part, dict)
            and part.get("type") == "array"
            and not {"items", "prefixItems"} & part.keys()
        ):
            yield f"{at}: array schema missing items"


STRICT_FUNCTION_WORDS = {
    "type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items", "minItems",
    "maxItems", "format", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "title", "description", "$ref", "$defs", "definitions",
    # seen in strict schemas that were accepted
    "$schema", "default", "minLength", "maxLength",
}  # fmt: skip
STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def strict_function(schema):
    yield from loose_function(schema)
    depth = properties = values = characters = 0
    for at, part in walk(schema):
        if not isinstance(part, dict):
            yield f"{at}: boolean schema"
            continue
        # "$ref cannot have keywords {'description'}."
        if "$ref" in part:
            if len(part) > 1:
                yield f"{at}: $ref cannot have keywords {sorted(part.keys() - {'$ref'})}"
            continue
        # "In context=(…), 'oneOf' is not permitted."
        for word in part.keys() - STRICT_FUNCTION_WORDS:
            if not word.startswith("x-"):
                yield f"{at}: {word!r} is not permitted"
        # "In context=('properties', 'x', 'items'), schema must have a 'type' key."
        if not {"type", "anyOf"} & part.keys():
            yield f"{at}: schema must have a 'type' key"
        if "object" in types(part):
            # "'additionalProperties' is required to be supplied and to be false."
            if part.get("additionalProperties") is not False:
                yield f"{at}: 'additionalProperties' is required to be supplied and to be false"
            # "'required' is required to be supplied and to be an array including every key in properties."
            if sorted(part.get("required", [])) != sorted(part.get("properties", {})):
                yield f"{at}: 'required' is required … including every key in properties"
        # "array schema missing items"
        if "array" in types(part) and "items" not in part:
            yield f"{at}: array schema missing items"
        # "'uri' is not a valid format."
        if "format" in part and part["format"] not in STRICT_FORMATS:
            yield f"{at}: {part['format']!r} is not a valid format"
        for value in part.get("enum", []):
            # "enum value … does not validate against {'type': …}"
            if "type" in part and not jsonschema_rs.is_valid({"type": part["type"]}, value):
                yield f"{at}: enum value {value!r} does not validate"
        properties += len(part.get("properties", {}))
        values += len(part.get("enum", []))
        characters += sum(map(len, (*part.get("properties", {}), *part.get("$defs", {}))))
        characters += sum(len(value) for value in part.get("enum", []) if isinstance(value, str))
        texts = [value for value in part.get("enum", []) if isinstance(value, str)]
        if len(texts) > 250 and sum(map(len, texts)) > 15_000:
            yield f"{at}: enum of {len(texts)} values is longer than 15000 characters"
        steps = [step for step in at.split("/") if step in ("properties", "items")]
        depth = max(depth, len(steps) + bool({"object", "array"} & set(types(part))))
    # "11 levels of nesting exceeds limit of 10."
    if depth > 10:
        yield f"{depth} levels of nesting exceeds limit of 10"
    if properties > 5_000 or values > 1_000 or characters > 120_000:
        yield f"too large: {properties} properties, {values} enum values, {characters} characters"


# ── generateContent ─────────────────────────────────────────────────────────

OPENAPI_WORDS = {
    "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties",
    "required", "propertyOrdering", "minProperties", "maxProperties", "minimum", "maximum", "minLength",
    "maxLength", "pattern", "anyOf",
}  # fmt: skip
OPENAPI_FORMATS = {
    "STRING": {"enum", "date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"},
}  # fmt: skip


def declared_parameters(schema):
    # "functionDeclaration parameters schema should be of type OBJECT"
    if schema.get("type") != "OBJECT":
        yield "parameters schema should be of type OBJECT"
    yield from openapi_subset(schema)


def openapi_subset(schema):
    for at, part in walk(schema):
        if not isinstance(part, dict):
            yield f"{at}: not an object"
            continue
        # 'Unknown name "{$schema|additionalProperties|…}" at …: Cannot find field.'
        for word in part.keys() - OPENAPI_WORDS:
            yield f"{at}: Unknown name {word!r}: Cannot find field."
        # "schema specified other fields alongside any_of. When using any_of, it must be the only field set."
        if "anyOf" in part:
            if part.keys() != {"anyOf"}:
                yield f"{at}: When using any_of, it must be the only field set"
            continue
        kind = part.get("type")
        # "Proto field is not repeating, cannot start list." / "schema didn't specify the schema type field"
        if kind not in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"):
            yield f"{at}: schema didn't specify the schema type field: {kind!r}"
        # "Invalid value at '….enum[0]' (TYPE_STRING), 0" / "enum: only allowed for STRING type"
        if "enum" in part and kind != "STRING":
            yield f"{at}.enum: only allowed for STRING type"
        for value in part.get("enum", []):
            # "enum[1]: cannot be empty"
            if not isinstance(value, str) or not value:
                yield f"{at}.enum: {value!r}"
        # "items: missing field."
        if kind == "ARRAY" and "items" not in part:
            yield f"{at}.items: missing field."
        if "items" in part and kind != "ARRAY":
            yield f"{at}.items: only allowed for ARRAY type"
        # "properties: should be non-empty for OBJECT type" / "properties: only allowed for OBJECT type"
        if part.get("properties") == {}:
            yield f"{at}.properties: should be non-empty for OBJECT type"
        if {"properties", "required"} & part.keys() and kind != "OBJECT":
            yield f"{at}.properties: only allowed for OBJECT type"
        # "required[0]: property is not defined"
        for word in ("required", "propertyOrdering"):
            for name in part.get(word, []):
                if name not in part.get("properties", {}):
                    yield f"{at}.{word}: property {name!r} is not defined"
        # "format: only 'enum' and 'date-time' are supported for STRING type"
        if "format" in part and part["format"] not in OPENAPI_FORMATS.get(kind, set()):  # type: ignore[arg-type]
            yield f"{at}.format: {part['format']!r} is not supported for {kind}"


def declared_json_schema(schema):
    # "parameters schema should be of type OBJECT"
    if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf"} & schema.keys():
        yield "parameters schema should be of type OBJECT"
    yield from answer_json_schema(schema)


def answer_json_schema(schema):
    yield from valid_json_schema(schema)
    for at, part in walk(schema):
        if not isinstance(part, dict):
            continue
        # If `$ref` is set, only annotations and what begins with $ may stand beside it.
        beside = [word for word in part if not word.startswith("$") and word not in ANNOTATIONS]
        if "$ref" in part and beside:
            yield f"{at}: $ref with {beside}"
        if "const" in part and "enum" not in part:
            yield f"{at}: const is not understood"
    # Cyclic references "may only be used within non-required properties".
    defined = {"#": {**schema, "$defs": {}, "definitions": {}}}
    for word in ("$defs", "definitions"):
        defined |= {f"#/{word}/{name}": held for name, held in schema.get(word, {}).items()}
    edges = {place: set(find_references(held)) for place, held in defined.items()}
    for place, held in defined.items():
        for target in find_references(held, bound=True):
            if place in find_reachable(target, edges):
                yield f"{place}: {target} leads back, and cannot be left out"


def find_references(schema, *, bound=False):
    """Where a schema refers to; `bound`: only from where nothing can be left out."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield schema["$ref"]
    for word in (*NAMED, *LISTED, *SINGLE):
        held = schema.get(word, [])
        parts = held.items() if word in NAMED and held else enumerate(held if word in LISTED else [held])
        for name, part in parts:
            if not (bound and word == "properties" and name not in schema.get("required", [])):
                yield from find_references(part, bound=bound)


def find_reachable(place, edges):
    found, waiting = set(), [place]
    while waiting:
        for target in edges.get(waiting.pop(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found | {place}


ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")

RULES = {
    "plain": messages_tool,
    "plain_output": valid_json_schema,
    "bedrock": converse_tool,
    "anthropic_strict": messages_strict_tool,
    "anthropic_output": messages_answer,
    "bedrock_output": messages_answer,
    "openai_loose": loose_function,
    "openai_output": loose_answer,
    "openai_strict": strict_function,
    "gemini_schema": declared_parameters,
    "gemini_schema_output": openapi_subset,
    "gemini_json": declared_json_schema,
    "gemini_json_output": answer_json_schema,
}
"""By the dialect that must keep to them."""


# ── read back ───────────────────────────────────────────────────────────────


def as_json_schema(schema):
    """The OpenAPI subset as JSON Schema, so that values can be checked against it."""
    if "anyOf" in schema:
        return {"anyOf": [as_json_schema(part) for part in schema["anyOf"]]}
    made = {
        word: held for word, held in schema.items() if word not in ("nullable", "propertyOrdering", "type")
    }
    made["type"] = schema["type"].lower()
    if "properties" in made:
        made["properties"] = {name: as_json_schema(part) for name, part in made["properties"].items()}
    if "items" in made:
        made["items"] = as_json_schema(made["items"])
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made
