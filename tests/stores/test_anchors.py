"""A log that another program changed, cut or rewrote is found out by `verify` and its anchors."""

import asyncio
import os
import random
import shutil
import sqlite3
from contextlib import closing

import msgspec
import pytest

from bridle import Agent
from bridle.run.archive.redact import redact_record
from bridle.run.recovery.verification import (
    group_anchors,
    list_unreadable_anchors,
    verify_session,
    verify_store,
)
from bridle.stores import find_store_file, open_store
from bridle.stores.anchors import Anchor, AnchorFile, find_anchor_file, read_anchors
from bridle.stores.sqlite.origins import _hash_origin
from bridle.stores.sqlite.store import SqliteStore
from bridle.testing import scripted
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.testing.conformance.store_blobs import make_blob_receipt
from bridle.values.calls import ContentRedacted, redaction_key
from bridle.values.errors import Unusable
from bridle.values.events import RunEnded
from bridle.values.record import GENESIS, seal_record, unseal_record
from tests.suite.campaign import scale
from tests.suite.command import bridle

ROUNDS = scale(20)
SESSIONS = 6


def verify(path, anchors):
    async def main():
        store = SqliteStore(path)
        try:
            known = group_anchors(read_anchors(anchors)) if anchors else {}
            sessions, problems = await verify_store(store, known)
        finally:
            await store.close()
        return [*problems, *(each for session in sessions for each in session.problems)]

    return asyncio.run(main())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A log with several finished runs, some of them with long events and stored results, and its anchors."""
    folder = tmp_path_factory.mktemp("written")

    async def fill():
        store = SqliteStore(folder / "log.db", anchors=folder / "anchors")
        for number in range(SESSIONS):
            words = [
                make_prompt(f"{number}.{n} " + "x" * (70_000 if n == 3 else 20)) for n in range(4 + number)
            ]
            hash_ = await store.put_blob(f"result {number}".encode())
            line = make_records(*words, make_blob_receipt("c1", hash_), RunEnded(stop="done"))
            for record in line:
                await store.append(f"s{number}", record.seq - 1, [record])
        await store.close()

    asyncio.run(fill())
    assert verify(folder / "log.db", folder / "anchors") == []
    return folder


def read_rows(db, sid):
    query = """SELECT seq, at, CAST(coalesce(data, bytes) AS BLOB) FROM events
        LEFT JOIN blobs ON blobs.hash = events.blob WHERE sid = ? ORDER BY seq"""
    return db.execute(query, (sid,)).fetchall()


def reseal(db, sid, rows):
    """Write a log with a valid chain of its own in the place of another: everything in the file agrees with it."""
    db.execute("DELETE FROM events WHERE sid = ?", (sid,))
    prev, first = GENESIS, ""
    for seq, (at, data) in enumerate(rows, 1):
        event = unseal_record(seq, at, data, prev, _hash(seq, at, data, prev)).event
        record = seal_record(seq, at, event, prev)
        db.execute(
            "INSERT INTO events (sid, seq, at, once, hash, data) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))",
            (sid, seq, at, event.unique_key, bytes.fromhex(record.hash), record.data),
        )
        prev, first = record.hash, first or record.hash
    uid = db.execute("SELECT uid FROM sessions WHERE sid = ?", (sid,)).fetchone()[0]
    times = rows[0][0], rows[-1][0]
    db.execute(
        "UPDATE sessions SET seq = ?, head = ?, created = ?, updated = ? WHERE sid = ?",
        (len(rows), prev, *times, sid),
    )
    db.execute("UPDATE origins SET seal = ? WHERE sid = ?", (_hash_origin(uid, sid, None, 0, first), sid))


def _hash(seq, at, data, prev):
    from bridle.values.record import _hash_record

    return _hash_record(seq, at, data, prev)


def edit(db, sid, chance):
    seq, _, data = chance.choice(read_rows(db, sid))
    at = chance.randrange(len(data))
    changed = data[:at] + bytes([data[at] ^ (1 << chance.randrange(7))]) + data[at + 1 :]
    db.execute(
        "UPDATE events SET data = CAST(? AS TEXT), blob = NULL WHERE sid = ? AND seq = ?", (changed, sid, seq)
    )


def delete(db, sid, chance):
    seq = chance.choice(read_rows(db, sid))[0]
    db.execute("DELETE FROM events WHERE sid = ? AND seq = ?", (sid, seq))


def swap(db, sid, chance):
    one, two = chance.sample([row[0] for row in read_rows(db, sid)], 2)
    for old, new in ((one, -1), (two, one), (-1, two)):
        db.execute("UPDATE events SET seq = ? WHERE sid = ? AND seq = ?", (new, sid, old))


def insert(db, sid, chance):
    rows = read_rows(db, sid)
    at = chance.randrange(len(rows)) + 1
    for seq in range(len(rows), at - 1, -1):
        db.execute("UPDATE events SET seq = ? WHERE sid = ? AND seq = ?", (seq + 1, sid, seq))
    copied = chance.choice(rows)
    hash_ = chance.randbytes(32)
    db.execute(
        "INSERT INTO events (sid, seq, at, hash, data) VALUES (?, ?, ?, ?, CAST(? AS TEXT))",
        (sid, at, copied[1], hash_, copied[2]),
    )
    db.execute("UPDATE sessions SET seq = seq + 1 WHERE sid = ?", (sid,))


def truncate(db, sid, chance):
    """Cut off the end, and correct the row of the session."""
    rows = read_rows(db, sid)
    reseal(db, sid, [(at, data) for _, at, data in rows[: chance.randrange(1, len(rows))]])


def rewrite(db, sid, chance):
    """Change one event and calculate all hashes again."""
    rows = [(at, data) for _, at, data in read_rows(db, sid)]
    place = chance.randrange(len(rows) - 2)
    event = make_prompt(f"never said {chance.random()}")
    rows[place] = rows[place][0], msgspec.json.encode(event)
    reseal(db, sid, rows)


NEEDS_ANCHOR = (truncate, rewrite)


@pytest.mark.slow
@pytest.mark.parametrize("attack", [edit, delete, swap, insert, truncate, rewrite])
def test_tampering_is_always_found(attack, written, tmp_path):
    chance = random.Random(f"{attack.__name__} {ROUNDS}")
    found = alone = 0
    for number in range(ROUNDS):
        path = tmp_path / f"{number}.db"
        shutil.copy(written / "log.db", path)
        with closing(sqlite3.connect(path)) as db:
            attack(db, 1 + chance.randrange(SESSIONS), chance)
            db.commit()
        alone += bool(verify(path, None))
        found += bool(verify(path, written / "anchors"))
        path.unlink()
    assert found == ROUNDS, f"{attack.__name__}: {ROUNDS - found} of {ROUNDS} were not found"
    # The anchors are what finds these two: without them the test would prove nothing.
    assert alone == (0 if attack in NEEDS_ANCHOR else ROUNDS)


def test_the_problem_says_where_it_is(written, tmp_path):
    shutil.copy(written / "log.db", tmp_path / "log.db")
    with closing(sqlite3.connect(tmp_path / "log.db")) as db:
        truncate(db, 1, random.Random(1))
        db.execute("UPDATE blobs SET bytes = X'00' WHERE bytes = CAST('result 1' AS BLOB)")
        db.execute("DELETE FROM events WHERE sid = 3 AND seq = 2")
        for table in ("events", "origins", "sessions"):
            db.execute(f"DELETE FROM {table} WHERE sid = 6")
        db.commit()
    found = verify(tmp_path / "log.db", written / "anchors")
    texts = {problem.session: problem.text for problem in found if problem.kind == "anchor"}
    assert "its end was cut off" in texts["s0"]
    assert "not in this log any more" in texts["s5"]
    places = {(problem.kind, problem.session, problem.seq) for problem in found}
    assert places >= {("blob", "s1", 6), ("record", "s2", 2)}


def test_an_old_copy_put_back_is_found(written, tmp_path):
    """A log from before the last run is a valid log: only the anchors know that there was more."""

    async def fill(texts):
        store = SqliteStore(tmp_path / "log.db", anchors=tmp_path / "anchors")
        line = await store.read("s")
        for text in texts:
            line = [*line, *make_records(make_prompt(text), RunEnded(stop="done"), prefix=line)]
        known = len(await store.read("s"))
        await store.append("s", known, line[known:])
        await store.close()

    asyncio.run(fill(["one"]))
    shutil.copy(tmp_path / "log.db", tmp_path / "old.db")
    asyncio.run(fill(["two"]))
    assert verify(tmp_path / "log.db", tmp_path / "anchors") == []
    [problem] = verify(tmp_path / "old.db", tmp_path / "anchors")
    assert (problem.session, problem.seq) == ("s", 3)


def test_anchors_are_written_at_ends_and_answers_only(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "log.db", anchors=tmp_path)
        line = make_records(make_prompt("a"), make_prompt("b"), RunEnded(stop="done"), make_prompt("c"))
        for record in line:
            await store.append("s", record.seq - 1, [record])
        path = store.anchor_file
        await store.close()
        return path, line

    path, line = asyncio.run(main())
    assert path == tmp_path / "log.db.anchors"
    assert [*read_anchors(path)] == [Anchor(session="s", seq=3, head=line[2].hash, at=line[2].at)]


def test_a_torn_line_is_no_anchor_and_the_others_still_count(tmp_path):
    path = tmp_path / "anchors"
    AnchorFile(path).write(Anchor(session="s", seq=1, head="h"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert len([*read_anchors(path)]) == 1
    file = AnchorFile(path)  # ends the torn line
    file.write(Anchor(session="s", seq=2, head="h2"))
    AnchorFile(path)
    assert path.read_bytes().count(b"\n") == 3
    lines = [*read_anchors(path)]
    assert [anchor.seq for anchor in group_anchors(lines)["s"]] == [1, 2]
    (problem,) = list_unreadable_anchors(lines)
    assert (problem.kind, problem.text.startswith("line 2 of the anchors cannot be read")) == ("anchor", True)


def test_a_line_that_the_disk_took_only_a_part_of_is_written_again(tmp_path, monkeypatch):
    path = tmp_path / "anchors"
    file, write = AnchorFile(path), os.write
    shortened = []

    def write_short(descriptor, data):
        if not shortened:
            shortened.append(data)
            data = data[:10]
        return write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_short)
        file.write(Anchor(session="s", seq=1, head="h"))
    assert shortened
    assert [anchor.head for anchor in group_anchors(read_anchors(path))["s"]] == ["h"]


def test_verify_goes_on_after_an_unreadable_line(written, tmp_path):
    anchors = tmp_path / "anchors"
    anchors.write_bytes(b'{"session":"s\n' + (written / "anchors").read_bytes())
    shown = bridle("store", "verify", "--anchors", str(anchors), "--store", str(written / "log.db"))
    assert shown.code == 1, shown.err
    assert "✗ line 1 of the anchors cannot be read" in shown.out
    assert f"1 problem: {SESSIONS} sessions" in shown.out
    assert f"{SESSIONS} sessions anchored" in shown.out


def forge_redaction(line):
    """Other bytes for the first of two records, and the record that claims a redaction."""
    data = line[0].data.replace(b"5000", b"5")
    event = ContentRedacted(
        record=1,
        record_hash=line[0].hash,
        body=redaction_key(1, data).rpartition(":")[2],
        digest="0" * 64,
        reason="typo",
        by="ann",
    )
    return data, {"s": seal_record(3, line[1].at, event, line[1].hash)}


@pytest.mark.parametrize("forged", [False, True])
def test_a_redaction_is_anchored_and_a_forged_one_is_found_out(tmp_path, forged):
    async def main():
        own = {} if forged else {"anchors": tmp_path}
        store = SqliteStore(tmp_path / "log.db", anchors=tmp_path)
        line = make_records(make_prompt("pay 5000"), RunEnded(stop="done"))
        await store.append("s", 0, line)
        await store.close()
        store = SqliteStore(tmp_path / "log.db", **own)
        if forged:
            await store.redact("s", 1, *forge_redaction(line))
        else:
            await redact_record(store, "s", 1, reason="typo", by="ann")
        await store.fork("s", 3, "fork")
        await store.close()
        # A later anchor of the session, or one of a fork that shares the redaction, changes nothing.
        store = SqliteStore(tmp_path / "log.db", anchors=tmp_path)
        for name in ("s", "fork"):
            last = (await store.read(name))[-1]
            await store.append(name, 3, [seal_record(4, last.at, RunEnded(stop="done"), last.hash)])
        await store.close()

    asyncio.run(main())
    found = verify(tmp_path / "log.db", tmp_path / "log.db.anchors")
    text = "record 1 was replaced by a redaction (record 3) that is not anchored"
    assert [problem.text for problem in found] == ([text, text] if forged else [])


@pytest.mark.parametrize("forged", [False, True])
def test_a_fork_that_repeats_a_forged_redaction_is_found_out(tmp_path, forged):
    """The run in the fork records the redaction of its parent and anchors it; the one of the parent is not anchored."""
    log = tmp_path / "log.db"

    async def main():
        store = SqliteStore(log, anchors=tmp_path)
        line = make_records(make_prompt("pay 5000"), RunEnded(stop="done"))
        await store.append("s", 0, line)
        await store.close()
        store = SqliteStore(log, **({} if forged else {"anchors": tmp_path}))
        await redact_record(store, "s", 1, reason="typo", by="ann")
        await store.fork("s", 2, "fork")
        await store.fork("fork", 2, "fork of the fork")
        await store.close()
        store = SqliteStore(log, anchors=tmp_path)
        for name in ("fork", "fork of the fork"):
            await Agent(scripted("Fine."), store=store).run("Go on.", name)
            events = [record.event for record in (await store.read(name))[2:]]
            assert [type(event) for event in events].count(ContentRedacted) == 1
        await store.close()

    asyncio.run(main())
    told = ["--anchors", str(tmp_path / "log.db.anchors"), "--store", str(log)]
    for name in ("fork", "fork of the fork"):
        shown = bridle("store", "verify", name, *told)
        assert shown.code == int(forged), shown.out
        assert ("record 1 was replaced by a redaction" in shown.out) is forged


def test_a_forger_who_writes_the_anchors_too_is_found_with_a_head_kept_elsewhere(tmp_path):
    """The forgery is written as Bridle writes a redaction, so nothing in the log or in its anchors shows it."""
    log, told = str(tmp_path / "log.db"), tmp_path / "log.db.anchors"
    line = make_records(make_prompt("pay 5000"), RunEnded(stop="done"))

    async def write(act):
        store = SqliteStore(log, anchors=tmp_path)
        await act(store)
        await store.close()

    asyncio.run(write(lambda store: store.append("s", 0, line)))
    first = bridle("store", "verify", "s", "--anchors", str(told), "--store", log)
    head = f"2:{line[1].hash}"
    assert first.out.endswith(f"\nhead: {head}\n")
    data, evidence = forge_redaction(line)
    asyncio.run(write(lambda store: store.redact("s", 1, data, evidence)))
    assert bridle("store", "verify", "s", "--anchors", str(told), "--store", log).code == 0, (
        "it can be found after all"
    )
    for anchors in ([], ["--anchors", str(told)]):
        shown = bridle("store", "verify", "s", "--head", head, *anchors, "--store", log)
        assert shown.code == 1, shown.err
        assert (
            "record 1 was replaced by a redaction (record 3) after the given head, by ann: typo" in shown.out
        )
    later = f"3:{evidence['s'].hash}"
    assert bridle("store", "verify", "s", "--head", later, "--store", log).code == 0
    wrong = bridle("store", "verify", "s", "--head", f"2:{'0' * 64}", "--store", log)
    assert (wrong.code, "record 2 or one before it was rewritten" in wrong.out) == (1, True)
    for arguments, words in (
        (["s", "--head", "2"], "is not a head; write SEQ:HASH"),
        (["--head", head], "one session"),
    ):
        refused = bridle("store", "verify", *arguments, "--store", log)
        assert (refused.code, words in refused.err) == (2, True)


def test_anchors_that_cannot_be_written_are_refused_when_the_store_is_opened(tmp_path):
    with pytest.raises(Unusable, match="BRIDLE_ANCHORS"):
        SqliteStore(tmp_path / "log.db", anchors=tmp_path / "no" / "folder")


def test_the_url_and_the_variable_name_the_anchors(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/log.db?anchors={tmp_path}/elsewhere"
    assert open_store(url).anchor_file == tmp_path / "elsewhere"  # type: ignore[attr-defined]
    assert find_store_file(url) == tmp_path / "log.db"
    assert open_store(tmp_path / "log.db").anchor_file is None  # type: ignore[attr-defined]
    monkeypatch.setenv("BRIDLE_ANCHORS", str(tmp_path))
    assert open_store(tmp_path / "log.db").anchor_file == tmp_path / "log.db.anchors"  # type: ignore[attr-defined]
    assert find_anchor_file(tmp_path, " ") is None


def test_a_memory_store_is_verified_too():
    async def main():
        store = open_store(None)
        line = make_records(make_prompt("a"), RunEnded(stop="done"))
        await store.append("s", 0, line)
        good = await verify_session(store, "s", [Anchor(session="s", seq=2, head=line[1].hash)])
        bad = await verify_session(store, "s", [Anchor(session="s", seq=3, head="x")])
        return good, bad

    good, bad = asyncio.run(main())
    assert (good.anchored, good.problems) == (2, ())
    assert [problem.seq for problem in bad.problems] == [3]
