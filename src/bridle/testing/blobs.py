"""The promises of a store about blobs; `check_store` asks for them with all the others."""

import asyncio
from contextlib import suppress
from hashlib import sha256

from ..ports.store import Store
from ..values.errors import MisuseError
from ..values.event import ToolFinished
from ..values.parts import ToolResult
from ..values.whole import Whole
from .lines import expect, expect_line, expect_refusal, line_of, said

MEGABYTE = 1 << 20
MANY = 20


def excerpt_of(call: str, hash_: str) -> ToolFinished:
    """A receipt that refers to a blob."""
    return ToolFinished(result=ToolResult(call_id=call), whole=Whole(hash=hash_, characters=1))


async def any_bytes_come_back_under_their_hash(store: Store) -> None:
    for data in (b"", b"\0", b"plain", "🪶 羽".encode(), bytes(range(256)) * 300, b"x" * 5 * MEGABYTE):
        hash_ = await store.put_blob(data)
        expect(hash_ == sha256(data).hexdigest(), "a blob is not known by its SHA-256, in hex")
        expect(await store.get_blob(hash_) == data, f"a blob of {len(data)} bytes came back as another")


async def an_unknown_blob_is_none(store: Store) -> None:
    for hash_ in (sha256(b"never put").hexdigest(), "", "x", "%"):
        expect(await store.get_blob(hash_) is None, f"there was something under {hash_!r}")
    hash_ = await store.put_blob(b"put")
    for wrong in (hash_[:-1], hash_.upper(), f"{hash_[:-1]}_"):
        expect(await store.get_blob(wrong) is None, "a blob came for a hash that is not quite its own")


async def a_blob_may_be_put_again_by_anybody(store: Store) -> None:
    data = b"x" * MEGABYTE
    hashes = await asyncio.gather(*(store.put_blob(data) for _ in range(MANY)))
    expect(len(set(hashes)) == 1, "equal bytes were given different hashes")
    expect(await store.get_blob(hashes[0]) == data, "putting bytes again changed them")
    expect(not await store.sessions(), "a blob made a session")


async def a_record_never_refers_to_what_is_not_there(store: Store) -> None:
    hash_ = sha256(b"late").hexdigest()
    line = line_of(said("one"), excerpt_of("c1", hash_))
    await expect_refusal(store.append("a", 0, line), MisuseError, "a record of a blob that is not there")
    await expect_line(store, "a", [])
    await store.append("a", 0, line[:1])
    await expect_refusal(store.append("a", 1, line[1:]), MisuseError, "a record of a blob that is not there")
    await store.put_blob(b"late")
    await store.append("a", 1, line[1:])
    await expect_line(store, "a", line)


async def a_put_that_was_cancelled_leaves_all_or_nothing(store: Store) -> None:
    for number in range(MANY):
        data = b"%d" % number * MEGABYTE
        hash_ = sha256(data).hexdigest()
        putting = asyncio.ensure_future(store.put_blob(data))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        putting.cancel()
        with suppress(asyncio.CancelledError):
            await putting
        expect(await store.get_blob(hash_) in (None, data), "a cancelled put left half of its bytes")
        expect(await store.put_blob(data) == hash_, "bytes could not be put again after a cancelled put")
        expect(await store.get_blob(hash_) == data, "bytes put again after a cancelled put are not there")


async def forks_share_blobs(store: Store) -> None:
    hash_ = await store.put_blob(b"shared")
    line = line_of(said("one"), excerpt_of("c1", hash_))
    await store.append("a", 0, line)
    await store.fork("a", 2, "b")
    await expect_line(store, "b", line)
    own = line_of(excerpt_of("c2", hash_), prefix=line)
    await store.append("b", 2, own)
    expect(await store.get_blob(hash_) == b"shared", "a blob is gone after a fork")


BLOB_PROMISES = (
    any_bytes_come_back_under_their_hash, an_unknown_blob_is_none, a_blob_may_be_put_again_by_anybody,
    a_record_never_refers_to_what_is_not_there, a_put_that_was_cancelled_leaves_all_or_nothing,
    forks_share_blobs,
)  # fmt: skip
