"""Runs of `process_agents` that wait in the middle, until their process is killed, and the records that show it."""

import asyncio

from bridle.events import Resumed, RunEnded, ToolFinished
from tests.suite.patience import PATIENCE_SECONDS

WAITING = '!call append {{"text": "{name}"}}\n!then\n!call wait_for {{"name": "go"}}\n!then\n!say done {name}'
"""Appends its name to a file, waits for the file `go`, and ends."""
ADOPTED_SECONDS_MAX = 10.0


async def find_record(store, session, is_wanted, after=0):
    """The first record of a session after `after` that is wanted, once it is there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for record in await store.read(session, after):
                after = record.seq
                if is_wanted(record.event):
                    return record
            await store.wait_for_records(session, after)


def is_appended(event):
    return isinstance(event, ToolFinished) and event.result.text == "appended"


def is_done(event):
    return isinstance(event, RunEnded) and event.stop == "done"


def is_resumed(event):
    return isinstance(event, Resumed)
