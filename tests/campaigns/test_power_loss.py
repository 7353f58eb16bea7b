"""The power fails at any moment: nothing acknowledged is lost, and the file is sound.

A file system that records every write, truncation and sync (a VFS of apsw) is under the statements of the store.  For
a crash, each file keeps what was synced; of the writes after that, some are lost, some are half there, and their order
is another.  The same on a disk that only claims to sync, and with `synchronous = OFF`, must lose something: else the
test could not see a loss.

    python -m tests.campaigns.run_campaign power_loss POINTS [FIRST_SEED]
"""

import random
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from bridle.stores.conflicts import check_batch
from bridle.stores.sqlite import database_file, rows
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.values.errors import BridleError
from tests.suite.campaign import FIRST_SEED, scale

apsw = pytest.importorskip("apsw", reason="simulated power loss needs apsw: pip install apsw")

POINTS = scale(150)
POINTS_PER_TRACE = 500
SESSIONS = ("a", "b", "c")
APPENDS = 60
SIZES = (10, 200, 3_000, 9_000, 70_000)
SECTOR_BYTES = 512


class RecordingVfs(apsw.VFS):  # type: ignore[name-defined]
    """The usual file system, with a list of what was done to it."""

    def __init__(self, name):
        self.name, self.trace = name, []
        super().__init__(name, "")

    def xOpen(self, name, flags):
        return RecordingFile(self.trace, name, flags)

    def xDelete(self, name, syncdir):
        super().xDelete(name, syncdir)
        self.trace.append(("delete", Path(name).name, 0, b""))


class RecordingFile(apsw.VFSFile):  # type: ignore[name-defined]
    def __init__(self, trace, name, flags):
        self.trace = trace
        path = name.filename() if hasattr(name, "filename") else name
        self.file = Path(path).name if path else ""
        super().__init__("", name, flags)

    def xWrite(self, data, offset):
        super().xWrite(data, offset)
        self.trace.append(("write", self.file, offset, bytes(data)))

    def xTruncate(self, size):
        super().xTruncate(size)
        self.trace.append(("truncate", self.file, size, b""))

    def xSync(self, flags):
        super().xSync(flags)
        self.trace.append(("sync", self.file, 0, b""))


class Cursor:
    """A result of apsw with the attributes that the store uses of sqlite3."""

    def __init__(self, db, cursor):
        self._cursor, self.lastrowid, self.rowcount = cursor, db.last_insert_rowid(), db.changes()

    def __iter__(self):
        return iter(self._cursor)

    def fetchone(self):
        return next(iter(self._cursor), None)

    def fetchall(self):
        return list(self._cursor)


class Connection:
    def __init__(self, db):
        self._db = db

    def execute(self, statement, values=()):
        return Cursor(self._db, self._db.execute(statement, values))

    @property
    def in_transaction(self):
        return self._db.in_transaction


def record_trace(folder, seed, synchronous):
    """Append to a new store; returns what was done to its files, with each acknowledgement in its place."""
    chance = random.Random(seed)
    vfs = RecordingVfs(f"recording {seed} {synchronous}")
    path = Path(folder) / f"{seed}.db"
    raw = apsw.Connection(str(path), vfs=vfs.name)
    db = Connection(raw)
    for pragma in database_file.PRAGMAS:
        db.execute(pragma)
    if synchronous != "FULL":
        db.execute(f"PRAGMA synchronous = {synchronous}")
    database_file._create_tables(db, path)  # type: ignore[arg-type]
    db.execute("PRAGMA wal_autocheckpoint = 40")
    vfs.trace.append(("acknowledge", "", 0, None))  # the empty store
    logs = {session: [] for session in SESSIONS}
    for number in range(APPENDS):
        # Like the writer thread: the appends of several sessions in one transaction.
        db.execute("BEGIN IMMEDIATE")
        group = chance.sample(SESSIONS, chance.randint(1, len(SESSIONS)))
        for session in group:
            log = logs[session]
            texts = (
                f"{number} " + chance.choice("xyz") * chance.choice(SIZES)
                for _ in range(chance.randint(1, 2))
            )
            new = make_records(*map(make_prompt, texts), prefix=log)
            rows.insert_records(session, len(log), new, check_batch(session, len(log), new), 0, db)  # type: ignore[arg-type]
            log.extend(new)
        db.execute("COMMIT")
        acknowledged = {session: (log[-1].seq, log[-1].hash) for session, log in logs.items() if log}
        vfs.trace.append(("acknowledge", "", 0, acknowledged))
    trace = list(vfs.trace)
    raw.close()
    vfs.unregister()
    return path.name, trace


