"""The fields of a generateContent request, each with the type it is read into.

JSON is read into messages of named types before anybody looks at what it says, and the reader is generous:
a number may be written as a string, one thing may stand where a list belongs, a null is nothing.  What it
cannot read it names by place, type and value.
"""

import re
from collections.abc import Sequence

from ._rules_gemini_shape import asked, call, configured, response, rule, snake, tool, user
from ._rules_reading import Block
from ._rules_shapes import KINDS, PLAIN, Row, Sentence, Shapes, Voice, spots
from .rules import Asked, Found, Rule

INVALID = "INVALID_ARGUMENT"
NAMESPACE = "type.googleapis.com/google.ai.generativelanguage.v1beta."
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
TYPES = {
    "boolean": "TYPE_BOOL",
    "integer": "TYPE_INT32",
    "number": "TYPE_FLOAT",
    "string": "TYPE_STRING",
}
CONFIG = (
    "audioTimestamp", "candidateCount", "enableAffectiveDialog", "enableEnhancedCivicAnswers",
    "frequencyPenalty", "imageConfig", "logprobs", "maxOutputTokens", "mediaResolution",
    "modelSelectionConfig", "presencePenalty", "responseFormat", "responseJsonSchema", "responseLogprobs",
    "responseMimeType", "responseModalities", "responseSchema", "routingConfig", "seed", "speechConfig",
    "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
)  # fmt: skip
_UNKNOWN = 'Invalid JSON payload received. Unknown name "{name}"'
_NO_LIST = "Proto field is not repeating, cannot start list."


def _readable(value: object, kinds: Sequence[str]) -> bool:
    """Whether the reader makes one of these kinds of a value."""
    written = "number" in kinds and isinstance(value, str) and NUMBER.fullmatch(value) is not None
    return written or KINDS[type(value)] in kinds


SHAPES = Shapes(
    Voice(
        asked=asked,
        rule=rule,
        sentences={
            "type": Sentence("Invalid value at '{at}' (<expected>), {shown}", INVALID),
            "fields": Sentence(_UNKNOWN + " at '{inside}': Cannot find field.", INVALID),
        },
        expects=TYPES,
        spelled=snake,
        null_is_absent=True,
        fits=_readable,
    )
)


def _message(path: str, name: str, takes: object, refuses: object, row: Row = PLAIN) -> Rule:
    """A field that holds a message of a named type; where a list of them belongs, one will do."""
    return SHAPES.typed(path, "object|array", takes, refuses, row, expected=NAMESPACE + name)


def _setting(name: str, kind: str, takes: object, refuses: object, evidence: str = "F") -> Rule:
    """One of the settings; whole numbers may be written with a point."""
    kinds, expected = ("number", TYPES["integer"]) if kind == "integer" else (kind, TYPES[kind])
    row = Row(id=f"{snake(name).replace('_', '-')}-type", evidence=evidence)
    return SHAPES.typed(f"generationConfig.{name}", kinds, takes, refuses, row, expected=expected)


SINGLE = (
    "systemInstruction", "generationConfig", "toolConfig", "cachedContent",
    "toolConfig.functionCallingConfig",
    "toolConfig.functionCallingConfig.mode", "generationConfig.thinkingConfig",
    *(f"generationConfig.{name}" for name in CONFIG if name not in ("responseModalities", "stopSequences")),
    "contents[].role", "contents[].parts[].text", "contents[].parts[].functionCall",
    "contents[].parts[].functionResponse", "tools[].functionDeclarations[].name",
)  # fmt: skip
"""Where one value belongs and a list cannot be read."""


def _list_begun(request: Asked) -> Found | None:
    for path in SINGLE:
        for spot in spots(SHAPES.voice, request.body, path):
            if isinstance(spot.value, list):
                place = f" at '{spot.inside}'" if spot.inside else ""
                return {"name": snake(path.rpartition(".")[2]), "place": place}
    return None


_CALLING: Block = {"role": "model", "parts": [{"functionCall": "look"}]}
_PART = "contents[].parts[]"


