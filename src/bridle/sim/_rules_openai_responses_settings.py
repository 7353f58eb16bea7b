"""Settings of the Responses wire, each within its limits, and those that exclude one another."""

from ._rules_openai_responses_shape import (
    PLAIN,
    SHAPES,
    asked,
    tool,
)
from ._rules_openai_settings import common, either, metadata
from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    field,
)
from ._rules_shapes import (
    Row,
)
from .rules import Asked, Found

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast")
_A_SWITCH = "Invalid type for 'max_output_tokens': expected an integer, but got a boolean instead."


def _two_histories(request: Asked) -> Found | None:
    both = field(request, "previous_response_id") and field(request, "conversation")
    return {} if both else None


def _kept_in_background(request: Asked) -> Found | None:
    return {} if field(request, "background") is True and field(request, "store") is False else None


INCLUDABLE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
_SHORT = (
    "an array of one of 'fil...lts', 'web...lts', 'web...ces', 'mes...url', 'com...url', 'cod...uts',"
    " 'rea...ent', or 'mes...obs'"
)
_EFFORT = f"one of one of {either(EFFORTS)} or integer"
_CHOICE = "one of an object or 'none', 'auto', or 'required'"
_OFFERED = {"tools": [tool()]}
_DOCUMENTED = Row(evidence="D")
_LEAST = Row(id="output-least", evidence="S", also=((asked(max_output_tokens=True), ""),))
_TRUNCATION = Row(
    id="truncation", says="Invalid value: 'oldest'. Supported values are: 'auto' and 'disabled'."
)
_SEEN = Row(evidence="S")

SETTING_RULES = (
    SHAPES.typed("previous_response_id", "string|null", "resp_1", {"a": 1}),
    SHAPES.typed(
        "conversation",
        "string|object|null",
        "conv_1",
        7,
        Row(evidence="K"),
        expected="one of a string or object",
    ),
    SHAPES.typed("prompt", "object|null", {"id": "pmpt_1"}, "x"),
    SHAPES.typed("include", "array|null", ["reasoning.encrypted_content"], "all", expected=_SHORT),
    SHAPES.one_of("include[]", INCLUDABLE, "reasoning.encrypted_content", "bogus.thing"),
    *metadata(SHAPES),
    SHAPES.typed("text", "object|null", {"verbosity": "low"}, "brief"),
    SHAPES.known("text", ("format", "verbosity"), {"verbosity": "low"}, "zzz"),
    SHAPES.typed("text.format", "object|null", {"type": "text"}, "json", _DOCUMENTED),
    *common(SHAPES, PLAIN, TIERS),
    SHAPES.typed("tool_choice", "string|object|null", "auto", 7, expected=_CHOICE),
    SHAPES.required(
        "tool_choice.name",
        "look",
        Row(
            within={"type": "function"}, beside=_OFFERED, only=lambda choice: choice.get("type") == "function"
        ),
    ),
    SHAPES.typed("parallel_tool_calls", "boolean|null", False, "yes"),
    SHAPES.typed("stream_options", "object|null", {"include_obfuscation": False}, "x"),
    SHAPES.known("stream_options", ("include_obfuscation",), {"include_obfuscation": False}, "include_usage"),
    SHAPES.typed("stream_options.include_obfuscation", "boolean|null", True, "yes", _DOCUMENTED),
    SHAPES.typed("background", "boolean|null", True, "yes"),
    SHAPES.typed(
        "max_output_tokens", "integer|null", 16, "x", Row(also=((asked(max_output_tokens=True), _A_SWITCH),))
    ),
    SHAPES.at_least("max_output_tokens", 16, 16, 15, _LEAST),
    SHAPES.typed("max_tool_calls", "integer|null", 1, "x"),
    SHAPES.at_least("max_tool_calls", 1, 1, 0),
    SHAPES.typed("reasoning", "object|null", {"effort": "low"}, "low"),
    SHAPES.known(
        "reasoning",
        ("effort", "summary", "generate_summary", "context", "mode"),
        {"summary": "auto"},
        "bogus",
    ),
    SHAPES.typed("reasoning.effort", "string|null", "low", {"a": 1}, expected=_EFFORT),
    SHAPES.one_of("reasoning.effort", EFFORTS, "low", "huge", Row(id="effort-word", evidence="S")),
    SHAPES.one_of(
        "reasoning.summary",
        ("concise", "detailed", "auto"),
        "auto",
        "long",
        Row(id="summary-word", evidence="S"),
    ),
    SHAPES.typed("truncation", "string|null", "auto", {"a": 1}, expected="one of 'auto' or 'disabled'"),
    SHAPES.one_of("truncation", ("auto", "disabled"), "auto", "oldest", _TRUNCATION),
    SHAPES.typed("instructions", "string|null", "Be brief.", {"a": 1}),
    SHAPES.typed("top_logprobs", "integer|null", 1, "x", Row(model=PLAIN)),
    SHAPES.at_most("top_logprobs", 20, 20, 21, Row(id="logprobs-most", model=PLAIN, evidence="D")),
    rule(
        "history-once",
        _two_histories,
        "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only"
        " providing one of: 'previous_response_id' or 'conversation'.",
        evidence="F",
        passes=asked(previous_response_id="resp_1"),
        offends=asked(previous_response_id="resp_1", conversation="conv_1"),
        code="mutually_exclusive_parameters",
        also=((asked(conversation="conv_1"), ""),),
    ),
    rule(
        "background-stored",
        _kept_in_background,
        "Background mode requires 'store' to be true.",
        evidence="F",
        passes=asked(background=True),
        offends=asked(background=True, store=False),
        also=((asked(background=True, store=True), ""), (asked(background=False, store=False), "")),
    ),
)
