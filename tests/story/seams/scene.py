"""Plays a plan: the agents, their tools in several versions, the customers, the person who answers, and processes that die."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridle import Agent, Budget, Limits, Memory, RunContext, StoredBudget, tool
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import CannotContinue, StoreError
from bridle.values.events import Prompted
from tests.suite.wire_models import MODELS

from .plan import Owner, Plan

REASON = "no receipt"
AMOUNT, EDITED = 50, 40
SCOPES = ("run", "session", "caller", "tenant", "pool")
LIMIT_STOPS = ("budget", "steps")
STOPS_MAX, SESSIONS_MAX = 20, 1_000
AMPLE = 10_000


class Death(StoreError):
    """The process died with this write."""


class MortalStore:
    """The store as one process sees it, which dies with its last write: that write is durable, and none after it is."""

    def __init__(self, store, life):
        self._store, self._life, self._dead = store, life, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def append(self, session, after, records, *, epoch=None):
        if self._dead:
            raise Death("the process is gone")
        await self._store.append(session, after, records, epoch=epoch)
        self._life.writes += 1
        if self._life.writes in self._life.deaths_at:
            self._dead = True
            self._life.deaths += 1
            raise Death("the process is gone")


@dataclass
class Life:
    """Writes of the processes that serve one customer, and those with which they die."""

    deaths_at: tuple[int, ...] = ()
    writes: int = 0
    deaths: int = 0


class Bank:
    """Payments as a service outside keeps them: in order, none forgotten."""

    def __init__(self):
        self.payments = []  # idempotency key, order, amount

    def pay(self, call, order, amount):
        self.payments.append((call.idempotency_key, order, amount))
        return f"paid {amount} for {order}"

    def find(self, call):
        found = [(order, amount) for key, order, amount in self.payments if key == call.idempotency_key]
        return f"paid {found[0][1]} for {found[0][0]}" if found else None

    def make_tool(self, version, *, approve):
        """A version of the tool; "other" has a new name and does not say what the old one was."""

        def find(call: RunContext) -> str | None:
            return self.find(call)

        options = {"effect": "write", "on_unknown": "probe", "probe": find, "approve": approve}
        if version == 2:
            options["upgrade"] = lambda old: {"number": old["order"], "cents": old["amount"] * 100}

            @tool(name="send_money", aliases=["refund", "pay_back"], **options)
            def send_money(number: str, cents: int, call: RunContext) -> str:
                """Send money."""
                return self.pay(call, number, cents // 100)

            return send_money
        name = {0: "refund", 1: "pay_back", "other": "give_back"}[version]
        aliases = ["refund"] if version == 1 else []

        @tool(name=name, aliases=aliases, **options)
        def pay(order: str, amount: int, call: RunContext) -> str:
            """Pay money back."""
            return self.pay(call, order, amount)

        return pay


class Wire:
    """Connections to a simulator that keep the bytes of every request, with the agent that sent it."""

    def __init__(self):
        self.model, self.simulator, self.requests = find_model(MODELS[0], environ={}), Simulator(), []

    def connect(self, agent):
        async def answer(outgoing):
            self.requests.append((agent, outgoing.body.decode()))
            return await self.simulator.answer(outgoing)

        codec = load_codec(self.model.endpoint.family)
        return ModelConnection(model=self.model, codec=codec, transport=InProcessTransport(answer))


@dataclass
class Visit:
    """What one customer and the person who answers see of the runs."""

    owner: Owner
    life: Life
    version: object = 0
    results: list = field(default_factory=list)
    watched: list = field(default_factory=list)
    """For each streamed run: the sessions' records before it, and what each viewer saw."""
    stops: list = field(default_factory=list)
    refusals: list = field(default_factory=list)
    answers: dict = field(default_factory=dict)
    """Answer by order."""


