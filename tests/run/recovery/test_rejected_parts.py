"""A refusal that names an item: that item is left out of the view, and the turn goes on."""

import asyncio
import base64
import json

import pytest

from bridle import Agent, Media, Text, tool
from bridle.providers import load_codec
from bridle.providers.wire.rejections import RejectedItem, find_rejected_item
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.families import find_family
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.scripted_model import ScriptedReplies, call_reply, text_reply
from bridle.testing.simulated_provider import ProviderSim
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.errors import Failure
from tests.sim.sim_families import FAMILIES, MODELS

SPELLINGS = {
    "anthropic": "messages.{0}.content.{1}: this cannot be processed",
    "openai_responses": "Invalid 'input[{0}].content[{1}]': this cannot be processed",
    "openai_chat": "Invalid value: 'messages[{0}].content[{1}]'.",
    "gemini": "contents[{0}].parts[{1}]: this cannot be processed",
    "bedrock_converse": "The value at messages.{0}.content.{1} is invalid",
}
SEEING = {"openai_chat": find_model_by_name("sim:openai-chat/gpt-6.1-sol")}
"""Models that take pictures, where the first of their family does not."""
POISON = base64.b64encode(b"POISON" * 10).decode()
WORDS = "words of POISONED text"


class Picky:
    """A provider that refuses any request with poison in it, and says where it found it."""

    def __init__(self, family, script, spelling=None):
        self.codec = load_codec(family)
        self.script, self.spelling = ScriptedReplies(script), spelling or SPELLINGS[family]
        self.refused = 0

    def line(self):
        model = SEEING.get(self.codec.family, MODELS[self.codec.family])
        return ModelConnection(model=model, codec=self.codec, transport=InProcessTransport(self.answer))

    async def answer(self, outgoing):
        said = await self.script.simulator.answer(outgoing)
        listed = json.loads(outgoing.body)[self.codec.messages_field]
        for at, item in enumerate(listed):
            pieces = item.get("content") or item.get("parts") or item.get("output") or ""
            for inner, piece in enumerate(pieces if isinstance(pieces, list) else [pieces]):
                if "POISON" in json.dumps(piece) or POISON in json.dumps(piece):
                    self.refused += 1
                    message = self.spelling.format(at, inner)
                    return find_family(self.codec.family).encode_failure(
                        Failure(kind="invalid", message=message, status=400)
                    )
        return said


def log(agent):
    return [record.event for record in asyncio.run(agent.store.read("s"))]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("what", ["picture", "words"])
def test_a_poisoned_prompt_does_not_brick_the_session(family, what):
    poison = (
        Media(kind="image", media_type="image/png", data=POISON) if what == "picture" else Text(text=WORDS)
    )
    provider = Picky(family, [text_reply("first"), text_reply("second"), text_reply("third")])
    agent = Agent(provider.line(), store=MemoryStore(), clock=FakeClock())
    agent.run_sync("hello", session="s")
    result = agent.run_sync([Text(text="look at this"), poison], session="s")
    assert (result.stop, result.text, provider.refused) == ("done", "second", 1)
    assert poison in result.messages[-2].parts
    changes = [event for event in log(agent) if isinstance(event, e.ViewChanged)]
    assert [[(c.message, c.part) for c in event.changes] for event in changes] == [[("m3", 1)]]
    assert agent.run_sync("and again", session="s").text == "third"
    assert provider.refused == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_poisoned_result_of_a_tool(family):
    @tool
    def shoot() -> list[Media | str]:
        """Shoot."""
        return [Text(text="before"), Media(kind="image", media_type="image/png", data=POISON)]  # type: ignore[list-item]

    provider = Picky(family, [call_reply(("shoot", {})), text_reply("fine")])
    agent = Agent(provider.line(), tools=[shoot], store=MemoryStore(), clock=FakeClock())
    result = agent.run_sync("go", session="s")
    assert (result.stop, result.text, provider.refused) == ("done", "fine", 1)
    assert result.messages[2].results[0].outcome == "ok"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_refused_without_a_place(family):
    provider = Picky(family, [text_reply("first"), text_reply("second")], "Could not process image")
    agent = Agent(provider.line(), store=MemoryStore(), clock=FakeClock())
    result = agent.run_sync(["look", Media(kind="image", media_type="image/png", data=POISON)], session="s")
    assert (result.stop, result.text, provider.refused) == ("done", "first", 1)


def test_a_refusal_that_leaving_out_does_not_mend_ends_the_run():
    provider = Picky("anthropic", [text_reply("never")], "messages.0.content.0: no")
    agent = Agent(provider.line(), store=MemoryStore(), clock=FakeClock())
    result = agent.run_sync(["fine words", WORDS], session="s")
    assert (result.stop, provider.refused) == ("failed", 2)
    assert result.reason == "messages.0.content.0: no"


@pytest.mark.parametrize(
    ("message", "listed", "found"),
    [
        ("messages.3.content.1.image.source.base64: too large", "messages", RejectedItem(path=(3, 1))),
        ("messages.1.content.0.tool_result.content.2.image: x", "messages", RejectedItem(path=(1, 0, 2))),
        ("Invalid 'input[4].content[0].image_url'. Expected", "input", RejectedItem(path=(4, 0))),
        (
            "* GenerateContentRequest.contents[2].parts[0].inline_data: x",
            "contents",
            RejectedItem(path=(2, 0)),
        ),
        ("Could not process image", "messages", RejectedItem(about_media=True)),
        ("The PDF specified was not valid.", "messages", RejectedItem(about_media=True)),
        ("messages: at least one message is required", "messages", None),
        ("temperature must be <= 1", "messages", None),
        ("my_messages.3.x", "messages", None),
    ],
)
def test_what_a_refusal_is_about(message, listed, found):
    assert find_rejected_item(message, listed) == found or (
        found is not None and found.place and find_rejected_item(message, listed).path == found.place
    )


@pytest.mark.parametrize(
    "model",
    ["sim:anthropic/claude-sonnet-5-5", "sim:openai_responses/gpt-6.1-sol", "sim:gemini/gemini-3.5-flash"],
)
@pytest.mark.refusals
def test_a_prompt_that_does_not_fit_ends_the_run_and_the_session_goes_on(model):
    provider = ProviderSim(clock=FakeClock(), refusals=True)
    agent = Agent(provider.model(model), store=MemoryStore(), clock=FakeClock())
    agent.run_sync("!say first", session="s")
    long = "word " * 1_200_000
    result = agent.run_sync([long, "!say second"], session="s")
    assert result.stop == "context"
    assert "the prompt m3" in result.reason
    assert result.messages[2].parts[0].text == long
    assert agent.run_sync("!say third", session="s").text.endswith("third")
    (short,) = [event for event in log(agent) if isinstance(event, e.Compacted)]
    assert "characters were left out here" in short.changes[0].text
