"""Gateways and self-hosted servers: their errors, and the failures they become."""

import asyncio

import pytest
from msgspec.structs import replace

from bridle import Agent
from bridle.cli.commands.cache import _format_summary
from bridle.core.cache.report import list_cache_calls
from bridle.core.context.token_estimate import record_window, window_tokens
from bridle.core.state import State
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.settings import Settings
from tests.providers.raw_server import RawServer

CHAT = "sim:openai-chat/gpt-6.1-sol"
OTHER = "sim:openai-chat/gpt-5.6-sol"
MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai_responses": "sim:openai/gpt-6.1-sol",
    "openai_chat": CHAT,
    "gemini": "sim:gemini/gemini-3.8-flash",
    "bedrock_converse": "sim:bedrock/anthropic.claude-sonnet-5-5",
}


def completion(text, prompt=10, cached=0, output=5):
    message = {"role": "assistant", "content": text}
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def chat_agent(server, **options):
    return Agent(server.line(), store=MemoryStore(), clock=FakeClock(), random_source=lambda: 0.5, **options)


def events(agent):
    return [record.event for record in asyncio.run(agent.store.read("s"))]


def test_a_server_that_broke_off_and_restarts_is_waited_for():
    words = [{"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "It is"}}]}]
    gone = Failure(kind="unreachable", message="cannot reach 127.0.0.1:8080: connection refused")
    server = RawServer(CHAT, words, gone, gone, completion("It is five."))
    agent = chat_agent(server)
    result = agent.run_sync("what time is it?", session="s")
    assert (result.stop, result.text, len(server.sent)) == ("done", "It is five.", 4)
    kinds = [event.failure.kind for event in events(agent) if isinstance(event, e.ModelFailed)]
    assert kinds == ["cut", "unreachable", "unreachable"]


def test_a_server_that_never_answered_is_not_waited_for():
    gone = Failure(kind="unreachable", message="cannot reach 127.0.0.1:8080: connection refused")
    server = RawServer(CHAT, gone)
    assert chat_agent(server).run_sync("hello", session="s").stop == "failed"
    assert len(server.sent) == 1


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize(
    "said",
    [
        "/v1/messages: Invalid model name passed in model=nope. Call `/v1/models` to view available models.",
        "The model `nope` does not exist or you do not have access to it.",
        "nope is not a valid model ID",
    ],
)
def test_an_unknown_model_at_a_gateway_moves_the_chain_on(family, said):
    error = {"error": {"message": said, "type": "invalid_request_error", "code": "400"}, "message": said}
    first, second = RawServer(MODELS[family], (400, error)), RawServer(OTHER, completion("Here."))
    agent = Agent([first.line(), second.line()], store=MemoryStore(), clock=FakeClock())
    result = agent.run_sync("hello", session="s")
    assert (result.stop, result.text) == ("done", "Here.")
    (failed,) = [event for event in events(agent) if isinstance(event, e.ModelFailed)]
    assert failed.failure.kind == "not_found"


@pytest.mark.parametrize(
    "said",
    [
        "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.",
        "prompt is too long: 9,000 tokens > 4,096 maximum",
    ],
)
def test_an_overflow_names_the_window_that_the_server_named(said):
    error = {"error": {"message": said, "type": "invalid_request_error"}}
    server = RawServer(CHAT, *[(400, error)] * 8)
    result = chat_agent(server).run_sync("word " * 50, session="s")
    assert result.stop == "context"
    assert "window of 4,096 tokens" in result.reason
    assert "4,097 by estimate" in result.reason


class SmallServer(RawServer):
    """Refuses prompts of more characters than its window has tokens for, and names that window."""

    def __init__(self, model, said, characters_max, output_share):
        super().__init__(model)
        self.said, self.characters_max, self.refused = said, characters_max, 0
        self.output_share = output_share

    async def answer(self, outgoing):
        long = len(outgoing.body) > self.characters_max
        self.refused += long
        words = "In short." if b"Pause the work here" in outgoing.body else "word " * 500
        prompt = len(outgoing.body) // 4
        refusal = (400, {"error": {"message": self.said}})
        self.answers.append(refusal if long else completion(words, prompt, 0, self.count_output(words)))
        return await super().answer(outgoing)

    def count_output(self, words):
        return int(len(words) // 4 * self.output_share)


def overflow_in_runs(said, *, runs=14, output_share=1.0, **options):
    """How often each of several prompts met a refusal, in a session with answers of 2,500 characters."""
    server = SmallServer(CHAT, said, 16_000, output_share)
    store, refused = MemoryStore(), []
    for run in range(runs):
        before = server.refused
        # A new agent each time: all that is known comes from the log.
        agent = Agent(server.line(), store=store, clock=FakeClock(), **options)
        result = agent.run_sync(f"Tell me about {run}.", session="s")
        assert result.stop == "done", result.reason
        refused.append(server.refused - before)
    return refused, server


@pytest.mark.parametrize("output_share", [1.0, 0.5, 0.01, 0.0])
def test_a_window_that_the_server_named_holds_for_the_rest_of_the_session(output_share):
    """Also if the server counts fewer tokens in its replies than they have words."""
    said = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    refused, server = overflow_in_runs(said, output_share=output_share)
    first = refused.index(1)
    assert refused[first:] == [1] + [0] * (len(refused) - first - 1), "it is met once, and never again"
    assert all(body["max_completion_tokens"] <= 4_096 for body in server.sent[-3:])


@pytest.mark.parametrize("window", ["0", "8", "900000000"])
def test_a_window_that_cannot_be_true_is_ignored(window):
    model = RawServer(CHAT).model
    state = State(settings=Settings(model=model))
    failure = Failure(kind="context", message="too long", window_tokens=int(window))
    assert record_window(state, failure) == ()
    small = replace(failure, window_tokens=4_096)
    noted = replace(state, estimate=replace(state.estimate, reported_windows=record_window(state, small)))
    assert (window_tokens(noted), window_tokens(state)) == (4_096, model.abilities.prompt_tokens_max)
    assert record_window(noted, replace(failure, window_tokens=-5)) == noted.estimate.reported_windows
    assert (
        record_window(noted, replace(small, kind="invalid", window_tokens=9))
        == noted.estimate.reported_windows
    )


def test_what_was_read_is_counted_where_nothing_was_expected():
    server = RawServer(CHAT, completion("a", 260), completion("b", 290, 257))
    model = server.model
    server.model = replace(model, abilities=replace(model.abilities, cache_minimum_tokens=1024))
    agent = chat_agent(server)
    agent.run_sync("hello", session="s")
    agent.run_sync("again", session="s")
    calls = list_cache_calls(asyncio.run(agent.store.read("s")))
    assert [call.outcome for call in calls] == ["cold", "hit"]
    assert "hit rate 98.8% · 257 of 260 tokens read" in _format_summary(calls)[1]
    assert (
        _format_summary([replace(calls[1], expected_tokens=0)])[1] == "257 of 290 tokens read, none expected"
    )


def test_llamacpp_is_asked_for_structured_output_natively():
    """Its server enforces `response_format` by a grammar."""
    server = RawServer("sim:llamacpp/qwen3", completion('{"n": 3}'))
    assert server.model.abilities.structured_output == "native"
    result = chat_agent(server, output=dict[str, int]).run_sync("count", session="s")
    assert (result.stop, result.output) == ("done", {"n": 3})
    assert server.sent[0]["response_format"]["type"] == "json_schema"
    assert "tools" not in server.sent[0]
