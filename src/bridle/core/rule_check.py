"""Permission rules that can never match: found when an agent is built, because such a rule protects nobody.

A rule that names arguments is held against the schemas of the tools it names.  It is refused when no call
of any of them could match: the argument does not exist, or no value it may have fits the pattern.  A rule
whose tools the agent does not have is left alone; one policy may serve many agents.

Refused as well is a rule that asks or denies by a field whose default only code knows: it sees nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..values.policy import PermissionRule, Policy
from ..values.request import ToolSpec
from .patterns import NULL, fold_text, is_any, matches_any, matches_scalar, parse_comparison
from .schema_values import ANYTHING, Place, Schema, applied_schemas, read_schema, resolve_reference

NAMES_MAX = 8
NUMBER_LETTERS = frozenset("0123456789+-.eE*?")
REFERENCES_MAX = 16
LISTS_MAX = 8
"""Lists inside lists that are looked into; a schema that refers to itself has no end."""


def find_dead_rule(policy: Policy, specs: Iterable[ToolSpec]) -> str:
    """One sentence about the first rule that can never match; empty when every rule can."""
    tools = [spec for spec in specs if spec.native is None]
    for rule, name in _named_rules(policy):
        faults = [_find_fault(rule, spec) for spec in _meant(rule, tools)] if rule.arguments else []
        if faults and all(faults):
            return f"the policy's {name!r} can never match: {faults[0]}"
    return ""


def find_blind_rule(policy: Policy, specs: Iterable[ToolSpec], unseen: Mapping[str, frozenset[str]]) -> str:
    """One sentence about the first rule that asks or denies by a value it cannot see; empty when none does.

    `unseen` are, by tool, the fields whose defaults are made by code when the call runs.  A rule that allows
    does not match what it cannot see, so it needs no check.
    """
    tools = [spec for spec in specs if unseen.get(spec.name)]
    for rule, name in _named_rules(policy):
        for spec in _meant(rule, tools) if rule.decision != "allow" else ():
            field = _find_unseen(rule, read_schema(spec.parameters), unseen[spec.name])
            if field:
                return (
                    f"the policy's {name!r} cannot see what {spec.name} gets for {field!r} when a call leaves"
                    " it out: code makes that default (default_factory); make the field required, or the"
                    " default fixed"
                )
    return ""


def _find_unseen(rule: PermissionRule, root: Schema, unseen: frozenset[str]) -> str:
    for path, pattern in rule.arguments.items():
        steps = f".{fold_text(path)}."
        for field in sorted(unseen):
            if f".{fold_text(field)}." in steps:
                return field
        if not is_any(pattern):
            found = _names_inside(root, list(_schemas_at(root, path, exact=False))) & unseen
            if found:
                return min(found)
    return ""


def _names_inside(root: Schema, schemas: list[Any]) -> set[str]:
    """The names of all fields inside values of these schemas, at any depth."""
    found: set[str] = set()
    waiting, seen = list(schemas), set[bytes]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or (text := msgspec.json.encode(schema)) in seen:
            continue
        seen.add(text)
        for each in applied_schemas(root, Place(ANYTHING, (schema,))):
            properties = each.get("properties") or {}
            found.update(properties)
            waiting.extend(properties.values())
            for key in ("additionalProperties", "items", "prefixItems", "additionalItems"):
                inner = each.get(key)
                waiting.extend(inner if isinstance(inner, list) else [inner])
    return found


def _named_rules(policy: Policy) -> list[tuple[PermissionRule, str]]:
    named = [(rule, rule.name or f"rule {number}") for number, rule in enumerate(policy.rules, start=1)]
    if policy.otherwise is not None:
        named.append((policy.otherwise, policy.otherwise.name or "otherwise"))
    return named


def _meant(rule: PermissionRule, tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    exact = rule.decision == "allow"
    return [
        spec
        for spec in tools
        if matches_any(rule.tools, spec.name, exact=exact)
        and (not rule.effects or spec.effect in rule.effects)
    ]


def _find_fault(rule: PermissionRule, spec: ToolSpec) -> str:
    exact, root = rule.decision == "allow", read_schema(spec.parameters)
    for path, pattern in rule.arguments.items():
        found = list(_schemas_at(root, path, exact=exact))
        if not found:
            listed = ", ".join(_names(root)[:NAMES_MAX]) or "none"
            return f"{spec.name} has no argument {path!r} (it has: {listed})"
        if not any(_can_match(root, schema, pattern, exact=exact) for schema in found):
            return f"no value that {spec.name} takes for {path!r} fits {pattern!r}"
    return ""


def _names(root: Schema) -> list[str]:
    applied = applied_schemas(root, Place(ANYTHING, (root,)))
    return [name for each in applied for name in each.get("properties") or ()]


def _schemas_at(root: Schema, path: str, *, exact: bool) -> Iterator[Any]:
    """The schemas of what a path may mean; True stands for anything."""
    waiting: list[tuple[Any, str, int]] = [(root, path if exact else fold_text(path), 0)]
    while waiting:
        schema, rest, lists = waiting.pop()
        if not rest or schema is True:
            yield schema
            continue
        if not isinstance(schema, dict) or lists > LISTS_MAX:
            continue
        applied = applied_schemas(root, Place(ANYTHING, (schema,)))
        if _is_open(root, applied):
            yield True
            continue
        for each in applied:
            for name, inner in (each.get("properties") or {}).items():
                called = name if exact else fold_text(name)
                if called == rest:
                    waiting.append((inner, "", 0))
                elif rest.startswith(f"{called}."):
                    waiting.append((inner, rest[len(called) + 1 :], 0))
            others = each.get("additionalProperties")
            if isinstance(others, dict):
                cuts = [at for at, letter in enumerate(rest) if letter == "."]
                waiting.extend([(others, "", 0), *((others, rest[at + 1 :], 0) for at in cuts)])
            for key in () if exact else ("items", "prefixItems", "additionalItems"):
                inner = each.get(key)
                waiting.extend(
                    (one, rest, lists + 1) for one in (inner if isinstance(inner, list) else [inner])
                )


def _is_open(root: Schema, applied: list[Schema]) -> bool:
    """Nobody can say which names or items such a value has."""
    kinds = {kind for each in applied for kind in _kinds(each)}
    says = any("properties" in each or "additionalProperties" in each for each in applied)
    free_object = not says and (not kinds or "object" in kinds)
    free_list = "array" in kinds and not any("items" in each or "prefixItems" in each for each in applied)
    strange = any(
        isinstance(each.get("$ref"), str) and resolve_reference(root, each["$ref"]) is None
        for each in applied
    )
    return (
        free_object
        or free_list
        or strange
        or any(
            each.get("additionalProperties") is True
            or "patternProperties" in each
            or each.get("unevaluatedProperties", False) is not False
            for each in applied
        )
    )


def _can_match(root: Schema, schema: Any, pattern: str, *, exact: bool, references: int = 0) -> bool:
    """Some value that the schema takes fits; in doubt, yes."""
    if not isinstance(schema, dict) or references > REFERENCES_MAX:
        return schema is not False
    if "default" in schema and _value_fits(schema["default"], pattern, exact=exact):
        return True
    if isinstance(schema.get("$ref"), str):
        target = resolve_reference(root, schema["$ref"])
        if target is not None and not _can_match(
            root, target, pattern, exact=exact, references=references + 1
        ):
            return False
    for name in ("anyOf", "oneOf"):
        several = schema.get(name)
        if isinstance(several, list) and not any(
            _can_match(root, each, pattern, exact=exact, references=references) for each in several
        ):
            return False
    if "const" in schema:
        return _value_fits(schema["const"], pattern, exact=exact)
    if isinstance(schema.get("enum"), list):
        return any(_value_fits(each, pattern, exact=exact) for each in schema["enum"])
    kinds = _kinds(schema)
    return not kinds or any(_kind_fits(kind, pattern, exact=exact) for kind in kinds)


def _value_fits(value: object, pattern: str, *, exact: bool) -> bool:
    if isinstance(value, dict | list):
        return not exact
    return matches_scalar(pattern, value, exact=exact)


def _kind_fits(kind: str, pattern: str, *, exact: bool) -> bool:
    compares = parse_comparison(pattern) is not None
    match kind:
        case "string":
            return not (compares and exact)
        case "number" | "integer":
            return compares or is_any(pattern) or set(pattern.strip()) <= NUMBER_LETTERS
        case "boolean":
            return any(matches_scalar(pattern, value, exact=exact) for value in (True, False))
        case "null":
            return fold_text(pattern).strip() == NULL
        case _:
            return not exact


def _kinds(schema: Schema) -> tuple[str, ...]:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return (kinds,)
    return tuple(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else ()
