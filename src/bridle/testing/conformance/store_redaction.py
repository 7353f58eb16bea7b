"""Conformance check of stores that can remove content (`RedactableStore`) and know who drives a session."""

from hashlib import sha256

from msgspec.structs import replace

from bridle.ports.store import LeaseInspectable, RedactableStore, Store
from bridle.values.calls import ContentRedacted
from bridle.values.errors import Conflict
from bridle.values.events import Event
from bridle.values.record import Record, seal_record

from .sample_records import expect_refusal, expect_session, expect_true, make_prompt, make_records

LONG = "x" * 200_000
"""Stores may keep long records elsewhere."""


async def check_redaction(store: Store) -> None:
    """The content of a record is replaced in all sessions that share it, with evidence in each, or in none."""
    if not isinstance(store, RedactableStore):
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
        await expect_session(store, session, line)
        await expect_session(store, fork, line[:2])
        hash_ = await store.put_blob(f"blob {number}".encode())
        await store.redact(fork, 2, left.data, evidence, (hash_,))
        changed = replace(line[1], data=left.data, event=left.event, is_redacted=True)
        await expect_session(store, session, [line[0], changed, line[2], evidence[session]])
        await expect_session(store, fork, [line[0], changed, evidence[fork]])
        expect_true(await store.get_blob(hash_) is None, "a blob is still there after its redaction")


async def check_leased(store: Store) -> None:
    """A store that can tell says when a session is driven."""
    if not isinstance(store, LeaseInspectable):
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
