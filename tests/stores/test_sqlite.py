"""Guarantees of the SQLite store beyond the port: its file, tamper evidence, threads, errors."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bridle.sessions import redact_record
from bridle.stores.anchors import read_anchors
from bridle.stores.sqlite import database_file
from bridle.stores.sqlite.database_file import explain_error, find_file_system
from bridle.stores.sqlite.rows import BLOB_BYTES
from bridle.stores.sqlite.store import SqliteStore
from bridle.testing.conformance.sample_records import make_prompt, make_records, make_tool_finish
from bridle.values.errors import BridleError, Corrupt, MisuseError, Unusable
from bridle.values.record import GENESIS, seal_record
from tests.stores.sqlite_locks import write_lock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.db"


def sql(path, *statements):
    """Say something to the file behind the store's back."""
    with closing(sqlite3.connect(path)) as db:
        rows = [db.execute(statement).fetchall() for statement in statements]
        db.commit()
        return rows[-1]


def use_store(path, act):
    """Run `act(store)` on a store that is opened before and closed after."""

    async def main():
        store = SqliteStore(path)
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(main())


def fill(path, **lines):
    async def act(store):
        for name, line in lines.items():
            await store.append(name, 0, line)

    use_store(path, act)


# The file.


def test_a_closed_store_is_one_private_file(tmp_path):
    path = tmp_path / "new" / "folder" / "log.db"
    fill(path, a=make_records(make_prompt("x")))
    assert [file.name for file in path.parent.iterdir()] == ["log.db"]
    assert path.stat().st_mode & 0o077 == 0
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


def test_an_event_is_kept_as_readable_text(path):
    fill(path, a=make_records(make_prompt("naïve")))
    assert sql(path, "SELECT data ->> '$.type', data ->> '$.parts[0].text' FROM events") == [
        ("prompted", "naïve")
    ]


def test_long_content_is_kept_beside_the_table_and_once(path):
    line = make_records(make_prompt("x" * BLOB_BYTES), make_prompt("short"), make_prompt("x" * BLOB_BYTES))
    fill(path, a=line, b=line)
    assert sql(path, "SELECT count(*) FROM blobs") == [(1,)]
    assert sql(path, "SELECT count(*) FROM events WHERE blob IS NULL") == [(2,)]
    assert path.stat().st_size < 4 * BLOB_BYTES


def test_content_that_was_damaged_is_healed_by_writing_it_again(path):
    line = make_records(make_prompt("x" * BLOB_BYTES))
    fill(path, a=line)
    sql(path, "UPDATE blobs SET bytes = x'00'")
    fill(path, b=line)
    assert use_store(path, lambda store: store.read("a")) == tuple(line)


def test_a_blob_and_the_content_of_a_long_event_are_kept_in_one_place(path):
    (long,) = make_records(make_prompt("x" * BLOB_BYTES))
    fill(path, a=[long])
    hash_ = use_store(path, lambda store: store.put_blob(long.data))
    assert sql(path, "SELECT hash FROM blobs") == [(hash_,)]
    assert use_store(path, lambda store: store.get_blob(hash_)) == long.data


def test_a_damaged_blob_is_reported_and_healed_by_putting_it_again(path):
    hash_ = use_store(path, lambda store: store.put_blob(b"whole"))
    sql(path, "UPDATE blobs SET bytes = x'00'")
    with pytest.raises(Corrupt, match=hash_):
        use_store(path, lambda store: store.get_blob(hash_))
    use_store(path, lambda store: store.put_blob(b"whole"))
    assert use_store(path, lambda store: store.get_blob(hash_)) == b"whole"


def test_a_fork_is_one_row(path):
    fill(path, a=make_records(*(make_prompt(f"{n}") for n in range(50))))
    use_store(path, lambda store: store.fork("a", 40, "b"))
    assert sql(path, "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM events)") == [(2, 50)]


def test_a_thousand_generations_of_forks_can_be_read(path):
    async def act(store):
        line = make_records(make_prompt("first"), make_tool_finish("c"))
        await store.append("0", 0, line)
        for generation in range(1, 1001):
            await store.fork(str(generation - 1), 2 if generation < 500 else 1, str(generation))
        assert await store.read("1000") == tuple(line[:1])
        own = make_records(make_tool_finish("c"), prefix=line[:1])
        await store.append("1000", 1, own)
        assert await store.read("1000", 1) == tuple(own)

    use_store(path, act)


