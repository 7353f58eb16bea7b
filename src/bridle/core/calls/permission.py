"""Decides whether a call may run, before anything runs.

The first matching rule of the policy decides, then the tool's own setting; by default a tool may run. An
approval is bound to what matters to the person: name and effect of the tool, arguments, call, and policy rules. If
any of it changes, the question is asked again; compatibility.py says what a new declaration of the tool changes.

A rule sees the arguments that the tool gets, with omitted defaults filled in at any depth
(argument_matching.py). A rule that allows matches only unambiguous values: exact text, no list, no object, no
number written as text. A rule that asks or denies searches all of them and folds the text; otherwise
`paths=["/etc/passwd"]`, a Decimal or a capital letter would evade it.

Rules that can never match are rejected when an agent is built, because they protect nothing. A rule with
arguments is checked against the schemas of the tools it names: it is rejected if no call of any of them could
match. A rule about tools that the agent does not have is ignored; one policy may serve many agents. A rule
that asks or denies by a field whose default is computed by code is rejected too, because it cannot see the
value.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from bridle.core.state import State
from bridle.values.base import Value
from bridle.values.calls import Permission, PermissionRule, Policy
from bridle.values.events import ApprovalQuestion
from bridle.values.request import ToolSpec
from bridle.values.text import parse_json

from .argument_matching import (
    ANY_VALUE,
    NULL_PATTERN,
    BehindList,
    Schema,
    SchemaValue,
    applied_schemas,
    find_values,
    fold_text,
    is_wildcard,
    list_leaves,
    matches_any,
    matches_scalar,
    matches_text,
    parse_comparison,
    read_schema,
    resolve_reference,
)
from .pending import PendingCall

ASKED_BY_TOOL = "the tool requires approval"
NO_POLICY = Policy()


class PermissionDecision(Value, kw_only=True):
    permission: Permission
    rule: str = ""
    """The rule or tool that decided; empty if none applied."""
    is_default: bool = False
    """True if `Policy.otherwise` decided: a person's answer to this call overrides it."""


def decide_permission(state: State, item: PendingCall, spec: ToolSpec) -> PermissionDecision:
    policy = state.settings.policy
    decided = _by_policy(state, item, spec) if policy != NO_POLICY else None
    if decided is not None and not (decided.is_default and policy.tool_asks_first):
        return decided
    by_tool = _by_tool(item, spec)
    return by_tool if decided is None or by_tool.permission == "ask" else decided


def _by_tool(item: PendingCall, spec: ToolSpec) -> PermissionDecision:
    claim = item.resource_claim
    # defect: approval-needed
    if spec.approve == "always":
        return PermissionDecision(permission="ask", rule=ASKED_BY_TOOL)
    if spec.approve == "depends" and (claim is None or claim.needs_approval):
        why = claim.why if claim is not None else ""
        return PermissionDecision(permission="ask", rule=f"{ASKED_BY_TOOL}: {why}" if why else ASKED_BY_TOOL)
    return PermissionDecision(permission="allow")


def _by_policy(state: State, item: PendingCall, spec: ToolSpec) -> PermissionDecision | None:
    origin = state.run.origin
    arguments: object = None
    policy = state.settings.policy
    if any(rule.arguments for rule in (*policy.rules, *filter(None, (policy.otherwise,)))):
        arguments = _parse_arguments(item.arguments)
    # defect: first-rule
    for rule, name in _active_rules(policy):
        if _rule_matches(rule, spec, arguments, origin.caller, origin.tenant):
            return PermissionDecision(permission=rule.decision, rule=name)
    default = policy.otherwise
    if default is not None and _rule_matches(default, spec, arguments, origin.caller, origin.tenant):
        return PermissionDecision(
            permission=default.decision, rule=default.name or "otherwise", is_default=True
        )
    return None


def decide_hosted_permission(state: State, spec: ToolSpec) -> PermissionDecision:
    """Permission of a hosted tool, whose arguments are unknown before the provider runs it.

    A rule with arguments therefore denies or asks about every call, and allows none.
    """
    origin = state.run.origin
    policy = state.settings.policy
    named_rules = _active_rules(policy)
    if policy.otherwise is not None:
        named_rules.append((policy.otherwise, policy.otherwise.name or "otherwise"))
    for rule, name in named_rules:
        if rule.arguments and rule.decision == "allow":
            continue
        if _rule_matches(replace(rule, arguments={}), spec, None, origin.caller, origin.tenant):
            return PermissionDecision(permission=rule.decision, rule=name)
    return PermissionDecision(permission="allow" if spec.approve == "never" else "ask", rule=ASKED_BY_TOOL)


