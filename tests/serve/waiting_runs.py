"""Clients of a served agent that prompt it and wait: for a question, or for the end of a run."""

import asyncio

from bridle.events import RunEnded
from bridle.serve.client import ServedEvent
from tests.suite.patience import PATIENCE_SECONDS


async def wait_for_end(client, session, after=0):
    """Wait until a run of the session has ended that was not there before."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in client.stream(session, after=after, until="never"):
            if isinstance(item, ServedEvent) and isinstance(item.event, RunEnded):
                return item.event.stop
    raise AssertionError("the stream ended")


async def prompt_until_waiting(client, prompt, session):
    run = await client.prompt(prompt, session=session, new=True)
    async for _ in client.stream(run.session, after=run.after):
        pass
    assert (await client.session(session)).summary.status == "waiting"
    return await list_questions(client, session)


async def list_questions(client, session):
    """The open questions, and the number of the last record."""
    detail = await client.session(session)
    return (await client.approvals(session)).approvals, detail.summary.records