def test_a_copy_made_while_in_use_is_a_store(path, tmp_path):
    line = make_records(make_prompt("x" * BLOB_BYTES), make_prompt("small"))

    async def act(store):
        await store.append("a", 0, line)
        sql(path, f"VACUUM INTO '{tmp_path / 'copy.db'}'")
        await store.append("b", 0, line)

    use_store(path, act)
    assert use_store(tmp_path / "copy.db", lambda store: store.read("a")) == tuple(line)
    assert use_store(tmp_path / "copy.db", lambda store: store.read("b")) == ()


# Pages.


@pytest.mark.parametrize("cut", [False, True])
def test_a_page_finds_the_damage_of_its_own_records(path, cut):
    """Damage inside a log is never taken for a torn end, though it may be at the end of a page."""
    fill(path, mine=make_records(*(make_prompt(f"words {n}") for n in range(9))))
    change = "substr(data, 1, 20)" if cut else "replace(data, 'words', 'Words')"
    sql(path, f"UPDATE events SET data = {change} WHERE seq = 6")

    async def act(store):
        assert [record.seq for record in await store.read("mine", 0, 5)] == [1, 2, 3, 4, 5]
        assert [record.seq for record in await store.read("mine", 6, 5)] == [7, 8, 9]
        for after, limit in ((5, 1), (0, 6), (4, 3), (2, None)):
            with pytest.raises(Corrupt) as raised:
                await store.read("mine", after, limit)
            assert (raised.value.last_good, raised.value.torn) == (5, False)

    use_store(path, act)


# Tampering.

TAMPERINGS = {
    "edited": ("UPDATE events SET data = replace(data, 'four', 'vier') WHERE seq = 4", "record 4"),
    "other time": ("UPDATE events SET at = at + 1 WHERE seq = 4", "record 4"),
    "other hash": (
        "UPDATE events SET hash = CAST(substr(hash, 2) || substr(hash, 1, 1) AS BLOB) WHERE seq = 4",
        "record ",
    ),
    "other name": ("UPDATE events SET once = 'receipt:other' WHERE seq = 6", "record 6"),
    "no name": ("UPDATE events SET once = NULL WHERE seq = 6", "record 6"),
    "first removed": ("DELETE FROM events WHERE seq = 1", "record 1"),
    "removed": ("DELETE FROM events WHERE seq = 4", "record 4"),
    "last removed": ("DELETE FROM events WHERE seq = 7", "record 7"),
    "all removed": ("DELETE FROM events", "records 1 to 7"),
    "swapped": (
        "UPDATE events SET seq = CASE seq WHEN 2 THEN -3 ELSE -2 END WHERE seq IN (2, 3)",
        "record 2",
    ),
    "inserted": ("UPDATE events SET seq = -seq - 1 WHERE seq > 3", "record 4"),
    "added": (
        "INSERT INTO events SELECT 99, sid, 8, at, NULL, hash, blob, data FROM events WHERE seq = 3",
        "record 8",
    ),
    "long edited": ("UPDATE blobs SET bytes = zeroblob(length(bytes))", "record 5"),
    "long removed": ("DELETE FROM blobs", "record 5"),
    "other end": (
        "UPDATE sessions SET head = (SELECT lower(hex(hash)) FROM events WHERE seq = 6)",
        "record 7",
    ),
    "cut": (
        "UPDATE sessions SET seq = 6, head = (SELECT lower(hex(hash)) FROM events WHERE seq = 6)",
        "record 6",
    ),
    "other length": ("UPDATE sessions SET seq = 9", "records 8 to 9"),
    "made a fork": ("UPDATE sessions SET fork_seq = 3", "record 1"),
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_tampering_shows(path, how):
    line = make_records(
        *(make_prompt(word) for word in ("one", "two", "three", "four")),
        make_prompt("x" * BLOB_BYTES),
        make_tool_finish("c"),
        make_prompt("end"),
    )
    fill(path, mine=line)
    statement, where = TAMPERINGS[how]
    sql(path, statement, "UPDATE events SET seq = -seq WHERE seq < 0")
    if how == "inserted":
        sql(
            path, "INSERT INTO events SELECT 99, sid, 4, at, NULL, hash, blob, data FROM events WHERE seq = 3"
        )
    with pytest.raises(Corrupt, match=where) as caught:
        use_store(path, lambda store: store.read("mine"))
    assert "session 'mine'" in str(caught.value)
    assert str(path) in str(caught.value)


def test_tampering_shows_from_the_middle_and_through_a_fork(path):
    line = make_records(*(make_prompt(f"{n}") for n in range(6)))
    fill(path, a=line)
    use_store(path, lambda store: store.fork("a", 4, "b"))
    sql(path, "UPDATE events SET data = replace(data, '2', '7') WHERE seq = 3")
    for session in ("a", "b"):
        with pytest.raises(Corrupt, match="record 3"):
            use_store(path, lambda store, session=session: store.read(session))
    assert use_store(path, lambda store: store.read("a", 3)) == tuple(line[3:])
    sql(path, "UPDATE events SET hash = (SELECT hash FROM events WHERE seq = 1) WHERE seq = 3")
    with pytest.raises(Corrupt, match="record 4"):
        use_store(path, lambda store: store.read("a", 3))


def test_a_parent_that_is_its_own_child_does_not_hang(path):
    fill(path, a=make_records(make_prompt("x")), b=make_records(make_prompt("y")))
    sql(path, "PRAGMA ignore_check_constraints = ON", "UPDATE sessions SET parent = 3 - sid, fork_seq = 1")
    for session in ("a", "b"):
        with pytest.raises(Corrupt):
            use_store(path, lambda store, session=session: store.read(session))


def test_one_damaged_session_leaves_the_others_alone(path):
    lines = {name: make_records(make_prompt(name), make_prompt("more")) for name in ("a", "b", "c")}
    fill(path, **lines)
    # A row where the next one belongs: inserting it fails in the middle of the group's transaction.
    sql(path, "INSERT INTO events SELECT 99, 2, 3, at, once, hash, blob, data FROM events WHERE gseq = 3")

    async def act(store):
        longer = {name: make_records(make_prompt("new"), prefix=line) for name, line in lines.items()}
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.append(name, 2, line)) for name, line in longer.items()]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), Corrupt, type(None)]
        for name in ("a", "c"):
            assert await store.read(name) == (*lines[name], *longer[name])

    use_store(path, act)


