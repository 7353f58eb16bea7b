"""Settings that both of these wires have, each by itself: what it has to be and how much of it.

Whether a model takes a setting at all is asked elsewhere; the examples speak to one that takes them all.
"""

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow, FieldRules, join_quoted
from bridle.sim.rules.raw_request import as_mapping, field
from bridle.values.model import Abilities

from .error_style import rule

PAIRS_MAX, PAIR_MAX, PAIR_NAME_MAX = 16, 512, 64
SAFETY_ID_ROW = FieldRow(id="safety-id-length", evidence="D")


def _check_metadata_most(request: RawRequest) -> RuleFinding | None:
    count = len(as_mapping(field(request, "metadata")))
    return {"count": count} if count > PAIRS_MAX else None


def _check_metadata_length(request: RawRequest) -> RuleFinding | None:
    for name, value in as_mapping(field(request, "metadata")).items():
        if isinstance(value, str) and len(value) > PAIR_MAX:
            return {"name": name, "length": len(value)}
    return None


def _check_metadata_value(request: RawRequest) -> RuleFinding | None:
    for name, value in as_mapping(field(request, "metadata")).items():
        if not isinstance(value, str):
            return {"name": name}
    return None


def _check_metadata_name(request: RawRequest) -> RuleFinding | None:
    for name in as_mapping(field(request, "metadata")):
        if len(name) > PAIR_NAME_MAX:
            return {"short": f"{name[:3]}...{name[-3:]}", "name": name, "length": len(name)}
    return None


def metadata_rules(shapes: FieldRules) -> tuple[ProviderRule, ...]:
    """Labels for the asker's own use."""
    asked = shapes.style.example
    return (
        shapes.of_type("metadata", "object|null", {"k": "v"}, "x", expected="a metadata object"),
        rule(
            "metadata-most",
            _check_metadata_most,
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
            _check_metadata_length,
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
            _check_metadata_value,
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
            _check_metadata_name,
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


def shared_field_rules(
    shapes: FieldRules, able: Abilities, tiers: tuple[str, ...]
) -> tuple[ProviderRule, ...]:
    """Everything but the metadata; `able` is a model that takes sampling."""
    measured, seen = FieldRow(model=able), FieldRow(model=able, evidence="S")
    retention = ("in_memory", "24h")
    return (
        shapes.of_type("temperature", "number|null", 1, "hot", seen),
        shapes.maximum("temperature", 2.0, 2.0, 2.5, seen),
        shapes.minimum("temperature", 0.0, 0, -0.5, seen),
        shapes.of_type("top_p", "number|null", 0.5, "wide", measured),
        shapes.maximum("top_p", 1.0, 1, 1.5, seen),
        shapes.minimum("top_p", 0.0, 0, -0.5, seen),
        shapes.of_type("stream", "boolean|null", False, "yes"),
        shapes.of_type("store", "boolean|null", False, "yes"),
        shapes.of_type("user", "string|null", "u", {"a": 1}),
        shapes.of_type("prompt_cache_key", "string|null", "k", {"a": 1}),
        shapes.max_length(
            "prompt_cache_key", 64, "k" * 64, "k" * 65, FieldRow(id="cache-key-length", evidence="S")
        ),
        shapes.of_type("prompt_cache_options", "object|null", {"ttl": "30m"}, "x"),
        shapes.of_type(
            "prompt_cache_retention", "string|null", "24h", 7, expected=f"one of {join_with_or(retention)}"
        ),
        shapes.of_type("safety_identifier", "string|null", "s", {"a": 1}),
        shapes.max_length("safety_identifier", 128, "s" * 128, "s" * 129, SAFETY_ID_ROW),
        shapes.of_type(
            "service_tier", "string|null", "flex", {"a": 1}, expected=f"one of {join_with_or(tiers)}"
        ),
        shapes.one_of("service_tier", tiers, "flex", "cheap", FieldRow(id="service-tier", evidence="S")),
        shapes.of_type("moderation", "object|null", {"model": "m"}, "x"),
    )


def join_with_or(values: tuple[str, ...]) -> str:
    return join_quoted(values, "or")