def _part(id_: str, path: str, name: str, takes: Asked, part: object, shown: str) -> Rule:
    """A field of the second part of the first content."""
    expected = TYPES.get(name, NAMESPACE + name)
    place = f"contents[0].parts[1]{'.' if path else ''}{snake(path)}"
    return SHAPES.typed(
        f"{_PART}.{path}".rstrip("."),
        name if name in TYPES else "object|array",
        takes,
        asked(contents=[{"role": "user", "parts": [{"text": "Look"}, part]}]),
        Row(id=id_, says=f"Invalid value at '{place}' ({expected}), {shown}"),
        expected=expected,
    )


_SAID = asked(contents=[user("Hello")])
_CALLED = asked(contents=[user("Look"), {"role": "model", "parts": [call()]}, user(response())])

FIELD_RULES = (
    rule(
        "no-list",
        _list_begun,
        _UNKNOWN + "{place}: " + _NO_LIST,
        evidence="S",
        passes=configured(stopSequences=["END"], temperature=1),
        offends=configured(maxOutputTokens=[5]),
        says="Invalid JSON payload received. Unknown name \"max_output_tokens\" at 'generation_config':"
        f" {_NO_LIST}",
        also=(
            (
                asked(generation_config=[]),
                f'Invalid JSON payload received. Unknown name "generation_config": {_NO_LIST}',
            ),
        ),
    ),
    _message("contents", "Content", [user("Hello")], "Hello", Row(evidence="S")),
    _message("contents[]", "Content", user("Hello"), "Hello", Row(id="content-type")),
    SHAPES.typed("contents[].role", "string", "user", {}, Row(id="role-type", within=user("Hello"))),
    _message("contents[].parts", "Part", [{"text": "Hello"}], "Hello", Row(id="parts-type")),
    _part("part-type", "", "Part", _SAID, "Look", '"Look"'),
    _part("text-type", "text", "string", _SAID, {"text": 5}, "5"),
    _part("call-type", "functionCall", "FunctionCall", _CALLED, {"functionCall": 5}, "5"),
    _part("call-name-type", "functionCall.name", "string", _CALLED, {"functionCall": {"name": 5}}, "5"),
    _part("response-type", "functionResponse", "FunctionResponse", _CALLED, {"functionResponse": 5}, "5"),
    _message("systemInstruction", "Content", user("Be brief."), "Be brief.", Row(evidence="S")),
    _message("tools", "Tool", [tool()], "look"),
    _message("tools[]", "Tool", tool(), "look", Row(id="tool-type")),
    _message("toolConfig", "ToolConfig", {}, 5),
    SHAPES.known(
        "toolConfig",
        ("functionCallingConfig", "retrievalConfig", "includeServerSideToolInvocations"),
        {},
        "tool_choice",
    ),
    _message("toolConfig.functionCallingConfig", "FunctionCallingConfig", {}, "ANY"),
    SHAPES.known(
        "toolConfig.functionCallingConfig",
        ("mode", "allowedFunctionNames", "streamFunctionCallArguments"),
        {},
        "name",
        Row(id="choice-fields"),
    ),
    _message("generationConfig", "GenerationConfig", {"temperature": 1}, "5"),
    SHAPES.known("generationConfig", CONFIG, {"topK": 40}, "max_tokens"),
    _setting("maxOutputTokens", "integer", "512", "many"),
    _setting("temperature", "number", 1, "hot"),
    _setting("topP", "number", 0.5, "wide"),
    _setting("topK", "integer", 40.0, {}),
    _setting("candidateCount", "integer", 1, "x"),
    _setting("seed", "integer", 1, "x", "S"),
    _setting("presencePenalty", "number", 0.5, "x"),
    _setting("frequencyPenalty", "number", 0.5, "x"),
    _setting("responseMimeType", "string", "text/plain", 5),
    _setting("responseLogprobs", "boolean", True, "yes"),
    _setting("logprobs", "integer", 1, "x"),
    _message("generationConfig.thinkingConfig", "ThinkingConfig", {}, "high", Row(id="thinking-config-type")),
    SHAPES.known(
        "generationConfig.thinkingConfig",
        ("includeThoughts", "thinkingBudget", "thinkingLevel"),
        {},
        "effort",
        Row(id="thinking-config-fields"),
    ),
    _setting("thinkingConfig.includeThoughts", "boolean", True, "yes"),
    _setting("thinkingConfig.thinkingBudget", "integer", 1024, "high", "S"),
    _setting("stopSequences[]", "string", "END", 5),
    SHAPES.typed("cachedContent", "string", "cachedContents/1", 5),
)
