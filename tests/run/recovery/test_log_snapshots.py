"""Snapshots of long logs: used only if they fit, never needed, replaced when they do not fit, gone after a redaction."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
import zlib
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bridle import Agent, PermissionRule, Policy, tool
from bridle.core.recovery.log_repair import LogReader, fold_log
from bridle.run.calls.approval_proof import KEY_FILE_VARIABLE, read_key
from bridle.run.recovery import session_log, snapshots
from bridle.run.recovery.session_log import load_log
from bridle.run.recovery.snapshot_codec import decode_snapshot
from bridle.run.recovery.verification import verify_session
from bridle.sessions import fork_session, redact_record
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.errors import Corrupt
from bridle.values.events import ApprovalAnswered
from bridle.values.record import seal_record
from tests.suite.command import bridle
from tests.suite.postgres_server import change_rows, shared_server

SECRET = "4111-1111-1111-1111"
PROMPT = f'!call look {{"place": "{SECRET}"}}\n!then\n!say done'
SNAPSHOTS = "SELECT snapshots.seq FROM snapshots JOIN sessions USING (sid) WHERE uid = 's'"


@tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is fine"


@pytest.fixture(autouse=True)
def short_logs(monkeypatch):
    """Take a snapshot after few records."""
    monkeypatch.setattr(session_log, "SNAPSHOT_RECORDS", 6)


@asynccontextmanager
async def open_log(log):
    store = open_store(log)
    try:
        yield store
    finally:
        await store.close()


async def live(store, turns=3, session="s"):
    for _ in range(turns):
        await Agent("sim:", tools=[look], store=store).run(PROMPT, session=session)


async def check_load(store, session="s"):
    """Load a log and compare with a fold of all its records; returns how many records the snapshot covered."""
    records = await store.read(session)
    loaded = snapshots.LoadedRecords()
    await loaded.read(store, session)
    assert loaded.fold() == fold_log(records)
    log = await load_log(store, session)
    assert (log.state, log.repairs) == tuple(fold_log(records))
    assert (log.length, log.head, log.is_torn) == (len(records), records[-1].hash, False)
    return loaded.covered


def test_a_run_takes_a_snapshot_and_the_next_one_reads_it(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store, 1)
            assert change_rows(shared_log, SNAPSHOTS) == "", "a snapshot was taken before anything was folded"
            covered = []
            for _ in range(4):
                await live(store, 1)
                covered.append(await check_load(store))
                assert change_rows(shared_log, SNAPSHOTS) == str(covered[-1])
        assert covered[0] > 6
        assert covered[-1] > covered[0], "the snapshot was never replaced by a later one"
        async with open_log(shared_log) as store:
            assert await check_load(store) == covered[-1]
            assert (await verify_session(store, "s")).problems == ()

    asyncio.run(main())


def test_a_snapshot_contains_no_copy_of_the_messages(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store, 4)
            await Agent("sim:", store=store).run("!say bye", session="s")
            loaded = snapshots.LoadedRecords()
            await loaded.read(store, "s")
            loaded.fold()
            data = zlib.decompress(loaded.make_snapshot().data)
        # The calls and their results of all turns; the last turn's call is in the last reply at most.
        assert data.count(SECRET.encode()) <= 1
        assert len(decode_snapshot(data).messages) > 12

    asyncio.run(main())


def test_a_snapshot_of_other_code_is_not_used(shared_log, monkeypatch):
    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert await check_load(store) > 0
            monkeypatch.setattr(snapshots, "fold_version", lambda: "another")
            assert await check_load(store) == 0
            found = await verify_session(store, "s")
            assert (found.problems, found.notes) == (
                (),
                ("its snapshot is not used here: another version of Bridle made it, so it was not checked",),
            )
            await live(store, 1)
            assert await check_load(store) > 0
            assert (await verify_session(store, "s")).notes == ()

    asyncio.run(main())


def test_the_version_of_the_fold_is_that_of_its_code(monkeypatch, tmp_path):
    monkeypatch.setattr(snapshots, "__loaded_at__", time.time() + 60)
    before = snapshots.fold_version()
    assert before == snapshots.fold_version.__wrapped__()
    folder = tmp_path / "core"
    folder.mkdir()
    (folder / "loop.py").write_text("changed = True\n")
    monkeypatch.setattr(snapshots, "FOLD_CODE", (folder,))
    changed = snapshots.fold_version.__wrapped__()
    assert changed != before
    (folder / "loop.py").write_text("changed = 1\n")
    assert snapshots.fold_version.__wrapped__() not in (before, changed, "")
    monkeypatch.setattr(snapshots, "__version__", "0.2.0")
    assert snapshots.fold_version.__wrapped__() not in (before, changed, "")


COPY = """if True:
    import os, sys
    sys.path[0] = "copy"
    import bridle
    from bridle.run.recovery.snapshots import fold_version
    {change}
    print(bridle.__file__, [fold_version()])
