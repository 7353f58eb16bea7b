"""bridle store verify, gc, backup and export, as a person and as a program use them."""

import asyncio
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from bridle import Agent, tool
from bridle.cli.main import main
from bridle.run.recovery import session_log
from bridle.run.recovery.retention import list_old_sessions, remove_session
from bridle.stores import open_store
from bridle.testing import FakeClock, scripted
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.testing.scripted_model import call_reply
from bridle.values.calls import ControlRequested, control_log_name
from bridle.values.errors import SessionNotFound
from bridle.values.events import RunEnded
from bridle.values.record import GENESIS, seal_record
from tests.suite.leases import hold
from tests.suite.postgres_server import change_rows

OLD = 1_000.0
"""Time of the old sessions, in 1970."""


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", "log.db")
    monkeypatch.delenv("BRIDLE_ANCHORS", raising=False)
    return tmp_path / "log.db"


@pytest.fixture
def any_log(shared_log, monkeypatch):
    """A log in a file, then in a database."""
    monkeypatch.setenv("BRIDLE_STORE", shared_log)
    return shared_log


@tool(effect="write", approve=True)
async def pay() -> str:
    """Pay."""
    return "paid"


async def write_sessions(path):
    """Old sessions: finished, waiting, forked by a new one, with a fork of their own; and a new session."""
    store = open_store(path)
    old = FakeClock(OLD)
    for name in ("finished", "parent", "family"):
        await Agent(scripted("x" * 70_000), store=store, clock=old).run("Go.", name)
    await Agent(scripted(call_reply(("pay", {}))), tools=[pay], store=store, clock=old).run("Pay.", "waiting")
    await store.fork("family", 5, "child")
    await store.fork("parent", 3, "new-fork")
    await Agent(scripted("Done."), store=store).run("Go.", "new-fork")
    await Agent(scripted("Done."), store=store).run("Go.", "new")
    await store.put_blob(b"nobody refers to this")
    await store.close()


def run(capsys, *words):
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def sessions(rows):
    return {row["session"] for row in rows}


def list_names(path):
    async def read():
        store = open_store(path)
        names = {info.id for info in await store.sessions()}
        await store.close()
        return names

    return asyncio.run(read())


def test_gc_removes_what_is_old_and_free_and_nothing_else(any_log, capsys):
    asyncio.run(write_sessions(any_log))
    everything = {"finished", "parent", "family", "waiting", "child", "new-fork", "new"}
    code, planned = run(capsys, "store", "gc", "--older-than", "90d")
    assert (code, planned["dry_run"], sessions(planned["removed"])) == (
        0,
        True,
        {"finished", "family", "child"},
    )
    assert {row["session"]: row["reason"] for row in planned["kept"]} == {
        "waiting": "it waits for an answer",
        "parent": "it shares records with new-fork",
    }
    assert list_names(any_log) == everything, "a dry run removed something"
    code, done = run(capsys, "store", "gc", "--older-than", "90d", "--yes")
    assert (code, done["removed"], done["kept"]) == (0, planned["removed"], planned["kept"])
    assert done["blobs"] == 1, "equal long answers are one blob, which `parent` still uses"
    assert list_names(any_log) == everything - {"finished", "family", "child"}
    assert run(capsys, "store", "verify")[0] == 0
    rows = change_rows(any_log, "SELECT uid, seq, reason FROM removals ORDER BY uid").splitlines()
    assert rows == [f"{name}|5|bridle store gc --older-than 90d" for name in ("child", "family", "finished")]


def test_gc_makes_the_file_smaller(log, capsys):
    asyncio.run(write_sessions(log))
    size = log.stat().st_size
    run(capsys, "store", "gc", "--older-than", "90d", "--yes")
    assert log.stat().st_size < size