class Disk:
    """The files as the disk has them, and the writes that are not synced."""

    def __init__(self, *, lies):
        self.durable, self.pending, self.lies = {}, {}, lies

    def apply(self, kind, file, offset, data):
        if kind == "sync" and not self.lies:
            for each in self.pending.pop(file, ()):
                change_file(self.durable.setdefault(file, bytearray()), *each)
        elif kind == "delete":
            self.durable.pop(file, None)
            self.pending.pop(file, None)
        elif kind in ("write", "truncate"):
            self.pending.setdefault(file, []).append((kind, offset, data))

    def crash(self, chance):
        """The files after a power loss, with some of the unsynced writes, in another order, some of them torn."""
        found = {file: bytearray(content) for file, content in self.durable.items()}
        for file, operations in self.pending.items():
            content = found.setdefault(file, bytearray())
            share = chance.choice((0.0, 0.3, 0.7, 1.0))
            kept = [each for each in operations if chance.random() < share]
            if chance.random() < 0.5:
                chance.shuffle(kept)
            for kind, offset, data in kept:
                if kind == "write" and chance.random() < 0.2:
                    tear(content, offset, data, chance)
                else:
                    change_file(content, kind, offset, data)
        return found


def change_file(content, kind, offset, data):
    if kind == "truncate":
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def tear(content, offset, data, chance):
    """Write only some of the sectors, or the beginning up to any byte."""
    if chance.random() < 0.5:
        change_file(content, "write", offset, data[: chance.randrange(len(data))])
        return
    for start in range(0, len(data), SECTOR_BYTES):
        if chance.random() < 0.5:
            change_file(content, "write", offset + start, data[start : start + SECTOR_BYTES])


def check_files(folder, name, files, acknowledged):
    """Say what is wrong with the store after a crash; empty if nothing is."""
    for old in Path(folder).iterdir():
        old.unlink()
    for file, content in files.items():
        if not file.endswith("-shm"):
            (Path(folder) / file).write_bytes(content)
    path = Path(folder) / name
    path.touch()
    try:
        database_file.prepare_file(path)
        with closing(database_file.open_connection(path, 1_000)) as db:
            for session, (seq, hash_) in (acknowledged or {}).items():
                kept = {record.seq: record.hash for record in rows.select_records(session, 0, db)}
                if kept.get(seq) != hash_:
                    return "lost"
            sound = db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    except (BridleError, sqlite3.Error):
        return "damaged"
    return "" if sound else "damaged"


def crash_often(points, seed, *, synchronous="FULL", lies=False):
    """Crash at random places of traces; returns the number of crashes with each outcome."""
    chance, outcomes = random.Random(seed), {"": 0, "lost": 0, "damaged": 0}
    with tempfile.TemporaryDirectory() as making, tempfile.TemporaryDirectory() as folder:
        while points > 0:
            name, trace = record_trace(making, seed, synchronous)
            places = sorted(chance.randrange(len(trace)) for _ in range(min(points, POINTS_PER_TRACE)))
            points, seed = points - len(places), seed + 1
            disk, acknowledged, done = Disk(lies=lies), None, 0
            for place in places:
                for kind, file, offset, data in trace[done:place]:
                    if kind == "acknowledge":
                        acknowledged = data
                    else:
                        disk.apply(kind, file, offset, data)
                done = place
                outcomes[check_files(folder, name, disk.crash(chance), acknowledged)] += 1
    return outcomes


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_power_fails():
    assert crash_often(POINTS, FIRST_SEED + 150) == {"": POINTS, "lost": 0, "damaged": 0}


@pytest.mark.slow
@pytest.mark.parametrize("control", [{"synchronous": "OFF"}, {"lies": True}, {"synchronous": "NORMAL"}])
def test_the_control_loses_something(control):
    found = crash_often(60, 7, **control)
    assert found["lost"] + found["damaged"] > 5, found


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print("FULL", crash_often(count, first), flush=True)
    for control in ({"synchronous": "NORMAL"}, {"synchronous": "OFF"}, {"lies": True}):
        print("control", control, crash_often(max(count // 20, 20), first, **control), flush=True)
