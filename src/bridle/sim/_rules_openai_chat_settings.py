"""Settings of the Chat Completions wire, each within its limits, and what one model does not take."""

from msgspec.structs import replace

from ._rules_openai_chat_shape import (
    PLAIN,
    REASONS,
    SHAPES,
    asked,
    reasons,
    tool,
    tools,
)
from ._rules_openai_settings import common, metadata
from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    field,
    to,
)
from ._rules_shapes import (
    Row,
    listing,
)
from .rules import Asked, Found

REFUSED_BY_REASONERS = ("stop", "logit_bias", "prediction")
"""Settings that a model which reasons takes at no value."""
REFUSED_WHILE_REASONING = ("presence_penalty", "frequency_penalty", "logprobs")


def _both_limits(request: Asked) -> Found | None:
    both = field(request, "max_tokens") is not None and field(request, "max_completion_tokens") is not None
    return {} if both else None


def _too_much_output(request: Asked) -> Found | None:
    able = request.abilities
    if able is None or not able.output_limited:
        return None
    for name in ("max_tokens", "max_completion_tokens"):
        wanted = field(request, name)
        if isinstance(wanted, int) and wanted > able.output_tokens:
            return {"wanted": wanted, "most": able.output_tokens}
    return None


def _options_alone(request: Asked) -> Found | None:
    return {} if field(request, "stream_options") is not None and not field(request, "stream") else None


def _logprobs_alone(request: Asked) -> Found | None:
    return {} if field(request, "top_logprobs") is not None and not field(request, "logprobs") else None


def _old_limit(request: Asked) -> Found | None:
    able = request.abilities
    return {} if able and able.thinking and field(request, "max_tokens") is not None else None


def _refused_setting(request: Asked) -> Found | None:
    able = request.abilities
    for name in REFUSED_BY_REASONERS if able and able.thinking else ():
        if field(request, name) is not None:
            return {"name": name}
    return None


def _reasoning_setting(request: Asked) -> Found | None:
    for name in REFUSED_WHILE_REASONING if reasons(request) else ():
        if field(request, name):
            return {"name": name}
    return None


def _temperature(request: Asked) -> Found | None:
    able, wanted = request.abilities, field(request, "temperature")
    if able is None or able.sampling or field(request, "reasoning_effort") == "none":
        return None
    return {"value": wanted} if wanted not in (None, 1) else None


def _top_p(request: Asked) -> Found | None:
    able = request.abilities
    if able is None or able.sampling or field(request, "reasoning_effort") == "none":
        return None
    return {} if field(request, "top_p") not in (None, 1) else None


def _effort_with_tools(request: Asked) -> Found | None:
    able, effort = request.abilities, field(request, "reasoning_effort")
    if able is None or able.effort_with_tools or not tools(request):
        return None
    return {"model": field(request, "model")} if effort not in (None, "none") else None


def _no_effort(request: Asked) -> Found | None:
    able = request.abilities
    return {} if able and not able.efforts and field(request, "reasoning_effort") is not None else None


def _bad_effort(request: Asked) -> Found | None:
    able, wanted = request.abilities, field(request, "reasoning_effort")
    if able is None or not able.efforts or wanted is None or wanted in able.efforts:
        return None
    return {"effort": repr(wanted), "efforts": listing(able.efforts)}


_STREAMED = {"stream": True}
_OFFERED = {"tools": [tool()]}
_DOCUMENTED = Row(evidence="D")
_EITHER = "one of one of 'none', 'auto', or 'required' or object"

