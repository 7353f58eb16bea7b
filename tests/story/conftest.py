"""Every run of the story tests replays to an equal log."""

import asyncio
import threading
from contextlib import suppress

import pytest

from bridle.stores import open_store
from bridle.values.errors import BridleError
from tests.suite.replayed import replay_store, watch_stores


@pytest.fixture(autouse=True)
def every_run_replays(monkeypatch, tmp_path):
    stores, agents = watch_stores(monkeypatch)
    yield
    found = []

    async def replay_all():
        for store in stores:
            found.extend((await replay_store(store, agents))[2])
        for path in tmp_path.rglob("*.db"):
            with suppress(BridleError):  # a test may damage its file
                opened = open_store(str(path))
                found.extend((await replay_store(opened, agents))[2])
                await opened.close()

    replaying = threading.Thread(target=lambda: asyncio.run(replay_all()))  # the test may have a loop
    replaying.start()
    replaying.join()
    assert found == []
