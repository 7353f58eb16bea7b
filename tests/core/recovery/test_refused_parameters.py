"""Servers that refuse an optional parameter: one repair without it, recorded; a second refusal ends the run."""

import asyncio
import json

import pytest

from bridle import Agent, tool
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.ports.codec import HttpReply
from bridle.providers.families import load_codec
from bridle.providers.wire.rejections import find_rejected_parameter
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.request import ToolChoice

MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-4-6",
    "openai_responses": "sim:openai/gpt-6.1-sol",
    "openai_chat": "sim:openai-chat/gpt-5.4",
    "gemini": "sim:gemini/gemini-3.8-flash",
    "bedrock_converse": "sim:bedrock/anthropic.claude-sonnet-4-5",
}
FORCED = {
    "anthropic": ('"tool_choice":{"type":"any"}', "tool_choice: forcing a tool is not supported by this backend"),
    "openai_responses": ('"tool_choice":"required"', "Only 'auto' is supported for tool_choice"),
    "openai_chat": ('"tool_choice":"required"', "litellm.UnsupportedParamsError: does not support ['tool_choice']"),
    "gemini": ('"mode":"ANY"', "tool_config.function_calling_config.mode: ANY is not supported"),
    "bedrock_converse": ('"toolChoice":{"any"', "This model doesn't support the toolConfig.toolChoice.any field."),
}  # fmt: skip
CACHED = {
    "anthropic": ("cache_control", "messages.0.content.0.text.cache_control: Extra inputs are not permitted"),
    "openai_responses": ("prompt_cache_", "Unknown parameter: 'prompt_cache_key'."),
    "openai_chat": ("prompt_cache_", "Unrecognized request argument supplied: prompt_cache_key"),
    "bedrock_converse": ("cachePoint", "The request did not allow prompt caching."),
}
CASES = [
    *((family, ToolChoice(mode="any"), *row) for family, row in FORCED.items()),
    *((family, ToolChoice(), *row) for family, row in CACHED.items()),
]
IDS = [f"{family}-{'choice' if choice.mode == 'any' else 'cache'}" for family, choice, _, _ in CASES]


class RefusingServer:
    """A strict simulator behind a gateway that refuses every request with `text` in it."""

    def __init__(self, family, text, words, *, status=400, always=False, model=""):
        self.model = find_model_by_name(model or MODELS[family])
        self.text, self.always = text, always
        error = {"message": words, "type": "invalid_request_error", "param": None, "code": None}
        self.refusal = {"type": "error", "error": error, "message": words}
        self.status, self.sent, self.simulator = status, [], Simulator()

    def line(self):
        codec = load_codec(self.model.endpoint.family)
        return ModelConnection(model=self.model, codec=codec, transport=InProcessTransport(self.answer))

    async def answer(self, outgoing):
        reply = await self.simulator.answer(outgoing)
        body = bytes(outgoing.body).decode()
        self.sent.append(json.loads(body))
        if not (self.always or self.text in body.replace(" ", "")):
            return reply
        headers = (("content-type", "application/json"),)
        return HttpReply(status=self.status, headers=headers, frames=(json.dumps(self.refusal).encode(),))


@tool(effect="read")
def look(at: int) -> str:
    """Look."""
    return f"{at} is fine"


def ask(server, prompt='Look.\n!call look {"at": 3}\n!then\n!say It is fine.', *, streamed=False, **options):
    options = {"instructions": "Be exact. " * 2_000, "tools": [look], **options}
    agent = Agent(server.line(), store=MemoryStore(), clock=FakeClock(), **options)

    async def run():
        if streamed:
            return await agent.stream(prompt, session="s").start().result()
        return await agent.run(prompt, session="s")

    result = asyncio.run(run())
    return result, asyncio.run(agent.store.read("s"))


def of_type(records, kind):
    return [record.event for record in records if isinstance(record.event, kind)]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("family", "choice", "text", "words"), CASES, ids=IDS)
def test_a_refused_parameter_is_left_out_once_and_recorded(family, choice, text, words, streamed):
    server = RefusingServer(family, text, words)
    forced = choice.mode == "any"
    # A tool that is forced at every step keeps a model from answering: the repair lets it.
    result, records = ask(server, streamed=streamed, tool_choice=choice, prefix="strict")
    assert (result.stop, result.text) == ("done", "It is fine.")
    (failed,) = of_type(records, e.ModelFailed)
    assert failed.failure.refused_parameter == ("tool_choice" if forced else "cache")
    assert failed.rejected_parts == ()
    (adjusted,) = of_type(records, e.RequestAdjusted)
    (said,) = adjusted.adjustments
    assert said.startswith("tool choice 'any' became 'auto'" if forced else "cache parameters are not sent")
    assert len(server.sent) == 3
    assert [text in json.dumps(body).replace(" ", "") for body in server.sent] == [True, False, False]
    assert {event.cause for event in of_type(records, e.PrefixMoved)} <= {
        "choice_released",
        "parameter_refused",
    }
    state = State()
    for record in records:
        state = apply_event(state, record.event, record.at, record.hash)
    assert state.run.refusals.refused_parameters == (("tool_choice",) if forced else ("cache",))


