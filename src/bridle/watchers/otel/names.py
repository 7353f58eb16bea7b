"""Names and times as OpenTelemetry writes them; needs no package."""

import tomllib
from functools import cache
from importlib.metadata import version
from pathlib import Path

from bridle.values.record import Attributes, AttributeValue

SCOPE = "bridle"
NANOSECONDS = 1_000_000_000
PROVIDER = "gen_ai.provider.name"


@cache
def package_version() -> str:
    return version("bridle")


@cache
def rename_provider(name: str) -> str:
    """Name of a provider in the conventions; ours if they have none."""
    text = (Path(__file__).parent / "provider_names.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text).get(name, name))


def rename_attributes(found: Attributes) -> dict[str, AttributeValue]:
    """The attributes with the provider's name of the conventions."""
    provider = found.get(PROVIDER)
    return {**found, PROVIDER: rename_provider(provider)} if isinstance(provider, str) else {**found}


def to_nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * NANOSECONDS))
