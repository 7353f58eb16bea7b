"""The vendors' SDKs talk to a served agent over each wire; `make oracles` installs them."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from bridle import Agent, Budget, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from tests.serve.served import serve_by_name
from tests.serve.wires.sdk_clients import CLIENTS, TOOL
from tests.suite.patience import PATIENCE_SECONDS

for name in ("openai", "anthropic", "google.genai"):
    pytest.importorskip(name, reason="make oracles installs the vendors' SDKs")

PROMPT = '!say let me see\n!call look_up {"name": "m1"}\n!then\n!say asking\n!call confirm {"q": "sure?"}\n!then\n!say fine'
every_client = pytest.mark.parametrize("make_client", CLIENTS, ids=lambda each: each.__name__)


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is free"


def read_states(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return [fold_log(await served.host.store.read(info.id)).state for info in infos]

    return served.run(read())


@every_client
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_conversation_with_tools(make_client, stream):
    with serve_by_name({"helper": Agent("sim:", tools=[look_up], instructions="Be brief.")}) as served:
        client = make_client(served.url)
        assert client.list_models() == ["helper"]
        client.say(PROMPT)
        first = client.ask(stream)
        assert first.text == "let me see\n\nasking"
        assert [*first.calls.values()] == [(TOOL, {"q": "sure?"})]
        client.give(dict.fromkeys(first.calls, "yes"))
        second = client.ask(stream)
        assert (second.text, second.calls) == ("fine", {})
        client.say("!say bye")
        third = client.ask(stream)
        assert third.text == "bye"
        if stream:
            assert len(first.pieces) > 2 and "".join(first.pieces) == first.text
        [state] = read_states(served)
        assert [message.role for message in state.conversation.transcript.messages] == [
            "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
        ]  # fmt: skip
        assert state.settings.instructions == "Be brief.\n\nYou are kind."
        results = [r.text for m in state.conversation.transcript.messages for r in m.results]
        assert "m1 is free" in results[0] and "yes" in results[1]
        total = state.totals.spent.usage
        read, written = (sum(answer.usage[at] for answer in (first, second, third)) for at in (0, 1))
        assert (read, written) == (total.prompt, total.output)


@every_client
def test_client_that_goes_away_ends_the_run(make_client):
    started, ended = threading.Event(), threading.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def wait_long() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    with serve_by_name({"helper": Agent("sim:", tools=[wait_long])}) as served:
        client = make_client(served.url)
        client.say("!say hello\n!call wait_long {}\n!then\n!say done")
        client.begin()
        assert started.wait(PATIENCE_SECONDS) and ended.wait(PATIENCE_SECONDS)
        served.run(_wait_until_idle(served))
        [state] = read_states(served)
        assert state.run.end.stop == "cancelled"


async def _wait_until_idle(served):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(served.host.runs):
            await asyncio.sleep(0)


@every_client
def test_failures_have_the_vendors_types(make_client):
    broke = Agent("sim:", budget=Budget(usd=0))
    with serve_by_name({"helper": broke, "other": Agent("sim:")}) as served:
        client = make_client(served.url)
        client.say("hello")
        with pytest.raises(client.errors) as caught:
            client.ask()
        assert status_of(caught.value) in (402, 429)
        assert "budget" in str(caught.value)
        broken = make_client(served.url)
        broken.say("hello")
        broken.ask = SimpleNamespace
        given = broken._given({})
        given["model"] = "unknown"
        with pytest.raises(client.errors) as caught:
            send_whole(broken, given)
        assert status_of(caught.value) == 404


def status_of(error):
    return getattr(error, "status_code", None) or error.code


def send_whole(client, given):
    sdk = client.client
    match type(client).__name__:
        case "ChatClient":
            sdk.chat.completions.create(**given)
        case "AnthropicClient":
            sdk.messages.create(**given)
        case "GeminiClient":
            sdk.models.generate_content(**given)
        case _:
            sdk.responses.create(**given)


@every_client
def test_another_answer_is_a_fork(make_client):
    """A client that goes back and asks again leaves the session where it was."""
    with serve_by_name({"helper": Agent("sim:")}) as served:
        client = make_client(served.url)
        client.say("!say one")
        client.ask()
        kept, before = [*client.messages], getattr(client, "previous", None)
        client.say("!say two")
        client.ask()
        client.messages, client.previous = kept, before
        client.say("!say three")
        assert client.ask().text == "three"
        states = read_states(served)
        said = sorted(
            [m.text for m in s.conversation.transcript.messages if m.role == "assistant"] for s in states
        )
        assert said == [["one", "three"], ["one", "two"]]
