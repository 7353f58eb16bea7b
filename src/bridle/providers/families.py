"""The wire families, listed once. A codec is imported on first use: most programs use one family."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import cast

from bridle.ports.codec import Codec
from bridle.values.errors import MisuseError

FAMILIES: Mapping[str, str] = {
    "anthropic": "bridle.providers.anthropic.codec",
    "bedrock_converse": "bridle.providers.bedrock.codec",
    "gemini": "bridle.providers.gemini.codec",
    "openai_chat": "bridle.providers.openai_chat.codec",
    "openai_responses": "bridle.providers.openai_responses.codec",
    "scripted": "bridle.providers.scripted",
}
"""Module of each family's `CODEC`, by the id that logs and tables use."""


def family_names() -> tuple[str, ...]:
    return tuple(FAMILIES)


@cache
def load_codec(family: str) -> Codec:
    """The codec of a wire family; `MisuseError` when there is no such family."""
    if family not in FAMILIES:
        raise MisuseError(f"unknown wire family {family!r}; choose one of: {', '.join(FAMILIES)}")
    return cast("Codec", import_module(FAMILIES[family]).CODEC)