def test_verify_checks_the_tables_as_a_whole(any_log, capsys):
    asyncio.run(write_sessions(any_log))
    assert run(capsys, "store", "verify")[1]["problems"] == []
    change_rows(any_log, "UPDATE sessions SET seq = seq - 1 WHERE uid = 'new'")
    change_rows(any_log, "UPDATE blobs SET hash = 'f00d' WHERE length(bytes) < 100")
    texts = [
        problem["text"]
        for problem in run(capsys, "store", "verify")[1]["problems"]
        if problem["kind"] == "file"
    ]
    assert any(text.startswith("session 'new' has a record 5 outside of its log of 4") for text in texts)
    assert "blob f00d is not what was written" in texts


def test_a_removed_session_is_gone_and_its_name_is_free(any_log, capsys):
    async def write_again():
        await write_sessions(any_log)
        store = open_store(any_log)
        assert await remove_session(store, "finished", now=1.0, reason="test") == ""
        assert await store.read("finished") == ()
        with pytest.raises(SessionNotFound):
            await Agent(scripted("Hi."), store=store).resume("finished")
        await Agent(scripted("Again."), store=store).run("Go.", "finished")
        await store.close()

    asyncio.run(write_again())
    assert run(capsys, "store", "verify")[0] == 0


def test_gc_removes_a_control_log_only_with_its_session(log, capsys):
    async def request():
        await write_sessions(log)
        store = open_store(log)
        for session in ("finished", "waiting"):
            event = ControlRequested(action="steer", run="m1", text="hello", by="ann")
            await store.append(control_log_name(session), 0, (seal_record(1, OLD, event, GENESIS),))
        await store.close()

    asyncio.run(request())
    before = list_names(log)
    _, planned = run(capsys, "store", "gc", "--older-than", "90d")
    assert not {"control:finished", "control:waiting"} & sessions(planned["removed"])
    run(capsys, "store", "gc", "--older-than", "90d", "--yes")
    assert before - list_names(log) == {"finished", "family", "child", "control:finished"}
    assert run(capsys, "store", "verify")[0] == 0


def test_gc_removes_an_old_control_log_whose_session_is_gone(any_log, capsys):
    """Left by a crash between the two removals, or by a request for a session that never began."""
    request = seal_record(1, OLD, ControlRequested(action="cancel", run="r"), GENESIS)
    young = seal_record(1, time.time(), ControlRequested(action="cancel", run="r"), GENESIS)

    async def write():
        store = open_store(any_log)
        await Agent(scripted("Done."), store=store).run("Go.", "alive")
        for name in ("gone", "alive"):
            await store.append(control_log_name(name), 0, [request])
        await store.append(control_log_name("expected"), 0, [young])
        await store.close()

    asyncio.run(write())
    assert sessions(run(capsys, "store", "gc", "--older-than", "90d")[1]["removed"]) == {
        control_log_name("gone")
    }
    store = open_store(any_log)
    with hold(store, "gone"):
        (kept,) = run(capsys, "store", "gc", "--older-than", "90d", "--yes")[1]["kept"]
        assert kept["reason"] == "a run is using it"
    asyncio.run(store.close())
    code, done = run(capsys, "store", "gc", "--older-than", "90d", "--yes")
    assert (code, sessions(done["removed"])) == (0, {control_log_name("gone")})
    assert list_names(any_log) == {"alive", control_log_name("alive"), control_log_name("expected")}
    assert run(capsys, "store", "verify")[0] == 0