def test_a_damaged_page_is_reported_as_such(path):
    fill(path, a=make_records(*(make_prompt("x" * 3000) for _ in range(40))))
    content = bytearray(path.read_bytes())
    content[20_000:90_000] = b"\x55" * 70_000
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=str(path)):
        use_store(path, lambda store: store.read("a"))


# What cannot be used is refused at the door, in one line.


def expect_unusable(path, *words):
    with pytest.raises(Unusable) as caught:
        SqliteStore(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def test_a_file_that_is_not_a_store(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, " * 100)
    expect_unusable(text, "not a database")
    other = tmp_path / "other.db"
    sql(other, "CREATE TABLE mine (x)")
    expect_unusable(other, "another program")
    assert sql(other, "SELECT name FROM sqlite_schema") == [("mine",)]
    expect_unusable(tmp_path, "folder", "log.db")
    expect_unusable(text / "log.db", "a file cannot be created there")
    expect_unusable(tmp_path / ("x" * 300), "a file cannot be created there")
    expect_unusable(Path("/dev/null"), "not a file")


def test_a_store_of_a_newer_version(path):
    fill(path, a=make_records(make_prompt("x")))
    sql(path, "PRAGMA user_version = 2")
    expect_unusable(
        path, "newer Bridle (format 2, this one knows 1)", "upgrade Bridle or choose another path"
    )


@pytest.mark.parametrize("version", [-1, 0])
def test_a_format_that_another_program_set_back_is_told(path, version):
    fill(path, a=make_records(make_prompt("x")))
    sql(path, f"PRAGMA user_version = {version}")
    expect_unusable(
        path, f"it says that it has format {version}", "does not exist", "PRAGMA user_version = 1"
    )
    sql(path, "PRAGMA user_version = 1")
    assert len(use_store(path, lambda store: store.read("a"))) == 1


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("ALTER TABLE sessions DROP COLUMN epoch", "sessions"),
        ("ALTER TABLE snapshots RENAME COLUMN fold_version TO version", "snapshots"),
        ("DROP TABLE removals; CREATE TABLE removals (uid TEXT)", "removals"),
        ("DROP TABLE origins; CREATE TABLE origins (uid TEXT, sid TEXT, seal TEXT)", "origins"),
    ],
)
def test_columns_that_another_program_changed_are_told(path, change, table):
    fill(path, a=make_records(make_prompt("x")))
    for statement in change.split("; "):
        sql(path, statement)
    expect_unusable(path, f"the columns of {table} are not those of format 1", "restore it from a backup")


@pytest.mark.parametrize("table", ["blobs", "events", "origins", "removals", "sessions"])
def test_a_table_that_another_program_removed_is_told(path, table):
    fill(path, a=make_records(make_prompt("x")))
    sql(path, f"DROP TABLE {table}")
    expect_unusable(path, f"it lacks the tables {table}", "restore it from a backup")


