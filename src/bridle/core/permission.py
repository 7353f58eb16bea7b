"""May this call run?  Decided here, in code, before anything runs.

The policy's first matching rule decides, then the tool itself, and a tool that says
nothing may run.  What a person was asked is bound to everything the answer depends on:
the tool, its arguments, the call, the rules of the policy.  When any of it changes, the answer
is no answer any more and the question is put again.

A rule sees what the tool will get: an argument that was left out has its default.  A rule that
allows matches only what is plainly so, no list and no number written as text.  One that asks or
denies looks into both, or `paths=["/etc/passwd"]` and a Decimal would slip past it.

Patterns compare text.  `..` inside a path never matches a rule that allows, because
`/safe/*` is meant to end where it says.
"""

import operator
from fnmatch import fnmatchcase
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from ..values.event import Question
from ..values.policy import Permission, PermissionRule, Policy
from ..values.request import ToolSpec
from ..values.value import Value
from .opencall import OpenCall
from .state import State

COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}
BY_TOOL = "the tool asks"


class Decision(Value):
    permission: Permission
    rule: str = ""
    """What decided, in words; empty when nobody had anything to say."""
    is_default: bool = False
    """`Policy.otherwise` decided: an answer that a person gave to this very call overrides it."""


def permitted(state: State, item: OpenCall, spec: ToolSpec) -> Decision:
    arguments: object = None
    policy = state.settings.policy
    if any(rule.arguments for rule in (*policy.rules, *filter(None, (policy.otherwise,)))):
        arguments = _with_defaults(_parsed(item.arguments), spec)
    for number, rule in enumerate(policy.rules, start=1):
        if _matches(rule, spec, arguments, state.run.caller, state.run.tenant):
            return Decision(permission=rule.decision, rule=rule.name or f"rule {number}")
    default = policy.otherwise
    if default is not None and _matches(default, spec, arguments, state.run.caller, state.run.tenant):
        return Decision(permission=default.decision, rule=default.name or "otherwise", is_default=True)
    claim = item.claim
    if spec.approve == "always":
        return Decision(permission="ask", rule=BY_TOOL)
    if spec.approve == "depends" and (claim is None or claim.ask):
        why = claim.why if claim is not None else ""
        return Decision(permission="ask", rule=f"{BY_TOOL}: {why}" if why else BY_TOOL)
    return Decision(permission="allow")


def hosted_permission(state: State, spec: ToolSpec) -> Decision:
    """Whether a provider may run a tool of its own, of whose arguments nobody hears before it does.

    A rule about arguments therefore denies or asks about every call, and allows none.
    """
    policy = state.settings.policy
    named = [(rule, rule.name or f"rule {number}") for number, rule in enumerate(policy.rules, start=1)]
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
    rules = replace(policy, otherwise=None)
    said = (question, attempt, item.call.id, spec, _canonical(item.call.arguments), rules)
    return sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


def _matches(rule: PermissionRule, spec: ToolSpec, arguments: object, caller: str, tenant: str) -> bool:
    return (
        _any_like(rule.tools, spec.name)
        and (not rule.effects or spec.effect in rule.effects)
        and _any_like(rule.callers, caller)
        and _any_like(rule.tenants, tenant)
        and all(
            _fits(_inside(arguments, path), pattern, allowing=rule.decision == "allow")
            for path, pattern in rule.arguments.items()
        )
    )


def _any_like(patterns: tuple[str, ...], word: str) -> bool:
    return not patterns or any(fnmatchcase(word, pattern) for pattern in patterns)


def _fits(value: object, pattern: str, *, allowing: bool) -> bool:
    if isinstance(value, list):
        return not allowing and any(_fits(member, pattern, allowing=False) for member in value)
    sign = next((sign for sign in COMPARISONS if pattern.startswith(sign)), "")
    limit = _number(pattern.removeprefix(sign).strip()) if sign else None
    if limit is not None:
        # True is 1 for Python; for somebody who wrote `<= 50` it is no amount.
        amount = _number(value) if isinstance(value, str) and not allowing else value
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            return False
        return bool(COMPARISONS[sign](amount, limit))
    if value is None or isinstance(value, dict):
        return False
    words = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    climbs = ".." in words.replace("\\", "/").split("/") and ".." not in pattern
    return fnmatchcase(words, pattern) and not (allowing and climbs)


def _inside(arguments: object, path: str) -> object:
    found = arguments
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _with_defaults(arguments: object, spec: ToolSpec) -> object:
    properties = _inside(_parsed(spec.parameters), "properties")
    if not isinstance(arguments, dict) or not isinstance(properties, dict):
        return arguments
    defaults = {
        name: about["default"]
        for name, about in properties.items()
        if isinstance(about, dict) and "default" in about
    }
    return {**defaults, **arguments}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parsed(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments.strip() or "{}")
    except msgspec.DecodeError:
        return {}


def _canonical(arguments: str) -> bytes:
    return msgspec.json.encode(_parsed(arguments), order="sorted")
