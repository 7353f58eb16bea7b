"""The fields of a Converse request, each with the kind of JSON it is read into.

The service reads JSON into its own types before it checks any constraint, tells the first misfit, and says
neither where it was nor what it was.  A null is nothing.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import JSON_TYPES, ErrorStyle, FieldMessage, FieldRow, FieldRules
from bridle.sim.rules.raw_request import as_list, as_mapping

from .request import THINKING_BUDGETS, example, messages, rule, text, tool, tools, user

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
_NO_STRING = "NUMBER_VALUE can not be converted to a String"


def _describe_mismatch(value: object, expected: str) -> RuleFinding:
    """What is said of a value that cannot be read as what was expected: a list, a structure or a scalar."""
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
        example=example,
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


_USER = {"role": "user"}
_STRING, _SCALAR = FieldRow(says=_NO_STRING), "STRING_VALUE can not be converted to {}"
_SECTION, _ROWS = FieldRow(says=_NO_STRUCTURE), FieldRow(says=_NO_LIST)
_READ = (
    (replace(example(), body={"messages": 5}), _NO_LIST),
    (replace(example(), body={"messages": {}}), _STRUCTURE),
    (replace(example(), body={"messages": None}), ""),
)


def _number_rule(name: str, takes: float, expected: str) -> ProviderRule:
    """Fractions are cut off where a whole number is read; words are not read as numbers."""
    path, row = f"inferenceConfig.{name}", FieldRow(says=_SCALAR.format(expected), model=THINKING_BUDGETS)
    also = (
        (example(inferenceConfig={name: True}), f"TRUE_VALUE can not be converted to {expected}"),
        (example(inferenceConfig={name: False}), f"FALSE_VALUE can not be converted to {expected}"),
        (example(inferenceConfig={name: [1]}), _LIST),
    )
    return FIELD_CHECKS.of_type(path, "number", takes, "x", row._replace(also=also), expected=expected)


TYPE_RULES = (
    FIELD_CHECKS.only_fields(
        "", BODY_FIELDS, {"requestMetadata": {"k": "v"}}, "max_tokens", FieldRow(id="fields", evidence="K")
    ),
    FIELD_CHECKS.of_type("messages", "array", [user("Hello")], "Hello", _ROWS._replace(also=_READ)),
    FIELD_CHECKS.of_type(
        "messages[]", "object", user("Hello"), "Hello", _SECTION._replace(id="message-type")
    ),
    FIELD_CHECKS.of_type(
        "messages[].content",
        "array",
        [text("Hello")],
        "Hello",
        _ROWS._replace(id="content-type", within=_USER),
    ),
    FIELD_CHECKS.of_type(
        "messages[].content[]",
        "object",
        example(),
        example(messages=[user(text("Hello"), 5)]),
        _SECTION._replace(id="block-type"),
    ),
    FIELD_CHECKS.of_type(
        "messages[].content[].text",
        "string",
        example(),
        example(messages=[user(text("Hello"), {"text": 5})]),
        _STRING._replace(id="text-type"),
    ),
    FIELD_CHECKS.of_type("system", "array", [text("Be brief.")], "Be brief.", _ROWS),
    FIELD_CHECKS.of_type(
        "system[]", "object", text("Be brief."), "Be brief.", _SECTION._replace(id="system-block-type")
    ),
    FIELD_CHECKS.of_type("system[].text", "string", "Be brief.", 5, _STRING),
    FIELD_CHECKS.of_type("inferenceConfig", "object", {"maxTokens": 9}, "x", _SECTION),
    _number_rule("maxTokens", 9.5, "an Integer"),
    _number_rule("temperature", 1, "a Float"),
    _number_rule("topP", 0.5, "a Float"),
    FIELD_CHECKS.of_type("inferenceConfig.stopSequences", "array", ["END"], "END", _ROWS),
    FIELD_CHECKS.of_type(
        "inferenceConfig.stopSequences[]", "string", "END", 5, _STRING._replace(id="stop-type")
    ),
    FIELD_CHECKS.of_type("toolConfig", "object", {"tools": [tool()]}, "look", _SECTION),
    FIELD_CHECKS.of_type("toolConfig.tools", "array", [tool()], "look", _ROWS),
    FIELD_CHECKS.of_type("toolConfig.tools[]", "object", tool(), "look", _SECTION._replace(id="tool-type")),
    FIELD_CHECKS.of_type(
        "toolConfig.toolChoice", "object", {"auto": {}}, "auto", _SECTION._replace(within={"tools": [tool()]})
    ),
    FIELD_CHECKS.of_type("outputConfig", "object", {"effort": "low"}, "low", _SECTION),
    FIELD_CHECKS.of_type("outputConfig.effort", "string", "low", 5, _STRING),
    FIELD_CHECKS.of_type("performanceConfig", "object", {"latency": "standard"}, "standard", _SECTION),
    FIELD_CHECKS.of_type("performanceConfig.latency", "string", "standard", 5, _STRING),
    FIELD_CHECKS.of_type("serviceTier", "object", {"type": "flex"}, "flex", _SECTION),
    FIELD_CHECKS.of_type("guardrailConfig", "object", {"guardrailVersion": "1"}, "x", _SECTION),
    FIELD_CHECKS.of_type("requestMetadata", "object", {"k": "v"}, "x", _SECTION),
    FIELD_CHECKS.of_type("additionalModelResponseFieldPaths", "array", ["/stop"], "/stop", _ROWS),
)


# Blocks and tools in the shapes of other wires: a member of a union that Converse does not have.


LISTED_BLOCKS = (
    "text", "image", "toolUse", "toolResult", "document", "video", "cachePoint", "reasoningContent",
    "citationsContent", "searchResult",
)  # fmt: skip
"""The keys of a block that a refusal lists."""
BLOCKS = (*LISTED_BLOCKS, "audio", "guardContent", "toolAddition", "toolRemoval")
TOOLS = ("toolSpec", "systemTool", "cachePoint")
_MEMBER_MESSAGE = "{kind} object at {at} must set one of the following keys: {keys}."


def _lacks_all(item: object, keys: Sequence[str]) -> bool:
    return all(as_mapping(item).get(key) is None for key in keys)


def _check_block_member(request: RawRequest) -> RuleFinding | None:
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(as_list(message.get("content"))):
            if _lacks_all(block, BLOCKS):
                at = f"messages.{index}.content.{inner}"
                return {"kind": "ContentBlock", "at": at, "keys": ", ".join(LISTED_BLOCKS)}
    return None


def _check_tool_member(request: RawRequest) -> RuleFinding | None:
    for index, item in enumerate(tools(request)):
        if _lacks_all(item, TOOLS):
            return {"kind": "Tool", "at": f"toolConfig.tools.{index}", "keys": ", ".join(TOOLS)}
    return None


_FOREIGN_TOOL = {"name": "look", "input_schema": {"type": "object"}}

FOREIGN_RULES = (
    rule(
        "block-member",
        _check_block_member,
        _MEMBER_MESSAGE,
        evidence="S",
        passes=example(messages=[user(text("Hello"))]),
        offends=example(messages=[user(text("Hello"), {"type": "thinking", "thinking": "Hm."})]),
        says=_MEMBER_MESSAGE.format(
            kind="ContentBlock", at="messages.0.content.1", keys=", ".join(LISTED_BLOCKS)
        ),
        also=((example(messages=[user(text("Hello"), {"guardContent": {"text": {"text": "Hm."}}})]), ""),),
    ),
    rule(
        "tool-member",
        _check_tool_member,
        _MEMBER_MESSAGE,
        evidence="K",
        passes=example(toolConfig={"tools": [tool(), {"cachePoint": {"type": "default"}}]}),
        offends=example(toolConfig={"tools": [tool(), _FOREIGN_TOOL]}),
        says=_MEMBER_MESSAGE.format(kind="Tool", at="toolConfig.tools.1", keys=", ".join(TOOLS)),
    ),
)
