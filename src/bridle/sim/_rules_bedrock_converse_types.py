"""The fields of a Converse request, each with the kind of JSON it is read into.

The service reads JSON into its own types before it checks any constraint, tells the first misfit, and says
neither where it was nor what it was.  A null is nothing.
"""

from msgspec.structs import replace

from ._rules_bedrock_converse_shape import BUDGETS, asked, rule, text, tool, user
from ._rules_shapes import KINDS, Row, Sentence, Shapes, Voice
from .rules import Found, Rule

UNREADABLE = "SerializationException"
FIELDS = (
    "additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig", "inferenceConfig",
    "messages", "modelId", "outputConfig", "performanceConfig", "promptVariables", "requestMetadata",
    "serviceTier", "system", "toolConfig",
)  # fmt: skip
TOKENS = {
    "integer": "NUMBER_VALUE",
    "number": "NUMBER_VALUE",
    "string": "STRING_VALUE",
}
_LIST = "Start of list found where not expected"
_STRUCTURE = "Start of structure or map found where not expected."
_NO_LIST = "Expected list or null"
_NO_STRUCTURE = "Expected null"
_NO_STRING = "NUMBER_VALUE can not be converted to a String"


def _misfit(value: object, expected: str) -> Found:
    """What is said of a value that cannot be read as what was expected: a list, a structure or a scalar."""
    kind = KINDS[type(value)]
    if kind == "array":
        return {"fault": _LIST}
    if kind == "object":
        return {"fault": _STRUCTURE}
    if not expected.startswith("a"):
        return {"fault": expected}
    token = f"{value}_VALUE".upper() if isinstance(value, bool) else TOKENS[kind]
    return {"fault": f"{token} can not be converted to {expected}"}


SHAPES = Shapes(
    Voice(
        asked=asked,
        rule=rule,
        sentences={
            "type": Sentence("{fault}", UNREADABLE),
            "fields-of-all": Sentence(
                "Malformed input request: #: extraneous key [{name}] is not permitted, please reformat your"
                " input and try again.",
                "ValidationException",
            ),
        },
        expects={
            "boolean": "a Boolean",
            "number": "an Integer",
            "string": "a String",
            "array": _NO_LIST,
            "object": _NO_STRUCTURE,
        },
        member=".{}.member",
        first=1,
        null_is_absent=True,
        mismatch=_misfit,
    )
)


_USER = {"role": "user"}
_STRING, _SCALAR = Row(says=_NO_STRING), "STRING_VALUE can not be converted to {}"
_SECTION, _ROWS = Row(says=_NO_STRUCTURE), Row(says=_NO_LIST)
_READ = (
    (replace(asked(), body={"messages": 5}), _NO_LIST),
    (replace(asked(), body={"messages": {}}), _STRUCTURE),
    (replace(asked(), body={"messages": None}), ""),
)


def _number(name: str, takes: float, expected: str) -> Rule:
    """Fractions are cut off where a whole number is read; words are not read as numbers."""
    path, row = f"inferenceConfig.{name}", Row(says=_SCALAR.format(expected), model=BUDGETS)
    also = (
        (asked(inferenceConfig={name: True}), f"TRUE_VALUE can not be converted to {expected}"),
        (asked(inferenceConfig={name: False}), f"FALSE_VALUE can not be converted to {expected}"),
        (asked(inferenceConfig={name: [1]}), _LIST),
    )
    return SHAPES.typed(path, "number", takes, "x", row._replace(also=also), expected=expected)


TYPE_RULES = (
    SHAPES.known("", FIELDS, {"requestMetadata": {"k": "v"}}, "max_tokens", Row(id="fields", evidence="K")),
    SHAPES.typed("messages", "array", [user("Hello")], "Hello", _ROWS._replace(also=_READ)),
    SHAPES.typed("messages[]", "object", user("Hello"), "Hello", _SECTION._replace(id="message-type")),
    SHAPES.typed(
        "messages[].content",
        "array",
        [text("Hello")],
        "Hello",
        _ROWS._replace(id="content-type", within=_USER),
    ),
    SHAPES.typed(
        "messages[].content[]",
        "object",
        asked(),
        asked(messages=[user(text("Hello"), 5)]),
        _SECTION._replace(id="block-type"),
    ),
    SHAPES.typed(
        "messages[].content[].text",
        "string",
        asked(),
        asked(messages=[user(text("Hello"), {"text": 5})]),
        _STRING._replace(id="text-type"),
    ),
    SHAPES.typed("system", "array", [text("Be brief.")], "Be brief.", _ROWS),
    SHAPES.typed(
        "system[]", "object", text("Be brief."), "Be brief.", _SECTION._replace(id="system-block-type")
    ),
    SHAPES.typed("system[].text", "string", "Be brief.", 5, _STRING),
    SHAPES.typed("inferenceConfig", "object", {"maxTokens": 9}, "x", _SECTION),
    _number("maxTokens", 9.5, "an Integer"),
    _number("temperature", 1, "a Float"),
    _number("topP", 0.5, "a Float"),
    SHAPES.typed("inferenceConfig.stopSequences", "array", ["END"], "END", _ROWS),
    SHAPES.typed("inferenceConfig.stopSequences[]", "string", "END", 5, _STRING._replace(id="stop-type")),
    SHAPES.typed("toolConfig", "object", {"tools": [tool()]}, "look", _SECTION),
    SHAPES.typed("toolConfig.tools", "array", [tool()], "look", _ROWS),
    SHAPES.typed("toolConfig.tools[]", "object", tool(), "look", _SECTION._replace(id="tool-type")),
    SHAPES.typed(
        "toolConfig.toolChoice", "object", {"auto": {}}, "auto", _SECTION._replace(within={"tools": [tool()]})
    ),
    SHAPES.typed("outputConfig", "object", {"effort": "low"}, "low", _SECTION),
    SHAPES.typed("outputConfig.effort", "string", "low", 5, _STRING),
    SHAPES.typed("performanceConfig", "object", {"latency": "standard"}, "standard", _SECTION),
    SHAPES.typed("performanceConfig.latency", "string", "standard", 5, _STRING),
    SHAPES.typed("serviceTier", "object", {"type": "flex"}, "flex", _SECTION),
    SHAPES.typed("guardrailConfig", "object", {"guardrailVersion": "1"}, "x", _SECTION),
    SHAPES.typed("requestMetadata", "object", {"k": "v"}, "x", _SECTION),
    SHAPES.typed("additionalModelResponseFieldPaths", "array", ["/stop"], "/stop", _ROWS),
)
