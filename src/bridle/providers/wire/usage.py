"""What a call was served on, as providers tell it: only what is not as usual is worth a word.

The words themselves stay the provider's; what each of them costs is in models.toml.
"""

STANDARD_TERMS = frozenset({"", "standard", "default", "auto", "on_demand", "not_available", "global"})
"""Words for nothing special: the price on the list."""


def decode_service_terms(*said: object, place: object = None) -> tuple[str, ...]:
    """`said` are words for the tier; `place` is the word for where the model was run."""
    tiers = [word for word in map(_normalise_word, said) if word not in STANDARD_TERMS]
    where = _normalise_word(place)
    return (*tiers, *((f"geo-{where}",) if where not in STANDARD_TERMS else ()))


def _normalise_word(word: object) -> str:
    return word.strip().lower() if isinstance(word, str) else ""
