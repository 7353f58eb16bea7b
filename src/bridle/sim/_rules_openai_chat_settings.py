"""Settings of the Chat Completions wire, each within its limits, and what one model does not take."""

from msgspec.structs import replace

from ._rules_openai_chat_shape import REASONS, asked, reasons, to, tool, tools
from ._rules_openai_shape import (
    Example,
    at_least,
    at_most,
    fewer,
    field,
    listing,
    mapping,
    one_of,
    rule,
    shorter,
    typed,
)
from .rules import Asked, Found, Rule

PAIRS_MAX, PAIR_MAX = 16, 512
REFUSED_BY_REASONERS = ("stop", "logit_bias", "prediction")
"""Settings that a model which reasons takes at no value."""
REFUSED_WHILE_REASONING = ("presence_penalty", "frequency_penalty", "logprobs")


def _both_limits(request: Asked) -> Found | None:
    both = field(request, "max_tokens") is not None and field(request, "max_completion_tokens") is not None
    return {} if both else None


def _too_much_output(request: Asked) -> Found | None:
    able = request.abilities
    for name in ("max_tokens", "max_completion_tokens"):
        wanted = field(request, name)
        if able is not None and isinstance(wanted, int) and wanted > able.output_tokens:
            return {"wanted": wanted, "most": able.output_tokens}
    return None


def _options_alone(request: Asked) -> Found | None:
    return {} if field(request, "stream_options") is not None and not field(request, "stream") else None


def _logprobs_alone(request: Asked) -> Found | None:
    return {} if field(request, "top_logprobs") is not None and not field(request, "logprobs") else None


def _many_pairs(request: Asked) -> Found | None:
    count = len(mapping(field(request, "metadata")))
    return {"count": count} if count > PAIRS_MAX else None


def _long_pair(request: Asked) -> Found | None:
    for name, value in mapping(field(request, "metadata")).items():
        if isinstance(value, str) and len(value) > PAIR_MAX:
            return {"name": name, "length": len(value)}
    return None


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
    if able is None or not able.efforts or not isinstance(wanted, str) or wanted in able.efforts:
        return None
    return {"effort": wanted, "efforts": listing(able.efforts)}


def _range(name: str, least: float, most: float, over: float, under: float) -> tuple[Rule, Rule]:
    slug = name.replace("_", "-")
    return (
        at_most(
            f"{slug}-most",
            name,
            most,
            Example(
                asked(**{name: most}),
                asked(**{name: over}),
                f"Invalid '{name}': decimal above maximum value. Expected a value <= {most:g},"
                f" but got {over} instead.",
            ),
        ),
        at_least(
            f"{slug}-least",
            name,
            least,
            Example(
                asked(**{name: least}),
                asked(**{name: under}),
                f"Invalid '{name}': decimal below minimum value. Expected a value >= {least:g},"
                f" but got {under} instead.",
            ),
        ),
    )


