"""Three runs against a limit of two model calls per minute: the third waits for its turn.

    python examples/rate_limits.py

The clock is a fake one, so nothing waits in reality.
"""

import asyncio

from bridle import Agent, RateLimit
from bridle.events import ModelAsked, Progress
from bridle.testing import FakeClock


async def main() -> None:
    agent = Agent("sim:", clock=FakeClock(), rate_limits=(RateLimit(per="endpoint", requests=2),))
    for number in (1, 2, 3):
        async for event in agent.stream("!say Hello.", f"run {number}"):
            if isinstance(event, Progress):
                print(f"run {number} {event.message}")
            if isinstance(event, ModelAsked):
                print(f"run {number} asks the model after {event.wait_seconds:g} s")


if __name__ == "__main__":
    asyncio.run(main())
