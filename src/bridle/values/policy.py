"""Who may do what, as data.

A policy is a list of rules, and the first that matches a call decides: allow it, ask a
person, or deny it.  A call that no rule matches is decided by its tool (`approve=`), and
a tool that says nothing may run: registering it was consent.

A policy is never told to the model, and nothing a model says can change it.

    [[rules]]
    name = "small refunds"
    decision = "allow"
    tools = ["refund"]
    arguments = { amount = "<= 50", currency = "EUR" }
"""

from collections.abc import Mapping
from typing import Literal

from .request import Effect
from .value import Value

Permission = Literal["allow", "ask", "deny"]


class PermissionRule(Value, forbid_unknown_fields=True):
    """Everything that is said must hold; what is not said holds for every call."""

    decision: Permission
    name: str = ""
    """What an event calls this rule; without one, its number."""
    tools: tuple[str, ...] = ()
    """Names, with `*` and `?`."""
    effects: tuple[Effect, ...] = ()
    arguments: Mapping[str, str] = {}
    """By name (`customer.id` looks inside): a pattern with `*` and `?`, or a comparison such as `<= 50`."""
    callers: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


class Policy(Value, forbid_unknown_fields=True):
    rules: tuple[PermissionRule, ...] = ()
    version: str = ""
    """A word of yours; an approval given under another version is asked for again."""
    allow_rules_hold: bool = True
    """Whether rules that allow count.  They do not when a policy comes from a log and nobody named it again.

    Like a default it is no part of what an approval is bound to."""
    otherwise: PermissionRule | None = None
    """The default for calls that no rule matches; it comes before the tool's own `approve=`.

    A default is no part of what an approval is bound to: it may depend on where the run goes on (on a
    terminal or not), and a person's answer to exactly this call overrides it."""


class Claim(Value):
    """What a tool's own code says of one call: recorded, because code can change and a log cannot."""

    call_id: str
    resource: str | None = None
    """What the call works on; None when nobody can say, so it is read as everything."""
    ask: bool = False
    """Whether a person must be asked."""
    why: str = ""
