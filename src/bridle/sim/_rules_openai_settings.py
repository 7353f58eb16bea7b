"""Settings that both of these wires have, each by itself: what it has to be and how much of it.

Whether a model takes a setting at all is asked elsewhere; the examples speak to one that takes them all.
"""

from ..values.model import Abilities
from ._rules_openai_shape import rule
from ._rules_reading import field, mapping
from ._rules_shapes import Row, Shapes, listing
from .rules import Asked, Found, Rule

PAIRS_MAX, PAIR_MAX, PAIR_NAME_MAX = 16, 512, 64
SAFETY = Row(id="safety-id-length", evidence="D")


def _many_pairs(request: Asked) -> Found | None:
    count = len(mapping(field(request, "metadata")))
    return {"count": count} if count > PAIRS_MAX else None


def _long_pair(request: Asked) -> Found | None:
    for name, value in mapping(field(request, "metadata")).items():
        if isinstance(value, str) and len(value) > PAIR_MAX:
            return {"name": name, "length": len(value)}
    return None


def _odd_pair(request: Asked) -> Found | None:
    for name, value in mapping(field(request, "metadata")).items():
        if not isinstance(value, str):
            return {"name": name}
    return None


def _long_name(request: Asked) -> Found | None:
    for name in mapping(field(request, "metadata")):
        if len(name) > PAIR_NAME_MAX:
            return {"short": f"{name[:3]}...{name[-3:]}", "name": name, "length": len(name)}
    return None


def metadata(shapes: Shapes) -> tuple[Rule, ...]:
    """Labels for the asker's own use."""
    asked = shapes.voice.asked
    return (
        shapes.typed("metadata", "object|null", {"k": "v"}, "x", expected="a metadata object"),
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
            param="metadata",
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
            param="metadata.{name}",
        ),
        rule(
            "metadata-value",
            _odd_pair,
            "Invalid type for 'metadata.{name}': expected a string, but got an integer instead.",
            evidence="F",
            passes=asked(metadata={"k": "7"}),
            offends=asked(metadata={"j": "6", "k": 7}),
            says="Invalid type for 'metadata.k': expected a string, but got an integer instead.",
            code="invalid_type",
            param="metadata.{name}",
        ),
        rule(
            "metadata-name",
            _long_name,
            "Invalid property name in 'metadata': '{short}' is too long. Expected a string with maximum"
            " length 64, but got a string with length {length} instead.",
            evidence="F",
            passes=asked(metadata={"k" * 64: "v"}),
            offends=asked(metadata={"j": "v", "abc" + "k" * 62: "v"}),
            says="Invalid property name in 'metadata': 'abc...kkk' is too long. Expected a string with"
            " maximum length 64, but got a string with length 65 instead.",
            code="property_name_above_max_length",
            param="metadata.{name}",
        ),
    )


def common(shapes: Shapes, able: Abilities, tiers: tuple[str, ...]) -> tuple[Rule, ...]:
    """Everything but the metadata; `able` is a model that takes sampling."""
    measured, seen = Row(model=able), Row(model=able, evidence="S")
    retention = ("in_memory", "24h")
    return (
        shapes.typed("temperature", "number|null", 1, "hot", seen),
        shapes.at_most("temperature", 2.0, 2.0, 2.5, seen),
        shapes.at_least("temperature", 0.0, 0, -0.5, seen),
        shapes.typed("top_p", "number|null", 0.5, "wide", measured),
        shapes.at_most("top_p", 1.0, 1, 1.5, seen),
        shapes.at_least("top_p", 0.0, 0, -0.5, seen),
        shapes.typed("stream", "boolean|null", False, "yes"),
        shapes.typed("store", "boolean|null", False, "yes"),
        shapes.typed("user", "string|null", "u", {"a": 1}),
        shapes.typed("prompt_cache_key", "string|null", "k", {"a": 1}),
        shapes.shorter("prompt_cache_key", 64, "k" * 64, "k" * 65, Row(id="cache-key-length", evidence="S")),
        shapes.typed("prompt_cache_options", "object|null", {"ttl": "30m"}, "x"),
        shapes.typed(
            "prompt_cache_retention", "string|null", "24h", 7, expected=f"one of {either(retention)}"
        ),
        shapes.typed("safety_identifier", "string|null", "s", {"a": 1}),
        shapes.shorter("safety_identifier", 128, "s" * 128, "s" * 129, SAFETY),
        shapes.typed("service_tier", "string|null", "flex", {"a": 1}, expected=f"one of {either(tiers)}"),
        shapes.one_of("service_tier", tiers, "flex", "cheap", Row(id="service-tier", evidence="S")),
        shapes.typed("moderation", "object|null", {"model": "m"}, "x"),
    )


def either(values: tuple[str, ...]) -> str:
    return listing(values, "or")
