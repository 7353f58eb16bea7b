"""Rules about single settings that both OpenAI wires have: type and range.

Rules about settings that one model does not support are in the packages of the wires.
"""

from bridle.sim.rules.engine import ProviderRule, RuleFinding
from bridle.sim.rules.field_rules import FieldRow, join_quoted
from bridle.sim.rules.raw_request import JsonObject

from .error_style import FIELD_CHECKS, refuse

PAIRS_MAX, PAIR_MAX, PAIR_NAME_MAX = 16, 512, 64
SAFETY_ID_ROW = FieldRow(id="safety-id-length", evidence="D")


def _find_long_value(pairs: JsonObject) -> RuleFinding | None:
    texts = ((name, value) for name, value in pairs.items() if isinstance(value, str))
    return next(({"name": name, "length": len(text)} for name, text in texts if len(text) > PAIR_MAX), None)


def _find_long_name(pairs: JsonObject) -> RuleFinding | None:
    names = (name for name in pairs if len(name) > PAIR_NAME_MAX)
    shown = ({"short": f"{name[:3]}...{name[-3:]}", "name": name, "length": len(name)} for name in names)
    return next(shown, None)


def metadata_rules() -> tuple[ProviderRule, ...]:
    """Make the rules for `metadata`."""
    return (
        FIELD_CHECKS.of_type("metadata", "object|null", expected="a metadata object"),
        refuse(
            "metadata-most",
            "metadata",
            lambda pairs: {"count": len(pairs)} if len(pairs) > PAIRS_MAX else None,
            "Invalid 'metadata': too many properties. Expected an object with at most 16 properties,"
            " but got an object with {count} properties instead.",
            evidence="S",
            code="object_above_max_properties",
            param="metadata",
        ),
        refuse(
            "metadata-length",
            "metadata",
            _find_long_value,
            "Invalid 'metadata.{name}': string too long. Expected a string with maximum length 512,"
            " but got a string with length {length} instead.",
            evidence="S",
            code="string_above_max_length",
            param="metadata.{name}",
        ),
        refuse(
            "metadata-value",
            "metadata",
            lambda pairs: next(({"name": n} for n, v in pairs.items() if not isinstance(v, str)), None),
            "Invalid type for 'metadata.{name}': expected a string, but got an integer instead.",
            evidence="F",
            code="invalid_type",
            param="metadata.{name}",
        ),
        refuse(
            "metadata-name",
            "metadata",
            _find_long_name,
            "Invalid property name in 'metadata': '{short}' is too long. Expected a string with maximum"
            " length 64, but got a string with length {length} instead.",
            evidence="F",
            code="property_name_above_max_length",
            param="metadata.{name}",
        ),
    )


def shared_field_rules(tiers: tuple[str, ...]) -> tuple[ProviderRule, ...]:
    """Make the rules for all shared fields except `metadata`."""
    measured, seen = FieldRow(), FieldRow(evidence="S")
    retention = ("in_memory", "24h")
    return (
        FIELD_CHECKS.of_type("temperature", "number|null", seen),
        FIELD_CHECKS.maximum("temperature", 2.0, seen),
        FIELD_CHECKS.minimum("temperature", 0.0, seen),
        FIELD_CHECKS.of_type("top_p", "number|null", measured),
        FIELD_CHECKS.maximum("top_p", 1.0, seen),
        FIELD_CHECKS.minimum("top_p", 0.0, seen),
        FIELD_CHECKS.of_type("stream", "boolean|null"),
        FIELD_CHECKS.of_type("store", "boolean|null"),
        FIELD_CHECKS.of_type("user", "string|null"),
        FIELD_CHECKS.of_type("prompt_cache_key", "string|null"),
        FIELD_CHECKS.max_length("prompt_cache_key", 64, FieldRow(id="cache-key-length", evidence="S")),
        FIELD_CHECKS.of_type("prompt_cache_options", "object|null"),
        FIELD_CHECKS.of_type(
            "prompt_cache_retention", "string|null", expected=f"one of {join_with_or(retention)}"
        ),
        FIELD_CHECKS.of_type("safety_identifier", "string|null"),
        FIELD_CHECKS.max_length("safety_identifier", 128, SAFETY_ID_ROW),
        FIELD_CHECKS.of_type("service_tier", "string|null", expected=f"one of {join_with_or(tiers)}"),
        FIELD_CHECKS.one_of("service_tier", tiers, FieldRow(id="service-tier", evidence="S")),
        FIELD_CHECKS.of_type("moderation", "object|null"),
    )


def join_with_or(values: tuple[str, ...]) -> str:
    return join_quoted(values, "or")