class Scene:
    """One performance of a plan. `tight` is a scope whose limit of steps is too low until a run has ended for it."""

    def __init__(self, plan: Plan, *, deaths_at=(), tight="", steps_max=0):
        self.plan, self.store, self.bank, self.wire = plan, MemoryStore(), Bank(), Wire()
        self.tight, self.steps_max = tight, steps_max
        self.visits = [Visit(owner, Life(deaths_at)) for owner in plan.owners]
        self.depth = len(plan.layers)

    # agents

    def limit_steps(self, scope):
        return self.steps_max if self.tight == scope else AMPLE

    def make_budget(self):
        session, caller, tenant = (
            Limits(usd=50, steps=self.limit_steps(scope)) for scope in ("session", "caller", "tenant")
        )
        return Budget(usd=5, steps=self.limit_steps("run"), session=session, caller=caller, tenant=tenant)

    def make_agent(self, visit, version=None):
        """The agent that a customer talks to, in the version of the code that is deployed."""
        approve = self.plan.waits
        tools = [self.bank.make_tool(visit.version if version is None else version, approve=approve)]
        memory = Memory(handover=True) if self.plan.has_notes else None
        handover = []
        for place in range(self.depth, -1, -1):
            kind = self.plan.layers[place - 1] if place else "first"
            name = f"{kind}{place}"
            options: dict[str, Any] = {}
            if kind != "handover" and memory is not None:
                options["memory"] = memory
            if self.plan.budgets and kind == "first":
                pool = StoredBudget(name="all", usd=500, steps=self.limit_steps("pool"))
                options |= {"budget": self.make_budget(), "pool": pool}
            if self.plan.budgets == 2 and kind == "nested":
                options["budget"] = Budget(usd=1, tenant=Limits(usd=40), session=Limits(usd=1))
            if kind == "first":
                options["store"] = MortalStore(self.store, visit.life)
            agent = Agent(
                self.wire.connect(name), name=name, instructions=f"You are {name}.",
                tools=tools, handover=handover, **options,
            )  # fmt: skip
            tools, handover = [], []
            if kind == "nested":
                tools = [agent.as_tool(name, "Ask another agent.")]
            else:
                handover = [agent]
        return agent

    # what the customer asks

    def list_orders(self, owner):
        """The orders that a customer wants to be paid for, by reply of the model, each with what becomes of it."""
        kinds = ("approved", "edited", "rejected") if self.plan.batches else ("approved",)
        return [
            [(kind, f"{owner.mark}-{kind}-{batch}") for kind in kinds]
            for batch in range(max(self.plan.batches, 1))
        ]

    def write_prompt(self, owner, *, pays=True):
        """A script for the simulated model: notes, the way to the innermost agent, the payments, and an answer."""
        steps = []
        if pays and self.plan.has_notes:
            steps.append(
                f"!call remember {json.dumps({'note': f'{owner.mark} drinks tea', 'scope': 'always'})}"
            )
        return "\n!then\n".join([*steps, *self._write_layers(owner, 0, pays)])

    def _write_layers(self, owner, depth, pays):
        if depth == self.depth:
            batches = self.list_orders(owner) if pays else []
            calls = [[self._write_call(order) for _, order in batch] for batch in batches]
            return [*("\n".join(batch) for batch in calls), f"!say settled for {owner.mark}"]
        kind, inner = self.plan.layers[depth], self._write_layers(owner, depth + 1, pays)
        name = f"{kind}{depth + 1}"
        if kind == "handover":
            return [f"!call transfer_to_{name} {{}}", *inner]
        prompt = json.dumps({"prompt": "\n!then\n".join(inner)})
        return [f"!call {name} {prompt}", f"!say told {owner.mark}"]

    def _write_call(self, order):
        return f"!call refund {json.dumps({'order': order, 'amount': AMOUNT})}"

    # the play

    async def play(self):
        if self.plan.has_notes:
            for visit in self.visits:
                owner = visit.owner
                await self.make_agent(Visit(owner, Life())).notes.add(
                    f"{owner.mark} is allergic to nuts", tenant=owner.tenant, caller=owner.caller
                )
        await asyncio.gather(*(self.drive(visit) for visit in self.visits))
        if self.plan.has_notes:
            self.first_requests, self.wire.requests = self.wire.requests, []
            for visit in self.visits:
                owner, agent = visit.owner, self.make_agent(Visit(visit.owner, Life(), visit.version))
                prompt = self.write_prompt(owner, pays=False)
                await agent.run(prompt, f"again-{owner.mark}", tenant=owner.tenant, caller=owner.caller)
            self.later_requests = self.wire.requests
            self.wire.requests = [*self.first_requests, *self.later_requests]
        return self

    async def drive(self, visit):
        """Prompt, answer and resume until the run is done, each time from a new Agent object."""
        while True:
            result = await self.run(visit)
            visit.results.append(result)
            visit.stops.append(result.stop)
            if result.stop in LIMIT_STOPS and self.steps_max:
                self.tight = ""  # somebody raises the limit
                assert len(visit.stops) < STOPS_MAX, visit.stops
            elif result.stop == "waiting":
                if not visit.refusals:
                    await self.upgrade(visit)
                await self.answer(visit)
            else:
                return

    async def run(self, visit):
        """Start the run of a customer, or resume it, in process after process until one does not die."""
        while True:
            try:
                is_prompted = visit.owner.session in await self.list_sessions(visit.owner)
                return await (self.resume(visit) if is_prompted else self.start(visit))
            except Death:
                continue

    async def start(self, visit):
        owner, agent = visit.owner, self.make_agent(visit)
        options = {"tenant": owner.tenant, "caller": owner.caller}
        if self.plan.budgets == 2:
            options["budget"] = Budget(usd=3, tenant=Limits(usd=30))
        prompt = self.write_prompt(owner)
        if not self.plan.streams:
            return await agent.run(prompt, owner.session, **options)
        return await self.watch(visit, agent.stream(prompt, owner.session, **options))

    async def resume(self, visit):
        owner, agent = visit.owner, self.make_agent(visit)
        # A limit of the run itself is raised by the one who resumes.
        is_raised = visit.stops and visit.stops[-1] == "steps"
        options = {"tenant": owner.tenant, "budget": Budget(steps=AMPLE) if is_raised else None}
        if not self.plan.streams:
            return await agent.resume(owner.session, **options)
        return await self.watch(visit, agent.resume_stream(owner.session, **options))

    async def watch(self, visit, stream):
        """Run a stream with its viewers; what they saw is kept if the process lives."""
        before = await self.count_records()
        run = stream.start()
        views = [run.view(None) for _ in range(self.plan.streams)]

        async def look(view):
            return [item async for item in view]

        *seen, result = await asyncio.gather(*(look(view) for view in views), run.result())
        counts, own = await self.count_records(), await self.list_sessions(visit.owner)
        visit.watched.append((before, {name: counts[name] for name in own}, seen))
        return result

    async def count_records(self):
        return {info.id: info.length for info in await self.store.sessions(limit=SESSIONS_MAX)}

    async def list_sessions(self, owner):
        """The sessions of a customer, those of inner agents included."""
        found = []
        for info in await self.store.sessions(limit=SESSIONS_MAX):
            records = await self.store.read(info.id)
            prompted = next((each.event for each in records if isinstance(each.event, Prompted)), None)
            if prompted and (prompted.tenant, prompted.caller) == owner:
                found.append(info.id)
        return sorted(found)

    async def list_questions(self, visit, version=None):
        agent, found = self.make_agent(visit, version), []
        for session in await self.list_sessions(visit.owner):
            for each in await agent.approvals(session, tenant=visit.owner.tenant):
                found.append((session, each))
        return found

    async def answer(self, visit, questions=None):
        """Answer open questions, all if none are given, from a process that may die with its answer."""
        for session, question in questions or await self.list_questions(visit):
            try:
                await self.answer_one(visit, session, question)
            except Death:
                continue

    async def answer_one(self, visit, session, question):
        agent, tenant = self.make_agent(visit), visit.owner.tenant
        arguments = json.loads(question.arguments)
        order = arguments.get("order") or arguments["number"]
        visit.answers[order] = question
        if "-rejected" in order:
            await agent.reject(session, question.id, reason=REASON, tenant=tenant)
        elif "-edited" in order:
            unit, name = (1, "amount") if "amount" in arguments else (100, "cents")
            await agent.approve(
                session, question.id, arguments={**arguments, name: EDITED * unit}, tenant=tenant
            )
        else:
            await agent.approve(session, question.id, tenant=tenant)

    async def upgrade(self, visit):
        """Deploy version after version: one that lacks the tool is refused, the others take over."""
        session, tenant = visit.owner.session, visit.owner.tenant
        for number in range(1, self.plan.upgrades + 1):
            questions, other = await self.list_questions(visit), self.make_agent(visit, "other")
            before = await self.read_logs(visit.owner)
            for asked_in, question in questions:
                with pytest.raises(CannotContinue) as refused:
                    await other.approve(asked_in, question.id, tenant=tenant)
                visit.refusals.append(str(refused.value))
            with pytest.raises(CannotContinue):
                await other.resume(session, tenant=tenant)
            assert await self.read_logs(visit.owner) == before, "a refusal recorded something"
            assert await self.list_questions(visit) == questions, "a refused question is still open"
            if len(questions) > 1 and number == 1:  # one answer comes from the version before
                await self.answer(visit, questions[:1])
            visit.version = number
            if number < self.plan.upgrades:
                assert (await self.run(visit)).stop == "waiting"

    async def read_logs(self, owner):
        return {name: await self.store.read(name) for name in await self.list_sessions(owner)}