def approval_binding(policy: Policy, item: PendingCall, spec: ToolSpec, question: ApprovalQuestion) -> str:
    """Hash of everything that an approval applies to. A call that is in doubt a second time needs a new one."""
    attempt = item.attempt if question == "in_doubt" else 0
    # defect: policy-change
    rules = replace(policy, otherwise=None, allow_rules_hold=True, tool_asks_first=False)
    asked = item.original or item.call  # an upgrade that keeps the question maps its name and arguments
    # Only what matters to the person: a docstring, a timeout or a default does not.
    declared = (asked.name, spec.effect, spec.external)
    bound_values = (question, attempt, asked.id, declared, _encode_arguments(asked.arguments), rules)
    # After an ignored approval the binding changes: a log accepts one answer per binding.
    discarded = (item.approvals_discarded,) if item.approvals_discarded else ()
    # The same holds if a hook changed the arguments that the person had edited.
    # guard: restored-question-is-new
    replaced = (f"edits replaced: {item.hooks.edits_replaced}",) if item.hooks.edits_replaced else ()
    return sha256(msgspec.json.encode((*bound_values, *discarded, *replaced), order="sorted")).hexdigest()


def _active_rules(policy: Policy) -> list[tuple[PermissionRule, str]]:
    """Rules in force, each with its name."""
    return [
        (rule, rule.name or f"rule {number}")
        for number, rule in enumerate(policy.rules, start=1)
        if policy.allow_rules_hold or rule.decision != "allow"
    ]


def _rule_matches(rule: PermissionRule, spec: ToolSpec, arguments: object, caller: str, tenant: str) -> bool:
    # defect: exact-allow
    exact = rule.decision == "allow"
    # defect: rule-callers
    # defect: rule-arguments
    return (
        matches_any(rule.tools, spec.name, exact=exact)
        and (not rule.effects or spec.effect in rule.effects)
        and matches_any(rule.callers, caller, exact=exact)
        and matches_any(rule.tenants, tenant, exact=exact)
        and all(
            _argument_matches(read_schema(spec.parameters), arguments, path, pattern, exact=exact)
            for path, pattern in rule.arguments.items()
        )
    )


def _argument_matches(schema: Schema, arguments: object, path: str, pattern: str, *, exact: bool) -> bool:
    """True if the rule's pattern matches: for ask or deny any value at the path, for allow all of them."""
    found = find_values(schema, arguments, path, exact=exact)
    if not exact:
        # guard: rule-value-matched
        return any(_value_matches(schema, place, pattern) for place in found)
    plain = [place.value for place in found]
    return bool(plain) and all(
        not isinstance(value, dict | list | BehindList) and matches_scalar(pattern, value, exact=True)
        for value in plain
    )


def _value_matches(schema: Schema, place: SchemaValue, pattern: str) -> bool:
    """True if the value, anything inside it, or its JSON text matches."""
    value = place.value
    if not isinstance(value, dict | list):
        return matches_scalar(pattern, value, exact=False)
    if is_wildcard(pattern):
        return True
    if any(matches_scalar(pattern, leaf, exact=False) for leaf in list_leaves(schema, place)):
        return True
    if parse_comparison(pattern) is not None:
        return False
    return matches_text(pattern, msgspec.json.encode(value).decode(), exact=False)


def _parse_arguments(arguments: str) -> object:
    try:
        return parse_json(arguments.strip() or "{}")
    except ValueError:
        return {}


def _encode_arguments(arguments: str) -> bytes:
    return msgspec.json.encode(_parse_arguments(arguments), order="sorted")


NAMES_MAX = 8
NUMBER_LETTERS = frozenset("0123456789+-.eE*?")
# not from outside: how far a text or a schema is searched, which has its own limit
REFERENCES_MAX = 16
LISTS_MAX = 8
"""Maximum nesting of lists to search; a recursive schema has no end."""


def find_dead_rule(policy: Policy, specs: Iterable[ToolSpec]) -> str:
    """Description of the first rule that can never match; empty if every rule can."""
    tools = [spec for spec in specs if spec.native is None]
    for rule, name in _named_rules(policy):
        faults = [_find_fault(rule, spec) for spec in _select_tools(rule, tools)] if rule.arguments else []
        if faults and all(faults):
            return f"the policy's {name!r} can never match: {faults[0]}"
    return ""


def find_blind_rule(policy: Policy, specs: Iterable[ToolSpec], unseen: Mapping[str, frozenset[str]]) -> str:
    """Description of the first rule that asks or denies by a value it cannot see; empty if none does.

    `unseen` maps tools to fields whose defaults are computed when the call runs. A rule that allows never
    matches an unseen value, so it needs no check.
    """
    # guard: unseen-default-refused
    tools = [spec for spec in specs if unseen.get(spec.name)]
    for rule, name in _named_rules(policy):
        for spec in _select_tools(rule, tools) if rule.decision != "allow" else ():
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
        if not is_wildcard(pattern):
            found = _names_inside(root, list(_find_schemas(root, path, exact=False))) & unseen
            if found:
                return min(found)
    return ""


def _names_inside(root: Schema, schemas: list[Any]) -> set[str]:
    """Names of all fields inside values of these schemas, at any depth."""
    found: set[str] = set()
    waiting, seen = list(schemas), set[bytes]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or (text := msgspec.json.encode(schema)) in seen:
            continue
        seen.add(text)
        for each in applied_schemas(root, SchemaValue(ANY_VALUE, (schema,))):
            properties = each.get("properties") or {}
            found.update(properties)
            waiting.extend(properties.values())
            for key in ("additionalProperties", "items", "prefixItems", "additionalItems"):
                inner = each.get(key)
                waiting.extend(inner if isinstance(inner, list) else [inner])
    return found


