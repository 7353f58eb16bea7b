"""Any client over any wire to any provider through the gateway, on the strict simulator."""

import pytest

from bridle import Agent, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from tests.serve.served import serving_gateway
from tests.serve.wires.wire_clients import CLIENT_MODELS, PROVIDERS, connect_client

SCRIPT = '!say let me add\n!call add {"a": 2, "b": 3}\n!call add {"a": 4, "b": 5}\n!then\n!say it is 5 and 9'
pairs = pytest.mark.parametrize("provider", PROVIDERS)
wires = pytest.mark.parametrize("wire", CLIENT_MODELS)


@tool(effect="read")
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def read_states(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return [fold_log(await served.host.store.read(info.id)).state for info in infos]

    return served.run(read())


def make_settings(provider, **more):
    return {"models": {"any": {"chain": [PROVIDERS[provider]]}}, **more}


@wires
@pairs
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_every_wire_reaches_every_provider(wire, provider, stream):
    with serving_gateway(make_settings(provider, strict=True)) as served:
        client = Agent(connect_client(wire, served.url), tools=[add], instructions="Be exact.")
        first = client.run_sync(SCRIPT) if not stream else run_streamed(client, SCRIPT)
        assert (first.stop, first.text) == ("done", "it is 5 and 9"), first.reason
        second = client.run_sync("!say bye", session=first.session)
        assert (second.stop, second.text) == ("done", "bye"), second.reason
        [state] = read_states(served)
        provided, received = state.totals.spent.usage, first.usage + second.usage
        assert (received.prompt, received.output) == (provided.prompt, provided.output)
        assert received.cache_read == provided.cache_read
        assert received.reasoning == provided.reasoning
        roles = [message.role for message in state.conversation.transcript.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert state.settings.instructions == "Be exact."


def run_streamed(agent, prompt):
    import asyncio

    async def run():
        stream = agent.stream(prompt)
        async for _ in stream:
            pass
        return await stream.result()

    return asyncio.run(run())
