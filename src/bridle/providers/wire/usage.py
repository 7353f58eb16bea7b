"""Reads the service tier and region that a provider reports for a call.

Standard terms are omitted. The others keep the provider's names; models.toml has the price of each.
"""

STANDARD_TERMS = frozenset({"", "standard", "default", "auto", "on_demand", "not_available", "global"})
"""Terms billed at the list price."""


def decode_service_terms(*tiers: object, place: object = None) -> tuple[str, ...]:
    """Return the non-standard terms: `tiers` are names of service tiers, `place` is the region."""
    special = [word for word in map(_normalise_word, tiers) if word not in STANDARD_TERMS]
    where = _normalise_word(place)
    return (*special, *((f"geo-{where}",) if where not in STANDARD_TERMS else ()))


def _normalise_word(word: object) -> str:
    return word.strip().lower() if isinstance(word, str) else ""