@pytest.mark.parametrize(("family", "choice", "text", "words"), CASES, ids=IDS)
def test_a_second_refusal_ends_the_run(family, choice, text, words):
    server = RefusingServer(family, text, words, always=True)
    result, records = ask(server, tool_choice=choice)
    assert result.stop == "failed"
    assert words.rstrip(".") in result.reason
    assert len(server.sent) == 2
    first, second = of_type(records, e.ModelFailed)
    assert first.failure.refused_parameter is not None
    assert second.failure.refused_parameter is None


def test_a_new_run_tries_again_and_the_session_goes_on():
    server = RefusingServer("openai_responses", *CACHED["openai_responses"])
    agent = Agent(server.line(), store=MemoryStore(), instructions="Be exact. " * 2_000, prefix="strict")
    assert [agent.run_sync(prompt, session="s").stop for prompt in ("One.", "Two.")] == ["done", "done"]
    assert ["prompt_cache_key" in body for body in server.sent] == [True, False, True, False]


def test_both_parameters_are_left_out_one_after_the_other():
    server = RefusingServer("openai_chat", "prompt_cache_", CACHED["openai_chat"][1])
    inner = server.answer

    async def answer(outgoing):
        server.text, words = "prompt_cache_", CACHED["openai_chat"][1]
        if "prompt_cache_" not in bytes(outgoing.body).decode():
            server.text, words = FORCED["openai_chat"]
        server.refusal["error"]["message"] = words
        return await inner(outgoing)

    server.answer = answer
    result, records = ask(server, tool_choice=ToolChoice(mode="any"))
    assert result.stop == "done"
    assert [event.failure.refused_parameter for event in of_type(records, e.ModelFailed)] == [
        "cache",
        "tool_choice",
    ]


def test_an_answer_by_call_is_asked_for_without_force():
    server = RefusingServer("gemini", *FORCED["gemini"], model="sim:gemini/gemini-2.5-pro")
    result, records = ask(server, "How many?", output=int)
    assert result.stop == "done"
    assert isinstance(result.output, int)
    assert len(of_type(records, e.ModelFailed)) == 1
    notes = [note for event in of_type(records, e.ModelAsked) for note in event.notes]
    assert any("the call that gives the answer is not forced" in note for note in notes)


def test_whoever_wants_no_difference_gets_an_error():
    server = RefusingServer("openai_chat", *FORCED["openai_chat"])
    result, _ = ask(server, tool_choice=ToolChoice(mode="any"), on_adjusted="error")
    assert result.stop == "failed"
    assert "became 'auto'" in result.reason
    assert len(server.sent) == 1


def test_what_was_not_sent_is_not_left_out():
    server = RefusingServer("openai_chat", "prompt_cache_", "tool_choice is not supported")
    result, records = ask(server)
    assert (result.stop, len(server.sent)) == ("failed", 1)
    (failed,) = of_type(records, e.ModelFailed)
    assert failed.failure.refused_parameter is None


@pytest.mark.parametrize(
    ("message", "error", "found"),
    [
        ("Unknown parameter", {"param": "prompt_cache_key"}, "cache"),
        ("tool_choice and messages do not go together", {"param": "messages[3]"}, None),
        ("does not support this tool_choice", {"param": "None"}, "tool_choice"),
        ("No endpoints found that support the provided 'tool_choice' value", {}, "tool_choice"),
        ('HTTP 422: {"detail":[{"loc":["body","prompt_cache_retention"]}]}', {}, "cache"),
        ("Bad", {"details": [{"fieldViolations": [{"field": "toolConfig.functionCallingConfig"}]}]}, "tool_choice"),
        ("Bad tool_choice", {"details": [{"fieldViolations": [{"field": "contents[0]"}]}]}, None),
        ("odd", {"param": 3, "details": [1, {"fieldViolations": [2, {"field": 4}]}]}, None),
        ("messages.2: tool_use ids were found without tool_result blocks", {}, None),
    ],
)  # fmt: skip
def test_the_field_decides_before_the_words(message, error, found):
    assert find_rejected_parameter(message, error) == found


def test_a_refusal_inside_a_stream_is_mended_too():
    server = RefusingServer("openai_chat", *FORCED["openai_chat"])
    inner = server.answer

    async def answer(outgoing):
        reply = await inner(outgoing)
        if reply.status == 200:
            return reply
        error = {"error": {**server.refusal["error"], "code": 400}}
        frames = (b"data: " + json.dumps(error).encode() + b"\n\n",)
        return HttpReply(status=200, headers=(("content-type", "text/event-stream"),), frames=frames)

    server.answer = answer
    result, records = ask(server, streamed=True, tool_choice=ToolChoice(mode="any"))
    assert (result.stop, result.text) == ("done", "It is fine.")
    (failed,) = of_type(records, e.ModelFailed)
    assert failed.failure.refused_parameter == "tool_choice"