def _named_rules(policy: Policy) -> list[tuple[PermissionRule, str]]:
    named_rules = [(rule, rule.name or f"rule {number}") for number, rule in enumerate(policy.rules, start=1)]
    if policy.otherwise is not None:
        named_rules.append((policy.otherwise, policy.otherwise.name or "otherwise"))
    return named_rules


def _select_tools(rule: PermissionRule, tools: Iterable[ToolSpec]) -> list[ToolSpec]:
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
        found = list(_find_schemas(root, path, exact=exact))
        if not found:
            listed = ", ".join(_argument_names(root)[:NAMES_MAX]) or "none"
            return f"{spec.name} has no argument {path!r} (it has: {listed})"
        if not any(_can_match(root, schema, pattern, exact=exact) for schema in found):
            return f"no value that {spec.name} takes for {path!r} fits {pattern!r}"
    return ""


def _argument_names(root: Schema) -> list[str]:
    applied = applied_schemas(root, SchemaValue(ANY_VALUE, (root,)))
    return [name for each in applied for name in each.get("properties") or ()]


def _find_schemas(root: Schema, path: str, *, exact: bool) -> Iterator[Any]:
    """Schemas of the values that a path may refer to; True stands for anything."""
    waiting: list[tuple[Any, str, int]] = [(root, path if exact else fold_text(path), 0)]
    while waiting:
        schema, rest, lists = waiting.pop()
        if not rest or schema is True:
            yield schema
            continue
        if not isinstance(schema, dict) or lists > LISTS_MAX:
            continue
        applied = applied_schemas(root, SchemaValue(ANY_VALUE, (schema,)))
        if _is_open_schema(root, applied):
            yield True
            continue
        for each in applied:
            for name, inner in (each.get("properties") or {}).items():
                label = name if exact else fold_text(name)
                if label == rest:
                    waiting.append((inner, "", 0))
                elif rest.startswith(f"{label}."):
                    waiting.append((inner, rest[len(label) + 1 :], 0))
            others = each.get("additionalProperties")
            if isinstance(others, dict):
                cuts = [at for at, letter in enumerate(rest) if letter == "."]
                waiting.extend([(others, "", 0), *((others, rest[at + 1 :], 0) for at in cuts)])
            for key in () if exact else ("items", "prefixItems", "additionalItems"):
                inner = each.get(key)
                waiting.extend(
                    (one, rest, lists + 1) for one in (inner if isinstance(inner, list) else [inner])
                )


def _is_open_schema(root: Schema, applied: list[Schema]) -> bool:
    """True if the names or items of such a value cannot be known."""
    kinds = {kind for each in applied for kind in _schema_types(each)}
    declares_fields = any("properties" in each or "additionalProperties" in each for each in applied)
    free_object = not declares_fields and (not kinds or "object" in kinds)
    free_list = "array" in kinds and not any("items" in each or "prefixItems" in each for each in applied)
    has_unknown_reference = any(
        isinstance(each.get("$ref"), str) and resolve_reference(root, each["$ref"]) is None
        for each in applied
    )
    return (
        free_object
        or free_list
        or has_unknown_reference
        or any(
            each.get("additionalProperties") is True
            or "patternProperties" in each
            or each.get("unevaluatedProperties", False) is not False
            for each in applied
        )
    )


def _can_match(root: Schema, schema: Any, pattern: str, *, exact: bool, references: int = 0) -> bool:
    """True if some value of the schema may match; True in case of doubt."""
    if not isinstance(schema, dict) or references > REFERENCES_MAX:
        return schema is not False
    if "default" in schema and _can_value_match(schema["default"], pattern, exact=exact):
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
        return _can_value_match(schema["const"], pattern, exact=exact)
    if isinstance(schema.get("enum"), list):
        return any(_can_value_match(each, pattern, exact=exact) for each in schema["enum"])
    kinds = _schema_types(schema)
    return not kinds or any(_can_kind_match(kind, pattern, exact=exact) for kind in kinds)


def _can_value_match(value: object, pattern: str, *, exact: bool) -> bool:
    if isinstance(value, dict | list):
        return not exact
    return matches_scalar(pattern, value, exact=exact)


def _can_kind_match(kind: str, pattern: str, *, exact: bool) -> bool:
    compares = parse_comparison(pattern) is not None
    match kind:
        case "string":
            return not (compares and exact)
        case "number" | "integer":
            return compares or is_wildcard(pattern) or set(pattern.strip()) <= NUMBER_LETTERS
        case "boolean":
            return any(matches_scalar(pattern, value, exact=exact) for value in (True, False))
        case "null":
            return fold_text(pattern).strip() == NULL_PATTERN
        case _:
            return not exact


def _schema_types(schema: Schema) -> tuple[str, ...]:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return (kinds,)
    return tuple(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else ()
