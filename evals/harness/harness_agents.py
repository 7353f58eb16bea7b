"""The world, the tools, the agents and the drivers of the harness suite."""

import asyncio
from contextlib import suppress
from decimal import Decimal
from itertools import product

from bridle import (
    Agent,
    Budget,
    Compaction,
    Limits,
    MisuseError,
    ModelRetry,
    PermissionRule,
    Policy,
    SharedBudget,
    StoreError,
    Thinking,
    tool,
)
from bridle.hooks import Change, Refuse, after_tool, before_tool
from bridle.memory import Chunk
from bridle.values.memory import Memory

LONG = "Answer in one sentence and name your source. Be careful with numbers. " * 300
"""Instructions long enough to be cached by every provider."""


class World:
    """What the tools did."""

    def __init__(self):
        self.ran, self.returned, self.values = [], [], {}
        self.running = self.most_running = self.waiting = 0
        self.all_here = asyncio.Event()
        self.results = []
        self.crashes = 0

    def note(self, name, **arguments):
        self.ran.append((name, arguments))

    async def work(self, seconds=0.01):
        """Stay busy, and measure how many calls are busy at the same time."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(seconds)
        self.running -= 1

    async def meet(self, count):
        """Wait until so many calls are here; False if they do not come."""
        self.waiting += 1
        if self.waiting >= count:
            self.all_here.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.all_here.wait(), 5)
        return self.all_here.is_set()


def make_world(folder):
    return World()


def make_tools(world):
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look something up."""
        world.note("look", what=what)
        await world.work()
        text = f"{what} is {len(what)} long"
        world.returned.append(text)
        return text

    @tool(effect="write", resource="box:{box}")
    async def put(box: str, value: int) -> str:
        """Put a value into a box."""
        world.note("put", box=box, value=value)
        await world.work()
        world.values[box] = value
        return f"put {value} into {box}"

    @tool(effect="read", resource="box:{box}")
    async def get(box: str) -> str:
        """Read a box."""
        world.note("get", box=box)
        await world.work(0)
        return f"{box} holds {world.values.get(box)}"

    @tool(effect="read")
    async def meet(name: str, count: int) -> str:
        """Meet others."""
        return f"{name} {'met' if await world.meet(count) else 'was alone'}"

    @tool(effect="write", resource="box:{box}")
    async def pack(box: str, count: int) -> str:
        """Pack a box together with others."""
        return f"{box} {'met' if await world.meet(count) else 'was alone'}"

    @tool(effect="exclusive")
    async def sweep() -> str:
        """Sweep the whole room."""
        world.note("sweep")
        await world.work()
        return "swept"

    @tool(effect="read")
    def fail(why: str) -> str:
        """Fail."""
        world.note("fail", why=why)
        raise ValueError(f"cannot: {why}")

    @tool(effect="read")
    def choose(color: str) -> str:
        """Choose a color."""
        world.note("choose", color=color)
        if color != "blue":
            raise ModelRetry("only blue is left")
        return "blue it is"

    @tool(effect="read", timeout=0.05)
    async def dawdle() -> str:
        """Take too long."""
        world.note("dawdle")
        await asyncio.sleep(30)
        return "late"

    @tool(effect="read")
    def recite(lines: int) -> str:
        """Recite many lines."""
        world.note("recite", lines=lines)
        return "\n".join(f"line {number} of the poem" for number in range(lines))

    @tool(effect="write", approve=True)
    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        world.note("pay", to=to, amount=amount)
        return f"paid {amount} to {to}"

    @tool(effect="write", once_per="session")
    def order(item: str) -> str:
        """Order an item, once."""
        world.note("order", item=item)
        return f"ordered {item}"

    return [look, put, get, meet, pack, sweep, fail, choose, dawdle, recite, pay, order]


def make_careful_tools(world):
    """Tools with rules of their own: what follows a crash, how many calls at once, once per session."""

    def find_shipment(item: str) -> str | None:
        shipped = ("ship", {"item": item}) in world.ran
        world.results.append(f"probed {item}")
        return f"{item} was shipped before" if shipped else None

    @tool(effect="write", on_unknown="probe", probe=find_shipment)
    def ship(item: str) -> str:
        """Ship an item."""
        world.note("ship", item=item)
        return f"shipped {item}"

    @tool(effect="write", on_unknown="ask")
    def mail(to: str) -> str:
        """Mail a letter."""
        world.note("mail", to=to)
        return f"mailed to {to}"

    @tool(effect="read", at_once=1)
    async def knock(door: str) -> str:
        """Knock at a door."""
        world.note("knock", door=door)
        await world.work()
        return f"knocked at {door}"

    @tool(effect="write", once_per="session", approve=True)
    def book(seat: str) -> str:
        """Book a seat, once."""
        world.note("book", seat=seat)
        return f"booked {seat}"

    return [ship, mail, knock, book]


def rule(decision, *tools, **fields):
    return PermissionRule(decision=decision, tools=tools, **fields)


