"""Exchanges with the simulator in the form of recorded ones, for tests that find no recordings.

They are those of agents (`vendor_scenarios.py`) with models of a family, and of scripted prompts. None is cut or damaged: that is
for the tests.
"""

import asyncio
import re
from functools import cache

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.ports.transport import OutgoingRequest, ResponseTimeline
from bridle.providers import load_codec
from bridle.sim.simulator import Simulator
from bridle.testing.wire.check_recording import decode_recording
from bridle.testing.wire.recorded_traffic import TrafficRecord
from bridle.values.message import Reply
from bridle.values.request import Request
from tests.sim.sim_families import make_outgoing, question
from tests.wire.vendors.vendor_scenarios import Scenario, models

CONVERSATIONS = 24
PROMPTS = (
    "!say one two three",
    "!think hm\n!say so",
    '!think hm\n!say so\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}',
    *(f'!call look {{"city": "{"Ås" * number}", "n": {number}.50}}\n!say {"and " * number}' for number in range(1, 9)),
    "!say no\n!stop refused",
    "!say a tail of words that is cut\n!stop length",
    "!error 400",
    "!error 429 3",
    "!error 500",
    "!error 529",
)  # fmt: skip
HOST = re.compile(r".*?//[^/]*")
"""What stands before the path of an address; the address may name a variable that holds another one."""


class _Overheard(Scenario):
    """A random conversation of an agent with models of one family; both sides are kept."""

    def __init__(self, family: str, seed: int) -> None:
        super().__init__(seed)
        self.heard: list[tuple[OutgoingRequest, ResponseTimeline]] = []
        self.models = self.chance.choices([each for each in models() if each.endpoint.family == family], k=3)

    async def keep_and_answer(self, outgoing: OutgoingRequest) -> ResponseTimeline:
        timeline = await super().keep_and_answer(outgoing)
        self.heard.append((outgoing, timeline))
        return timeline


@cache
def simulate_traffic(family: str) -> tuple[TrafficRecord, ...]:
    """The same exchanges each time, scripted ones first."""
    heard = [_ask(question(family, prompt, stream=stream)) for prompt in PROMPTS for stream in (True, False)]
    for seed in range(CONVERSATIONS):
        conversation = _Overheard(family, seed)
        asyncio.run(conversation.play())
        heard += conversation.heard
    return tuple(_record(family, number, *each) for number, each in enumerate(heard))


def _ask(request: Request) -> tuple[OutgoingRequest, ResponseTimeline]:
    sent = make_outgoing(request)
    return sent, asyncio.run(Simulator().answer(sent))


def _record(family: str, number: int, sent: OutgoingRequest, timeline: ResponseTimeline) -> TrafficRecord:
    request = HttpRequest(
        path=HOST.sub("", sent.url, count=1), body=sent.body, headers=sent.headers, method=sent.method
    )
    asked = load_codec(family).decode_request(request)
    recording = TrafficRecord(
        id=f"sim-{family}-{number}",
        model=asked.model.id,
        request=request,
        status=timeline.status,
        headers={name.lower(): value for name, value in timeline.headers},
        body=timeline.body,
        family=family,
        host="simulator",
    )
    reply = decode_recording(load_codec(family), asked, recording)
    has_calls = isinstance(reply, Reply) and bool(reply.calls)
    return replace(recording, tags=("tool_calls",)) if has_calls else recording
