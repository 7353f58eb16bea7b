"""Every format that was ever released is read to the same state, and a file of a newer one is refused in one line."""

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import msgspec
import pytest
from frozen_logs import FOLDER, FrozenRecord, digest_state

from bridle import Agent
from bridle.run.recovery.verification import verify_store
from bridle.stores.sqlite import database_file
from bridle.stores.sqlite.store import SqliteStore
from bridle.values.errors import Unusable
from bridle.values.record import GENESIS, unseal_record

LOGS = sorted(FOLDER.glob("*/*.jsonl"))
STORES = sorted(FOLDER.glob("*/store.sql"))


def read_log(path):
    head, *rows = (msgspec.json.decode(line, type=FrozenRecord) for line in path.read_bytes().splitlines())
    records, prev = [], GENESIS
    for row in rows:
        records.append(unseal_record(row.seq, row.at, row.data.encode(), prev, row.hash))
        prev = row.hash
    return head, records


def restore_file(dump, path):
    with closing(sqlite3.connect(path)) as db:
        db.executescript(dump.read_text())


def test_there_is_a_frozen_log_of_every_format():
    known = {int(path.parent.name) for path in STORES}
    assert known == set(range(1, database_file.FORMAT + 1)), (
        "freeze the new format: tests/golden/frozen_logs.py"
    )


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_frozen_log_folds_to_the_same_state(path):
    head, records = read_log(path)
    assert digest_state(records) == head.digest
    assert "unknown" not in {record.event.__struct_config__.tag for record in records}


@pytest.mark.parametrize("dump", STORES, ids=lambda path: path.parent.name)
def test_a_frozen_store_is_migrated_read_and_continued(dump, tmp_path):
    path = tmp_path / "log.db"
    restore_file(dump, path)

    async def main():
        store = SqliteStore(path)
        sessions, problems = await verify_store(store, {})
        assert problems == []
        heads = {}
        for log in sorted(dump.parent.glob("*.jsonl")):
            head, records = read_log(log)
            assert list(await store.read(head.session)) == records
            heads[head.session] = records[-1].hash if records else ""
        assert {session.session: session.head for session in sessions} == heads
        assert not [session.problems for session in sessions if session.problems]
        async with store.lease("tools", take_over=True) as lease:
            assert lease.epoch == 1
        result = await Agent("sim:", store=store).run("!say Once more.", "tools")
        assert result.text == "Once more."
        await store.close()

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(":memory:")) as new:
        assert db.execute("PRAGMA user_version").fetchone() == (database_file.FORMAT,)
        new.executescript(database_file.SCHEMA.read_text())
        for (table,) in new.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            columns = f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{table}')"
            assert db.execute(columns).fetchall() == new.execute(columns).fetchall(), table


def test_a_migration_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path, before = tmp_path / "log.db", tmp_path / "before.db"
    restore_file(STORES[0], path)
    shutil.copy(path, before)
    monkeypatch.setitem(
        database_file.MIGRATIONS, 1, (*database_file.MIGRATIONS[1], "ALTER TABLE absent ADD COLUMN x")
    )
    with pytest.raises(Unusable, match="no such table"):
        SqliteStore(path)
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(before)) as old:
        assert [*db.iterdump()] == [*old.iterdump()]
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    monkeypatch.undo()
    asyncio.run(SqliteStore(path).close())


KILLED = """
import os, signal, sys
from bridle.stores.sqlite import database_file
from bridle.stores.sqlite.store import SqliteStore

rows, pack = int(sys.argv[2]), database_file._pack_hash

def pack_and_die(text):
    global rows
    rows -= 1
    if rows < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return pack(text)

database_file._pack_hash = pack_and_die
SqliteStore(sys.argv[1])
"""


@pytest.mark.parametrize("rows", [0, 1, 20, 10_000])
def test_a_migration_that_is_killed_begins_again(rows, tmp_path):
    path = tmp_path / "log.db"
    restore_file(FOLDER / "3" / "store.sql", path)
    done = subprocess.run([sys.executable, "-c", KILLED, path, str(rows)], check=False)
    assert done.returncode == (0 if rows == 10_000 else -signal.SIGKILL)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (4 if rows == 10_000 else 3,)

    async def main():
        store = SqliteStore(path)
        sessions, problems = await verify_store(store, {})
        assert problems == []
        assert len(sessions) == len(LOGS) // len(STORES)
        assert not [session.problems for session in sessions if session.problems]
        await store.close()

    asyncio.run(main())


def test_damage_in_an_old_file_is_found_after_its_migration(tmp_path):
    path = tmp_path / "log.db"
    restore_file(FOLDER / "3" / "store.sql", path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE events SET hash = upper(hash) WHERE gseq = 2")
        db.execute("UPDATE events SET hash = CAST(x'ff00' AS TEXT) WHERE gseq = 30")
        db.execute(
            "INSERT INTO events SELECT 999, 77, seq, at, once, hash, blob, data FROM events WHERE gseq = 1"
        )
        damaged = {uid for (uid,) in db.execute(
            "SELECT uid FROM sessions JOIN events USING (sid) WHERE gseq IN (2, 30)"
        )}  # fmt: skip
        db.commit()

    async def main():
        store = SqliteStore(path)
        sessions, problems = await verify_store(store, {})
        found = {session.session for session in sessions if session.problems}
        assert damaged <= found
        assert [problem.text for problem in problems] == [
            "row 999 of table events refers to a row of sessions that does not exist"
        ]
        await store.close()

    asyncio.run(main())


def test_many_processes_may_migrate_the_same_file(tmp_path):
    restore_file(STORES[0], tmp_path / "log.db")

    async def main():
        stores = await asyncio.gather(
            *(asyncio.to_thread(SqliteStore, tmp_path / "log.db") for _ in range(8))
        )
        assert {len(await store.sessions()) for store in stores} == {len(LOGS) // len(STORES)}

    asyncio.run(main())


def test_a_file_of_a_newer_format_is_refused_in_one_line(tmp_path):
    path = tmp_path / "log.db"
    asyncio.run(SqliteStore(path).close())
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {database_file.FORMAT + 1}")
    with pytest.raises(Unusable, match=r"written by a newer Bridle \(format 5, this one knows 4\)") as caught:
        SqliteStore(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "dump",
    [dump for dump in STORES if dump.parent.name != str(database_file.FORMAT)],
    ids=lambda path: path.parent.name,
)
def test_a_migration_leaves_no_copy_of_content_in_free_pages(dump, tmp_path, monkeypatch):
    """Builds of SQLite differ in what they do with the pages of a removed table; a redaction would not find them."""
    monkeypatch.setattr(database_file, "PRAGMAS", (*database_file.PRAGMAS, "PRAGMA secure_delete = OFF"))
    path = tmp_path / "log.db"
    restore_file(dump, path)

    async def open_and_read():
        store = SqliteStore(path)
        (first, *_) = await store.read("tools")
        await store.close()
        return first.data[:200]

    content = asyncio.run(open_and_read())
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copies = path.read_bytes().count(content)
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert copies == path.read_bytes().count(content) > 0
