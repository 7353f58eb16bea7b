"""May this call run?  Decided here, in code, before anything runs.

The policy's first matching rule decides, then the tool itself, and a tool that says
nothing may run.  What a person was asked is bound to everything the answer depends on:
the tool, its arguments, the call, the rules of the policy.  When any of it changes, the answer
is no answer any more and the question is put again.

A rule sees what the tool will get: an argument that was left out has its default, at any depth
(schema_values.py).  A rule that allows matches only what is plainly so: exact text, no list, no object, no
number written as text.  One that asks or denies looks into all of them and folds the text (patterns.py), or
`paths=["/etc/passwd"]`, a Decimal and a capital letter would slip past it.
"""

from hashlib import sha256

import msgspec
from msgspec.structs import replace

from ..values.event import Question
from ..values.json_text import parse_json
from ..values.policy import Permission, PermissionRule, Policy
from ..values.request import ToolSpec
from ..values.value import Value
from .opencall import OpenCall
from .patterns import is_any, matches_any, matches_scalar, matches_text, parse_comparison
from .schema_values import NotPlain, Place, Schema, leaves, read_schema, values_at
from .state import State

BY_TOOL = "the tool asks"
NO_POLICY = Policy()


class Decision(Value):
    permission: Permission
    rule: str = ""
    """What decided, in words; empty when nobody had anything to say."""
    is_default: bool = False
    """`Policy.otherwise` decided: an answer that a person gave to this very call overrides it."""


def permitted(state: State, item: OpenCall, spec: ToolSpec) -> Decision:
    decided = _by_policy(state, item, spec) if state.settings.policy != NO_POLICY else None
    if decided is not None:
        return decided
    claim = item.claim
    if spec.approve == "always":
        return Decision(permission="ask", rule=BY_TOOL)
    if spec.approve == "depends" and (claim is None or claim.ask):
        why = claim.why if claim is not None else ""
        return Decision(permission="ask", rule=f"{BY_TOOL}: {why}" if why else BY_TOOL)
    return Decision(permission="allow")


def _by_policy(state: State, item: OpenCall, spec: ToolSpec) -> Decision | None:
    arguments: object = None
    policy = state.settings.policy
    if any(rule.arguments for rule in (*policy.rules, *filter(None, (policy.otherwise,)))):
        arguments = _parsed(item.arguments)
    for rule, name in _rules_in_force(policy):
        if _matches(rule, spec, arguments, state.run.caller, state.run.tenant):
            return Decision(permission=rule.decision, rule=name)
    default = policy.otherwise
    if default is not None and _matches(default, spec, arguments, state.run.caller, state.run.tenant):
        return Decision(permission=default.decision, rule=default.name or "otherwise", is_default=True)
    return None


def hosted_permission(state: State, spec: ToolSpec) -> Decision:
    """Whether a provider may run a tool of its own, of whose arguments nobody hears before it does.

    A rule about arguments therefore denies or asks about every call, and allows none.
    """
    policy = state.settings.policy
    named = _rules_in_force(policy)
    if policy.otherwise is not None:
        named.append((policy.otherwise, policy.otherwise.name or "otherwise"))
    for rule, name in named:
        if rule.arguments and rule.decision == "allow":
            continue
        if _matches(replace(rule, arguments={}), spec, None, state.run.caller, state.run.tenant):
            return Decision(permission=rule.decision, rule=name)
    return Decision(permission="allow" if spec.approve == "never" else "ask", rule=BY_TOOL)


def binding(policy: Policy, item: OpenCall, spec: ToolSpec, question: Question) -> str:
    """What an answer is good for.  A second doubt about the same call is another question."""
    attempt = item.attempt if question == "in_doubt" else 0
    rules = replace(policy, otherwise=None, allow_rules_hold=True)
    said = (question, attempt, item.call.id, spec, _canonical(item.call.arguments), rules)
    # After an approval that did not count this is another question: a log takes one answer to each.
    again = (item.approvals_discarded,) if item.approvals_discarded else ()
    return sha256(msgspec.json.encode((*said, *again), order="sorted")).hexdigest()


def _rules_in_force(policy: Policy) -> list[tuple[PermissionRule, str]]:
    """The rules that count, each with what it is called."""
    return [
        (rule, rule.name or f"rule {number}")
        for number, rule in enumerate(policy.rules, start=1)
        if policy.allow_rules_hold or rule.decision != "allow"
    ]


def _matches(rule: PermissionRule, spec: ToolSpec, arguments: object, caller: str, tenant: str) -> bool:
    exact = rule.decision == "allow"
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
    """One of the values that a path means is enough to ask or deny; to allow, all of them must fit."""
    found = values_at(schema, arguments, path, exact=exact)
    if not exact:
        return any(_fits(schema, place, pattern) for place in found)
    plain = [place.value for place in found]
    return bool(plain) and all(
        not isinstance(value, dict | list | NotPlain) and matches_scalar(pattern, value, exact=True)
        for value in plain
    )


def _fits(schema: Schema, place: Place, pattern: str) -> bool:
    """The value fits, or anything inside it, or its JSON text."""
    value = place.value
    if not isinstance(value, dict | list):
        return matches_scalar(pattern, value, exact=False)
    if is_any(pattern):
        return True
    if any(matches_scalar(pattern, leaf, exact=False) for leaf in leaves(schema, place)):
        return True
    if parse_comparison(pattern) is not None:
        return False
    return matches_text(pattern, msgspec.json.encode(value).decode(), exact=False)


def _parsed(arguments: str) -> object:
    try:
        return parse_json(arguments.strip() or "{}")
    except ValueError:
        return {}


def _canonical(arguments: str) -> bytes:
    return msgspec.json.encode(_parsed(arguments), order="sorted")
