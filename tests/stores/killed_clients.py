"""Kills processes that append to a PostgreSQL store at random moments, and checks what they had been told.

    python killed_clients.py URL KILLS SEED

Children are forked from this process, which has imported everything.  Each continues four logs, and writes a line to a
pipe for each append that was acknowledged.  It is killed a random time after the first of them, or before.
"""

import asyncio
import random
import sys

from bridle.stores.postgres.store import PostgresStore
from tests.suite.crashes import kill_appending_child

SESSIONS, KILLS_PER_LOG = 4, 20
LIFE_SECONDS_MAX = 0.05


async def check(url, acknowledged, sessions, lengths):
    """Every acknowledged record is there; returns how many were stored and not acknowledged."""
    store = PostgresStore(url)
    spare = 0
    for session in sessions:
        after = max(0, lengths.get(session, 0) - 1)
        records = await store.read(session, after)
        kept = {(record.seq, record.hash) for record in records}
        told = {(int(seq), hash_) for name, seq, hash_ in acknowledged if name == session}
        assert told <= kept, f"{len(told - kept)} acknowledged records of {session} are lost"
        lengths[session] = after + len(records)
        spare += lengths[session] - max((seq for seq, _ in told), default=lengths[session])
    await store.close()
    return spare


def main(url, kills, seed):
    chance, lengths, told, spare = random.Random(seed), {}, 0, 0
    for kill in range(kills):
        sessions = [f"{kill // KILLS_PER_LOG}.{number}" for number in range(SESSIONS)]
        acknowledged = kill_appending_child(lambda: PostgresStore(url), sessions, chance, LIFE_SECONDS_MAX)
        told += len(acknowledged)
        spare += asyncio.run(check(url, acknowledged, sessions, lengths))
    print(f"{kills} kills, {told} appends acknowledged, 0 lost, {spare} records stored and not acknowledged")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