@before_tool(tools=["put"])
def clamp(run, call):
    return Change(arguments={"box": "clamped", "value": 7})


@before_tool(tools=["look"])
def forbid(run, call):
    return Refuse(reason="looking is forbidden")


@after_tool(tools=["look"])
def mask(run, call, result):
    return Change(text="masked")


NUMBERED = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def conclude(n: int) -> int:
    """Give the answer."""
    return n


def find_facts(query):
    return [Chunk(text="The sky over the harbor is green.", source="atlas", id="sky")]


OPTIONS = {
    "plain": {},
    "one at once": {"tools_at_once": 1},
    "short results": {"result_characters": 1_000},
    "no repeats": {"repeats_max": 3},
    "three calls": {"reply_calls_max": 3},
    "few attempts": {"attempts_max": 2},
    "long": {"instructions": LONG},
    "long hour": {"instructions": LONG, "cache_ttl": "1h"},
    "instructed": {"instructions": "You are a sailor."},
    "typed": {"output": NUMBERED},
    "thinks": {"thinking": Thinking(effort="low")},
    "small window": {"context_tokens": 8_000, "compaction": Compaction(native=False)},
    "remembers": {"memory": Memory()},
    "retrieves": {"retrieve": find_facts, "instructions": "You are a guide."},
    "clamped": {"hooks": [clamp]},
    "forbidden": {"hooks": [forbid]},
    "masked": {"hooks": [mask]},
    "two steps": {"budget": Budget(steps=2)},
    "one call": {"budget": Budget(tool_calls=1)},
    "one cent": {"budget": Budget(usd=Decimal("0.01"))},
    "few tokens": {"budget": Budget(tokens=6_000), "max_tokens": 500},
    "ten seconds": {"budget": Budget(seconds=10)},
    "session steps": {"budget": Budget(session=Limits(steps=3))},
    "wraps up": {"budget": Budget(steps=4, wrap_up=0.5)},
    "deny pay": {"policy": Policy(rules=(rule("deny", "pay"),))},
    "ask look": {"policy": Policy(rules=(rule("ask", "look"),))},
    "allow small": {
        "policy": Policy(rules=(rule("allow", "pay", arguments={"amount": "<= 50"}), rule("ask", "pay")))
    },
    "deny first": {"policy": Policy(rules=(rule("deny", "put"), rule("allow", "put")))},
    "deny writes": {"policy": Policy(rules=(rule("deny", effects=("write",)),))},
    "deny caller": {"policy": Policy(rules=(rule("deny", "put", callers=("guest*",)),))},
    "deny box": {"policy": Policy(rules=(rule("deny", "put", arguments={"box": "secret*"}),))},
    "expires": {"approval_seconds": 60},
    "allow ann": {
        "policy": Policy(rules=(rule("allow", "pay", arguments={"to": "ann"}), rule("ask", "pay")))
    },
    "careful": {},
    "concludes": {"output": conclude},
    "long auto": {"instructions": LONG, "cache_ttl": "auto"},
}
POOLS = {
    "pool of one call": {"tool_calls": 1},
    "pool that warns": {"steps": 4, "wrap_up": 0.5},
}
"""Options that are a shared budget, a new one for each trial."""


def make_agent(setup):
    """The agent of a task; "catalogue" and "chain" are agents of their own."""
    name = setup.task.settings["options"]
    options = dict(OPTIONS.get(name, {}))
    if name == "chain":
        setup.models = (*setup.models, setup.provider.model("sim:anthropic/claude-haiku-4-5"))
    if name == "catalogue":
        options = {"tools_shown_max": 3}
    if name in POOLS:
        options = {"pool": SharedBudget(**POOLS[name])}
    make = make_careful_tools if name == "careful" else make_tools
    return setup.agent(tools=make(setup.world), **options)


async def stream(setup, agent):
    """Stream the run, so that faults of streams can happen."""
    async for _ in (running := agent.stream(setup.task.prompts[0], setup.session)):
        pass
    return await running.result()


async def run_as_guest(setup, agent):
    return await agent.run(setup.task.prompts[0], setup.session, caller="guest-7")


async def approve_later(setup, agent):
    """Answer what the run waits for, then resume it."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    setup.world.results.append(list(setup.world.ran))
    for pending in await agent.approvals(setup.session):
        await agent.approve(setup.session, pending.id, by="ann")
    return [first, await agent.resume(setup.session)]


async def approve_first(setup, agent):
    """Approve the first of several calls and reject the others."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    pending = await agent.approvals(setup.session)
    await agent.approve(setup.session, pending[0].id, by="ann")
    for other in pending[1:]:
        await agent.reject(setup.session, other.id, reason="too much", by="ann")
    return [first, await agent.resume(setup.session)]


async def approve_edited(setup, agent):
    first = await agent.run(setup.task.prompts[0], setup.session)
    (pending,) = await agent.approvals(setup.session)
    await agent.approve(setup.session, pending.id, arguments={"to": "bob", "amount": 1}, by="ann")
    return [first, await agent.resume(setup.session)]


