"""Conformance check for stores.

    async def make() -> Store: ...          # a new, empty store each time
    await check_store(make)                 # AssertionError names the broken promise

Every promise of `ports/store.py` has a function below, each with a store of its own. Nothing here depends on
how a store works or how fast it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bridle.ports.store import SessionInfo, Store
from bridle.values.errors import BridleError, Conflict, MisuseError, SessionNotFound
from bridle.values.record import GENESIS, Record, seal_record

from .sample_records import (
    expect_refusal,
    expect_same,
    expect_session,
    expect_true,
    make_prompt,
    make_records,
    make_tool_finish,
    make_tool_start,
)
from .store_blobs import BLOB_CHECKS, check_restarted_log
from .store_leases import LEASE_CHECKS
from .store_pruning import PRUNING_CHECKS
from .store_redaction import REDACTION_CHECKS
from .store_snapshots import SNAPSHOT_CHECKS

StoreCheck = Callable[[Store], Awaitable[None]]

BIG_BYTES = 1 << 20
MANY_WRITERS = 40


async def check_store(make: Callable[[], Awaitable[Store]]) -> None:
    """Raise `AssertionError` naming the first promise that the store breaks."""
    for check in STORE_CHECKS:
        store = await make()
        try:
            await check(store)
        except BridleError as error:
            raise AssertionError(
                f"{_check_title(check)}: it raised {type(error).__name__}: {error}"
            ) from error
        except AssertionError as error:
            raise AssertionError(f"{_check_title(check)}: {error}") from error.__cause__
        finally:
            await store.close()


# Reading back what was written.


async def check_order_and_content(store: Store) -> None:
    records = make_records(*(make_prompt(f"words {n}") for n in range(6)))
    await store.append("a", 0, records[:1])
    await store.append("a", 1, records[1:4])
    await store.append("a", 4, records[4:])
    await expect_session(store, "a", records)
    await expect_session(store, "a", records)


async def check_read_after(store: Store) -> None:
    records = make_records(*(make_prompt(f"words {n}") for n in range(5)))
    await store.append("a", 0, records)
    for after in range(8):
        expect_same(await store.read("a", after), records[after:], f"reading after {after}")
        for limit in range(7):
            page = records[after : after + limit]
            expect_same(await store.read("a", after, limit), page, f"reading {limit} after {after}")
    expect_same(await store.read("a", after=2), records[2:], "reading after 2, by keyword")
    expect_same(await store.read("a", limit=2), records[:2], "reading the first 2, by keyword")
    expect_same(await store.read("a", 1, -1), [], "reading a negative number of records")


async def check_unknown_session(store: Store) -> None:
    expect_same(await store.read("nobody"), [], "reading a session that never was")
    expect_same(await store.read("nobody", 3), [], "reading a session that never was, after 3,")
    expect_true(not await store.sessions(), "reading a session must not make one")


async def check_empty_append(store: Store) -> None:
    await store.append("a", 0, [])
    expect_true(not await store.sessions(), "an append of no records made a session")


async def check_sessions_are_separate(store: Store) -> None:
    names = ("a", "A", "a ", "b", "ab", "%", "_", "a'b", "é", "e\u0301", "0", "00")
    lines = {name: make_records(make_prompt(name), make_prompt(name * 2)) for name in names}
    for name, records in lines.items():
        await store.append(name, 0, records[:1])
    for name, records in lines.items():
        await store.append(name, 1, records[1:])
    for name, records in lines.items():
        await expect_session(store, name, records)


async def check_any_text(store: Store) -> None:
    texts = ("", "\0", "a\0b", "\u2028", "🪶 плюма 羽", "\ud7ff\ue000", '"\\\n\r\t', "x" * 70_000)
    records = make_records(*(make_prompt(text) for text in texts))
    for name in ("plain", "dîner à 7", "🪶", "a/b?c#d", "a\nb"):
        await store.append(name, 0, records)
        await expect_session(store, name, records)


async def check_exact_times(store: Store) -> None:
    records: list[Record] = []
    for at in (0.0, 1.0, 0.1 + 0.2, 1_700_000_000.123456, 5e-324, 2.0**53 + 2, 1.7e308):
        records.append(
            seal_record(len(records) + 1, at, make_prompt("x"), records[-1].hash if records else GENESIS)
        )
    await store.append("a", 0, records)
    await expect_session(store, "a", records)


async def check_big_records(store: Store) -> None:
    records = make_records(
        make_prompt("x" * BIG_BYTES),
        make_prompt("small"),
        make_prompt("é" * BIG_BYTES),
        make_prompt("x" * BIG_BYTES),
    )
    await store.append("a", 0, records)
    await store.append("b", 0, records[:1])
    await store.append("b", 1, records[1:])
    await expect_session(store, "a", records)
    await expect_session(store, "b", records)


# A single writer per session.


async def check_second_writer(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"))
    await store.append("a", 0, records)
    late = make_records(make_prompt("other"), prefix=records[:1])
    ahead = make_records(make_prompt("three"), make_prompt("four"), prefix=records)
    await expect_refusal(store.append("a", 1, late), Conflict, "an append to where it no longer ends")
    await expect_refusal(store.append("a", 0, records[:1]), Conflict, "a record that is there already")
    await expect_refusal(store.append("a", 3, ahead[1:]), Conflict, "an append that leaves a gap")
    await expect_refusal(store.append("new", 1, late), Conflict, "an append to the middle of nothing")
    await expect_session(store, "a", records)
    await expect_session(store, "new", [])


async def check_diverged_writer(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"))
    await store.append("a", 0, records)
    stranger = make_records(make_prompt("other"), make_prompt("past"), make_prompt("three"))
    await expect_refusal(store.append("a", 2, stranger[2:]), Conflict, "the right number on another `prev`")
    rootless = [seal_record(1, 1.0, make_prompt("one"), records[0].hash)]
    await expect_refusal(store.append("new", 0, rootless), Conflict, "a first record that is not the first")
    await expect_session(store, "a", records)
    await expect_session(store, "new", [])


async def check_concurrent_writers(store: Store) -> None:
    first = make_records(make_prompt("start"))
    await store.append("a", 0, first)
    rivals = [
        make_records(make_prompt(f"rival {n}"), make_prompt("more"), prefix=first)
        for n in range(MANY_WRITERS)
    ]
    outcomes = await asyncio.gather(
        *(store.append("a", 1, records) for records in rivals), return_exceptions=True
    )
    winners = [records for records, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
    losers = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    expect_true(len(winners) == 1, f"of {MANY_WRITERS} writers racing for one place {len(winners)} won")
    expect_true(len(losers) == MANY_WRITERS - 1, "a writer that lost the race was not told so by a Conflict")
    await expect_session(store, "a", [*first, *winners[0]])


async def check_concurrent_sessions(store: Store) -> None:
    lines = {f"s{n}": make_records(*(make_prompt(f"{n}.{k}") for k in range(4))) for n in range(MANY_WRITERS)}

    async def drive(name: str, records: list[Record]) -> None:
        for place in range(len(records)):
            await store.append(name, place, records[place : place + 1])
            if place == 2:
                # An error here must not affect the other writers, which may share a transaction with it.
                await expect_refusal(
                    store.append(name, 0, records[:1]), Conflict, "a stale append among others"
                )
            expect_same(await store.read(name), records[: place + 1], f"reading {name} among others")

    await asyncio.gather(*(drive(name, records) for name, records in lines.items()))
    for name, records in lines.items():
        await expect_session(store, name, records)


async def check_atomic_append(store: Store) -> None:
    records = make_records(make_prompt("one"), make_tool_finish("c1"))
    await store.append("a", 0, records)
    bad = make_records(make_prompt("two"), make_tool_finish("c2"), make_tool_finish("c1"), prefix=records)
    await expect_refusal(store.append("a", 2, bad), Conflict, "a batch whose last record may not be kept")
    await expect_session(store, "a", records)
    # The refused batch must not have reserved its numbers or its unique keys.
    await store.append("a", 2, bad[:2])
    await expect_session(store, "a", [*records, *bad[:2]])
    twice = make_records(make_tool_finish("c1"), make_tool_finish("c1"))
    await expect_refusal(store.append("b", 0, twice), Conflict, "one name twice in a batch")
    await expect_session(store, "b", [])
    expect_true([info.id for info in await store.sessions()] == ["a"], "a refused append made a session")


async def check_broken_batch(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"), make_prompt("three"))
    other = make_records(make_prompt("uno"), make_prompt("due"))
    for what, after, batch in (
        ("a batch with a record left out", 0, [records[0], records[2]]),
        ("a batch in the wrong order", 0, [records[1], records[0]]),
        ("a batch with the same record twice", 0, [records[0], records[0]]),
        ("a batch of records with different pasts", 0, [records[0], other[1]]),
        ("a record that does not have the number after `after`", 1, records[:1]),
    ):
        await expect_refusal(store.append("a", after, batch), BridleError, what)
        await expect_session(store, "a", [])
    await store.append("a", 0, records)
    await expect_session(store, "a", records)


async def check_cancelled_append(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"))
    task = asyncio.ensure_future(store.append("a", 0, records))
    other = asyncio.ensure_future(store.append("b", 0, records))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    found = list(await store.read("a"))
    await other
    await expect_session(store, "b", records)
    expect_true(found in ([], records), "a cancelled append was kept in part")
    expect_true(list(await store.read("a")) == found, "a cancelled append was stored after it had ended")
    with suppress(Conflict):
        # The cancelled append or this one is stored: both carry the same records.
        await store.append("a", 0, records)
    await expect_session(store, "a", records)


# Unique keys.


async def check_once_names(store: Store) -> None:
    records = make_records(
        make_tool_start("c1"), make_tool_finish("c1"), make_tool_start("c2"), make_tool_start("c2", attempt=2)
    )
    await store.append("a", 0, records)
    for event in (make_tool_finish("c1"), make_tool_start("c2", attempt=2), make_tool_start("c1")):
        again = make_records(event, prefix=records)
        await expect_refusal(store.append("a", 4, again), Conflict, f"{event.unique_key!r} a second time")
    await expect_session(store, "a", records)
    await store.append("b", 0, make_records(make_tool_finish("c1")))
    plain = make_records(make_prompt("x"), make_prompt("x"), make_prompt("x"), prefix=records)
    await store.append("a", 4, plain)
    await expect_session(store, "a", [*records, *plain])


async def check_fork_inherits_once_names(store: Store) -> None:
    records = make_records(make_prompt("one"), make_tool_finish("c1"), make_tool_finish("c2"))
    await store.append("a", 0, records)
    await store.fork("a", 2, "b")
    await store.fork("b", 2, "c")
    again = make_records(make_tool_finish("c1"), prefix=records[:2])
    for child in ("b", "c"):
        await expect_refusal(
            store.append(child, 2, again), Conflict, f"an inherited receipt, again, in {child}"
        )
    own = [*records[:2], *make_records(make_tool_finish("c2"), prefix=records[:2])]
    await store.append("b", 2, own[2:])
    again = make_records(make_tool_finish("c2"), prefix=own)
    await expect_refusal(store.append("b", 3, again), Conflict, "a fork's own receipt, again,")


async def check_fork_skips_later_names(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"))
    await store.append("a", 0, records)
    await store.fork("a", 1, "b")
    await store.fork("a", 2, "c")
    await store.fork("c", 1, "d")
    for name, shared in (("c", 2), ("a", 2), ("b", 1), ("d", 1)):
        own = make_records(make_tool_finish("c9"), prefix=records[:shared])
        await store.append(name, shared, own)
        await expect_session(store, name, [*records[:shared], *own])


# Forks.


async def check_fork_shares_prefix(store: Store) -> None:
    records = make_records(*(make_prompt(f"a{n}") for n in range(5)))
    await store.append("a", 0, records[:4])
    for at in range(5):
        await store.fork("a", at, f"at{at}")
        await expect_session(store, f"at{at}", records[:at])
    await store.append("a", 4, records[4:])
    for at in range(5):
        await expect_session(store, f"at{at}", records[:at])
        own = make_records(make_prompt(f"own {at}"), make_prompt("more"), prefix=records[:at])
        await store.append(f"at{at}", at, own)
        await expect_session(store, f"at{at}", [*records[:at], *own])
    await expect_session(store, "a", records)


async def check_fork_continues(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"), make_prompt("three"))
    await store.append("a", 0, records)
    await store.fork("a", 2, "b")
    restarted, stranger = (
        make_records(make_prompt("x")),
        make_records(make_prompt("other"), make_prompt("past"), make_prompt("x")),
    )
    later, earlier = (
        make_records(make_prompt("x"), prefix=records),
        make_records(make_prompt("x"), prefix=records[:1]),
    )
    await expect_refusal(store.append("b", 0, restarted), Conflict, "a fork's record that starts over")
    await expect_refusal(store.append("b", 3, later), Conflict, "a fork's record at its parent's end")
    await expect_refusal(store.append("b", 1, earlier), Conflict, "a fork's record before its fork point")
    await expect_refusal(store.append("b", 2, stranger[2:]), Conflict, "a fork's record on another past")
    own = make_records(make_prompt("x"), prefix=records[:2])
    await store.append("b", 2, own)
    await expect_session(store, "b", [*records[:2], *own])


async def check_nested_forks(store: Store) -> None:
    """Check forks of a fork before its own fork point, where a careless store returns too many records."""
    lines = {"a": make_records(*(make_prompt(f"a{n}") for n in range(6)))}
    await store.append("a", 0, lines["a"])
    for family in ("b<a4", "c<b6", "d<c2", "e<c5", "f<d1", "g<e4", "h<d2"):
        new, parent, at = family[0], family[2], int(family[3])
        await store.fork(parent, at, new)
        own = make_records(*(make_prompt(f"{new}{n}") for n in range(3)), prefix=lines[parent][:at])
        await store.append(new, at, own)
        lines[new] = [*lines[parent][:at], *own]
    later = make_records(make_prompt("later"), prefix=lines["a"])
    await store.append("a", 6, later)
    lines["a"] += later
    for name, records in lines.items():
        for after in range(len(records) + 1):
            expect_same(await store.read(name, after), records[after:], f"reading {name} after {after}")
            page = records[after : after + 3]
            expect_same(await store.read(name, after, 3), page, f"reading 3 of {name} after {after}")


async def check_invalid_fork(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"))
    await store.append("a", 0, records)
    await store.append("taken", 0, records)
    await expect_refusal(
        store.fork("nobody", 0, "b"), SessionNotFound, "a fork of a session that is not there"
    )
    await expect_refusal(store.fork("a", 3, "b"), MisuseError, "a fork beyond the end")
    await expect_refusal(store.fork("a", -1, "b"), MisuseError, "a fork before the start")
    await expect_refusal(store.fork("a", 1, "taken"), Conflict, "a fork under a name that is taken")
    await expect_refusal(store.fork("a", 1, "a"), Conflict, "a fork under its parent's name")
    await expect_session(store, "b", [])
    await expect_session(store, "taken", records)
    expect_true(len(await store.sessions()) == 2, "a refused fork made a session")


# Listing sessions, and closing.


async def check_session_listing(store: Store) -> None:
    records = make_records(make_prompt("one"), make_prompt("two"), make_prompt("three"))
    for name in ("a", "b", "c"):
        await store.append(name, 0, records[:2])
    await store.append("a", 2, records[2:])
    await store.fork("b", 1, "d")
    listed = list(await store.sessions())
    order = [info.id for info in listed]
    expect_true(order == ["d", "a", "c", "b"], f"touched last were d, a, c, b; it says {order}")
    expect_true(list(await store.sessions(2)) == listed[:2], "the limit was not kept")
    expect_true(not await store.sessions(limit=0), "a limit of nothing gave something")
    first, last = records[0].at, records[2].at
    session = SessionInfo(id="a", length=3, created_at=first, updated_at=last)
    expect_true(listed[1] == session, f"what it tells of a session is not what was written: {listed[1]}")
    fork = SessionInfo(id="d", length=1, created_at=first, updated_at=first, parent="b", forked_at=1)
    expect_true(listed[0] == fork, f"what it tells of a fork is not what was done: {listed[0]}")
    await store.append("d", 1, make_records(make_prompt("x"), prefix=records[:1], at=50.0))
    fork = (await store.sessions(1))[0]
    expect_true(
        fork.length == 2 and fork.created_at == fork.updated_at > 50,
        f"a fork's own record is not told: {fork}",
    )


async def check_double_close(store: Store) -> None:
    await store.append("a", 0, make_records(make_prompt("one")))
    await store.close()
    await store.close()


STORE_CHECKS: tuple[StoreCheck, ...] = (
    check_order_and_content, check_read_after,
    check_unknown_session, check_empty_append,
    check_sessions_are_separate, check_any_text, check_exact_times, check_big_records,
    check_second_writer, check_diverged_writer,
    check_concurrent_writers, check_concurrent_sessions,
    check_atomic_append, check_broken_batch,
    check_cancelled_append,
    check_once_names, check_fork_inherits_once_names, check_fork_skips_later_names,
    check_fork_shares_prefix, check_fork_continues,
    check_nested_forks, check_invalid_fork,
    *BLOB_CHECKS, *LEASE_CHECKS, *REDACTION_CHECKS, *PRUNING_CHECKS, *SNAPSHOT_CHECKS,
    check_restarted_log, check_session_listing, check_double_close,
)  # fmt: skip


def _check_title(check: StoreCheck) -> str:
    return getattr(check, "__name__", repr(check)).strip("_").replace("_", " ")
