"""Reads the service tier, speed and region that a provider reports for a call.

Standard terms are omitted. The others keep the provider's names; models.toml has the price of each.
"""

from bridle.values.usage import list_service_terms


def decode_service_terms(
    tier: object = None, *, place: object = None, speed: object = None
) -> tuple[str, ...]:
    """Return the non-standard terms: `tier` is the service tier, `place` the region."""
    return list_service_terms({"service_tier": tier, "inference_geo": place, "speed": speed})
