"""Makes values that fit a JSON schema, filled from the conversation where possible.

Used for structured output, forced calls, and the parameters of unknown tools. The first value is built from
whatever the conversation offers for each property name; if it does not satisfy the schema, the smallest value
that should is built instead. A pattern that no sample matches, or a contradiction in the schema, gives an
invalid value, as a real model might.

Clients move bounds that a strict dialect refuses into the description: as a sentence ("at least 2; at most
10") or as the list of keywords that vendors' own helpers append (`{minimum: 2, maximum: 10}`). A model reads
both, so they are applied here too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import jsonschema_rs
import msgspec

from bridle.values.schema_limits import BACKTRACKS_MAX, check_schema_limits

_NUMBER_PATTERN = r"(-?\d+(?:\.\d+)?)"
_PHRASES = (
    ("minItems", rf"at least {_NUMBER_PATTERN} of them"),
    ("maxItems", rf"at most {_NUMBER_PATTERN} of them"),
    ("minLength", rf"at least {_NUMBER_PATTERN} long"),
    ("maxLength", rf"at most {_NUMBER_PATTERN} long"),
    ("minProperties", rf"at least {_NUMBER_PATTERN} fields"),
    ("minimum", rf"at least {_NUMBER_PATTERN}(?! (?:of them|long|fields)|[\d.])"),
    ("maximum", rf"at most {_NUMBER_PATTERN}(?! (?:of them|long|fields)|[\d.])"),
    ("exclusiveMinimum", rf"more than {_NUMBER_PATTERN}"),
    ("exclusiveMaximum", rf"less than {_NUMBER_PATTERN}"),
    ("multipleOf", rf"a multiple of {_NUMBER_PATTERN}"),
)
_KEYWORDS = re.compile(rf"\b([a-zA-Z]+): {_NUMBER_PATTERN}(?=[,}}])")
_BOUNDS_BY_TYPE = {
    "array": {"minItems", "maxItems"},
    "object": {"minProperties"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
_BOUNDS_BY_TYPE["number"] = _BOUNDS_BY_TYPE["integer"]


def add_described_bounds(schema: dict[str, object]) -> dict[str, object]:
    """Return the schema with the bounds stated in its descriptions as keywords, at every level."""
    inner = {name: _add_bounds_inside(value) for name, value in schema.items()}
    for keyword, number in _parse_bounds(schema.get("description"), schema.get("type")).items():
        given = schema.get(keyword)
        # The wire may carry a smaller lower bound than the one in the description; the larger one counts.
        inner[keyword] = max(number, given) if isinstance(given, int | float) else number
    return inner


def _add_bounds_inside(value: object) -> object:
    if isinstance(value, dict):
        return add_described_bounds(value)
    return [_add_bounds_inside(item) for item in value] if isinstance(value, list) else value


def _parse_bounds(description: object, kind: object) -> Mapping[str, float]:
    kinds = [str(each) for each in kind if each != "null"] if isinstance(kind, list) else [str(kind)]
    applicable = set().union(*(_BOUNDS_BY_TYPE.get(each, set()) for each in kinds))
    if not isinstance(description, str) or not applicable:
        return {}
    found = {
        keyword: match.group(1)
        for keyword, pattern in _PHRASES
        if (match := re.search(pattern, description, re.IGNORECASE))
    }
    found |= dict(_KEYWORDS.findall(description)) if "{" in description else {}
    return {
        keyword: float(number) if "." in number else int(number)
        for keyword, number in found.items()
        if keyword in applicable
    }


DEPTH_MAX = 4
"""Depth limit for optional content: below it only required properties are built, and recursion ends."""
DEPTH_END = 10
"""Depth at which a schema that requires itself is cut off, because it has no finite instance."""
# not from outside: names and requests that we make
VALUES_MAX = 5_000
"""Values built for one schema; what it wants beyond them is left out."""
# not from outside: names and requests that we make
TEXT_CHARACTERS_MAX = 100_000
"""Characters of one text, whatever `minLength` says."""
FILLER = "simulated"
FORMAT_SAMPLES = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "somebody@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
PATTERN_SAMPLES = (
    "1",
    "10",
    "1.5",
    "a",
    "A",
    "ab",
    "AB",
    "abc",
    "ABC",
    "A1",
    "ABC-123",
    "1.0.0",
    "a_b",
    "a-b",
)
"""Values to try for a pattern, before those of `FORMAT_SAMPLES`."""
ANSWER_NAMES = re.compile(
    r"answer|summary|text|result|message|reason|description|explanation|comment|conclusion"
)
PROPER_NAME_FIELDS = re.compile(r"name|city|place|location|country|town|person|title|author|winner|capital")
NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?![\w])")
QUOTED_VALUE = r"\b{}\s*(?:is|was|=|:|of)?\s*[\"'`]([^\"'`\n]+)[\"'`]"
STATED_VALUE = r"\b{}\s*(?:\bis\b|\bwas\b|=|:)\s*([^\n,;?]+)"
PROPER_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-ZÀ-Þ][\w'-]+(?:\s+[A-ZÀ-Þ][\w'-]+)*", re.MULTILINE)

Schema = Mapping[str, object]


def fill_schema(schema: str, about: str = "", answer: str = "") -> str:
    """Return JSON that fits the schema, using facts from the conversation and the answer.

    For a schema beyond the limits of schemas from outside it is the empty object.
    """
    root = msgspec.json.decode(schema, type=dict[str, object])
    try:
        check_schema_limits(root, len(schema))
    except ValueError:
        return "{}"
    root = add_described_bounds(root)
    value = _ValueBuilder(root, _KnownFacts(about, answer)).build(root)
    if not _is_valid(root, value):
        value = _ValueBuilder(root, None).build(root)
    return msgspec.json.encode(value).decode()


def _is_valid(schema: Schema, value: object) -> bool:
    try:
        return jsonschema_rs.is_valid(dict(schema), value)
    except (ValueError, jsonschema_rs.ReferencingError):
        return False  # not a valid schema, so no value fits


class _KnownFacts:
    """Facts found in the conversation, by property name. Each number and proper name is used once."""

    def __init__(self, about: str, answer: str) -> None:
        self.about = about
        self.answer = answer
        self.text = f"{about}\n{answer}".strip()
        self._folded = self.text.lower()
        self.known = _find_json_objects(self.text)
        self.numbers = [_parse_number(text) for text in NUMBER.findall(self.text)]
        self.names = list(dict.fromkeys(PROPER_NAME.findall(self.text)))

    def find_fact(self, name: str, kind: str) -> object:
        if name in self.known:
            return self.known[name]
        spaced_name = re.sub(r"[_-]|(?<=[a-z])(?=[A-Z])", " ", name).lower()
        name_pattern = re.escape(spaced_name).replace(r"\ ", "[ _-]")
        is_named = all(word in self._folded for word in spaced_name.split())  # far cheaper than a pattern
        patterns = (QUOTED_VALUE, STATED_VALUE) if is_named else ()
        searches = (re.search(p.format(name_pattern), self.text, re.IGNORECASE) for p in patterns)
        stated = next(filter(None, searches), None)
        if stated:
            return _convert_text(kind, stated.group(1).strip(" .\"'`"))
        if kind in ("integer", "number"):
            return self._next_number(whole=kind == "integer")
        if kind != "string":
            return None
        if ANSWER_NAMES.search(spaced_name):
            return self.answer or None
        return self.names.pop(0) if PROPER_NAME_FIELDS.search(spaced_name) and self.names else None

    def _next_number(self, *, whole: bool) -> object:
        for index, number in enumerate(self.numbers):
            if not whole or isinstance(number, int):
                return self.numbers.pop(index)
        return None

    def find_mentioned(self, options: Iterable[object]) -> object:
        for option in options:
            if isinstance(option, str) and re.search(rf"\b{re.escape(option)}\b", self.text, re.IGNORECASE):
                return option
        return None


class _ValueBuilder:
    def __init__(self, root: Schema, facts: _KnownFacts | None) -> None:
        self.root = root
        self.facts = facts
        self.left = VALUES_MAX

    def build(self, schema: object, name: str = "", depth: int = 0) -> object:
        self.left -= 1
        if not isinstance(schema, Mapping) or self.left < 0:
            return FILLER
        schema = self._resolve_schema(schema, depth)
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            return (self.facts.find_mentioned(options) if self.facts else None) or options[0]
        kind = _schema_type(schema)
        if depth >= DEPTH_END and kind in ("object", "array"):
            return {} if kind == "object" else []
        fact = self.facts.find_fact(name, kind) if self.facts and name else None
        match kind:
            case "object":
                return self._build_object(schema, fact, depth)
            case "array":
                return self._build_array(schema, fact, name, depth)
            case "integer" | "number":
                return (
                    fact if isinstance(fact, int | float) else _make_number(schema, whole=kind == "integer")
                )
            case "boolean":
                return fact if isinstance(fact, bool) else False
            case "null":
                return None
            case _:
                return _make_string(schema, fact if isinstance(fact, str) else "")

    def _resolve_schema(self, schema: Schema, depth: int) -> Schema:
        """Follow references, merge `allOf` and choose a branch."""
        for _ in range(DEPTH_MAX):
            if isinstance(schema.get("$ref"), str):
                schema = {**self._follow_reference(str(schema["$ref"])), **_drop_keys(schema, "$ref")}
            elif schema.get("allOf"):
                schema = _merge_schemas([_drop_keys(schema, "allOf"), *_as_schemas(schema["allOf"])])
            elif branches := _as_schemas(schema.get("anyOf")) or _as_schemas(schema.get("oneOf")):
                schema = {**_drop_keys(schema, "anyOf", "oneOf"), **_choose_branch(branches, depth)}
            else:
                break
        return schema

    def _follow_reference(self, reference: str) -> Schema:
        found: object = self.root
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(step) if isinstance(found, Mapping) and step else found
        return found if isinstance(found, Mapping) else {}

    def _build_object(self, schema: Schema, fact: object, depth: int) -> object:
        if isinstance(fact, Mapping):
            return fact
        properties = schema.get("properties")
        known_properties = properties if isinstance(properties, Mapping) else {}
        required = [str(name) for name in _as_list(schema.get("required"))]
        if self.facts and "required" not in schema and depth < DEPTH_MAX:
            required = list(known_properties)  # nothing is required, so everything known is included
        built = {name: self.build(known_properties.get(name, {}), name, depth + 1) for name in required}
        if self.facts and depth < DEPTH_MAX:
            built |= {name: self.facts.known[name] for name in known_properties if name in self.facts.known}
        properties_min = schema.get("minProperties")
        for number in range(
            min(int(properties_min), max(self.left, 0)) if isinstance(properties_min, int) else 0
        ):
            if len(built) < int(str(properties_min)):
                built[f"key{number + 1}"] = self.build(schema.get("additionalProperties"), "", depth + 1)
        return built

    def _build_array(self, schema: Schema, fact: object, name: str, depth: int) -> object:
        if isinstance(fact, list):
            return fact
        items_min, items_max = schema.get("minItems"), schema.get("maxItems")
        wanted = max(
            int(items_min) if isinstance(items_min, int) else 0, 1 if self.facts and depth < DEPTH_MAX else 0
        )
        count = min(wanted, int(items_max)) if isinstance(items_max, int) else wanted
        first = [self.build(item, name, depth + 1) for item in _as_list(schema.get("prefixItems"))]
        rest = list[object]()
        while len(first) + len(rest) < count and self.left > 0:
            rest.append(self.build(schema.get("items", {}), name, depth + 1))
        return _make_distinct(first + rest) if schema.get("uniqueItems") else first + rest


def _schema_type(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((option for option in kind if option != "null"), "null")
    if kind is None and ("properties" in schema or "required" in schema):
        return "object"
    return str(kind or "string")


def _choose_branch(branches: Sequence[Schema], depth: int) -> Schema:
    """Choose the first option that is not null, or null when the recursion must end."""
    ending = [branch for branch in branches if branch.get("type") == "null"]
    real = [branch for branch in branches if branch.get("type") != "null"]
    return (ending if depth >= DEPTH_MAX and ending else real or ending)[0]


def _merge_schemas(schemas: Sequence[Schema]) -> Schema:
    joined: dict[str, object] = {}
    for schema in schemas:
        for key, value in schema.items():
            before = joined.get(key)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                joined[key] = {**before, **value}
            elif isinstance(before, list) and isinstance(value, list):
                joined[key] = [*before, *(item for item in value if item not in before)]
            else:
                joined[key] = value
    return joined


def _make_number(schema: Schema, *, whole: bool) -> float:
    value: float = 0
    step = 1 if whole else 0.5
    minimum, exclusive_minimum = schema.get("minimum"), schema.get("exclusiveMinimum")
    maximum, exclusive_maximum = schema.get("maximum"), schema.get("exclusiveMaximum")
    if isinstance(minimum, int | float):
        value = max(value, minimum) if value < minimum else value
    if isinstance(exclusive_minimum, int | float) and value <= exclusive_minimum:
        value = exclusive_minimum + step
    if isinstance(maximum, int | float) and value > maximum:
        value = maximum
    if isinstance(exclusive_maximum, int | float) and value >= exclusive_maximum:
        value = exclusive_maximum - step
    multiple = schema.get("multipleOf")
    if isinstance(multiple, int | float) and multiple:
        value = -(-value // multiple) * multiple
    return int(value) if whole else value


def _make_string(schema: Schema, fact: str) -> str:
    text = _match_pattern(
        schema.get("pattern"), fact or FORMAT_SAMPLES.get(str(schema.get("format")), FILLER)
    )
    length_min, length_max = schema.get("minLength"), schema.get("maxLength")
    if isinstance(length_min, int):
        text = text.ljust(max(0, min(length_min, TEXT_CHARACTERS_MAX)), ".")
    return text[:length_max] if isinstance(length_max, int) else text


def _match_pattern(pattern: object, text: str) -> str:
    """Return the text, or the first sample that matches the pattern if the text does not."""
    if not isinstance(pattern, str):
        return text
    # The pattern is from outside: `re` has no limit for the time that a search may take.
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX)
    try:
        regex = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return text
    return next(
        (sample for sample in (text, *PATTERN_SAMPLES, *FORMAT_SAMPLES.values()) if regex.is_valid(sample)),
        text,
    )


def _make_distinct(items: list[object]) -> list[object]:
    distinct: list[object] = []
    for index, item in enumerate(items):
        if isinstance(item, str) and index:
            distinct.append(f"{item} {index}")
        elif isinstance(item, int | float) and not isinstance(item, bool):
            distinct.append(item + index)
        else:
            distinct.append(item)
    return distinct


def _convert_text(kind: str, text: str) -> object:
    """Convert a text to the requested type, or return None."""
    if kind in ("integer", "number"):
        number = NUMBER.search(text)
        return _parse_number(number.group()) if number else None
    if kind == "boolean":
        return text.lower() in ("yes", "true")
    return text or None


def _parse_number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _find_json_objects(text: str) -> dict[str, object]:
    """Collect the members of JSON objects that stand on lines of their own; later ones win."""
    known: dict[str, object] = {}
    for line in [text, *text.splitlines()]:
        if line.strip().startswith("{"):
            try:
                known |= msgspec.json.decode(line, type=dict[str, object])
            except msgspec.DecodeError:
                continue  # braces without JSON
    return known


def _as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _as_schemas(value: object) -> list[Schema]:
    return [item for item in _as_list(value) if isinstance(item, Mapping)]


def _drop_keys(schema: Schema, *keys: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keys}
