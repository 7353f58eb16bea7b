"""Text or invalid content after a call: the session continues at the same provider, and the text is kept."""

import json
from itertools import pairwise

import pytest
from msgspec.structs import replace

from bridle import Agent, tool
from bridle.providers import load_codec
from bridle.run.model_connection import find_model_by_name
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.values.message import Message, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Origin
from bridle.values.request import Request
from tests.campaigns.mutated_replies import MutatedProvider, read_beat, write_beat

CLAUDE = "sim:anthropic/claude-sonnet-5-5"
CONVERSE = "sim:bedrock_converse/anthropic.claude-sonnet-5-5-v1:0"
MORE = {
    CLAUDE: {"type": "text", "text": "and then"},
    CONVERSE: {"text": "and then"},
}
PROMPT = '!call look {"at": "door"}\n!then\n!say well'


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"{at} is fine"


class SaysMore(MutatedProvider):
    """A provider whose first reply goes on after its call."""

    def __init__(self, model: str, more: object) -> None:
        super().__init__(model, seed=1, clock=FakeClock())
        self.more, self.sent = more, []

    async def answer(self, outgoing):
        self.sent.append(json.loads(outgoing.body))
        return await super().answer(outgoing)

    def _changed(self, beats):
        tree = read_beat(beats[0])
        reply = tree["output"]["message"] if "output" in tree else tree
        reply["content"].append(self.more)
        return [write_beat(beats[0], tree)]


def test_a_session_goes_on_after_a_summary_that_is_none():
    """It is left out of what is sent back."""
    go_on_after(CLAUDE, {"type": "compaction", "content": 7})


@pytest.mark.refusals
def test_a_session_goes_on_after_junk_that_follows_a_call():
    """What cannot be sent back is refused once, and left out from then on."""
    go_on_after(CONVERSE, {"junk": {"a": 1}})


def go_on_after(model, more):
    provider = SaysMore(model, more)
    agent = Agent(provider.line(), tools=[look], store=MemoryStore(), clock=provider._clock)
    provider.mutate = 1
    for prompt in (PROMPT, "!say on", "!say on"):
        result = agent.run_sync(prompt, session="s")
        assert result.done, result.reason


@pytest.mark.parametrize("model", MORE)
def test_the_words_stand_before_the_call_and_every_request_extends_the_last(model):
    provider = SaysMore(model, MORE[model])
    agent = Agent(provider.line(), tools=[look], store=MemoryStore(), clock=provider._clock)
    provider.mutate = 1
    for prompt in (PROMPT, "!say on", "!say on"):
        result = agent.run_sync(prompt, session="s")
        assert result.done, result.reason
    lines = [[_strip_cache_marks(message) for message in body["messages"]] for body in provider.sent]
    said = lines[1][1]["content"]
    kinds = [block.get("type") or next(iter(block)) for block in said]
    assert kinds[-2:] in (["text", "tool_use"], ["text", "toolUse"])
    assert said[-2]["text"] == "and then"
    for before, after in pairwise(lines):
        assert after[: len(before)] == before


@pytest.mark.parametrize("name", [CLAUDE, CONVERSE])
def test_reasoning_after_a_call_is_left_out_only_where_words_had_to_move(name):
    model = find_model_by_name(name)
    origin = Origin(model=model.id, endpoint=model.endpoint.endpoint_id, family=model.endpoint.family)
    thoughts = [Reasoning(text=text, signature=f"c2lnbmVk{text}") for text in ("one", "two")]
    calls = [ToolCall(id=f"c{n}", name="look", arguments='{"at": "x"}', wire_id=f"toolu_{n}") for n in (1, 2)]
    plain = Message(role="assistant", parts=(thoughts[0], calls[0], thoughts[1], calls[1]), origin=origin)
    told = replace(plain, parts=(*plain.parts, Text(text="and then")))
    assert _kinds(model, plain) == ["thought", "call", "thought", "call"]
    assert _kinds(model, told) == ["thought", "words", "call", "call"]


def _kinds(model, reply: Message) -> list[str]:
    results = tuple(ToolResult(call_id=f"c{n}", parts=(Text(text="fine"),)) for n in (1, 2))
    line = (Message(role="user", parts=(Text(text="go"),)), reply, Message(role="tool", parts=results))
    body = json.loads(load_codec(model.endpoint.family).encode(Request(model=model, messages=line)).body)
    names = {
        "thinking": "thought",
        "reasoningContent": "thought",
        "tool_use": "call",
        "toolUse": "call",
        "text": "words",
    }
    return [names[block.get("type") or next(iter(block))] for block in body["messages"][1]["content"]]


def _strip_cache_marks(message: dict) -> dict:
    """A message without the marks of the cache, which move."""
    content = message["content"]
    if isinstance(content, str):
        return message
    kept = [
        {k: v for k, v in block.items() if k != "cache_control"}
        for block in content
        if "cachePoint" not in block
    ]
    return {**message, "content": kept}
