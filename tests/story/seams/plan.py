"""Features of an agent, and what each adds to one scenario: a customer asks for payments.

A feature is an entry of FEATURES: it changes the plan of a scenario.  A pair of features is a plan that both have changed,
and a feature with itself is a plan that it has changed twice.  scene.py plays a plan, checks.py says what must hold.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple


class Owner(NamedTuple):
    """A caller of a tenant; its name is in each text that it writes and in none of another's."""

    tenant: str
    caller: str

    @property
    def mark(self) -> str:
        return f"{self.tenant}-{self.caller}"

    @property
    def session(self) -> str:
        return f"visit-{self.mark}"


@dataclass
class Plan:
    """A scenario; without a feature, one customer asks for one payment, which is made."""

    tenants: list[str] = field(default_factory=lambda: ["acme"])
    callers: list[str] = field(default_factory=lambda: ["ada"])
    layers: list[str] = field(default_factory=list)
    """Agents around the work, from the outside: each is handed over to, or is a tool."""
    batches: int = 0
    """Replies with three calls each that wait for a person: one is approved, one approved with an edit, one rejected."""
    upgrades: int = 0
    """Versions of the code that take over from the one before while a call waits."""
    budgets: int = 0
    """1: limits of the agent for run, session, tenant, caller and pool. 2: runs and inner agents have limits too."""
    streams: int = 0
    """Viewers of each run; without one, runs are not streamed."""
    deaths: int = 0
    """How often the process dies."""
    has_notes: bool = False

    @property
    def owners(self) -> list[Owner]:
        return [Owner(tenant, caller) for tenant in self.tenants for caller in self.callers]

    @property
    def waits(self) -> bool:
        """True if a person is asked: an upgrade needs something that waits for it."""
        return bool(self.batches or self.upgrades)


def add_handover(plan: Plan) -> None:
    """Another agent takes over before the payment."""
    plan.layers.append("handover")


def add_nested(plan: Plan) -> None:
    """An agent that is a tool does what is left to do."""
    plan.layers.append("nested")


def add_approval(plan: Plan) -> None:
    """Three more payments wait for a person, who answers from another process."""
    plan.batches += 1


def add_budget(plan: Plan) -> None:
    """Limits hold for run, session, caller, tenant and a pool."""
    plan.budgets += 1


def add_stream(plan: Plan) -> None:
    """Each run is watched."""
    plan.streams += 1


def add_resume(plan: Plan) -> None:
    """The process dies, and a new one resumes the run."""
    plan.deaths += 1


def add_upgrade(plan: Plan) -> None:
    """A version of the code in which the tool has another name or other arguments takes over."""
    plan.upgrades += 1


def add_tenant(plan: Plan) -> None:
    """Another tenant has a caller of the same name and does the same at the same time."""
    plan.tenants.append(("globex", "initech")[len(plan.tenants) - 1])


def add_memory(plan: Plan) -> None:
    """The caller has notes, and the model writes one; so has another caller of the tenant."""
    plan.has_notes = True
    plan.callers.append(("bob", "cyd")[len(plan.callers) - 1])


FEATURES: dict[str, Callable[[Plan], None]] = {
    "hand-over": add_handover,
    "approval": add_approval,
    "budget": add_budget,
    "stream": add_stream,
    "resume": add_resume,
    "upgrade": add_upgrade,
    "tenant": add_tenant,
    "memory": add_memory,
    "nested": add_nested,
}
PAIRS = [*combinations_with_replacement(FEATURES, 2)]
"""Each pair of features once, and each feature with itself."""
ORDERED_PAIRS = [*PAIRS, ("nested", "hand-over")]
"""The pairs, and the other order of the one that has two: a hand-over inside an agent that is a tool."""
TRIPLES = [*combinations(FEATURES, 3)]


def make_plan(*features: str) -> Plan:
    plan = Plan()
    for feature in features:
        FEATURES[feature](plan)
    return plan


def without_stream(plan: Plan) -> Plan:
    return replace(plan, streams=0)


def without_deaths(plan: Plan) -> Plan:
    return replace(plan, deaths=0)