async def answer_late(setup, agent):
    """Let the question expire before it is answered."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    (pending,) = await agent.approvals(setup.session)
    setup.clock.advance(3_600)
    try:
        await agent.approve(setup.session, pending.id, by="ann")
    except MisuseError:
        setup.world.results.append("late")
    return [first, await agent.resume(setup.session)]


async def resume_unanswered(setup, agent):
    """Resume a run whose question nobody answered."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    return [first, await agent.resume(setup.session)]


async def resume_with_more(setup, agent):
    """Raise the limit and resume."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    return [first, await agent.resume(setup.session, budget=Budget(steps=20))]


class CrashingStore:
    """The store of a process that ends with the n-th write: right after it, or before it is durable."""

    def __init__(self, inner, left, keeps_last):
        self._inner, self._left, self._keeps_last = inner, left, keeps_last

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def append(self, session, after, records, **given):
        if self._left <= 0 or (self._left == 1 and not self._keeps_last):
            self._left = 0
            raise StoreError("the process is gone")
        await self._inner.append(session, after, records, **given)
        self._left -= 1
        if self._left <= 0:
            raise StoreError("the process is gone")


async def crash(setup, agent):
    """Crash after each record in turn; resume until the run has ended. One session per crash."""
    results = []
    for at, keeps_last in product(range(2, 40), (True, False)):
        session = f"{setup.session}-c{at}-{keeps_last}"
        world = World()
        broken = Agent(
            list(setup.models),
            tools=make_tools(world),
            store=CrashingStore(setup.store, at, keeps_last),
            clock=setup.clock,
        )
        try:
            results.append(await broken.run(setup.task.prompts[0], session))
            break
        except StoreError:
            pass
        whole = Agent(list(setup.models), tools=make_tools(world), store=setup.store, clock=setup.clock)
        setup.world.crashes += 1
        if (await setup.store.read(session))[-1].event.__class__.__name__ == "Configured":
            continue  # no prompt was recorded
        ended = await whole.resume(session)
        counts = [sum(each[0] == name for each in world.ran) for name in ("put", "order")]
        setup.world.results.append((at, ended.stop, ended.text, counts))
    return results


async def two_sessions(setup, agent):
    """Run the same agent in two sessions; the second one is scored."""
    other = Agent(
        list(setup.models),
        tools=make_tools(setup.world),
        instructions=LONG,
        store=setup.store,
        clock=setup.clock,
    )
    return [await agent.run("a", f"{setup.session}-first"), await other.run("b", setup.session)]


async def change_tools(setup, agent):
    """Continue a session with other tools."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    tools = make_tools(setup.world)[:6]
    other = Agent(list(setup.models), tools=tools, instructions=LONG, store=setup.store, clock=setup.clock)
    return [first, await other.run(setup.task.prompts[1], setup.session)]


async def change_strictly(setup, agent):
    """Continue with other instructions, although the agent is strict about its prefix."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    other = Agent(
        list(setup.models), tools=make_tools(setup.world), instructions=f"Now: {LONG}", prefix="strict",
        store=setup.store, clock=setup.clock,
    )  # fmt: skip
    return [first, await other.run(setup.task.prompts[1], setup.session)]


async def share_pool(setup, agent):
    """Run three prompts at once on a budget for less than all of them."""
    pool = SharedBudget(usd=Decimal("0.05"), name="shared")
    agents = [
        Agent(
            list(setup.models),
            tools=make_tools(setup.world),
            pool=pool,
            store=setup.store,
            clock=setup.clock,
            max_tokens=800,
        )
        for _ in range(3)
    ]
    names = [f"{setup.session}-{number}" for number in range(3)]
    results = await asyncio.gather(
        *(each.run(setup.task.prompts[0], name) for each, name in zip(agents, names, strict=True))
    )
    setup.world.results, setup.world.pool = [each.stop for each in results], pool
    return results


async def nest(setup, agent):
    """Run an agent inside a tool of another one."""
    inner = Agent(list(setup.models), store=setup.store, clock=setup.clock, name="inner")

    @tool(effect="read")
    async def ask_inner(question: str) -> str:
        """Ask another agent."""
        return (await inner.run(question, f"{setup.session}-inner")).text

    outer = Agent(list(setup.models), tools=[ask_inner], store=setup.store, clock=setup.clock, name="outer")
    return await outer.run(setup.task.prompts[0], setup.session)


async def cancel(setup, agent):
    """Cancel the run while its tool works, then go on."""
    started = asyncio.create_task(agent.run(setup.task.prompts[0], setup.session))
    while not setup.world.ran:
        await asyncio.sleep(0)
    started.cancel()
    await asyncio.gather(started, return_exceptions=True)
    return await agent.run(setup.task.prompts[1], setup.session)


async def note_first(setup, agent):
    await agent.notes.add("The captain is called Ida.")
    return await agent.run(setup.task.prompts[0], setup.session)
