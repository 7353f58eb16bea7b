"""The way back: arguments that fit a rewritten schema, made to fit the one they were rewritten from.

Two rewrites need it.  A field that could be left out may have had to be demanded, with null for leaving
it out; such nulls are removed, but never one that the source itself allows.  And a field at the top may
have gone out under another name.

Arguments are data from a model.  What is no JSON, gives a field twice or does not fit at all is returned
untouched: refusing it, in words for the model, is the business of whoever checks it.
"""

import json
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ._schema_losses import Losses
from ._schema_merge import Alternatives, fields_of
from ._schema_node import Node, Schema
from ._schema_source import Source, Tree
from ._schema_values import is_of, key_of

if TYPE_CHECKING:
    from jsonschema_rs import Validator

VALIDATORS_MAX = 256
Names: TypeAlias = tuple[tuple[str, str], ...]


def restored(arguments: str, source: str, tree: Tree, renamed: Names, *, nulls: bool) -> str:
    try:
        given = json.loads(arguments, object_pairs_hook=_members, parse_constant=_refused)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(given, dict):
        return arguments
    names = dict(renamed)
    found: dict[str, Any] = {names.get(str(name), str(name)): value for name, value in given.items()}
    if len(found) < len(given):
        return arguments
    if nulls and "null" in arguments:
        found = _without_nulls(found, source, tree)
    if found == given and list(found) == list(given):
        return arguments
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be said in ASCII
        return json.dumps(found, separators=(",", ":"))
    return text


def _without_nulls(found: dict[str, Any], source: str, tree: Tree) -> dict[str, Any]:
    careful: dict[str, Any] = _Restorer(tree).under(found).value
    if _fits(careful, source):
        return careful
    # The source may forbid null in a way that types do not show, such as `not` or an overlap in `oneOf`.
    eager: dict[str, Any] = _Restorer(tree, eager=True).under(found).value
    return eager if _fits(eager, source) else careful


def _fits(value: dict[str, Any], source: str) -> bool:
    try:
        return bool(_validator(source).is_valid(value))
    except ValueError:
        return False


@lru_cache(maxsize=VALIDATORS_MAX)
def _validator(source: str) -> "Validator":
    # Imported when first needed: most sessions never see a null.  Offline: a schema fetches nothing.
    module = import_module("jsonschema_rs")
    try:
        validator: Validator = module.validator_for(source, validate_formats=True, offline=True)
    except module.ReferencingError as error:
        raise ValueError(error.message) from error
    return validator


class _Fit(NamedTuple):
    value: Any
    faults: int
    """How much of it does not fit; among alternatives the one with the fewest is meant."""


class _Restorer:
    def __init__(self, tree: Tree, *, eager: bool = False) -> None:
        losses = Losses()
        self._eager = eager
        source = Source(tree, losses)
        self._root = source.root
        self._alternatives = Alternatives(source, losses)

    def under(self, value: Any) -> _Fit:
        return self._fit(value, self._root)

    def _fit(self, value: Any, schema: Schema) -> _Fit:
        if isinstance(schema, bool):
            return _Fit(value, 0 if schema else 1)
        fits = [self._flat_fit(value, flat) for flat in self._alternatives.of(schema)]
        return min(fits, key=lambda fit: fit.faults, default=_Fit(value, 1))

    def _flat_fit(self, value: Any, flat: Node) -> _Fit:
        if "type" in flat and not any(is_of(value, kind) for kind in flat["type"]):
            return _Fit(value, 1)
        faults = int("enum" in flat and key_of(value) not in map(key_of, flat["enum"]))
        if isinstance(value, dict):
            return self._object_fit(value, flat, faults)
        if isinstance(value, list):
            prefix, rest = flat.get("prefixItems", []), flat.get("items", True)
            fits = [self._fit(it, prefix[n] if n < len(prefix) else rest) for n, it in enumerate(value)]
            return _Fit([fit.value for fit in fits], faults + sum(fit.faults for fit in fits))
        return _Fit(value, faults)

    def _object_fit(self, value: dict[str, Any], flat: Node, faults: int) -> _Fit:
        fields, needed = fields_of(flat), flat.get("required", ())
        kept: dict[str, Any] = {}
        for name, held in value.items():
            fit = self._fit(held, fields.of(name))
            if held is None and (fit.faults or self._eager) and name not in needed:
                continue
            kept[name] = fit.value
            faults += fit.faults
        return _Fit(kept, faults + sum(name not in kept for name in needed))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a field is given twice")
    return members


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
