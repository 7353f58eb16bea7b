"""Filters of the list of sessions over HTTP."""

from bridle import Agent
from bridle.serve.api import types as t
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop


@in_loop
async def test_sessions_are_filtered_by_every_caller_who_prompted(tmp_path):
    agent = Agent("sim:", store=tmp_path / "log.db")
    for session, caller in (("a", "ada"), ("b", "bob"), ("shared", "ada"), ("shared", "bob"), ("c", "")):
        await agent.run("!say hello", session, tenant="acme", caller=caller)
    await agent.run("!say hello", "other", tenant="globex", caller="ada")
    async with serve_agents({"desk": agent}, tmp_path / "log.db") as serving:

        async def find(**query):
            page = await serving.client.sessions(t.SessionQuery(**query))
            return {row.session: row.callers for row in page.sessions}

        assert await find(caller="ada", tenant="acme") == {"a": ("ada",), "shared": ("ada", "bob")}
        assert (await find(caller="ada")).keys() == {"a", "shared", "other"}
        assert await find(caller="nobody") == {}
        assert len(await find()) == 5
