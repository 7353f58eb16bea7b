"""Rules about single settings of Chat Completions: ranges, and models that do not support them."""

from bridle.sim.openai.error_style import FIELD_CHECKS, rule
from bridle.sim.openai.rules_fields import metadata_rules, shared_field_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow, join_quoted
from bridle.sim.rules.raw_request import field

from .request import is_reasoning, tools

REFUSED_BY_REASONERS = ("stop", "logit_bias", "prediction")
"""Settings that reasoning models refuse at any value."""
REFUSED_WHILE_REASONING = ("presence_penalty", "frequency_penalty", "logprobs")


def _check_limits_once(request: RawRequest) -> RuleFinding | None:
    both = field(request, "max_tokens") is not None and field(request, "max_completion_tokens") is not None
    return {} if both else None


def _check_output_most(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    if abilities is None or not abilities.output_limited:
        return None
    for name in ("max_tokens", "max_completion_tokens"):
        wanted = field(request, name)
        if isinstance(wanted, int) and wanted > abilities.output_tokens:
            return {"wanted": wanted, "most": abilities.output_tokens}
    return None


def _check_stream_options_alone(request: RawRequest) -> RuleFinding | None:
    return {} if field(request, "stream_options") is not None and not field(request, "stream") else None


def _check_logprobs_alone(request: RawRequest) -> RuleFinding | None:
    return {} if field(request, "top_logprobs") is not None and not field(request, "logprobs") else None


def _check_limit_name(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    return {} if abilities and abilities.thinking and field(request, "max_tokens") is not None else None


def _check_setting_model(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    for name in REFUSED_BY_REASONERS if abilities and abilities.thinking else ():
        if field(request, name) is not None:
            return {"name": name}
    return None


def _check_reasoning_setting(request: RawRequest) -> RuleFinding | None:
    for name in REFUSED_WHILE_REASONING if is_reasoning(request) else ():
        if field(request, name):
            return {"name": name}
    return None


def _check_temperature_model(request: RawRequest) -> RuleFinding | None:
    abilities, wanted = request.abilities, field(request, "temperature")
    if abilities is None or abilities.sampling or field(request, "reasoning_effort") == "none":
        return None
    return {"value": wanted} if wanted not in (None, 1) else None


def _check_top_p_model(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    if abilities is None or abilities.sampling or field(request, "reasoning_effort") == "none":
        return None
    return {} if field(request, "top_p") not in (None, 1) else None


def _check_effort_tools(request: RawRequest) -> RuleFinding | None:
    abilities, effort = request.abilities, field(request, "reasoning_effort")
    if abilities is None or abilities.effort_with_tools or not tools(request):
        return None
    return {"model": field(request, "model")} if effort not in (None, "none") else None


def _check_effort_model(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    return (
        {} if abilities and not abilities.efforts and field(request, "reasoning_effort") is not None else None
    )


def _check_effort_level(request: RawRequest) -> RuleFinding | None:
    abilities, wanted = request.abilities, field(request, "reasoning_effort")
    if abilities is None or not abilities.efforts or wanted is None or wanted in abilities.efforts:
        return None
    return {"effort": repr(wanted), "efforts": join_quoted(abilities.efforts)}


_DOCUMENTED = FieldRow(evidence="D")
_EITHER = "one of one of 'none', 'auto', or 'required' or object"

SETTING_RULES = (
    FIELD_CHECKS.of_type("n", "integer|null"),
    FIELD_CHECKS.minimum("n", 1, FieldRow(evidence="S")),
    FIELD_CHECKS.maximum("n", 8, FieldRow(evidence="S")),
    FIELD_CHECKS.of_type("max_completion_tokens", "integer|null", _DOCUMENTED),
    FIELD_CHECKS.minimum("max_completion_tokens", 1, FieldRow(id="output-least", evidence="S")),
    FIELD_CHECKS.of_type("max_tokens", "integer|null", _DOCUMENTED),
    *metadata_rules(),
    *shared_field_rules(("auto", "default", "fast", "flex", "priority")),
    FIELD_CHECKS.of_type("presence_penalty", "number|null"),
    FIELD_CHECKS.maximum("presence_penalty", 2.0, FieldRow(evidence="S")),
    FIELD_CHECKS.minimum("presence_penalty", -2.0, FieldRow(evidence="S")),
    FIELD_CHECKS.of_type("frequency_penalty", "number|null", _DOCUMENTED),
    FIELD_CHECKS.maximum("frequency_penalty", 2.0, FieldRow(evidence="S")),
    FIELD_CHECKS.minimum("frequency_penalty", -2.0, FieldRow(evidence="S")),
    FIELD_CHECKS.of_type("seed", "integer|null"),
    FIELD_CHECKS.of_type("logprobs", "boolean|null", _DOCUMENTED),
    FIELD_CHECKS.of_type("top_logprobs", "integer|null"),
    FIELD_CHECKS.minimum("top_logprobs", 0),
    FIELD_CHECKS.of_type("logit_bias", "object|null", _DOCUMENTED),
    FIELD_CHECKS.of_type("tool_choice", "string|object|null", expected=_EITHER),
    FIELD_CHECKS.of_type("parallel_tool_calls", "boolean|null"),
    FIELD_CHECKS.of_type("response_format", "object|null"),
    FIELD_CHECKS.of_type("stream_options", "object|null"),
    FIELD_CHECKS.of_type("stream_options.include_usage", "boolean|null", FieldRow(evidence="D")),
    FIELD_CHECKS.only_fields("stream_options", ("include_usage", "include_obfuscation")),
    FIELD_CHECKS.of_type("functions", "array|null", _DOCUMENTED),
    FIELD_CHECKS.of_type("prediction", "object|null", _DOCUMENTED),
    FIELD_CHECKS.max_items("stop", 4, FieldRow(evidence="S")),
    FIELD_CHECKS.of_type(
        "verbosity", "string|null", _DOCUMENTED, expected="one of 'low', 'medium', or 'high'"
    ),
    FIELD_CHECKS.one_of("verbosity", ("low", "medium", "high"), FieldRow(id="verbosity", evidence="S")),
    rule(
        "limits-once",
        _check_limits_once,
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        param="max_tokens",
        evidence="S",
        code="invalid_parameter_combination",
    ),
    rule(
        "output-most",
        _check_output_most,
        "max_tokens is too large: {wanted}. This model supports at most {most} completion tokens, whereas you"
        " provided {wanted}.",
        param="max_tokens",
        evidence="S",
        models="with a known limit",
        code="invalid_value",
    ),
    rule(
        "stream-options-alone",
        _check_stream_options_alone,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        param="stream_options",
        evidence="S",
    ),
    rule(
        "logprobs-alone",
        _check_logprobs_alone,
        "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
        param="top_logprobs",
        evidence="S",
    ),
)

MODEL_RULES = (
    rule(
        "limit-name",
        _check_limit_name,
        "Unsupported parameter: 'max_tokens' is not supported with this model."
        " Use 'max_completion_tokens' instead.",
        param="max_tokens",
        evidence="S",
        models="that reason",
        code="unsupported_parameter",
    ),
    rule(
        "setting-model",
        _check_setting_model,
        "Unsupported parameter: '{name}' is not supported with this model.",
        param="{name}",
        evidence="S",
        models="that reason",
        code="unsupported_parameter",
    ),
    rule(
        "effort-model",
        _check_effort_model,
        "Unrecognized request argument supplied: reasoning_effort",
        evidence="S",
        models="without efforts",
    ),
    rule(
        "effort-level",
        _check_effort_level,
        "Unsupported value: 'reasoning_effort' does not support {effort} with this model. Supported values"
        " are: {efforts}.",
        param="reasoning_effort",
        evidence="S",
        models="with efforts",
        code="unsupported_value",
    ),
    rule(
        "effort-tools",
        _check_effort_tools,
        "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions."
        " Please use /v1/responses instead.",
        param="reasoning_effort",
        evidence="S",
        models="that take no effort beside tools",
    ),
    rule(
        "temperature-model",
        _check_temperature_model,
        "Unsupported value: 'temperature' does not support {value} with this model. Only the default (1)"
        " value is supported.",
        param="temperature",
        evidence="S",
        models="that take no sampling, while they reason",
        code="unsupported_value",
    ),
    rule(
        "top-p-model",
        _check_top_p_model,
        "Unsupported parameter: 'top_p' is not supported with this model.",
        param="top_p",
        evidence="S",
        models="that take no sampling, while they reason",
        code="unsupported_parameter",
    ),
    rule(
        "reasoning-setting",
        _check_reasoning_setting,
        "Unsupported parameter: '{name}' is not supported with this model.",
        param="{name}",
        evidence="S",
        models="that reason, while they do",
        code="unsupported_parameter",
    ),
)