def test_the_table_of_snapshots_is_added_again(path):
    line = make_records(make_prompt("x"))
    fill(path, a=line)
    sql(path, "DROP TABLE snapshots")
    assert use_store(path, lambda store: store.read("a")) == tuple(line)
    assert use_store(path, lambda store: store.read_with_snapshot("a", lambda *_: None)) == (
        None,
        tuple(line),
    )


def test_what_may_not_be_written():
    """In a child without privileges: the superuser may write anywhere."""
    program = """if True:
        import os, sys
        from bridle.stores.sqlite.store import SqliteStore
        from bridle.values.errors import Unusable
        if os.getuid() == 0:
            os.setgid(65534), os.setuid(65534)
        for path in sys.argv[1:]:
            try:
                SqliteStore(path)
            except Unusable as error:
                print(error)
    """
    with TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("log.db", "closed/log.db", "hidden/log.db")]
        fill(paths[0], a=make_records(make_prompt("x")))
        paths[0].chmod(0o444)
        paths[1].parent.mkdir(mode=0o555)
        paths[2].parent.mkdir(mode=0o000)
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=False
        )
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done
    for line, file in zip(lines, paths, strict=True):
        assert str(file) in line
        assert "choose another path" in line


def test_network_file_systems_are_recognised():
    mounts = (
        "/dev/sda / ext4 rw 0 0\nhost:/x /home nfs4 rw 0 0\n/dev/sdb /home/my\\040disk ext4 rw 0 0\nbroken\n"
    )
    kinds = [
        find_file_system(Path(p), mounts)
        for p in ("/var/a.db", "/home/me/a.db", "/home/my disk/a.db", "/homes/a.db")
    ]
    assert kinds == ["ext4", "nfs4", "ext4", "ext4"]
    assert "nfs4" in database_file.NETWORK_FILE_SYSTEMS


def test_a_full_disk_is_named(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
        db.execute("PRAGMA max_page_count = 3")
        with pytest.raises(sqlite3.Error) as caught:
            db.execute("INSERT INTO t VALUES (zeroblob(100000))")
    error = explain_error(path, caught.value)
    assert isinstance(error, Unusable)
    assert "the disk is full; make room and resume" in str(error)


def test_a_time_that_would_not_come_back_is_refused(path):
    async def act(store):
        for at in (1, -0.0, float("nan"), float("inf"), True):
            with pytest.raises(MisuseError, match="record 1 has the time"):
                await store.append("a", 0, [seal_record(1, at, make_prompt("x"), GENESIS)])
        assert await store.sessions() == ()

    use_store(path, act)


def test_a_lock_that_is_never_released_is_reported(path, monkeypatch):
    monkeypatch.setattr(database_file, "LOCK_MILLISECONDS", 100)

    async def act(store):
        with write_lock(path):
            tasks = [store.append(f"s{n}", 0, make_records(make_prompt("x"))) for n in range(5)]
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, Unusable)
                assert "another process keeps it locked" in str(outcome)
        await store.append("s0", 0, make_records(make_prompt("x")))

    use_store(path, act)


@pytest.mark.parametrize("then", ["nothing", "another store"])
def test_a_file_that_is_gone_acknowledges_nothing(path, then):
    line = make_records(make_prompt("one"), make_prompt("two"))

    async def act(store):
        await store.append("a", 0, line[:1])
        for file in path.parent.iterdir():
            file.unlink()
        if then == "another store":
            SqliteStore(path)
        with pytest.raises(BridleError):
            await store.append("a", 1, line[1:])
        with pytest.raises(BridleError):
            await store.append("a", 1, line[1:])
        with pytest.raises(Unusable) if then == "nothing" else nullcontext():
            await store.append("b", 0, line)
        assert path.exists() == (then == "another store"), "a removed file came back empty"

    use_store(path, act)


def test_a_text_that_cannot_be_removed_does_not_prevent_the_anchor_of_a_removal(tmp_path, caplog):
    records = make_records(make_prompt("one"), make_prompt("two"))

    async def main():
        store = SqliteStore(tmp_path / "log.db", anchors=tmp_path / "anchors")
        await store.append("s", 0, records)
        await store.append("r", 0, records)
        for session in "rs":
            await store.read_live(session)
        for file in (tmp_path / "log.db-live").iterdir():  # a link is refused
            file.rename(tmp_path / file.name)
            file.symlink_to(tmp_path / file.name)
        await redact_record(store, "r", 1, reason="r", by="b")
        await store.remove_session("s", records[-1].hash, at=1.0, reason="old")
        await store.close()

    asyncio.run(main())
    assert [anchor.session for anchor in read_anchors(tmp_path / "anchors") if anchor.removed] == ["s"]
    assert sum("was not removed" in record.getMessage() for record in caplog.records) == 2
