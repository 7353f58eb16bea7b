"""Rules about single settings of the Responses API: ranges and exclusions."""

from bridle.sim.openai.error_style import FIELD_CHECKS, refuse
from bridle.sim.openai.rules_fields import join_with_or, metadata_rules, shared_field_rules
from bridle.sim.rules.field_rules import FieldRow

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast")


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
_DOCUMENTED = FieldRow(evidence="D")
_LEAST = FieldRow(id="output-least", evidence="S")
_TRUNCATION = FieldRow(id="truncation")

SETTING_RULES = (
    FIELD_CHECKS.of_type("previous_response_id", "string|null"),
    FIELD_CHECKS.of_type(
        "conversation", "string|object|null", FieldRow(evidence="K"), expected="one of a string or object"
    ),
    FIELD_CHECKS.of_type("prompt", "object|null"),
    FIELD_CHECKS.of_type("include", "array|null", expected=_SHORT),
    FIELD_CHECKS.one_of("include[]", INCLUDABLE),
    *metadata_rules(),
    FIELD_CHECKS.of_type("text", "object|null"),
    FIELD_CHECKS.only_fields("text", ("format", "verbosity")),
    FIELD_CHECKS.of_type("text.format", "object|null", _DOCUMENTED),
    *shared_field_rules(TIERS),
    FIELD_CHECKS.of_type("tool_choice", "string|object|null", expected=_CHOICE),
    FIELD_CHECKS.required("tool_choice.name", FieldRow(only=lambda choice: choice.get("type") == "function")),
    FIELD_CHECKS.of_type("parallel_tool_calls", "boolean|null"),
    FIELD_CHECKS.of_type("stream_options", "object|null"),
    FIELD_CHECKS.only_fields("stream_options", ("include_obfuscation",)),
    FIELD_CHECKS.of_type("stream_options.include_obfuscation", "boolean|null", _DOCUMENTED),
    FIELD_CHECKS.of_type("background", "boolean|null"),
    FIELD_CHECKS.of_type("max_output_tokens", "integer|null"),
    FIELD_CHECKS.minimum("max_output_tokens", 16, _LEAST),
    FIELD_CHECKS.of_type("max_tool_calls", "integer|null"),
    FIELD_CHECKS.minimum("max_tool_calls", 1),
    FIELD_CHECKS.of_type("reasoning", "object|null"),
    FIELD_CHECKS.only_fields("reasoning", ("effort", "summary", "generate_summary", "context", "mode")),
    FIELD_CHECKS.of_type("reasoning.effort", "string|null", expected=_EFFORT),
    FIELD_CHECKS.one_of("reasoning.effort", EFFORTS, FieldRow(id="effort-word", evidence="S")),
    FIELD_CHECKS.one_of(
        "reasoning.summary", ("concise", "detailed", "auto"), FieldRow(id="summary-word", evidence="S")
    ),
    FIELD_CHECKS.of_type("truncation", "string|null", expected="one of 'auto' or 'disabled'"),
    FIELD_CHECKS.one_of("truncation", ("auto", "disabled"), _TRUNCATION),
    FIELD_CHECKS.of_type("instructions", "string|null"),
    FIELD_CHECKS.of_type("top_logprobs", "integer|null"),
    FIELD_CHECKS.maximum("top_logprobs", 20, FieldRow(id="logprobs-most", evidence="D")),
    refuse(
        "history-once",
        "",
        lambda body: body.get("previous_response_id") and body.get("conversation"),
        "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only"
        " providing one of: 'previous_response_id' or 'conversation'.",
        evidence="F",
        code="mutually_exclusive_parameters",
    ),
    refuse(
        "background-stored",
        "",
        lambda body: body.get("background") is True and body.get("store") is False,
        "Background mode requires 'store' to be true.",
        evidence="F",
    ),
)