"""


@pytest.mark.parametrize(
    ("installed", "change"),
    [
        ("sources", ""),
        ("bytecode", ""),
        ("sources", "open('copy/bridle/core/loop.py', 'a').write('NEW = 1')"),
        ("sources", "os.rename('copy', 'old'); os.rename('next', 'copy')"),
    ],
)
def test_code_that_is_not_that_of_its_files_has_no_snapshots(tmp_path, monkeypatch, installed, change):
    """Only bytecode is installed; or the files were changed, or exchanged, under a running process."""
    monkeypatch.chdir(tmp_path)
    for folder in ("copy", "next"):
        shutil.copytree(Path(snapshots.package_file).parent, Path(folder, "bridle"))  # type: ignore[attr-defined]
    if installed == "bytecode":
        subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", "copy"], check=True)
        for path in Path("copy").rglob("*.py"):
            path.unlink()
    after = max(path.stat().st_ctime for path in Path().rglob("*.py*")) + snapshots.FILE_TIME_SECONDS
    while time.time() <= after:
        os.sched_yield()
    done = subprocess.run(
        [sys.executable, "-c", COPY.format(change=change)], capture_output=True, text=True, check=True
    )
    path, _, version = done.stdout.strip().partition(" ")  # type: ignore[assignment]
    assert "copy" in path
    assert (version == "['']") == bool(change or installed == "bytecode")


@pytest.mark.parametrize("change", ["data", "digest", "cut", "seq", "head", "bytes"])
def test_a_damaged_snapshot_is_not_used_and_replaced(shared_log, change):
    is_file = "://" not in shared_log
    statement = {
        "data": "UPDATE snapshots SET data = zeroblob(20)"
        if is_file
        else r"UPDATE snapshots SET data = '\x00'",
        "digest": "UPDATE snapshots SET digest = 'f00d'",
        "bytes": "UPDATE snapshots SET digest = " + ("CAST(x'ff' AS TEXT)" if is_file else "chr(255)"),
        "cut": "UPDATE snapshots SET data = "
        + ("substr(data, 1, 99)" if is_file else "substring(data from 1 for 99)"),
        "seq": "UPDATE snapshots SET seq = seq - 1",
        "head": "UPDATE snapshots SET head = 'f00d'",
    }[change]

    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert await check_load(store) > 0
            change_rows(shared_log, statement)
            assert await check_load(store) == 0
            found = await verify_session(store, "s")
            is_unfit = change not in ("seq", "head")
            assert found.problems == ()
            assert found.notes == (f"its snapshot is not used here: {snapshots.UNSIGNED}",) * is_unfit
            await live(store, 1)
            assert await check_load(store) > 0
            assert (await verify_session(store, "s")).notes == ()
            reason = change_rows(shared_log, "SELECT replaced FROM snapshots")
            assert reason == (snapshots.UNSIGNED if is_unfit else "")

    asyncio.run(main())


def name_source(plain):
    data = msgspec.msgpack.decode(plain)
    data["parts"][0] = [9999]
    return msgspec.msgpack.encode(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"not compressed",
        lambda data: data[:99],
        lambda data: zlib.compress(b"{}"),
        lambda data: zlib.compress(b"[" * 100_000),
        lambda data: zlib.compress(name_source(zlib.decompress(data))),
        lambda data: zlib.compress(zlib.decompress(data) + b" " * 1_000_000),
    ],
)
def test_a_snapshot_that_cannot_be_decoded_stops_nothing(shared_log, monkeypatch, change):
    monkeypatch.setattr(snapshots, "PLAIN_BYTES_MAX", 1_000_000)

    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            loaded = snapshots.LoadedRecords()
            await loaded.read(store, "s")
            loaded.fold()
            made = loaded.make_snapshot()
            made = replace(made, data=change(made.data))  # type: ignore[type-var]
            await store.write_snapshot("s", sign(store, made))
            assert change_rows(shared_log, SNAPSHOTS) == str(made.seq)
            assert await check_load(store) == 0
            found = await verify_session(store, "s")
            assert (found.problems, len(found.notes)) == ((), 1)
            await live(store, 1)
            assert await check_load(store) > 0

    asyncio.run(main())


def sign(store, snapshot):
    return replace(snapshot, digest=snapshots._sign(read_key(store), "s", snapshot))  # type: ignore[arg-type]


def test_a_snapshot_that_is_too_long_is_not_kept(shared_log, monkeypatch):
    monkeypatch.setattr(snapshots, "PLAIN_BYTES_MAX", 100)

    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert change_rows(shared_log, SNAPSHOTS) == ""

    asyncio.run(main())


def test_a_genuine_snapshot_is_not_used_for_a_later_record(shared_log):
    """The records between would be skipped, such as the result of a call."""

    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            last = (await store.read("s"))[-1]
            assert await check_load(store) < last.seq
            change_rows(shared_log, f"UPDATE snapshots SET seq = {last.seq}, head = '{last.hash}'")
            assert await check_load(store) == 0

    asyncio.run(main())


def test_a_snapshot_of_another_key_is_not_used(shared_log, monkeypatch, tmp_path):
    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert await check_load(store) > 0
            monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "other.key"))
            assert await check_load(store) == 0, "there is no key"
            assert not (tmp_path / "other.key").exists(), "reading a log made a key"
            await live(store, 1)
            assert (tmp_path / "other.key").exists()
            assert await check_load(store) > 0
            monkeypatch.undo()
            assert await check_load(store) == 0
            assert (await verify_session(store, "s")).problems == ()

    asyncio.run(main())


def test_a_key_that_cannot_be_used_stops_no_session(shared_log, monkeypatch, tmp_path):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "short.key"))
    (tmp_path / "short.key").write_bytes(b"short")

    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert await check_load(store) == 0
            assert change_rows(shared_log, SNAPSHOTS) == ""

    asyncio.run(main())


def test_a_forged_snapshot_runs_no_call_again(shared_log, monkeypatch, tmp_path):
    """The state right after a genuine approval, for all records, by a forger who has our code and not our key."""
    paid = []

    @tool(effect="write")
    def pay(usd: int) -> str:
        """Pay."""
        paid.append(usd)
        return "paid"

    policy = Policy(rules=(PermissionRule(tools=("pay",), decision="ask"),))

    async def main():
        async with open_log(shared_log) as store:
            agent = Agent("sim:", tools=[pay], policy=policy, store=store)
            await agent.run('!call pay {"usd": 100}\n!then\n!say done', session="s")
            await agent.approve("s", (await agent.approvals("s"))[0].id, by="boss")
            await agent.resume("s")
            assert paid == [100]
            change_rows(shared_log, "DELETE FROM snapshots")
            records = await store.read("s")
            loaded, reader = snapshots.LoadedRecords(), LogReader()
            await loaded.read(store, "s")
            for record in records:
                reader.apply_record(record)
                if isinstance(record.event, ApprovalAnswered):
                    break
            reader.settle()
            batch = reader.state.calls.batch
            batch = replace(batch, pending=(replace(batch.pending[0], attempt=1),))
            reader.state = replace(reader.state, calls=replace(reader.state.calls, batch=batch))
            loaded.reader = reader
            with monkeypatch.context() as forger:
                forger.setenv(KEY_FILE_VARIABLE, str(tmp_path / "forger.key"))
                await store.write_snapshot("s", loaded.make_snapshot())
            assert change_rows(shared_log, SNAPSHOTS) == str(len(records))
            assert await check_load(store) == 0
            assert (await agent.resume("s")).stop == "done"
            assert paid == [100]

    asyncio.run(main())


def test_a_changed_record_is_found_although_a_snapshot_covers_it(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            covered = await check_load(store)
            for column, value in (("data", "replace(data, 'done', 'gone')"), ("at", "at + 1")):
                for seq in range(2, covered):
                    where = f"WHERE seq = {seq}"
                    before = change_rows(shared_log, f"SELECT {column} FROM events {where}")
                    change_rows(shared_log, f"UPDATE events SET {column} = {value} {where}")
                    if change_rows(shared_log, f"SELECT {column} FROM events {where}") == before:
                        continue
                    with pytest.raises(Corrupt, match=f"record {seq} was changed"):
                        await load_log(store, "s")
                    escaped = before.replace("'", "''") if column == "data" else before
                    change_rows(shared_log, f"UPDATE events SET {column} = '{escaped}' {where}")
                    await check_load(store)

    asyncio.run(main())


def test_a_forged_snapshot_is_found_by_verify(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store, session="it's")
            await live(store, session="other")
            loaded = snapshots.LoadedRecords()
            await loaded.read(store, "it's")
            loaded.fold()
            # The forger has our code and our key: another state with the right digests.
            state = loaded.reader.state
            loaded.reader.state = replace(state, now=state.now + 1)
            await store.write_snapshot("it's", loaded.make_snapshot())
            found = await verify_session(store, "it's")
            assert [each.kind for each in found.problems] == ["snapshot"]
            assert "gives another state" in found.problems[0].text

    asyncio.run(main())
    done = bridle("store", "verify", "it's", "--store", shared_log)
    assert done.code == 1
    # The statement works as it is, and for this session alone.
    statement = done.out.splitlines()[0].partition("SQL statement: ")[2]
    if "://" in shared_log:
        shared_server().sql(statement)
    else:
        change_rows(shared_log, statement)
    assert change_rows(shared_log, "SELECT uid FROM snapshots JOIN sessions USING (sid)") == "other"
    assert bridle("store", "verify", "it's", "--store", shared_log).code == 0


def test_a_fork_has_snapshots_of_its_own(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            fork = await fork_session(store, "s", at=len(await store.read("s")))
            assert await check_load(store, fork.session) == 0
            await live(store, 2, fork.session)
            assert await check_load(store, fork.session) > 0
            await live(store, 2)
            assert await check_load(store) > 0

    asyncio.run(main())


def test_a_redaction_removes_content_from_snapshots(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert await check_load(store) > 0
            for record in await store.read("s"):
                if SECRET.encode() in record.data:
                    await redact_record(store, "s", record.seq, by="test", reason="test")
            assert change_rows(shared_log, "SELECT count(*) FROM snapshots") == "0"
            assert await check_load(store) == 0
            await Agent("sim:", tools=[look], store=store).run("!say on", session="s")
            assert await check_load(store) > 0
            loaded = snapshots.LoadedRecords()
            await loaded.read(store, "s")
            assert SECRET not in str(loaded.fold().state)

    asyncio.run(main())


def test_a_torn_log_is_read_without_its_snapshot(shared_log):
    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            covered = await check_load(store)
            length = len(await store.read("s"))
            change_rows(shared_log, f"DELETE FROM events WHERE seq = {length}")
            log = await load_log(store, "s", keeps_snapshot=True)
            assert log.is_torn
            assert log.length == length - 1
            change_rows(shared_log, f"DELETE FROM events WHERE seq >= {covered}")
            assert (await load_log(store, "s", keeps_snapshot=True)).length == covered - 1
            await live(store, 1)
            assert await check_load(store) != covered

    asyncio.run(main())


def test_a_store_without_snapshots_folds_the_log():
    async def main():
        store = MemoryStore()
        await live(store)
        assert await check_load(store) == 0

    asyncio.run(main())


def test_a_state_that_does_not_come_back_is_not_kept(shared_log, monkeypatch, caplog):
    monkeypatch.setattr(snapshots, "restore_reader", lambda snapshot, contents: snapshots.LogReader())  # type: ignore[attr-defined]

    async def main():
        async with open_log(shared_log) as store:
            await live(store)
            assert change_rows(shared_log, SNAPSHOTS) == ""

    asyncio.run(main())
    assert "is not kept" in caplog.text


def test_a_snapshot_that_comes_late_is_not_kept(shared_log):
    """Another process appended since: content may have been redacted."""

    async def main():
        async with open_log(shared_log) as store:
            await live(store, 2)
            change_rows(shared_log, "DELETE FROM snapshots")
            loaded = snapshots.LoadedRecords()
            await loaded.read(store, "s")
            loaded.fold()
            late = loaded.make_snapshot()
            last = loaded.records[-1]
            await store.append("s", last.seq, [seal_record(last.seq + 1, last.at, last.event, last.hash)])
            await store.write_snapshot("s", late)
            assert change_rows(shared_log, SNAPSHOTS) == ""

    asyncio.run(main())
