"""Conformance check of stores that keep snapshots (`SnapshotStore`)."""

from collections.abc import Iterator
from hashlib import sha256

from bridle.ports.store import (
    PrunableStore,
    RawRecord,
    RedactableStore,
    SnapshotStore,
    Store,
    StoredSnapshot,
    supports,
)
from bridle.values.calls import ContentRedacted
from bridle.values.record import Record, seal_record

from .sample_records import expect_same, expect_true, make_prompt, make_records


async def check_snapshots(store: Store) -> None:
    """A snapshot is returned with the records it covers, and replaced by the next one."""
    if not supports(store, SnapshotStore):
        return
    line = make_records(*(make_prompt(f"words {n} \x00 ü") for n in range(5)))
    await store.append("a", 0, line[:3])
    await store.fork("a", 2, "b")
    await expect_snapshot(store, "a", line[:3], None, "a log without a snapshot")
    await expect_snapshot(store, "nobody", [], None, "a session that never was")
    first, second = make_snapshot(line[:3], b"first \x00"), make_snapshot(line[:4], b"second")
    await store.write_snapshot("a", first)
    await expect_snapshot(store, "a", line[:3], first, "a log that ends with its snapshot")
    await store.append("a", 3, line[3:])
    await expect_snapshot(store, "a", line, first, "a log that goes on after its snapshot")
    await store.write_snapshot("a", second)
    await expect_snapshot(store, "a", line, first, "after a snapshot that is not of the last record")
    _, records = await store.read_with_snapshot("a", lambda snapshot, raw: None)
    expect_same(records, line, "reading with a snapshot that does not fit")
    await store.write_snapshot("a", make_snapshot(line, b"third"))
    await expect_snapshot(store, "a", line, make_snapshot(line, b"third"), "after the next snapshot")
    shared = make_snapshot(line[:2], b"fork")
    await store.write_snapshot("b", shared)
    await expect_snapshot(store, "b", line[:2], shared, "a fork without records of its own")
    own = make_records(make_prompt("own"), prefix=line[:2])
    await store.append("b", 2, own)
    await expect_snapshot(store, "b", [*line[:2], *own], shared, "a fork")


async def check_removed_snapshots(store: Store) -> None:
    """A redaction removes the snapshots of all sessions that contain the record; removing a session removes its own."""
    if not supports(store, SnapshotStore) or not supports(store, RedactableStore):
        return
    line = make_records(make_prompt("one"), make_prompt("secret"), make_prompt("three"))
    await store.append("a", 0, line)
    for fork, at in (("with", 2), ("without", 1)):
        await store.fork("a", at, fork)
        await store.write_snapshot(fork, make_snapshot(line[:at], b"secret"))
    await store.write_snapshot("a", make_snapshot(line, b"secret"))
    left = seal_record(2, 0.0, make_prompt("gone"), "")
    event = ContentRedacted(
        record=2,
        record_hash=line[1].hash,
        body=sha256(left.data).hexdigest(),
        digest=sha256(line[1].data).hexdigest(),
    )
    lines = {"a": line, "with": line[:2]}
    evidence = {name: seal_record(len(each) + 1, 9.0, event, each[-1].hash) for name, each in lines.items()}
    await store.redact("a", 2, left.data, evidence)
    for name, each in lines.items():
        # A process that read the log before the redaction may write its snapshot now.
        await store.write_snapshot(name, make_snapshot(each, b"secret"))
        found, _ = await store.read_with_snapshot(name, take_both)
        expect_true(found is None, f"a snapshot of {name!r} is there after the redaction")
    await expect_snapshot(store, "without", line[:1], make_snapshot(line[:1], b"secret"), "another session")
    if supports(store, PrunableStore):
        await store.remove_session("without", line[0].hash, at=9.0, reason="test")
        await store.append("without", 0, line[:1])
        found, _ = await store.read_with_snapshot("without", take_both)
        expect_true(found is None, "the snapshot of a removed session is there")


def make_snapshot(line: list[Record], data: bytes) -> StoredSnapshot:
    return StoredSnapshot(
        seq=len(line),
        head=line[-1].hash,
        fold_version="1",
        data=data,
        digest=sha256(data).hexdigest(),
        replaced="a reason",
    )


def take_both(
    snapshot: StoredSnapshot, raw: Iterator[RawRecord]
) -> tuple[StoredSnapshot, list[RawRecord]] | None:
    return snapshot, list(raw)


async def expect_snapshot(
    store: SnapshotStore, session: str, line: list[Record], expected: StoredSnapshot | None, what: str
) -> None:
    found, tail = await store.read_with_snapshot(session, take_both)
    snapshot, raw = found or (None, [])
    expect_true(snapshot == expected, f"{what}: another snapshot was returned")
    covered = expected.seq if expected is not None else 0
    expect_true(
        raw == [(record.at, bytes.fromhex(record.hash), record.data) for record in line[:covered]],
        f"{what}: the records that the snapshot covers are not those that were written",
    )
    expect_same(tail, line[covered:], what)


SNAPSHOT_CHECKS = (check_snapshots, check_removed_snapshots)
