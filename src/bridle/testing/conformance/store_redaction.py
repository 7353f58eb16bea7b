"""Conformance check of stores that can remove content (`RedactableStore`) and know who drives a session."""

import asyncio
from hashlib import sha256

from msgspec.structs import replace

from bridle.ports.store import LeaseInspectable, RedactableStore, Store, supports
from bridle.values.calls import ContentRedacted
from bridle.values.errors import Conflict
from bridle.values.events import Event
from bridle.values.record import Record, seal_record

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
"""Stores may keep long records elsewhere."""


async def check_redaction(store: Store) -> None:
    """The content of a record is replaced in all sessions that share it, with evidence in each, or in none."""
    if not supports(store, RedactableStore):
        return
    for number, (before, after) in enumerate((("secret", "gone"), (LONG, "gone"), ("secret", LONG))):
        session, fork = f"s{number}", f"f{number}"
        line = make_records(make_prompt("one"), make_prompt(before), make_prompt("three"))
        await store.append(session, 0, line)
        await store.fork(session, 2, fork)
        left = seal_record(2, 0.0, make_prompt(after), "")
        event = ContentRedacted(
            record=2,
            record_hash=line[1].hash,
            body=sha256(left.data).hexdigest(),
            digest=sha256(line[1].data).hexdigest(),
        )
        evidence = {session: _seal_after(line, event), fork: _seal_after(line[:2], event)}
        await expect_refusal(
            store.redact(session, 2, left.data, {session: evidence[session]}),
            Conflict,
            "a redaction without evidence in a fork that shares the record",
        )
        stale = {**evidence, fork: _seal_after(line[:1], event)}
        await expect_refusal(
            store.redact(session, 2, left.data, stale), Conflict, "evidence that continues nothing"
        )
        await _expect_whole_refusal(store, session, left.data, event, line)
        await expect_session(store, session, line)
        await expect_session(store, fork, line[:2])
        hash_, used = await store.put_blob(b"blob %d" % number), await store.put_blob(b"used")
        await store.append(f"other{number}", 0, make_records(make_blob_receipt("c1", used)))
        await store.redact(fork, 2, left.data, evidence, (hash_, used))
        changed = replace(line[1], data=left.data, event=left.event, is_redacted=True)
        await expect_session(store, session, [line[0], changed, line[2], evidence[session]])
        await expect_session(store, fork, [line[0], changed, evidence[fork]])
        for name in (session, fork):
            expect_same(
                await store.read(name, 1, 1), [changed], f"reading the redacted record of {name} alone"
            )
        expect_true(await store.get_blob(hash_) is None, "a blob is still there after its redaction")
        expect_true(
            await store.get_blob(used) == b"used", "a redaction removed a blob that a record refers to"
        )


async def _expect_whole_refusal(
    store: Store, session: str, data: bytes, event: ContentRedacted, line: list[Record]
) -> None:
    """Refused evidence of the second session leaves the first one as it was; other appends of the moment succeed."""
    assert supports(store, RedactableStore)
    parent, fork = f"parent of {session}", f"fork of {session}"
    await store.append(parent, 0, line)
    await store.fork(parent, 2, fork)
    has_key = _seal_after(line[:2], event)
    await store.append(fork, 2, (has_key,))
    evidence = {parent: _seal_after(line, event), fork: _seal_after([*line[:2], has_key], event)}
    beside = make_records(make_prompt("beside"))
    refused, *others = await asyncio.gather(
        store.redact(parent, 2, data, evidence),
        *(store.append(f"beside {number} {session}", 0, beside) for number in range(5)),
        return_exceptions=True,
    )
    expect_true(isinstance(refused, Conflict), f"evidence that is there already gave {refused!r}")
    expect_true(others == [None] * 5, f"a refused redaction cost another append: {others!r}")
    await expect_session(store, parent, line)
    await expect_session(store, fork, [*line[:2], has_key])
    await expect_session(store, f"beside 4 {session}", beside)


async def check_leased(store: Store) -> None:
    """A store that can tell says when a session is driven."""
    if not supports(store, LeaseInspectable):
        return
    await store.append("a", 0, make_records(make_prompt("one")))
    expect_true(not await store.is_leased("a"), "a free session counts as driven")
    async with store.lease("a"):
        expect_true(await store.is_leased("a"), "a driven session counts as free")
        expect_true(not await store.is_leased("b"), "another session counts as driven")
    expect_true(not await store.is_leased("a"), "a session counts as driven after its lease")


def _seal_after(line: list[Record], event: Event) -> Record:
    return seal_record(len(line) + 1, 9.0, event, line[-1].hash)


REDACTION_CHECKS = (check_redaction, check_leased)
