"""Field rules of a Converse request: the JSON type of each field.

The service parses JSON into its own types before it checks any constraint; it reports the first mismatch,
with neither path nor value. Null counts as absent. Blocks and tools in the shapes of other wires are members
of a union that Converse does not have.
"""

from collections.abc import Sequence

from bridle.sim.rules.engine import ProviderRule, RuleFinding
from bridle.sim.rules.field_rules import (
    JSON_TYPES,
    ErrorStyle,
    FieldMessage,
    FieldRow,
    FieldRules,
    ObjectCondition,
)
from bridle.sim.rules.raw_request import JsonObject

from .request import rule

UNREADABLE_CODE = "SerializationException"
BODY_FIELDS = (
    "additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig", "inferenceConfig",
    "messages", "modelId", "outputConfig", "performanceConfig", "promptVariables", "requestMetadata",
    "serviceTier", "system", "toolConfig",
)  # fmt: skip
TOKEN_NAMES = {
    "integer": "NUMBER_VALUE",
    "number": "NUMBER_VALUE",
    "string": "STRING_VALUE",
}
_LIST = "Start of list found where not expected"
_STRUCTURE = "Start of structure or map found where not expected."
_NO_LIST = "Expected list or null"
_NO_STRUCTURE = "Expected null"


def _describe_mismatch(value: object, expected: str) -> RuleFinding:
    """Describe a value that cannot be parsed as expected: a list, a structure or a scalar."""
    kind = JSON_TYPES[type(value)]
    if kind == "array":
        return {"fault": _LIST}
    if kind == "object":
        return {"fault": _STRUCTURE}
    if not expected.startswith("a"):
        return {"fault": expected}
    token = f"{value}_VALUE".upper() if isinstance(value, bool) else TOKEN_NAMES[kind]
    return {"fault": f"{token} can not be converted to {expected}"}


FIELD_CHECKS = FieldRules(
    ErrorStyle(
        rule=rule,
        messages={
            "type": FieldMessage("{fault}", UNREADABLE_CODE),
            "fields-of-all": FieldMessage(
                "Malformed input request: #: extraneous key [{name}] is not permitted, please reformat your"
                " input and try again.",
                "ValidationException",
            ),
        },
        expected_names={
            "boolean": "a Boolean",
            "number": "an Integer",
            "string": "a String",
            "array": _NO_LIST,
            "object": _NO_STRUCTURE,
        },
        index_format=".{}.member",
        first_index=1,
        null_is_absent=True,
        describe_mismatch=_describe_mismatch,
    )
)
refuse = FieldRules(ErrorStyle(rule=rule, messages={}, expected_names={}, index_format=".{}")).refuse
"""Makes rules about what fields mean; their messages count places from zero."""
BLOCKS = "messages[].content[]"


def _number_rule(name: str, expected: str) -> ProviderRule:
    """Make a rule for a number: fractions are truncated to integers, but strings are not parsed."""
    return FIELD_CHECKS.of_type(f"inferenceConfig.{name}", "number", expected=expected)


TYPE_RULES = (
    FIELD_CHECKS.only_fields("", BODY_FIELDS, FieldRow(id="fields", evidence="K")),
    FIELD_CHECKS.of_type("messages", "array"),
    FIELD_CHECKS.of_type("messages[]", "object", FieldRow(id="message-type")),
    FIELD_CHECKS.of_type("messages[].content", "array", FieldRow(id="content-type")),
    FIELD_CHECKS.of_type("messages[].content[]", "object", FieldRow(id="block-type")),
    FIELD_CHECKS.of_type("messages[].content[].text", "string", FieldRow(id="text-type")),
    FIELD_CHECKS.of_type("system", "array"),
    FIELD_CHECKS.of_type("system[]", "object", FieldRow(id="system-block-type")),
    FIELD_CHECKS.of_type("system[].text", "string"),
    FIELD_CHECKS.of_type("inferenceConfig", "object"),
    _number_rule("maxTokens", "an Integer"),
    _number_rule("temperature", "a Float"),
    _number_rule("topP", "a Float"),
    FIELD_CHECKS.of_type("inferenceConfig.stopSequences", "array"),
    FIELD_CHECKS.of_type("inferenceConfig.stopSequences[]", "string", FieldRow(id="stop-type")),
    FIELD_CHECKS.of_type("toolConfig", "object"),
    FIELD_CHECKS.of_type("toolConfig.tools", "array"),
    FIELD_CHECKS.of_type("toolConfig.tools[]", "object", FieldRow(id="tool-type")),
    FIELD_CHECKS.of_type("toolConfig.toolChoice", "object"),
    FIELD_CHECKS.of_type("outputConfig", "object"),
    FIELD_CHECKS.of_type("outputConfig.effort", "string"),
    FIELD_CHECKS.of_type("performanceConfig", "object"),
    FIELD_CHECKS.of_type("performanceConfig.latency", "string"),
    FIELD_CHECKS.of_type("serviceTier", "object"),
    FIELD_CHECKS.of_type("guardrailConfig", "object"),
    FIELD_CHECKS.of_type("requestMetadata", "object"),
    FIELD_CHECKS.of_type("additionalModelResponseFieldPaths", "array"),
)


LISTED_BLOCKS = (
    "text", "image", "toolUse", "toolResult", "document", "video", "cachePoint", "reasoningContent",
    "citationsContent", "searchResult",
)  # fmt: skip
"""Keys of a block that a refusal lists."""
KNOWN_BLOCKS = (*LISTED_BLOCKS, "audio", "guardContent", "toolAddition", "toolRemoval")
TOOLS = ("toolSpec", "systemTool", "cachePoint")
_MEMBER_MESSAGE = "{kind} object at {at} must set one of the following keys: {keys}."


def _require_member(kind: str, known: Sequence[str], listed: Sequence[str]) -> ObjectCondition:
    def lacks_all(item: JsonObject) -> RuleFinding | None:
        has_one = any(item.get(key) is not None for key in known)
        return None if has_one else {"kind": kind, "keys": ", ".join(listed)}

    return lacks_all


FOREIGN_RULES = (
    refuse(
        "block-member",
        BLOCKS,
        _require_member("ContentBlock", KNOWN_BLOCKS, LISTED_BLOCKS),
        _MEMBER_MESSAGE,
        evidence="S",
    ),
    refuse(
        "tool-member",
        "toolConfig.tools[]",
        _require_member("Tool", TOOLS, TOOLS),
        _MEMBER_MESSAGE,
        evidence="K",
    ),
)
