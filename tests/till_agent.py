"""Another process that draws from a budget in a store.

python till_agent.py STORE runs N USD       so many runs at once; prints how they ended, as JSON
python till_agent.py STORE dies WHEN USD    sets money aside and says `now`, to be killed: before its
                                            model was asked, or during its answer
"""

import asyncio
import json
import sys

from bridle import Agent, StoredBudget, tool
from bridle.values.event import ModelAsked


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "It is sunny. " * 20


async def runs(path: str, many: str, usd: str) -> None:
    pool = StoredBudget(usd=usd, name="q4")
    agent = Agent("sim:", tools=[get_weather], pool=pool, max_tokens=100, store=path)
    results = await asyncio.gather(*(agent.run("What is the weather in Paris?") for _ in range(int(many))))
    print(json.dumps([{"stop": result.stop, "cost": result.cost} for result in results]))
    await agent.store.close()


class Stuck:
    """A store that stops at the question to the model."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, session: str, after: int, records: object) -> None:
        if any(isinstance(record.event, ModelAsked) for record in records):
            await now()
        await self._store.append(session, after, records)


async def now() -> None:
    print("now", flush=True)
    await asyncio.Event().wait()


class Watcher:
    def saw(self, session: str, happening: object) -> None:
        if isinstance(getattr(happening, "event", None), ModelAsked):
            print("now", flush=True)


async def dies(path: str, when: str, usd: str) -> None:
    pool = StoredBudget(usd=usd, name="q4")
    own = Agent("sim:", store=path)
    store = Stuck(own.store) if when == "before" else own.store
    watchers = [Watcher()] if when == "during" else []
    agent = Agent("sim:", store=store, pool=pool, max_tokens=1_000, watchers=watchers)
    await agent.run("!say Never." if when == "before" else "!stall 100\n!say Never.", session="doomed")


if __name__ == "__main__":
    place, what, *rest = sys.argv[1:]
    asyncio.run({"runs": runs, "dies": dies}[what](place, *rest))
