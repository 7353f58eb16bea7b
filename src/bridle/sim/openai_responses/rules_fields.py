"""Settings of the Responses wire, each within its limits, and those that exclude one another."""

from bridle.sim.openai.error_style import rule
from bridle.sim.openai.rules_fields import join_with_or, metadata_rules, shared_field_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import field

from .request import FIELD_CHECKS, PLAIN_MODEL, example, tool

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast")
_A_SWITCH = "Invalid type for 'max_output_tokens': expected an integer, but got a boolean instead."


def _check_history_once(request: RawRequest) -> RuleFinding | None:
    both = field(request, "previous_response_id") and field(request, "conversation")
    return {} if both else None


def _check_background_stored(request: RawRequest) -> RuleFinding | None:
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
_EFFORT = f"one of one of {join_with_or(EFFORTS)} or integer"
_CHOICE = "one of an object or 'none', 'auto', or 'required'"
_OFFERED = {"tools": [tool()]}
_DOCUMENTED = FieldRow(evidence="D")
_LEAST = FieldRow(id="output-least", evidence="S", also=((example(max_output_tokens=True), ""),))
_TRUNCATION = FieldRow(
    id="truncation", says="Invalid value: 'oldest'. Supported values are: 'auto' and 'disabled'."
)
_SEEN = FieldRow(evidence="S")

SETTING_RULES = (
    FIELD_CHECKS.of_type("previous_response_id", "string|null", "resp_1", {"a": 1}),
    FIELD_CHECKS.of_type(
        "conversation",
        "string|object|null",
        "conv_1",
        7,
        FieldRow(evidence="K"),
        expected="one of a string or object",
    ),
    FIELD_CHECKS.of_type("prompt", "object|null", {"id": "pmpt_1"}, "x"),
    FIELD_CHECKS.of_type("include", "array|null", ["reasoning.encrypted_content"], "all", expected=_SHORT),
    FIELD_CHECKS.one_of("include[]", INCLUDABLE, "reasoning.encrypted_content", "bogus.thing"),
    *metadata_rules(FIELD_CHECKS),
    FIELD_CHECKS.of_type("text", "object|null", {"verbosity": "low"}, "brief"),
    FIELD_CHECKS.only_fields("text", ("format", "verbosity"), {"verbosity": "low"}, "zzz"),
    FIELD_CHECKS.of_type("text.format", "object|null", {"type": "text"}, "json", _DOCUMENTED),
    *shared_field_rules(FIELD_CHECKS, PLAIN_MODEL, TIERS),
    FIELD_CHECKS.of_type("tool_choice", "string|object|null", "auto", 7, expected=_CHOICE),
    FIELD_CHECKS.required(
        "tool_choice.name",
        "look",
        FieldRow(
            within={"type": "function"}, beside=_OFFERED, only=lambda choice: choice.get("type") == "function"
        ),
    ),
    FIELD_CHECKS.of_type("parallel_tool_calls", "boolean|null", False, "yes"),
    FIELD_CHECKS.of_type("stream_options", "object|null", {"include_obfuscation": False}, "x"),
    FIELD_CHECKS.only_fields(
        "stream_options", ("include_obfuscation",), {"include_obfuscation": False}, "include_usage"
    ),
    FIELD_CHECKS.of_type("stream_options.include_obfuscation", "boolean|null", True, "yes", _DOCUMENTED),
    FIELD_CHECKS.of_type("background", "boolean|null", True, "yes"),
    FIELD_CHECKS.of_type(
        "max_output_tokens",
        "integer|null",
        16,
        "x",
        FieldRow(also=((example(max_output_tokens=True), _A_SWITCH),)),
    ),
    FIELD_CHECKS.minimum("max_output_tokens", 16, 16, 15, _LEAST),
    FIELD_CHECKS.of_type("max_tool_calls", "integer|null", 1, "x"),
    FIELD_CHECKS.minimum("max_tool_calls", 1, 1, 0),
    FIELD_CHECKS.of_type("reasoning", "object|null", {"effort": "low"}, "low"),
    FIELD_CHECKS.only_fields(
        "reasoning",
        ("effort", "summary", "generate_summary", "context", "mode"),
        {"summary": "auto"},
        "bogus",
    ),
    FIELD_CHECKS.of_type("reasoning.effort", "string|null", "low", {"a": 1}, expected=_EFFORT),
    FIELD_CHECKS.one_of("reasoning.effort", EFFORTS, "low", "huge", FieldRow(id="effort-word", evidence="S")),
    FIELD_CHECKS.one_of(
        "reasoning.summary",
        ("concise", "detailed", "auto"),
        "auto",
        "long",
        FieldRow(id="summary-word", evidence="S"),
    ),
    FIELD_CHECKS.of_type(
        "truncation", "string|null", "auto", {"a": 1}, expected="one of 'auto' or 'disabled'"
    ),
    FIELD_CHECKS.one_of("truncation", ("auto", "disabled"), "auto", "oldest", _TRUNCATION),
    FIELD_CHECKS.of_type("instructions", "string|null", "Be brief.", {"a": 1}),
    FIELD_CHECKS.of_type("top_logprobs", "integer|null", 1, "x", FieldRow(model=PLAIN_MODEL)),
    FIELD_CHECKS.maximum(
        "top_logprobs", 20, 20, 21, FieldRow(id="logprobs-most", model=PLAIN_MODEL, evidence="D")
    ),
    rule(
        "history-once",
        _check_history_once,
        "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only"
        " providing one of: 'previous_response_id' or 'conversation'.",
        evidence="F",
        passes=example(previous_response_id="resp_1"),
        offends=example(previous_response_id="resp_1", conversation="conv_1"),
        code="mutually_exclusive_parameters",
        also=((example(conversation="conv_1"), ""),),
    ),
    rule(
        "background-stored",
        _check_background_stored,
        "Background mode requires 'store' to be true.",
        evidence="F",
        passes=example(background=True),
        offends=example(background=True, store=False),
        also=((example(background=True, store=True), ""), (example(background=False, store=False), "")),
    ),
)