def test_a_copy_is_durable_with_its_name(log, tmp_path, capsys, monkeypatch):
    """The file is synced before it gets its name, and its folder afterwards."""
    asyncio.run(write_sessions(log))
    folder, target, synced = tmp_path / "copies", tmp_path / "copies" / "copy.db", []
    folder.mkdir()
    sync = os.fsync

    def watch(descriptor):
        sync(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").resolve(), target.exists()))

    monkeypatch.setattr(os, "fsync", watch)
    assert run(capsys, "store", "backup", str(target))[0] == 0
    (written, existed), entered = synced[:2]
    assert written.parent == folder and written.name.startswith(".copy.db.") and not existed
    assert entered == (folder, True)


def test_an_export_that_fails_leaves_no_file(log, tmp_path, capsys):
    asyncio.run(write_sessions(log))
    target = tmp_path / "session.jsonl"
    assert main(["session", "export", "no-such-session", "-o", str(target)]) != 0
    assert not target.exists()
    assert main(["session", "export", "finished", "-o", str(target)]) == 0
    assert target.stat().st_mode & 0o777 == 0o600
    data = target.read_bytes()
    assert main(["session", "export", "finished", "-o", str(target)]) == 2
    assert "exists; choose another file" in capsys.readouterr().err
    assert target.read_bytes() == data


def test_gc_keeps_a_session_that_a_run_uses_and_skips_blobs_meanwhile(any_log, capsys):
    asyncio.run(write_sessions(any_log))
    with hold(open_store(any_log), "finished"):
        _, done = run(capsys, "store", "gc", "--older-than", "90d", "--yes")
    reasons = {row["session"]: row["reason"] for row in done["kept"]}
    assert reasons["finished"] == "a run is using it"
    assert "in use" in done["blobs_skipped"] and done["blobs"] == 0
    assert run(capsys, "store", "gc", "--yes")[1]["blobs"] == 1


def test_gc_keeps_the_inner_session_of_an_unfinished_run(log):
    async def main():
        store, old = open_store(log), FakeClock(OLD)
        inner = Agent(scripted("found"), name="inner", clock=old)
        outer = Agent(
            scripted(call_reply(("inner", {"prompt": "Find."})), call_reply(("pay", {}))),
            tools=[inner.as_tool(), pay],
            store=store,
            clock=old,
        )
        result = await outer.run("Go.", "outer")
        assert result.stop == "waiting"
        kept = {each.session: each.kept for each in await list_old_sessions(store, OLD + 1_000)}
        await store.close()
        return kept

    kept = asyncio.run(main())
    assert len(kept) == 2 and all(kept.values())
    assert [reason for name, reason in kept.items() if name != "outer"] == [
        "it belongs to outer, which is unfinished"
    ]


def test_the_retention_variable_is_the_default(log, capsys, monkeypatch):
    asyncio.run(write_sessions(log))
    assert run(capsys, "store", "gc")[1]["removed"] == []
    monkeypatch.setenv("BRIDLE_RETENTION", "90d")
    assert len(run(capsys, "store", "gc")[1]["removed"]) == 3
    monkeypatch.setenv("BRIDLE_RETENTION", "often")
    assert main(["store", "gc"]) == 2
    assert "BRIDLE_RETENTION" in capsys.readouterr().err


def test_gc_is_anchored(log, capsys, monkeypatch):
    monkeypatch.setenv("BRIDLE_ANCHORS", "anchors")
    asyncio.run(write_sessions(log))
    run(capsys, "store", "gc", "--older-than", "90d", "--yes")
    code, report = run(capsys, "store", "verify")
    assert (code, report["intact"]) == (0, True)
    with closing(sqlite3.connect(log)) as db:
        for table in ("events", "origins", "sessions"):
            db.execute(f"DELETE FROM {table} WHERE sid = (SELECT sid FROM sessions WHERE uid = 'new')")
        db.commit()
    code, report = run(capsys, "store", "verify")
    assert (code, [problem["kind"] for problem in report["problems"]].count("anchor")) == (1, 1)


def test_verify_names_the_session_and_the_record(log, capsys):
    asyncio.run(write_sessions(log))
    assert main(["store", "verify"]) == 0
    assert capsys.readouterr().out.startswith("intact: 7 sessions")
    with closing(sqlite3.connect(log)) as db:
        db.execute("UPDATE events SET data = replace(data, 'Done', 'Gone') WHERE data LIKE '%Done%'")
        db.commit()
    code, report = run(capsys, "store", "verify", "new")
    assert (code, report["intact"]) == (1, False)
    [problem] = report["problems"]
    assert (problem["kind"], problem["session"], problem["seq"]) == ("record", "new", 4)
    assert main(["store", "verify"]) == 1
    shown = capsys.readouterr().out
    assert "✗ new: " in shown and "2 problems: 7 sessions" in shown
    assert main(["store", "verify", "absent"]) == 2


def test_a_backup_while_a_run_writes_is_a_whole_log(log, capsys):
    program = """if True:
        import asyncio, sys
        from bridle.stores import open_store
        from bridle.testing.conformance.sample_records import make_prompt
        from bridle.values.record import GENESIS, seal_record

        async def main():
            store, seq, prev = open_store("log.db"), 0, GENESIS
            while True:
                record = seal_record(seq + 1, 1.0, make_prompt("x" * 3000), prev)
                await store.append("s", seq, [record])
                seq, prev = record.seq, record.hash
                print(seq, flush=True)
        asyncio.run(main())
    """
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        for number in range(3):
            for _ in range(5):
                before = int(child.stdout.readline())
            code, report = run(capsys, "store", "backup", f"copy{number}.db")
            assert (code, report["sessions"]) == (0, 1)
            assert report["records"] >= before
            assert main(["store", "verify", "--store", f"copy{number}.db"]) == 0
            capsys.readouterr()
    finally:
        child.kill()
        child.communicate()
    assert main(["store", "backup", "copy0.db"]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["store", "backup", "no/folder/copy.db"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert not [*Path().glob("**/*.partial")]
    assert (Path("copy0.db").stat().st_mode & 0o777) == 0o600


def test_a_backup_of_a_database_is_left_to_its_tools(postgres, capsys):
    """The line that is printed is one that works."""
    url = postgres.new_url()
    asyncio.run(write_sessions(url))
    assert main(["store", "backup", "a copy", "--store", url]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "secret" not in told
    words = shlex.split(told.partition("tools copy: ")[2])
    assert words[0] == "pg_dump"
    environment = {**os.environ, "PGPASSWORD": "secret"}
    subprocess.run([postgres.binaries / "pg_dump", *words[1:]], env=environment, check=True)
    schema = url.rpartition("=")[2]
    copied = subprocess.run(
        [postgres.binaries / "pg_restore", "--data-only", f"--schema={schema}", "--file=-", "a copy"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "new-fork" in copied.stdout


@pytest.mark.parametrize("damage", ["digest = 'f00d'", "data = zeroblob(9)", "seq = seq"])
def test_a_snapshot_is_not_backed_up_and_a_damaged_one_stops_nothing(log, capsys, monkeypatch, damage):
    monkeypatch.setattr(session_log, "SNAPSHOT_RECORDS", 3)

    async def write():
        store = open_store(log)
        for _ in range(3):
            await Agent("sim:", store=store).run("!say hello", session="s")
        await store.close()

    asyncio.run(write())
    rows = change_rows(str(log), "SELECT digest FROM snapshots")
    assert rows
    change_rows(str(log), f"UPDATE snapshots SET {damage}")
    code, report = run(capsys, "store", "verify", "s")
    assert (code, report["intact"]) == (0, True)
    assert len(report["sessions"][0].get("notes", ())) == (damage != "seq = seq")
    code, report = run(capsys, "store", "backup", "copy.db")
    assert (code, report["sessions"]) == (0, 1)
    assert change_rows("copy.db", "SELECT count(*) FROM snapshots") == "0"
    assert rows.encode() not in Path("copy.db").read_bytes(), "the content of a removed row is in the file"
    assert sorted(path.name for path in Path().glob("copy*")) == ["copy.db"]


def test_a_log_that_is_damaged_is_not_backed_up_as_a_good_one(log, capsys):
    async def write():
        store = open_store(log)
        await store.append("s", 0, make_records(make_prompt("one"), RunEnded(stop="done")))
        await store.close()

    asyncio.run(write())
    with closing(sqlite3.connect(log)) as db:
        db.execute("UPDATE events SET data = replace(data, 'one', 'two')")
        db.commit()
    assert main(["store", "backup", "copy.db"]) == 2
    assert "has 1 problem, the first: " in capsys.readouterr().err
