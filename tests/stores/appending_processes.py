"""Processes that append to a store and print a line for each append that was acknowledged."""

import asyncio
import subprocess
import sys

from bridle.stores import open_store

APPENDER = """if True:
    import asyncio, os, random, sys
    from bridle.stores import open_store
    from bridle.values.errors import Conflict
    from bridle.values.events import Prompted, ToolFinished
    from bridle.values.message import Text, ToolResult
    from bridle.values.record import GENESIS, seal_record
    from bridle.values.calls import StoredResult

    path, seed, count, sessions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    chance = random.Random(seed)
    SIZES = (10, 10, 500, 5_000, 30_000, 100_000)

    async def drive(store, session):
        line = await store.read(session)
        seq, prev, done = len(line), line[-1].hash if line else GENESIS, 0
        while done != count:
            records = []
            for _ in range(chance.randint(1, 3)):
                text = chance.choice("abc") * chance.choice(SIZES)
                seq += 1
                event = Prompted(parts=(Text(text=text),))
                if chance.random() < 0.3:
                    whole = f"{seq} {text}"
                    kept = StoredResult(hash=await store.put_blob(whole.encode()), character_count=len(whole))
                    event = ToolFinished(result=ToolResult(call_id=f"{os.getpid()}.{seq}"), stored_result=kept)
                records.append(seal_record(seq, float(seq), event, prev))
                prev = records[-1].hash
            try:
                await store.append(session, records[0].seq - 1, records)
            except Conflict:
                line = await store.read(session)
                seq, prev = len(line), line[-1].hash
                continue
            for record in records:
                os.write(1, f"{session} {record.seq} {record.hash}\\n".encode())
            done += 1

    async def main():
        store = open_store(path)
        await asyncio.gather(*(drive(store, session) for session in sessions))
        await store.close()

    asyncio.run(main())
"""


def appender(path, seed, count, *sessions):
    command = [sys.executable, "-c", APPENDER, path, str(seed), str(count), *sessions]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_acknowledged(where, acknowledged):
    """Every acknowledged record is there, with what it refers to; lines read back whole."""

    async def main():
        store = open_store(where)
        for session in {session for session, _, _ in acknowledged}:
            line = await store.read(session)
            kept = {(record.seq, record.hash) for record in line}
            for hash_ in (hash_ for record in line for hash_ in record.event.required_blobs):
                assert await store.get_blob(hash_) is not None, "a record refers to what is not there"
            lost = {(int(seq), hash_) for name, seq, hash_ in acknowledged if name == session} - kept
            assert not lost, f"{len(lost)} acknowledged records of {session} are gone"
        await store.close()

    asyncio.run(main())


def wait_for_all(children):
    """The lines that processes which append at the same time have printed: session, number, hash."""
    acknowledged = []
    for child in children:
        out, error = child.communicate(timeout=300)
        assert (child.returncode, error) == (0, "")
        acknowledged += [line.split() for line in out.splitlines()]
    return acknowledged


def append_in_turns(place, count, *, shared):
    """Three processes append to a new store, which they also set up at the same time."""
    sessions = [["shared"] if shared else [f"{number}.{n}" for n in range(3)] for number in range(3)]
    acknowledged = wait_for_all([appender(place, at, count, *own) for at, own in enumerate(sessions)])
    assert len({(session, seq) for session, seq, _ in acknowledged}) == len(acknowledged), "two got one place"
    return acknowledged
