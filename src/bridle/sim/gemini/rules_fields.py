"""Field rules of a generateContent request: the type of each field.

JSON is parsed into messages of named types before anything else, and the parser is tolerant: a number may be
a string, one object may stand for a list, null counts as absent. What it cannot parse it reports by path,
type and value.
"""

import re
from collections.abc import Sequence

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import (
    DEFAULT_ROW,
    JSON_TYPES,
    ErrorStyle,
    FieldMessage,
    FieldRow,
    FieldRules,
    find_places,
)

from .request import as_list, rule, to_snake_case

INVALID = "INVALID_ARGUMENT"
NAMESPACE = "type.googleapis.com/google.ai.generativelanguage.v1beta."
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
TYPES = {
    "boolean": "TYPE_BOOL",
    "integer": "TYPE_INT32",
    "number": "TYPE_FLOAT",
    "string": "TYPE_STRING",
}
CONFIG_FIELDS = (
    "audioTimestamp", "candidateCount", "enableAffectiveDialog", "enableEnhancedCivicAnswers",
    "frequencyPenalty", "imageConfig", "logprobs", "maxOutputTokens", "mediaResolution",
    "modelSelectionConfig", "presencePenalty", "responseFormat", "responseJsonSchema", "responseLogprobs",
    "responseMimeType", "responseModalities", "responseSchema", "routingConfig", "seed", "speechConfig",
    "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
)  # fmt: skip
_UNKNOWN = 'Invalid JSON payload received. Unknown name "{name}"'
_NO_LIST = "Proto field is not repeating, cannot start list."


def _is_readable(value: object, kinds: Sequence[str]) -> bool:
    """True if the parser can convert the value to one of these types."""
    written = "number" in kinds and isinstance(value, str) and NUMBER.fullmatch(value) is not None
    return written or JSON_TYPES[type(value)] in kinds


FIELD_CHECKS = FieldRules(
    ErrorStyle(
        rule=rule,
        messages={
            "type": FieldMessage("Invalid value at '{at}' (<expected>), {shown}", INVALID),
            "fields": FieldMessage(_UNKNOWN + " at '{inside}': Cannot find field.", INVALID),
            "fields-of-all": FieldMessage(_UNKNOWN + ": Cannot find field.", INVALID),
        },
        expected_names=TYPES,
        spell_name=to_snake_case,
        null_is_absent=True,
        is_of_type=_is_readable,
    )
)
refuse = FieldRules(
    ErrorStyle(rule=rule, messages={}, expected_names={}, spell_name=to_snake_case, read_list=as_list)
).refuse
"""Makes rules about what fields mean; an object in place of a list is a list of one."""


def _message_rule(path: str, name: str, row: FieldRow = DEFAULT_ROW) -> ProviderRule:
    """Make a rule for a field that holds a message of a named type, or a list of them."""
    return FIELD_CHECKS.of_type(path, "object|array", row, expected=NAMESPACE + name)


def _setting_rule(name: str, kind: str, evidence: str = "F") -> ProviderRule:
    """Make a rule for a setting; integers may be written with a decimal point."""
    kinds, expected = ("number", TYPES["integer"]) if kind == "integer" else (kind, TYPES[kind])
    row = FieldRow(id=f"{to_snake_case(name).replace('_', '-')}-type", evidence=evidence)
    return FIELD_CHECKS.of_type(f"generationConfig.{name}", kinds, row, expected=expected)


SINGLE_FIELDS = (
    "systemInstruction", "generationConfig", "toolConfig", "cachedContent",
    "toolConfig.functionCallingConfig",
    "toolConfig.functionCallingConfig.mode", "generationConfig.thinkingConfig",
    *(f"generationConfig.{name}" for name in CONFIG_FIELDS if name not in ("responseModalities", "stopSequences")),
    "contents[].role", "contents[].parts[].text", "contents[].parts[].functionCall",
    "contents[].parts[].functionResponse", "tools[].functionDeclarations[].name",
)  # fmt: skip
"""Fields with a single value, where a list cannot be parsed."""


def _check_no_list(request: RawRequest) -> RuleFinding | None:
    for path in SINGLE_FIELDS:
        for spot in find_places(FIELD_CHECKS.style, request.body, path):
            if isinstance(spot.value, list):
                place = f" at '{spot.parent_path}'" if spot.parent_path else ""
                return {"name": to_snake_case(path.rpartition(".")[2]), "place": place}
    return None


_PART = "contents[].parts[]"


def _part_rule(id_: str, path: str, name: str) -> ProviderRule:
    """Make a rule for a field of the second part of the first content."""
    expected = TYPES.get(name, NAMESPACE + name)
    return FIELD_CHECKS.of_type(
        f"{_PART}.{path}".rstrip("."),
        name if name in TYPES else "object|array",
        FieldRow(id=id_),
        expected=expected,
    )


FIELD_RULES = (
    rule("no-list", _check_no_list, _UNKNOWN + "{place}: " + _NO_LIST, evidence="S"),
    _message_rule("contents", "Content", FieldRow(evidence="S")),
    _message_rule("contents[]", "Content", FieldRow(id="content-type")),
    FIELD_CHECKS.of_type("contents[].role", "string", FieldRow(id="role-type")),
    _message_rule("contents[].parts", "Part", FieldRow(id="parts-type")),
    _part_rule("part-type", "", "Part"),
    _part_rule("text-type", "text", "string"),
    _part_rule("call-type", "functionCall", "FunctionCall"),
    _part_rule("call-name-type", "functionCall.name", "string"),
    _part_rule("response-type", "functionResponse", "FunctionResponse"),
    _message_rule("systemInstruction", "Content", FieldRow(evidence="S")),
    _message_rule("tools", "Tool"),
    _message_rule("tools[]", "Tool", FieldRow(id="tool-type")),
    _message_rule("toolConfig", "ToolConfig"),
    FIELD_CHECKS.only_fields(
        "toolConfig", ("functionCallingConfig", "retrievalConfig", "includeServerSideToolInvocations")
    ),
    _message_rule("toolConfig.functionCallingConfig", "FunctionCallingConfig"),
    FIELD_CHECKS.only_fields(
        "toolConfig.functionCallingConfig",
        ("mode", "allowedFunctionNames", "streamFunctionCallArguments"),
        FieldRow(id="choice-fields"),
    ),
    _message_rule("generationConfig", "GenerationConfig"),
    FIELD_CHECKS.only_fields("generationConfig", CONFIG_FIELDS),
    _setting_rule("maxOutputTokens", "integer"),
    _setting_rule("temperature", "number"),
    _setting_rule("topP", "number"),
    _setting_rule("topK", "integer"),
    _setting_rule("candidateCount", "integer"),
    _setting_rule("seed", "integer", "S"),
    _setting_rule("presencePenalty", "number"),
    _setting_rule("frequencyPenalty", "number"),
    _setting_rule("responseMimeType", "string"),
    _setting_rule("responseLogprobs", "boolean"),
    _setting_rule("logprobs", "integer"),
    _message_rule("generationConfig.thinkingConfig", "ThinkingConfig", FieldRow(id="thinking-config-type")),
    FIELD_CHECKS.only_fields(
        "generationConfig.thinkingConfig",
        ("includeThoughts", "thinkingBudget", "thinkingLevel"),
        FieldRow(id="thinking-config-fields"),
    ),
    _setting_rule("thinkingConfig.includeThoughts", "boolean"),
    _setting_rule("thinkingConfig.thinkingBudget", "integer", "S"),
    _setting_rule("stopSequences[]", "string"),
    FIELD_CHECKS.of_type("cachedContent", "string"),
)
