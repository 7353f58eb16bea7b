"""Killed processes, many processes on one file, a full disk: nothing acknowledged is lost.

The child writes a line to a pipe for every append that was acknowledged, and only then.  Whatever
is in the pipe when it is killed must be in the store.  BRIDLE_CAMPAIGN multiplies the rounds.
"""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from bridle.stores import open_store

CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))

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


def check_kept(path, acknowledged):
    """The same, and the file is sound."""
    check_acknowledged(path, acknowledged)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_process_killed_while_it_appends_loses_nothing(tmp_path):
    path = tmp_path / "log.db"
    chance = random.Random(CAMPAIGN)
    acknowledged = []
    for kill in range(8 * CAMPAIGN):
        child = appender(path, kill, -1, *(f"s{n}" for n in range(8)))
        with child:
            for _ in range(chance.randint(1, 60)):
                acknowledged.append(child.stdout.readline().split())
            child.send_signal(signal.SIGKILL)
            # What it had written to the pipe before it died counts as well, but for a line cut short.
            acknowledged += [line.split() for line in child.stdout if line.endswith("\n")]
            assert child.stderr.read() == ""
        assert child.returncode == -signal.SIGKILL
        check_kept(path, acknowledged)
    assert len(acknowledged) > 8


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


@pytest.mark.parametrize("shared", [False, True], ids=["own sessions", "one session"])
def test_several_processes_on_one_file_take_turns(tmp_path, shared):
    path = tmp_path / "log.db"
    count = 25 * CAMPAIGN
    acknowledged = append_in_turns(path, count, shared=shared)
    assert len(acknowledged) >= count * 3 * (1 if shared else 3)
    check_kept(path, acknowledged)


def test_many_processes_may_make_the_same_file(tmp_path):
    for round_ in range(2 * CAMPAIGN):
        path = tmp_path / f"{round_}.db"
        check_kept(path, wait_for_all([appender(path, number, 1, f"s{number}") for number in range(6)]))


@pytest.mark.skipif(sys.platform == "win32", reason="limits on a process are POSIX")
def test_a_disk_that_takes_no_more_is_reported_and_keeps_what_it_has(tmp_path):
    path = tmp_path / "log.db"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
    command = [sys.executable, "-c", limit + APPENDER, path, "1", "-1", "a", "b", "c"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"bridle.values.errors.Unusable: store {path}: the disk")
    acknowledged = [line.split() for line in done.stdout.splitlines()]
    assert acknowledged
    check_kept(path, acknowledged)
