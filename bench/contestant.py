"""Bridle as a contestant of the peers' benchmark: the whole road, with the log in memory."""

from functools import cache

from common import MAX_TOKENS, MODEL, PROMPT, SYSTEM, echo, root, stamp, v1

from bridle import Agent, Budget, TextDelta, tool

VENDORS = {"anthropic": ("anthropic", root), "chat": ("openai-chat", v1), "responses": ("openai", v1)}
PROTOS = tuple(VENDORS)
NO_LIMITS = Budget(steps=None)


@cache
def agent(proto, scenario):
    vendor, address = VENDORS[proto]
    return Agent(
        f"{vendor}:{MODEL[proto]}@{address(scenario)}",
        instructions=SYSTEM,
        tools=[echo, tool(stamp, effect="read")],
        budget=NO_LIMITS,
        max_tokens=MAX_TOKENS,
        repeats_max=None,
    )


class Loop:
    def __init__(self, proto):
        self.proto = proto

    async def run(self, scenario, stream, on_delta):
        contestant = agent(self.proto, scenario)
        if not stream:
            result = await contestant.run(PROMPT)
            assert result.stop == "done", result.reason
            return
        async for event in contestant.stream(PROMPT):
            if isinstance(event, TextDelta):
                on_delta(event.text)


def make(proto):
    return Loop(proto)
