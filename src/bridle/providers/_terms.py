"""What a call was served on, as providers tell it: only what is not as usual is worth a word.

The words themselves stay the provider's; what each of them costs is in models.toml.
"""

USUAL = frozenset({"", "standard", "default", "auto", "on_demand", "not_available", "global"})
"""Words for nothing special: the price on the list."""


def terms_of(*said: object, place: object = None) -> tuple[str, ...]:
    """`said` are words for the tier; `place` is the word for where the model was run."""
    tiers = [word for word in map(_plain, said) if word not in USUAL]
    where = _plain(place)
    return (*tiers, *((f"geo-{where}",) if where not in USUAL else ()))


def _plain(word: object) -> str:
    return word.strip().lower() if isinstance(word, str) else ""


def wire_tier(terms: tuple[str, ...]) -> str:
    """The word for the tier among them; empty when it is the usual one."""
    return next((term for term in terms if not term.startswith("geo-")), "")
