"""Finds the wire family or endpoint that a request field or a provider's own tool belongs to.

ownership.toml lists the names that each family or endpoint knows. If the first model's family or endpoint knows a
name, or if none does, the name belongs to the first model. Otherwise it belongs to those that know it.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from bridle.providers.wire.json import is_object, loads
from bridle.values.base import Value
from bridle.values.model import Endpoint


class OwnedNames(Value, kw_only=True):
    """The names that one family or endpoint knows."""

    fields: frozenset[str] = frozenset()
    tool_types: str = "(?!)"
    tool_members: frozenset[str] = frozenset()


def find_field_owners(name: str, first: Endpoint) -> tuple[str, ...]:
    """Return the owners of a request field that was given for a model at `first`."""
    return _prefer_own([each for each, owned in _load_table().items() if name in owned.fields], first)


def find_tool_owners(native: str, first: Endpoint) -> tuple[str, ...]:
    """Return the owners of a tool in a provider's own JSON that was given for a model at `first`."""
    tool = loads(native) if is_object(native) else {}
    kind = str(tool.get("type", ""))
    known = [
        each
        for each, owned in _load_table().items()
        if (kind and re.fullmatch(owned.tool_types, kind)) or owned.tool_members & set(tool)
    ]
    return _prefer_own(known, first)


def _prefer_own(known: list[str], first: Endpoint) -> tuple[str, ...]:
    own = [each for each in known if each in (first.family, first.name)]
    return tuple(own or known) or (first.family,)


@cache
def _load_table() -> dict[str, OwnedNames]:
    text = Path(__file__).with_name("ownership.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, OwnedNames])
