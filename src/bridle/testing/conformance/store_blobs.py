"""The checks of `check_store` for blobs and for logs that start again."""

import asyncio
from contextlib import suppress
from hashlib import sha256

from bridle.ports.store import RestartableStore, Store, supports
from bridle.values.calls import StoredResult
from bridle.values.errors import Conflict, MisuseError
from bridle.values.events import ToolFinished
from bridle.values.message import ToolResult

from .sample_records import expect_refusal, expect_session, expect_true, make_prompt, make_records

MEGABYTE_BYTES = 1 << 20
MANY_BLOBS = 20


def make_blob_receipt(call: str, hash_: str) -> ToolFinished:
    """Make a receipt that refers to a blob."""
    return ToolFinished(
        result=ToolResult(call_id=call), stored_result=StoredResult(hash=hash_, character_count=1)
    )


async def check_blob_content(store: Store) -> None:
    for data in (b"", b"\0", b"plain", "🪶 羽".encode(), bytes(range(256)) * 300, b"x" * 5 * MEGABYTE_BYTES):
        hash_ = await store.put_blob(data)
        expect_true(hash_ == sha256(data).hexdigest(), "a blob is not known by its SHA-256, in hex")
        expect_true(await store.get_blob(hash_) == data, f"a blob of {len(data)} bytes came back as another")


async def check_unknown_blob(store: Store) -> None:
    for hash_ in (sha256(b"never put").hexdigest(), "", "x", "%"):
        expect_true(await store.get_blob(hash_) is None, f"there was something under {hash_!r}")
    hash_ = await store.put_blob(b"put")
    for wrong in (hash_[:-1], hash_.upper(), f"{hash_[:-1]}_"):
        expect_true(await store.get_blob(wrong) is None, "a blob came for a hash that is not quite its own")


async def check_repeated_put(store: Store) -> None:
    data = b"x" * MEGABYTE_BYTES
    hashes = await asyncio.gather(*(store.put_blob(data) for _ in range(MANY_BLOBS)))
    expect_true(len(set(hashes)) == 1, "equal bytes were given different hashes")
    expect_true(await store.get_blob(hashes[0]) == data, "putting bytes again changed them")
    expect_true(not await store.sessions(), "a blob made a session")


async def check_dangling_reference(store: Store) -> None:
    hash_ = sha256(b"late").hexdigest()
    line = make_records(make_prompt("one"), make_blob_receipt("c1", hash_))
    await expect_refusal(store.append("a", 0, line), MisuseError, "a record of a blob that is not there")
    await expect_session(store, "a", [])
    await store.append("a", 0, line[:1])
    await expect_refusal(store.append("a", 1, line[1:]), MisuseError, "a record of a blob that is not there")
    await store.put_blob(b"late")
    await store.append("a", 1, line[1:])
    await expect_session(store, "a", line)


async def check_cancelled_put(store: Store) -> None:
    for number in range(MANY_BLOBS):
        data = b"%d" % number * MEGABYTE_BYTES
        hash_ = sha256(data).hexdigest()
        putting = asyncio.ensure_future(store.put_blob(data))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        putting.cancel()
        with suppress(asyncio.CancelledError):
            await putting
        expect_true(await store.get_blob(hash_) in (None, data), "a cancelled put left half of its bytes")
        expect_true(await store.put_blob(data) == hash_, "bytes could not be put again after a cancelled put")
        expect_true(
            await store.get_blob(hash_) == data, "bytes put again after a cancelled put are not there"
        )


async def check_forks_share_blobs(store: Store) -> None:
    hash_ = await store.put_blob(b"shared")
    line = make_records(make_prompt("one"), make_blob_receipt("c1", hash_))
    await store.append("a", 0, line)
    await store.fork("a", 2, "b")
    await expect_session(store, "b", line)
    own = make_records(make_blob_receipt("c2", hash_), prefix=line)
    await store.append("b", 2, own)
    expect_true(await store.get_blob(hash_) == b"shared", "a blob is gone after a fork")


async def check_restarted_log(store: Store) -> None:
    """Only for a store that can start a log again."""
    if supports(store, RestartableStore):
        old = make_records(make_prompt("one"), make_prompt("two"))
        new = make_records(make_prompt("three"), make_prompt("four"), at=50.0)
        await store.append("budget:a", 0, old)
        await expect_refusal(
            store.restart("budget:a", old[0].hash, new[0]),
            Conflict,
            "a restart after another writer's record",
        )
        await expect_session(store, "budget:a", old)
        await store.restart("budget:a", old[1].hash, new[0])
        await store.append("budget:a", 1, new[1:])
        await expect_session(store, "budget:a", new)
        await store.append("a", 0, old)
        await expect_refusal(store.restart("a", old[1].hash, new[0]), MisuseError, "a restart of a session")
        await expect_session(store, "a", old)
        await store.fork("budget:a", 1, "b")
        await expect_refusal(
            store.restart("budget:a", new[1].hash, old[0]), MisuseError, "a restart that changes a fork"
        )


BLOB_CHECKS = (
    check_blob_content, check_unknown_blob, check_repeated_put,
    check_dangling_reference, check_cancelled_put,
    check_forks_share_blobs,
)  # fmt: skip
