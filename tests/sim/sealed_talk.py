"""Conversations with the simulator through the whole harness, watched on the wire."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bridle import Agent, Thinking, tool
from bridle.ports.codec import HttpReply
from bridle.ports.transport import OutgoingRequest, ResponseTimeline
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock
from bridle.testing.conformance.codec_samples import PIXEL_PNG
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Media, Reasoning, Reply, Text
from bridle.values.request import Request
from tests.sim.sim_families import answer_statelessly, reply_to

Body = dict[str, Any]

SCRIPT = """!think First, left and right.
!say I look.
!call look {"where": "left"}
!call photo {"where": "up"}
!then
!think Then down.
!call look {"where": "down"}
!then
!think Enough.
!say Seen."""
BLIND = SCRIPT.replace("photo", "look")
"""Without a picture: where results cannot hold one it is told by the user, who then has no script."""


@tool(effect="read")
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}"


@tool(effect="read")
def photo(where: str) -> tuple[Text | Media, ...]:
    """Take a picture."""
    return Text(text=f"saw {where}"), Media(kind="image", media_type="image/png", data=PIXEL_PNG)


def reply_redacted(request: Request) -> Reply:
    """The brain, whose every thought is followed by one that nobody may read."""
    reply = reply_to(request)
    parts = []
    for part in reply.parts:
        parts += [part, Reasoning(redacted=True)] if isinstance(part, Reasoning) else [part]
    return replace(reply, parts=tuple(parts))


@dataclass
class Watched:
    """One simulated model, and everything it was asked."""

    name: str
    brain: Callable[[Request], Reply] = reply_to
    asked: list[OutgoingRequest] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def model(self):
        return find_model(self.name, environ={})

    def line(self) -> ModelConnection:
        model = self.model
        return ModelConnection(
            model=model, codec=load_codec(model.endpoint.family), transport=InProcessTransport(self.answer)
        )

    def __post_init__(self) -> None:
        self.simulator = Simulator(self.brain)

    async def answer(self, outgoing: OutgoingRequest) -> ResponseTimeline:
        self.asked.append(outgoing)
        reply = await self.simulator.answer(outgoing)
        if reply.status >= 400:
            self.refusals.append(
                error_message(HttpReply(status=reply.status, headers=(), frames=(reply.body,)))
            )
        return reply

    async def say(self, words: str, store, *, stream: bool = False):
        agent = Agent(
            self.line(),
            tools=[look, photo],
            instructions="Be brief.",
            store=store,
            clock=FakeClock(),
            max_tokens=1_000,
            thinking=Thinking(display="summarized"),
        )
        if not stream:
            return await agent.run(words, session="s")
        async for event in agent.stream(words, session="s"):
            last = event
        return last.result

    def again(self, change: Callable[[Body], Any]) -> tuple[int, str]:
        """The last request once more, changed: the status, and what is said when it is refused."""
        outgoing = self.asked[-1]
        body = json.loads(outgoing.body)
        change(body)
        reply = answer_statelessly(replace(outgoing, body=json.dumps(body).encode()), self.brain)
        return reply.status, error_message(reply) if reply.status >= 400 else ""


def error_message(reply: HttpReply) -> str:
    body = json.loads(b"".join(reply.frames))
    return body.get("error", body)["message"]