SETTING_RULES = (
    SHAPES.typed("n", "integer|null", 1, "2"),
    SHAPES.at_least("n", 1, 1, 0, Row(evidence="S")),
    SHAPES.at_most("n", 8, 8, 9, Row(evidence="S")),
    SHAPES.typed("max_completion_tokens", "integer|null", 9, "x", _DOCUMENTED),
    SHAPES.at_least("max_completion_tokens", 1, 1, 0, Row(id="output-least", evidence="S")),
    SHAPES.typed("max_tokens", "integer|null", 9, "x", _DOCUMENTED),
    *metadata(SHAPES),
    *common(SHAPES, PLAIN, ("auto", "default", "fast", "flex", "priority")),
    SHAPES.typed("presence_penalty", "number|null", 1, "x"),
    SHAPES.at_most("presence_penalty", 2.0, 2.0, 2.5, Row(evidence="S")),
    SHAPES.at_least("presence_penalty", -2.0, -2, -2.5, Row(evidence="S")),
    SHAPES.typed("frequency_penalty", "number|null", 1, "x", _DOCUMENTED),
    SHAPES.at_most("frequency_penalty", 2.0, 2.0, 2.5, Row(evidence="S")),
    SHAPES.at_least("frequency_penalty", -2.0, -2, -2.5, Row(evidence="S")),
    SHAPES.typed("seed", "integer|null", 1, 1.5),
    SHAPES.typed("logprobs", "boolean|null", True, "yes", _DOCUMENTED),
    SHAPES.typed("top_logprobs", "integer|null", 1, "x", Row(beside={"logprobs": True})),
    SHAPES.at_least("top_logprobs", 0, 0, -1, Row(beside={"logprobs": True})),
    SHAPES.typed("logit_bias", "object|null", {"1": 1}, [1], _DOCUMENTED),
    SHAPES.typed("tool_choice", "string|object|null", "auto", 7, Row(beside=_OFFERED), expected=_EITHER),
    SHAPES.typed("parallel_tool_calls", "boolean|null", False, "yes", Row(beside=_OFFERED)),
    SHAPES.typed("response_format", "object|null", {"type": "text"}, "json"),
    SHAPES.typed("stream_options", "object|null", {"include_usage": True}, "x", Row(beside=_STREAMED)),
    SHAPES.typed(
        "stream_options.include_usage", "boolean|null", True, "yes", Row(beside=_STREAMED, evidence="D")
    ),
    SHAPES.known(
        "stream_options",
        ("include_usage", "include_obfuscation"),
        {"include_obfuscation": False},
        "bogus",
        Row(beside=_STREAMED),
    ),
    SHAPES.typed("functions", "array|null", [{"name": "look"}], "look", _DOCUMENTED),
    SHAPES.typed("prediction", "object|null", {"type": "content", "content": "Hi"}, "Hi", _DOCUMENTED),
    SHAPES.fewer("stop", 4, ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"], Row(evidence="S")),
    SHAPES.typed(
        "verbosity", "string|null", "low", 7, _DOCUMENTED, expected="one of 'low', 'medium', or 'high'"
    ),
    SHAPES.one_of("verbosity", ("low", "medium", "high"), "low", "tiny", Row(id="verbosity", evidence="S")),
    rule(
        "limits-once",
        _both_limits,
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        param="max_tokens",
        evidence="S",
        passes=asked(max_tokens=100),
        offends=asked(max_tokens=100, max_completion_tokens=100),
        code="invalid_parameter_combination",
        also=((asked(max_completion_tokens=100), ""),),
    ),
    rule(
        "output-most",
        _too_much_output,
        "max_tokens is too large: {wanted}. This model supports at most {most} completion tokens, whereas you"
        " provided {wanted}.",
        param="max_tokens",
        evidence="S",
        passes=asked(max_completion_tokens=16_384),
        offends=asked(max_completion_tokens=16_385),
        models="with a known limit",
        says="max_tokens is too large: 16385. This model supports at most 16384 completion tokens, whereas"
        " you provided 16385.",
        code="invalid_value",
        also=((to(replace(PLAIN, output_limited=False), asked(max_completion_tokens=16_385)), ""),),
    ),
    rule(
        "stream-options-alone",
        _options_alone,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        param="stream_options",
        evidence="S",
        passes=asked(stream=True, stream_options={"include_usage": True}),
        offends=asked(stream_options={"include_usage": True}),
    ),
    rule(
        "logprobs-alone",
        _logprobs_alone,
        "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
        param="top_logprobs",
        evidence="S",
        passes=asked(logprobs=True, top_logprobs=1),
        offends=asked(top_logprobs=1),
    ),
)

MODEL_RULES = (
    rule(
        "limit-name",
        _old_limit,
        "Unsupported parameter: 'max_tokens' is not supported with this model."
        " Use 'max_completion_tokens' instead.",
        param="max_tokens",
        evidence="S",
        models="that reason",
        passes=to(REASONS, asked(max_completion_tokens=100)),
        offends=to(REASONS, asked(max_tokens=100)),
        code="unsupported_parameter",
    ),
    rule(
        "setting-model",
        _refused_setting,
        "Unsupported parameter: '{name}' is not supported with this model.",
        param="{name}",
        evidence="S",
        models="that reason",
        passes=asked(stop=["END"]),
        offends=to(REASONS, asked(stop=["END"])),
        says="Unsupported parameter: 'stop' is not supported with this model.",
        code="unsupported_parameter",
    ),
    rule(
        "effort-model",
        _no_effort,
        "Unrecognized request argument supplied: reasoning_effort",
        evidence="S",
        models="without efforts",
        passes=to(REASONS, asked(reasoning_effort="low")),
        offends=asked(reasoning_effort="low"),
    ),
    rule(
        "effort-level",
        _bad_effort,
        "Unsupported value: 'reasoning_effort' does not support {effort} with this model. Supported values"
        " are: {efforts}.",
        param="reasoning_effort",
        evidence="S",
        models="with efforts",
        passes=to(REASONS, asked(reasoning_effort="none")),
        offends=to(REASONS, asked(reasoning_effort="minimal")),
        says="Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported"
        " values are: 'none', 'low', 'medium', and 'high'.",
        code="unsupported_value",
        also=((asked(reasoning_effort="low"), ""),),
    ),
    rule(
        "effort-tools",
        _effort_with_tools,
        "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions."
        " Please use /v1/responses instead.",
        param="reasoning_effort",
        evidence="S",
        models="that take no effort beside tools",
        passes=to(REASONS, asked(reasoning_effort="none", tools=[tool()])),
        offends=to(REASONS, asked(reasoning_effort="low", tools=[tool()])),
        says="Function tools with reasoning_effort are not supported for some-model in"
        " /v1/chat/completions. Please use /v1/responses instead.",
        also=(
            (to(REASONS, asked(tools=[tool()])), ""),
            (to(replace(REASONS, effort_with_tools=True), asked(reasoning_effort="low", tools=[tool()])), ""),
        ),
    ),
    rule(
        "temperature-model",
        _temperature,
        "Unsupported value: 'temperature' does not support {value} with this model. Only the default (1)"
        " value is supported.",
        param="temperature",
        evidence="S",
        models="that take no sampling, while they reason",
        passes=to(REASONS, asked(temperature=1)),
        offends=to(REASONS, asked(temperature=0.2)),
        says="Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1)"
        " value is supported.",
        code="unsupported_value",
        also=((to(REASONS, asked(temperature=0.2, reasoning_effort="none")), ""),),
    ),
    rule(
        "top-p-model",
        _top_p,
        "Unsupported parameter: 'top_p' is not supported with this model.",
        param="top_p",
        evidence="S",
        models="that take no sampling, while they reason",
        passes=to(REASONS, asked(top_p=1)),
        offends=to(REASONS, asked(top_p=0.5)),
        code="unsupported_parameter",
        also=(
            (to(REASONS, asked(top_p=0.5, reasoning_effort="none")), ""),
            (asked(top_p=0.5), ""),
        ),
    ),
    rule(
        "reasoning-setting",
        _reasoning_setting,
        "Unsupported parameter: '{name}' is not supported with this model.",
        param="{name}",
        evidence="S",
        models="that reason, while they do",
        passes=to(REASONS, asked(logprobs=True, reasoning_effort="none")),
        offends=to(REASONS, asked(logprobs=True)),
        says="Unsupported parameter: 'logprobs' is not supported with this model.",
        code="unsupported_parameter",
        also=((asked(logprobs=True), ""), (to(REASONS, asked(logprobs=False)), "")),
    ),
)
