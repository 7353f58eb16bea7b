"""Converts arguments that match a rewritten schema so that they match its source.

Two rewrites need it. An optional field may have become required, with null for omission; such nulls are
removed, but never one that the source allows. And a field of the root may have been sent under another name.

Arguments are data from a model. Invalid JSON, duplicate fields and arguments that do not match at all are
returned unchanged: the check of arguments rejects them with a message for the model.
"""

import json
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bridle.values.schema_limits import BACKTRACKS_MAX

from .combine import SchemaAlternatives, fields_of
from .losses import SchemaLosses
from .node import Schema, SchemaNode
from .source import SchemaSource, SchemaTree
from .values import has_type, value_key

if TYPE_CHECKING:
    from jsonschema_rs import Validator

VALIDATORS_MAX = 256
RenamedFields: TypeAlias = tuple[tuple[str, str], ...]


def restore_tree(
    arguments: str, source: str, tree: SchemaTree, renamed: RenamedFields, *, nulls: bool
) -> str:
    try:
        given = json.loads(
            arguments, object_pairs_hook=_members_without_duplicates, parse_constant=_reject_constant
        )
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(given, dict):
        return arguments
    names = dict(renamed)
    found: dict[str, Any] = {names.get(str(name), str(name)): value for name, value in given.items()}
    if len(found) < len(given):
        return arguments
    if nulls and "null" in arguments:
        found = _drop_added_nulls(found, source, tree)
    if found == given and list(found) == list(given):
        return arguments
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be encoded as ASCII
        return json.dumps(found, separators=(",", ":"))
    return text


def _drop_added_nulls(found: dict[str, Any], source: str, tree: SchemaTree) -> dict[str, Any]:
    careful: dict[str, Any] = _ArgumentRestorer(tree).restore_value(found).value
    if _is_valid(careful, source):
        return careful
    # The source may forbid null in a way that types do not show, such as `not` or overlapping `oneOf`
    # members.
    eager: dict[str, Any] = _ArgumentRestorer(tree, eager=True).restore_value(found).value
    return eager if _is_valid(eager, source) else careful


def _is_valid(value: dict[str, Any], source: str) -> bool:
    try:
        return bool(_make_validator(source).is_valid(value))
    except ValueError:
        return False


@lru_cache(maxsize=VALIDATORS_MAX)
def _make_validator(source: str) -> "Validator":
    # Imported on first use: most sessions never see a null. Offline: a schema fetches nothing.
    module = import_module("jsonschema_rs")
    try:
        validator: Validator = module.validator_for(
            source,
            validate_formats=True,
            offline=True,
            pattern_options=module.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX),
        )
    except module.ReferencingError as error:
        raise ValueError(error.message) from error
    return validator


class _FitResult(NamedTuple):
    value: Any
    faults: int
    """Number of mismatches; among alternatives the one with the fewest is chosen."""


class _ArgumentRestorer:
    def __init__(self, tree: SchemaTree, *, eager: bool = False) -> None:
        losses = SchemaLosses()
        self._eager = eager
        source = SchemaSource(tree, losses)
        self._root = source.root
        self._alternatives = SchemaAlternatives(source, losses)

    def restore_value(self, value: Any) -> _FitResult:
        return self._best_fit(value, self._root)

    def _best_fit(self, value: Any, schema: Schema) -> _FitResult:
        if isinstance(schema, bool):
            return _FitResult(value, 0 if schema else 1)
        fits = [self._fit_shape(value, flat) for flat in self._alternatives.expand(schema)]
        return min(fits, key=lambda fit: fit.faults, default=_FitResult(value, 1))

    def _fit_shape(self, value: Any, flat: SchemaNode) -> _FitResult:
        if "type" in flat and not any(has_type(value, kind) for kind in flat["type"]):
            return _FitResult(value, 1)
        faults = int("enum" in flat and value_key(value) not in map(value_key, flat["enum"]))
        if isinstance(value, dict):
            return self._fit_object(value, flat, faults)
        if isinstance(value, list):
            prefix, rest = flat.get("prefixItems", []), flat.get("items", True)
            fits = [self._best_fit(it, prefix[n] if n < len(prefix) else rest) for n, it in enumerate(value)]
            return _FitResult([fit.value for fit in fits], faults + sum(fit.faults for fit in fits))
        return _FitResult(value, faults)

    def _fit_object(self, value: dict[str, Any], flat: SchemaNode, faults: int) -> _FitResult:
        fields, needed = fields_of(flat), flat.get("required", ())
        kept: dict[str, Any] = {}
        for name, held in value.items():
            fit = self._best_fit(held, fields.schema_for(name))
            if held is None and (fit.faults or self._eager) and name not in needed:
                continue
            kept[name] = fit.value
            faults += fit.faults
        return _FitResult(kept, faults + sum(name not in kept for name in needed))


def _members_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a field is given twice")
    return members


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
