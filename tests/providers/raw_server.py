"""A server that answers with given bodies, one a request, and keeps what it was sent.

A strict simulator hears every request too, so that what it would refuse fails the test.
"""

import json

from bridle.ports.codec import HttpReply
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, ProviderError

JSON = (("content-type", "application/json"),)
EVENTS = (("content-type", "text/event-stream"),)


class RawServer:
    def __init__(self, model, *answers):
        """`answers` are bodies (objects), lists of events, (status, object), or failures to raise."""
        self.model = find_model_by_name(model)
        self.answers = list(answers)
        self.sent = []
        self.simulator = Simulator()

    def line(self):
        codec = load_codec(self.model.endpoint.family)
        return ModelConnection(model=self.model, codec=codec, transport=InProcessTransport(self.answer))

    async def answer(self, outgoing):
        await self.simulator.answer(outgoing)
        self.sent.append(json.loads(outgoing.body))
        said = self.answers.pop(0)
        if isinstance(said, Failure):
            raise ProviderError(said)
        status, said = said if isinstance(said, tuple) else (200, said)
        if isinstance(said, list):
            frames = tuple(f"data: {json.dumps(event)}\n\n".encode() for event in said)
            return HttpReply(status=status, headers=EVENTS, frames=frames)
        return HttpReply(status=status, headers=JSON, frames=(json.dumps(said).encode(),))
