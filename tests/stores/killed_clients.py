"""Kills processes that append to a PostgreSQL store at random moments, and checks what they had been told.

    python killed_clients.py URL KILLS SEED

Children are forked from this process, which has imported everything.  Each continues four logs, and writes a line to a
pipe for each append that was acknowledged.  It is killed a random time after the first of them, or before.
"""

import asyncio
import os
import random
import select
import signal
import sys
import time

from bridle.stores.postgres.store import PostgresStore
from bridle.values.events import Prompted
from bridle.values.message import Text
from bridle.values.record import GENESIS, seal_record

SESSIONS, KILLS_PER_LOG = 4, 20
SIZES = (10, 10, 500, 5_000, 70_000)
LIFE_SECONDS_MAX = 0.05
FIRST_APPEND_SECONDS = 30


async def append_forever(url, chance, sessions, acknowledge):
    store = PostgresStore(url)

    async def drive(session):
        known = await store.read(session)
        seq, prev = (known[-1].seq, known[-1].hash) if known else (0, GENESIS)
        while True:
            records = []
            for _ in range(chance.randint(1, 3)):
                seq += 1
                event = Prompted(parts=(Text(text=chance.choice("abc") * chance.choice(SIZES)),))
                records.append(seal_record(seq, float(seq), event, prev))
                prev = records[-1].hash
            await store.append(session, records[0].seq - 1, records, epoch=0)
            os.write(acknowledge, f"{session} {seq} {prev}\n".encode())

    await asyncio.gather(*(drive(session) for session in sessions))


def live_once(url, chance, sessions):
    """Start a child and kill it; returns what was acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            asyncio.run(append_forever(url, random.Random(chance.random()), sessions, writing))
        finally:
            os._exit(9)  # it never ends by itself
    os.close(writing)
    if chance.random() < 0.9:  # else it may die while it connects
        select.select([reading], [], [], FIRST_APPEND_SECONDS)
    time.sleep(chance.random() * LIFE_SECONDS_MAX)
    os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        lines = [line.split() for line in pipe if line.endswith("\n")]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, (
        "it failed before it was killed"
    )
    return lines


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
        acknowledged = live_once(url, chance, sessions)
        told += len(acknowledged)
        spare += asyncio.run(check(url, acknowledged, sessions, lengths))
    print(f"{kills} kills, {told} appends acknowledged, 0 lost, {spare} records stored and not acknowledged")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
