"""Conformance checks of stores that can be checked as a whole, pruned and copied (`PrunableStore`)."""

from pathlib import Path
from tempfile import TemporaryDirectory

from bridle.ports.store import PrunableStore, Store, supports
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.record import GENESIS

from .sample_records import (
    expect_refusal,
    expect_same,
    expect_session,
    expect_true,
    make_prompt,
    make_records,
)
from .store_blobs import make_blob_receipt

LONG = "x" * 200_000


async def check_removed_session(store: Store) -> None:
    """A session is removed as a whole, if it has not changed and no fork shares its records; its name is free then."""
    if not supports(store, PrunableStore):
        return
    line = make_records(make_prompt("one"), make_prompt(LONG))
    for name in ("a", "b"):
        await store.append(name, 0, line)
    await store.fork("a", 1, "fork")
    head = line[1].hash
    await expect_refusal(
        store.remove_session("b", line[0].hash, at=1.0, reason="r"),
        Conflict,
        "a session that was written to since",
    )
    await expect_refusal(
        store.remove_session("a", head, at=1.0, reason="r"), MisuseError, "records that a fork shares"
    )
    await expect_refusal(
        store.remove_session("c", GENESIS, at=1.0, reason="r"), SessionNotFound, "a session that never was"
    )
    for name in ("a", "b"):
        await expect_session(store, name, line)
    await store.remove_session("b", head, at=1.0, reason="r")
    expect_same(await store.read("b"), [], "reading a removed session")
    expect_true({info.id for info in await store.sessions()} == {"a", "fork"}, "a removed session is listed")
    await store.remove_session("fork", line[0].hash, at=2.0, reason="r")
    await store.remove_session("a", head, at=2.0, reason="r")
    expect_true(not await store.sessions(), "a removed session is listed")
    await store.append("b", 0, line[:1])
    await expect_session(store, "b", line[:1])
    await store.remove_session("b", line[0].hash, at=3.0, reason="again")


async def check_unused_blobs(store: Store) -> None:
    """Blobs that no record mentions are listed and removed, others stay; none while a session is driven."""
    if not supports(store, PrunableStore):
        return
    used, unused = await store.put_blob(b"used"), await store.put_blob(b"unused")
    line = make_records(make_prompt("one"), make_blob_receipt("c1", used), make_prompt(LONG))
    await store.append("a", 0, line)
    await store.fork("a", 3, "fork")
    found = await store.remove_unused_blobs(dry_run=True)
    expect_true([(blob.hash, blob.size) for blob in found] == [(unused, 6)], f"unused blobs are {found!r}")
    expect_true(await store.get_blob(unused) == b"unused", "a dry run removed a blob")
    async with store.lease("a"):
        await expect_refusal(
            store.remove_unused_blobs(dry_run=False), Conflict, "pruning while a session is driven"
        )
    expect_true(await store.get_blob(unused) == b"unused", "refused pruning removed a blob")
    found = await store.remove_unused_blobs(dry_run=False)
    expect_true([blob.hash for blob in found] == [unused], f"removed blobs are {found!r}")
    expect_true(await store.get_blob(unused) is None, "an unused blob is still there")
    expect_true(await store.get_blob(used) == b"used", "a blob that a record refers to was removed")
    await expect_session(store, "fork", line)
    expect_true(not await store.remove_unused_blobs(dry_run=False), "a blob was removed twice")


async def check_whole_store(store: Store) -> None:
    """A store that is as it was written has no problems, after pruning and shrinking as well."""
    if not supports(store, PrunableStore):
        return
    line = make_records(make_prompt("one"), make_prompt(LONG))
    for name in ("a", "b"):
        await store.append(name, 0, line)
    await store.fork("b", 1, "fork")
    await store.put_blob(b"unused")
    for _ in range(2):
        expect_true(
            not await store.check_file(), f"an intact store has problems: {await store.check_file()!r}"
        )
        await store.shrink_file()
        await expect_session(store, "b", line)
        await expect_session(store, "fork", line[:1])
        if await store.read("a"):
            await store.remove_session("a", line[1].hash, at=1.0, reason="r")
            await store.remove_unused_blobs(dry_run=False)


async def check_copy(store: Store) -> None:
    """A copy is made under a new name only; a store that is copied by other tools refuses with `MisuseError`."""
    if not supports(store, PrunableStore):
        return
    await store.append("a", 0, make_records(make_prompt("one")))
    with TemporaryDirectory() as folder:
        target = Path(folder) / "copy"
        try:
            await store.back_up(target)
        except MisuseError:
            expect_true(_list_sizes(target) == {}, "a refused copy left a file")
            return
        sizes = _list_sizes(target)
        expect_true(
            [*sizes] == ["copy"] and sizes["copy"] > 0, f"a copy is empty or left other files: {sizes}"
        )
        await expect_refusal(store.back_up(target), MisuseError, "a copy over an existing file")
        expect_true(_list_sizes(target) == sizes, "a refused copy changed the file")


def _list_sizes(target: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in target.parent.iterdir()}


PRUNING_CHECKS = (check_removed_session, check_unused_blobs, check_whole_store, check_copy)
