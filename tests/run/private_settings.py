"""Private settings of a run, and the places where they might be found."""

import asyncio
import json
from dataclasses import replace

from bridle.run.model_connection import connect_model, find_model_by_name
from bridle.stores import open_store

TOKEN = "cnry4f8a2b9c7d1e6f30"
PHRASE = "river otter meadow"
"""A credential under an innocent name, and a text that does not look like one."""


def files_in(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def events(path, session="s"):
    async def read():
        store = open_store(path)
        records = await store.read(session)
        await store.close()
        return [record.event for record in records]

    return asyncio.run(read())


class SentBodies:
    """Transport that keeps the bodies it passes on."""

    def __init__(self, inner):
        self._inner, self.bodies = inner, []

    def open(self, outgoing):
        self.bodies.append(json.loads(outgoing.body))
        return self._inner.open(outgoing)


def connect_recorded(wire):
    connection = connect_model(find_model_by_name(f"sim:{wire}"))
    transport = SentBodies(connection.transport)
    return replace(connection, transport=transport), transport
