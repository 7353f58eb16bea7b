"""Another process that draws from a budget in a store.

python till_agent.py STORE runs N USD [PERIOD]      so many runs at once; prints how they ended, as JSON. With a
                                                    period, a tenant and a caller have the limit too
python till_agent.py STORE dies WHEN USD [PERIOD]   sets money aside and says `now`, to be killed: before its
                                            model was asked, or during its answer
python till_agent.py STORE nested USD       the same, in a run inside a tool, at its second question
"""

import asyncio
import json
import sys
from typing import Any

from bridle import Agent, Budget, Limits, StoredBudget, TextDelta, tool
from bridle.values.events import ModelAsked
from bridle.values.usage import LimitPeriod


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "It is sunny. " * 20


async def runs(path: str, many: str, usd: str, period: LimitPeriod | None = None) -> None:
    pool = StoredBudget(usd=usd, name="q4", period=period)
    shared = Limits(usd=usd, period=period)
    budget = Budget(tenant=shared, caller=shared) if period else None
    agent = Agent("sim:", tools=[get_weather], pool=pool, max_tokens=100, store=path, budget=budget)
    tenant, caller = ("acme", "ann") if period else ("", "")
    results = await asyncio.gather(
        *(agent.run("What is the weather in Paris?", tenant=tenant, caller=caller) for _ in range(int(many)))
    )
    print(json.dumps([{"stop": result.stop, "cost": result.cost} for result in results]))
    await agent.store.close()


class Stuck:
    """A store that stops at the question to the model."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, session: str, after: int, records: Any, *, epoch: int | None = None) -> None:
        if any(isinstance(record.event, ModelAsked) for record in records):
            await now()
        await self._store.append(session, after, records, epoch=epoch)


async def now() -> None:
    print("now", flush=True)
    await asyncio.Event().wait()


class Watcher:
    """Speaks up when the model has begun to, and goes silent for long."""

    def on_event(self, session: str, happening: Any) -> None:
        if isinstance(happening, TextDelta):
            print("now", flush=True)


SILENCE = "!say Well\n!stall 100\n!say never mind."


async def dies(path: str, when: str, usd: str, period: LimitPeriod | None = None) -> None:
    pool = StoredBudget(usd=usd, name="q4", period=period)
    own = Agent("sim:", store=path)
    store = Stuck(own.store) if when == "before" else own.store
    watchers = [Watcher()] if when == "during" else []
    agent = Agent("sim:", store=store, pool=pool, max_tokens=1_000, watchers=watchers)
    await agent.stream("!say Never." if when == "before" else SILENCE, session="doomed").start().result()


async def nested(path: str, usd: str) -> None:
    """A run whose tool runs an agent that never gets its second answer."""
    pool = StoredBudget(usd=usd, name="q4")
    outer = outer_agent(path, pool, '!call get_weather {"city": "Oslo"}\n!then\n' + SILENCE, Watcher())
    await outer.run(ASK, session="outer", tenant="acme")


ASK = '!call ask {"city": "Paris"}\n!then\n!say It is so.'


def outer_agent(store: Any, pool: StoredBudget, prompt: str, *watchers: Watcher) -> Agent[object, str]:
    inner = Agent("sim:", tools=[get_weather], store=store, max_tokens=300, watchers=watchers)

    @tool(effect="read", on_unknown="retry")
    async def ask(city: str) -> str:
        """Ask somebody else."""
        return (await inner.stream(prompt).start().result()).text

    return Agent("sim:", tools=[ask], store=store, pool=pool, max_tokens=300)


if __name__ == "__main__":
    place, what, *rest = sys.argv[1:]
    asyncio.run({"runs": runs, "dies": dies, "nested": nested}[what](place, *rest))
