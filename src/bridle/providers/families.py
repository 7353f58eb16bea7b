"""The wire families, listed once. A codec is imported on first use: most programs use one family."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from bridle.ports.codec import Codec
from bridle.values.errors import MisuseError

if TYPE_CHECKING:
    from bridle.ports.served_wire import ServedWire

FAMILIES: Mapping[str, str] = {
    "anthropic": "bridle.providers.anthropic.codec",
    "bedrock_converse": "bridle.providers.bedrock.codec",
    "gemini": "bridle.providers.gemini.codec",
    "openai_chat": "bridle.providers.openai_chat.codec",
    "openai_responses": "bridle.providers.openai_responses.codec",
    "scripted": "bridle.providers.scripted",
}
"""Module of each family's `CODEC`, by the id that logs and tables use."""

SERVED_WIRES: Mapping[str, str] = {
    "openai_chat": "bridle.providers.openai_chat.serving",
    "openai_responses": "bridle.providers.openai_responses.serving",
    "anthropic": "bridle.providers.anthropic.serving",
    "gemini": "bridle.providers.gemini.serving",
}
"""Module of each family's `SERVED`, for the families that this program can serve."""


def family_names() -> tuple[str, ...]:
    return tuple(FAMILIES)


@cache
def load_codec(family: str) -> Codec:
    """The codec of a wire family; `MisuseError` when there is no such family."""
    if family not in FAMILIES:
        raise MisuseError(f"unknown wire family {family!r}; choose one of: {', '.join(FAMILIES)}")
    return cast("Codec", import_module(FAMILIES[family]).CODEC)


def list_served_wires() -> tuple[str, ...]:
    return tuple(SERVED_WIRES)


@cache
def load_served_wire(family: str) -> "ServedWire":
    """The server's side of a wire; `MisuseError` when it cannot be served."""
    if family not in SERVED_WIRES:
        raise MisuseError(f"{family!r} cannot be served; choose one of: {', '.join(SERVED_WIRES)}")
    return cast("ServedWire", import_module(SERVED_WIRES[family]).SERVED)
