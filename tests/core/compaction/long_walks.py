"""Runs that outgrow their context window, with a responder that walks from place to place."""

import asyncio
import json
import re

from msgspec.structs import replace

from bridle import Agent, Budget, Compaction, Media, Text, tool
from bridle.core.context.view import make_legal
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.sim.families import lay_out_for_family
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.simulated_provider import ProviderSim
from bridle.values import events as e
from bridle.values.message import Opaque, Reasoning, Reply, Stop, ToolCall
from bridle.values.model import Origin

ASKED = "Pause the work here"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PROMPT = "Go through {} places, one by one. The password is heliotrope."
FAMILIES = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai_responses": "sim:openai_responses/gpt-6.1-sol",
    "openai_chat": "sim:openai_chat/gpt-6.1-sol",
    "gemini": "sim:gemini/gemini-3.8-flash",
    "bedrock_converse": "sim:bedrock_converse/anthropic.claude-sonnet-5-5-v1:0",
    "deepseek": "sim:openai_chat/deepseek-v4-pro",
}


def walker(name="look", *, think=False, summary="I have walked up to place {place} and found nothing."):
    """Goes on from the last place it was shown; it knows nothing but what it is sent."""

    def decide(request):
        endpoint, last = request.model.endpoint, request.messages[-1]
        origin = Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id)
        place = place_in(request)
        if last.role == "user" and ASKED in last.text:
            words = summary.format(place=place)
            return Reply(parts=(Text(text=words),), stop=Stop.DONE, origin=origin, id=f"s{place}")
        wanted = int(re.findall(r"through (\d+) places", everything(request))[-1])
        thought = (Reasoning(text=f"Where to go after {place}?"),) if think else ()
        if place >= wanted:
            parts = (*thought, Text(text=f"I went through {wanted} places."))
            return Reply(parts=parts, stop=Stop.DONE, origin=origin, id=f"r{place}")
        call = ToolCall(
            id=f"w{place}", wire_id=f"call_{place}", name=name, arguments=json.dumps({"at": place + 1})
        )
        parts = (*thought, Text(text=f"I go to place {place + 1}."), call)
        return Reply(parts=parts, stop=Stop.TOOLS, origin=origin, id=f"r{place}")

    return decide


def place_in(request):
    return max(map(int, re.findall(r"(?:At|up to) place (\d+)", everything(request))), default=0)


def everything(request):
    return "\n".join(text for message in request.messages for text in words_of(message))


def words_of(message):
    for part in message.parts:
        if isinstance(part, Text | Opaque):
            yield part.text
        for inner in getattr(part, "parts", ()):
            if isinstance(inner, Text):
                yield inner.text


def look_at(lines=60):
    @tool(effect="read")
    def look(at: int) -> str:
        """Look at one place."""
        return f"At place {at}:\n" + "\n".join(f"item {number} of {at} is fine." for number in range(lines))

    return look


def shoot_at(lines=0):
    @tool(effect="read")
    def look(at: int) -> list[Text | Media]:
        """Look at one place."""
        words = f"At place {at}." + " It is quiet." * lines
        return [Text(text=words), Media(kind="image", media_type="image/png", data=PNG)]

    return look


class Walk:
    def __init__(self, model, *, brain=None, tools=None, store=None, refusals=False, native=False, **options):
        wish = options.get("compaction", Compaction())
        if isinstance(wish, Compaction):
            options["compaction"] = replace(wish, native=native)
        self.clock = FakeClock()
        self.provider = ProviderSim(responder=brain or walker(), clock=self.clock, refusals=refusals)
        self.store = store or MemoryStore()
        self.line = self.provider.model(model)
        self.options = {
            "tools": tools or [look_at()],
            "instructions": "Walk slowly. " * 40,
            "store": self.store,
            "clock": self.clock,
            "repeats_max": None,
            "budget": Budget(steps=None),
            "context_tokens": 8_000,
            **options,
        }

    @property
    def agent(self):
        return Agent(self.line, **self.options)

    def run(self, places=30, session="s"):
        return asyncio.run(self.agent.run(PROMPT.format(places), session))

    @property
    def events(self):
        return [record.event for record in self.records]

    @property
    def records(self):
        return asyncio.run(self.store.read("s"))

    @property
    def compactions(self):
        return [event for event in self.events if isinstance(event, e.Compacted)]

    @property
    def state(self):
        return fold_records(self.records)

    def prompts(self):
        """What was sent, as its provider lays it out."""
        abilities, family = self.line.model.abilities, self.line.model.endpoint.family
        return [
            lay_out_for_family(family, json.loads(each.body), abilities) for each in self.provider.exchanges
        ]

    def share(self):
        """What was read from the cache, of all that any earlier request had sent.

        Nothing here knows of compaction: a prompt that begins otherwise could not have been read.
        """
        prompts, least = self.prompts(), self.line.model.abilities.cache_minimum_tokens
        ideal = sum(
            max(
                (
                    shared
                    for before in prompts[:at]
                    if (shared := count_common_tokens(before, prompt)) >= least
                ),
                default=0,
            )
            for at, prompt in enumerate(prompts)
        )
        replies = [event.reply for event in self.events if isinstance(event, e.ModelReplied)]
        assert len(replies) == len(prompts)
        return sum(reply.usage.cache_read for reply in replies) / ideal


def count_common_tokens(before, prompt):
    """The tokens of the blocks that two prompts begin with."""
    total = 0
    for old, new in zip(before.blocks, prompt.blocks, strict=False):
        if (old.section, old.kind, old.key, old.text) != (new.section, new.kind, new.key, new.text):
            break
        total += new.tokens
    return total


def fold_records(records):
    state = State()
    for record in records:
        state = apply_event(state, record.event, record.at, record.hash)
    return state


def check_view(view):
    """Legal as a conversation of its own: every call answered once at its place, and it begins with a user."""
    plain = tuple(replace(message, origin=None) for message in view)
    told, repairs = make_legal(plain)
    assert repairs == ()
    assert [message.parts for message in told] == [message.parts for message in plain]
    assert view[0].role == "user"
    assert list(words_of(view[0]))
