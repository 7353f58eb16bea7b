"""Finds the wire family or endpoint that a request field or a provider's own tool belongs to.

The fields of a family are the members of its vendor's published request types (`request_fields.toml` in the family's
folder) and those of ownership.toml. Rows of endpoints.toml add the fields of one endpoint. If the first model takes a
field, it belongs there; else to those that take it. A field that nobody lists is refused, unless the first model's
server takes fields of its own making, or the caller says that the field is newer than the lists (`Extra.unlisted`).
"""

import os
import re
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import msgspec

from bridle.providers.catalogue import find_extra_fields
from bridle.providers.families import FAMILIES, load_codec
from bridle.providers.wire.json import is_object, loads
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.model import Endpoint, Model
from bridle.values.request import Extra

FIELDS_FILE = "request_fields.toml"
ANY_FIELD = "*"
"""In `extra_fields` of an endpoint: it takes fields of its own making."""


class OwnedNames(Value, kw_only=True):
    """The names that one family or endpoint knows."""

    fields: frozenset[str] = frozenset()
    tool_types: str = "(?!)"
    tool_members: frozenset[str] = frozenset()


def find_field_owners(extra: Extra, models: Sequence[Model]) -> tuple[str, ...]:
    """Return the owners of a request field that was given for these models, the first of which is preferred.

    Raises `MisuseError` for a field that no list has, and for one that the request sets itself.
    """
    name, first = extra.name, models[0].endpoint
    families = _list_families(name)
    owners = extra.owners
    if not owners:
        own = _find_own_owner(name, first, families) or (first.family if extra.unlisted else "")
        owners = (own,) if own else (*families, *_list_endpoint_owners(name, models, families))
    if not owners:
        raise MisuseError(_explain_unlisted(name, first))
    for endpoint in (model.endpoint for model in models):
        if endpoint.family not in owners and endpoint.name not in owners:
            continue
        codec = load_codec(endpoint.family)
        codec.check_extra(extra)
        if name in codec.reserved_fields:
            raise MisuseError(f"extra {name!r} would replace part of the request: set it on the request")
        if not extra.unlisted and not _find_own_owner(name, endpoint, families):
            raise MisuseError(_explain_unlisted(name, endpoint))
    return owners


def check_extras_taken(extras: Sequence[Extra], models: Sequence[Model]) -> None:
    """Raise `MisuseError` for a field that belongs to none of these models."""
    for extra in extras:
        owners = extra.owners
        if not any(model.endpoint.family in owners or model.endpoint.name in owners for model in models):
            asked = ", ".join(dict.fromkeys(model.name for model in models))
            raise MisuseError(
                f"extra {extra.name!r} is a field of {' and '.join(owners)}, and this agent asks {asked}: remove it,"
                " or add a model that takes it"
            )


def find_tool_owners(native: str, first: Endpoint) -> tuple[str, ...]:
    """Return the owners of a tool in a provider's own JSON that was given for a model at `first`."""
    tool = loads(native) if is_object(native) else {}
    kind = str(tool.get("type", ""))
    known = [
        each
        for each, owned in _load_table().items()
        if (kind and re.fullmatch(owned.tool_types, kind)) or owned.tool_members & set(tool)
    ]
    own = [each for each in known if each in (first.family, first.name)]
    return tuple(own or known) or (first.family,)


def _list_families(name: str) -> tuple[str, ...]:
    return tuple(each for each, owned in _load_table().items() if name in owned.fields)


def _find_own_owner(name: str, endpoint: Endpoint, families: Sequence[str]) -> str:
    """Return the family or endpoint by which this endpoint takes a field; empty if it does not."""
    if endpoint.family in families:
        return endpoint.family
    listed = find_extra_fields(endpoint, environ=os.environ)
    is_taken = name in listed or (ANY_FIELD in listed and not families)
    return endpoint.name if is_taken else ""


def _list_endpoint_owners(name: str, models: Sequence[Model], families: Sequence[str]) -> tuple[str, ...]:
    endpoints = {model.endpoint.name: model.endpoint for model in models}
    return tuple(
        each.name for each in endpoints.values() if _find_own_owner(name, each, families) == each.name
    )


def _explain_unlisted(name: str, endpoint: Endpoint) -> str:
    owned = _load_table().get(endpoint.family, OwnedNames())
    near = get_close_matches(name, sorted(owned.fields), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"extra {name!r} is no field of a request to {endpoint.name}: {hint}A field that is newer than the list"
        " is sent with Extra(…, unlisted=True)"
    )


@cache
def _load_table() -> dict[str, OwnedNames]:
    folder = Path(__file__).parent
    table = msgspec.convert(_read_toml(folder / "ownership.toml"), dict[str, OwnedNames])
    for family, module in FAMILIES.items():
        path = folder / module.split(".")[2] / FIELDS_FILE
        if path.exists():
            fields = msgspec.convert(_read_toml(path)["fields"], frozenset[str])
            owned = table.get(family, OwnedNames())
            table[family] = msgspec.structs.replace(owned, fields=owned.fields | fields)
    return table


def _read_toml(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
