"""Rules about single settings of Chat Completions: ranges, and models that do not support them."""

from bridle.sim.openai.error_style import FIELD_CHECKS, refuse, rule
from bridle.sim.openai.rules_fields import metadata_rules, shared_field_rules
from bridle.sim.openai.rules_models import effort_level_rule, sampling_rule
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject, field, find_output_excess, tools

from .request import is_reasoning

REFUSED_BY_REASONERS = ("stop", "logit_bias", "prediction")
"""Settings that reasoning models refuse at any value."""
REFUSED_WHILE_REASONING = ("presence_penalty", "frequency_penalty", "logprobs")


def _check_output_most(request: RawRequest) -> RuleFinding | None:
    limits = (field(request, name) for name in ("max_tokens", "max_completion_tokens"))
    return next(filter(None, (find_output_excess(request, limit) for limit in limits)), None)


def _check_reasoning_setting(request: RawRequest) -> RuleFinding | None:
    names = REFUSED_WHILE_REASONING if is_reasoning(request) else ()
    return next(({"name": name} for name in names if field(request, name)), None)


def _check_effort_tools(request: RawRequest) -> RuleFinding | None:
    abilities, effort = request.abilities, _find_effort(request)
    if abilities is None or abilities.effort_with_tools or not tools(request):
        return None
    return {"model": field(request, "model")} if effort not in (None, "none") else None


def _find_effort(request: RawRequest) -> object:
    return field(request, "reasoning_effort")


def _is_set(body: JsonObject, name: str) -> bool:
    return body.get(name) is not None


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
    refuse(
        "limits-once",
        "",
        lambda body: _is_set(body, "max_tokens") and _is_set(body, "max_completion_tokens"),
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
    refuse(
        "stream-options-alone",
        "",
        lambda body: _is_set(body, "stream_options") and not body.get("stream"),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        param="stream_options",
        evidence="S",
    ),
    refuse(
        "logprobs-alone",
        "",
        lambda body: _is_set(body, "top_logprobs") and not body.get("logprobs"),
        "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
        param="top_logprobs",
        evidence="S",
    ),
)

MODEL_RULES = (
    refuse(
        "limit-name",
        "",
        lambda body: _is_set(body, "max_tokens"),
        "Unsupported parameter: 'max_tokens' is not supported with this model."
        " Use 'max_completion_tokens' instead.",
        param="max_tokens",
        evidence="S",
        models="that reason",
        when=lambda able: able.thinking,
        code="unsupported_parameter",
    ),
    refuse(
        "setting-model",
        "",
        lambda body: next(({"name": name} for name in REFUSED_BY_REASONERS if _is_set(body, name)), None),
        "Unsupported parameter: '{name}' is not supported with this model.",
        param="{name}",
        evidence="S",
        models="that reason",
        when=lambda able: able.thinking,
        code="unsupported_parameter",
    ),
    refuse(
        "effort-model",
        "",
        lambda body: _is_set(body, "reasoning_effort"),
        "Unrecognized request argument supplied: reasoning_effort",
        evidence="S",
        models="without efforts",
        when=lambda able: not able.efforts,
    ),
    effort_level_rule(
        "reasoning_effort",
        _find_effort,
        "Unsupported value: 'reasoning_effort' does not support {effort!r} with this model. Supported values"
        " are: {efforts}.",
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
    sampling_rule(
        "temperature",
        _find_effort,
        wording="Unsupported value: 'temperature' does not support {value} with this model. Only the default (1)"
        " value is supported.",
        code="unsupported_value",
    ),
    sampling_rule("top_p", _find_effort, code="unsupported_parameter"),
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