SETTING_RULES = (
    at_least(
        "output-least",
        "max_completion_tokens",
        1,
        Example(
            asked(max_completion_tokens=1),
            asked(max_completion_tokens=0),
            "Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1,"
            " but got 0 instead.",
        ),
    ),
    at_least(
        "n-least",
        "n",
        1,
        Example(
            asked(n=1),
            asked(n=0),
            "Invalid 'n': integer below minimum value. Expected a value >= 1, but got 0 instead.",
        ),
    ),
    at_most(
        "n-most",
        "n",
        8,
        Example(
            asked(n=8),
            asked(n=9),
            "Invalid 'n': integer above maximum value. Expected a value <= 8, but got 9 instead.",
        ),
    ),
    typed(
        "temperature-type",
        "temperature",
        ("an integer", "a decimal number", "null"),
        "a decimal",
        Example(
            asked(temperature=0.5),
            asked(temperature="hot"),
            "Invalid type for 'temperature': expected a decimal, but got a string instead.",
        ),
    ),
    *_range("temperature", 0.0, 2.0, 2.5, -0.5),
    *_range("top_p", 0.0, 1.0, 1.5, -0.5),
    *_range("presence_penalty", -2.0, 2.0, 2.5, -2.5),
    *_range("frequency_penalty", -2.0, 2.0, 2.5, -2.5),
    fewer(
        "stop-most",
        "stop",
        4,
        Example(
            asked(stop=["a", "b", "c", "d"]),
            asked(stop=["a", "b", "c", "d", "e"]),
            "Invalid 'stop': array too long. Expected an array with maximum length 4,"
            " but got an array with length 5 instead.",
        ),
    ),
    shorter(
        "cache-key-length",
        "prompt_cache_key",
        64,
        Example(
            asked(prompt_cache_key="k" * 64),
            asked(prompt_cache_key="k" * 65),
            "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
    rule(
        "limits-once",
        _both_limits,
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
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
        evidence="S",
        passes=asked(max_completion_tokens=16_384),
        offends=asked(max_completion_tokens=16_385),
        says="max_tokens is too large: 16385. This model supports at most 16384 completion tokens, whereas"
        " you provided 16385.",
        code="invalid_value",
    ),
    rule(
        "stream-options-alone",
        _options_alone,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        evidence="S",
        passes=asked(stream=True, stream_options={"include_usage": True}),
        offends=asked(stream_options={"include_usage": True}),
    ),
    rule(
        "logprobs-alone",
        _logprobs_alone,
        "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
        evidence="S",
        passes=asked(logprobs=True, top_logprobs=1),
        offends=asked(top_logprobs=1),
    ),
    rule(
        "metadata-most",
        _many_pairs,
        "Invalid 'metadata': too many properties. Expected an object with at most 16 properties,"
        " but got an object with {count} properties instead.",
        evidence="S",
        passes=asked(metadata={f"k{n}": "v" for n in range(16)}),
        offends=asked(metadata={f"k{n}": "v" for n in range(17)}),
        says="Invalid 'metadata': too many properties. Expected an object with at most 16 properties,"
        " but got an object with 17 properties instead.",
        code="object_above_max_properties",
    ),
    rule(
        "metadata-length",
        _long_pair,
        "Invalid 'metadata.{name}': string too long. Expected a string with maximum length 512,"
        " but got a string with length {length} instead.",
        evidence="S",
        passes=asked(metadata={"k": "v" * 512}),
        offends=asked(metadata={"k": "v" * 513}),
        says="Invalid 'metadata.k': string too long. Expected a string with maximum length 512,"
        " but got a string with length 513 instead.",
        code="string_above_max_length",
    ),
    one_of(
        "verbosity",
        "verbosity",
        ("low", "medium", "high"),
        Example(
            asked(verbosity="low"),
            asked(verbosity="tiny"),
            "Invalid value: 'tiny'. Supported values are: 'low', 'medium', and 'high'.",
        ),
    ),
    one_of(
        "service-tier",
        "service_tier",
        ("auto", "default", "fast", "flex", "priority"),
        Example(
            asked(service_tier="flex"),
            asked(service_tier="cheap"),
            "Invalid value: 'cheap'. Supported values are: 'auto', 'default', 'fast', 'flex',"
            " and 'priority'.",
        ),
    ),
)

MODEL_RULES = (
    rule(
        "limit-name",
        _old_limit,
        "Unsupported parameter: 'max_tokens' is not supported with this model."
        " Use 'max_completion_tokens' instead.",
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
        "Unsupported value: 'reasoning_effort' does not support '{effort}' with this model. Supported values"
        " are: {efforts}.",
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
        evidence="S",
        models="that reason, while they do",
        passes=to(REASONS, asked(logprobs=True, reasoning_effort="none")),
        offends=to(REASONS, asked(logprobs=True)),
        says="Unsupported parameter: 'logprobs' is not supported with this model.",
        code="unsupported_parameter",
        also=((asked(logprobs=True), ""), (to(REASONS, asked(logprobs=False)), "")),
    ),
)
