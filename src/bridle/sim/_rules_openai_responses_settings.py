"""Settings of the Responses wire, each within its limits, and those that exclude one another."""

from ._rules_openai_responses_shape import PLAIN, asked, to
from ._rules_openai_shape import Example, at_least, at_most, field, mapping, one_of, rule, shorter, typed
from .rules import Asked, Found

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast")
PAIRS_MAX, PAIR_MAX = 16, 512


def _two_histories(request: Asked) -> Found | None:
    both = field(request, "previous_response_id") and field(request, "conversation")
    return {} if both else None


def _kept_in_background(request: Asked) -> Found | None:
    return {} if field(request, "background") is True and field(request, "store") is False else None


def _many_pairs(request: Asked) -> Found | None:
    count = len(mapping(field(request, "metadata")))
    return {"count": count} if count > PAIRS_MAX else None


def _long_pair(request: Asked) -> Found | None:
    for name, value in mapping(field(request, "metadata")).items():
        if isinstance(value, str) and len(value) > PAIR_MAX:
            return {"name": name, "length": len(value)}
    return None


SETTING_RULES = (
    at_least(
        "output-least",
        "max_output_tokens",
        16,
        Example(
            asked(max_output_tokens=16),
            asked(max_output_tokens=15),
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16,"
            " but got 15 instead.",
            also=((asked(max_output_tokens=True), ""),),
        ),
    ),
    typed(
        "temperature-type",
        "temperature",
        ("an integer", "a decimal number", "null"),
        "a decimal",
        Example(
            asked(temperature=1),
            asked(temperature="hot"),
            "Invalid type for 'temperature': expected a decimal, but got a string instead.",
        ),
    ),
    at_most(
        "temperature-most",
        "temperature",
        2.0,
        Example(
            to(PLAIN, asked(temperature=2.0)),
            to(PLAIN, asked(temperature=2.5)),
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5 instead.",
        ),
    ),
    at_least(
        "temperature-least",
        "temperature",
        0.0,
        Example(
            to(PLAIN, asked(temperature=0)),
            to(PLAIN, asked(temperature=-0.5)),
            "Invalid 'temperature': decimal below minimum value. Expected a value >= 0,"
            " but got -0.5 instead.",
        ),
    ),
    at_most(
        "top-p-most",
        "top_p",
        1.0,
        Example(
            to(PLAIN, asked(top_p=1)),
            to(PLAIN, asked(top_p=1.5)),
            "Invalid 'top_p': decimal above maximum value. Expected a value <= 1, but got 1.5 instead.",
        ),
    ),
    at_most(
        "logprobs-most",
        "top_logprobs",
        20,
        Example(
            to(PLAIN, asked(top_logprobs=20)),
            to(PLAIN, asked(top_logprobs=21)),
            "Invalid 'top_logprobs': integer above maximum value. Expected a value <= 20,"
            " but got 21 instead.",
        ),
        evidence="D",
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
    shorter(
        "safety-id-length",
        "safety_identifier",
        128,
        Example(
            asked(safety_identifier="s" * 128),
            asked(safety_identifier="s" * 129),
            "Invalid 'safety_identifier': string too long. Expected a string with maximum length 128,"
            " but got a string with length 129 instead.",
        ),
        evidence="D",
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
        "service-tier",
        "service_tier",
        TIERS,
        Example(
            asked(service_tier="flex"),
            asked(service_tier="cheap"),
            "Invalid value: 'cheap'. Supported values are: 'auto', 'default', 'fast', 'flex', 'priority',"
            " 'scale', and 'ultrafast'.",
        ),
        evidence="F",
    ),
    one_of(
        "truncation",
        "truncation",
        ("auto", "disabled"),
        Example(
            asked(truncation="auto"),
            asked(truncation="oldest"),
            "Invalid value: 'oldest'. Supported values are: 'auto' and 'disabled'.",
        ),
        evidence="F",
    ),
    one_of(
        "effort-word",
        "reasoning.effort",
        EFFORTS,
        Example(
            asked(reasoning={"effort": "low"}),
            asked(reasoning={"effort": "huge"}),
            "Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high',"
            " 'xhigh', and 'max'.",
        ),
    ),
    one_of(
        "summary-word",
        "reasoning.summary",
        ("concise", "detailed", "auto"),
        Example(
            asked(reasoning={"summary": "auto"}),
            asked(reasoning={"summary": "long"}),
            "Invalid value: 'long'. Supported values are: 'concise', 'detailed', and 'auto'.",
        ),
    ),
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
