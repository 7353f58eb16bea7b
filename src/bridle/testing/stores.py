"""Does a store keep its promises?  Write one, run this, and it fits.

    async def make() -> Store: ...          # a new, empty store each time
    await check_store(make)                 # AssertionError says which promise was broken

Every promise of `ports/store.py` has a function below, each with a store of its own.
Nothing here knows how a store works and nothing depends on how fast it is, so the
same check serves a store of yours.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..ports.store import SessionInfo, Store
from ..values.errors import BridleError, Conflict, MisuseError, SessionNotFound
from ..values.record import GENESIS, Record, seal
from .blobs import BLOB_PROMISES
from .lines import expect, expect_line, expect_refusal, expect_same, intent, line_of, receipt, said

Promise = Callable[[Store], Awaitable[None]]

BIG = 1 << 20
MANY = 40


async def check_store(make: Callable[[], Awaitable[Store]]) -> None:
    """Raises `AssertionError` naming the first promise the store breaks."""
    for promise in PROMISES:
        store = await make()
        try:
            await promise(store)
        except BridleError as error:
            raise AssertionError(f"{_title(promise)}: it raised {type(error).__name__}: {error}") from error
        except AssertionError as error:
            raise AssertionError(f"{_title(promise)}: {error}") from error.__cause__
        finally:
            await store.close()


# What is written comes back.


async def _records_come_back_exactly_and_in_order(store: Store) -> None:
    line = line_of(*(said(f"words {n}") for n in range(6)))
    await store.append("a", 0, line[:1])
    await store.append("a", 1, line[1:4])
    await store.append("a", 4, line[4:])
    await expect_line(store, "a", line)
    await expect_line(store, "a", line)


async def _reading_starts_after_the_number_given(store: Store) -> None:
    line = line_of(*(said(f"words {n}") for n in range(5)))
    await store.append("a", 0, line)
    for after in range(8):
        expect_same(await store.read("a", after), line[after:], f"reading after {after}")
    expect_same(await store.read("a", after=2), line[2:], "reading after 2, by keyword")


async def _an_unknown_session_is_empty(store: Store) -> None:
    expect_same(await store.read("nobody"), [], "reading a session that never was")
    expect_same(await store.read("nobody", 3), [], "reading a session that never was, after 3,")
    expect(not await store.sessions(), "reading a session must not make one")


async def _appending_nothing_does_nothing(store: Store) -> None:
    await store.append("a", 0, [])
    expect(not await store.sessions(), "an append of no records made a session")


async def _sessions_do_not_mix(store: Store) -> None:
    names = ("a", "A", "a ", "b", "ab", "%", "_", "a'b", "é", "e\u0301", "0", "00")
    lines = {name: line_of(said(name), said(name * 2)) for name in names}
    for name, line in lines.items():
        await store.append(name, 0, line[:1])
    for name, line in lines.items():
        await store.append(name, 1, line[1:])
    for name, line in lines.items():
        await expect_line(store, name, line)


async def _any_text_survives(store: Store) -> None:
    texts = ("", "\0", "a\0b", "\u2028", "🪶 плюма 羽", "\ud7ff\ue000", '"\\\n\r\t', "x" * 70_000)
    line = line_of(*(said(text) for text in texts))
    for name in ("plain", "dîner à 7", "🪶", "a/b?c#d", "a\nb"):
        await store.append(name, 0, line)
        await expect_line(store, name, line)


async def _times_survive_to_the_last_bit(store: Store) -> None:
    line: list[Record] = []
    for at in (0.0, 1.0, 0.1 + 0.2, 1_700_000_000.123456, 5e-324, 2.0**53 + 2, 1.7e308):
        line.append(seal(len(line) + 1, at, said("x"), line[-1].hash if line else GENESIS))
    await store.append("a", 0, line)
    await expect_line(store, "a", line)


async def _big_records_survive(store: Store) -> None:
    line = line_of(said("x" * BIG), said("small"), said("é" * BIG), said("x" * BIG))
    await store.append("a", 0, line)
    await store.append("b", 0, line[:1])
    await store.append("b", 1, line[1:])
    await expect_line(store, "a", line)
    await expect_line(store, "b", line)


# One writer.


async def _a_second_writer_gets_a_conflict(store: Store) -> None:
    line = line_of(said("one"), said("two"))
    await store.append("a", 0, line)
    late = line_of(said("other"), prefix=line[:1])
    ahead = line_of(said("three"), said("four"), prefix=line)
    await expect_refusal(store.append("a", 1, late), Conflict, "an append to where it no longer ends")
    await expect_refusal(store.append("a", 0, line[:1]), Conflict, "a record that is there already")
    await expect_refusal(store.append("a", 3, ahead[1:]), Conflict, "an append that leaves a gap")
    await expect_refusal(store.append("new", 1, late), Conflict, "an append to the middle of nothing")
    await expect_line(store, "a", line)
    await expect_line(store, "new", [])


async def _a_writer_with_another_past_gets_a_conflict(store: Store) -> None:
    line = line_of(said("one"), said("two"))
    await store.append("a", 0, line)
    stranger = line_of(said("other"), said("past"), said("three"))
    await expect_refusal(store.append("a", 2, stranger[2:]), Conflict, "the right number on another `prev`")
    rootless = [seal(1, 1.0, said("one"), line[0].hash)]
    await expect_refusal(store.append("new", 0, rootless), Conflict, "a first record that is not the first")
    await expect_line(store, "a", line)
    await expect_line(store, "new", [])


async def _of_many_writers_at_once_one_wins(store: Store) -> None:
    first = line_of(said("start"))
    await store.append("a", 0, first)
    rivals = [line_of(said(f"rival {n}"), said("more"), prefix=first) for n in range(MANY)]
    outcomes = await asyncio.gather(*(store.append("a", 1, line) for line in rivals), return_exceptions=True)
    winners = [line for line, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
    losers = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    expect(len(winners) == 1, f"of {MANY} writers racing for one place {len(winners)} won")
    expect(len(losers) == MANY - 1, "a writer that lost the race was not told so by a Conflict")
    await expect_line(store, "a", [*first, *winners[0]])


async def _many_sessions_at_once_do_not_disturb_one_another(store: Store) -> None:
    lines = {f"s{n}": line_of(*(said(f"{n}.{k}") for k in range(4))) for n in range(MANY)}

    async def drive(name: str, line: list[Record]) -> None:
        for place in range(len(line)):
            await store.append(name, place, line[place : place + 1])
            if place == 2:
                # A mistake here must not cost the others, who may share a transaction with it.
                await expect_refusal(store.append(name, 0, line[:1]), Conflict, "a stale append among others")
            expect_same(await store.read(name), line[: place + 1], f"reading {name} among others")

    await asyncio.gather(*(drive(name, line) for name, line in lines.items()))
    for name, line in lines.items():
        await expect_line(store, name, line)


async def _an_append_is_all_or_nothing(store: Store) -> None:
    line = line_of(said("one"), receipt("c1"))
    await store.append("a", 0, line)
    bad = line_of(said("two"), receipt("c2"), receipt("c1"), prefix=line)
    await expect_refusal(store.append("a", 2, bad), Conflict, "a batch whose last record may not be kept")
    await expect_line(store, "a", line)
    # Neither its numbers nor its names may have been taken.
    await store.append("a", 2, bad[:2])
    await expect_line(store, "a", [*line, *bad[:2]])
    twice = line_of(receipt("c1"), receipt("c1"))
    await expect_refusal(store.append("b", 0, twice), Conflict, "one name twice in a batch")
    await expect_line(store, "b", [])
    expect([info.id for info in await store.sessions()] == ["a"], "a refused append made a session")


async def _a_batch_that_is_not_a_line_is_refused(store: Store) -> None:
    line = line_of(said("one"), said("two"), said("three"))
    other = line_of(said("uno"), said("due"))
    for what, after, batch in (
        ("a batch with a record left out", 0, [line[0], line[2]]),
        ("a batch in the wrong order", 0, [line[1], line[0]]),
        ("a batch with the same record twice", 0, [line[0], line[0]]),
        ("a batch of records with different pasts", 0, [line[0], other[1]]),
        ("a record that does not have the number after `after`", 1, line[:1]),
    ):
        await expect_refusal(store.append("a", after, batch), BridleError, what)
        await expect_line(store, "a", [])
    await store.append("a", 0, line)
    await expect_line(store, "a", line)


async def _a_cancelled_append_is_all_or_nothing_too(store: Store) -> None:
    line = line_of(said("one"), said("two"))
    task = asyncio.ensure_future(store.append("a", 0, line))
    other = asyncio.ensure_future(store.append("b", 0, line))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await other
    await expect_line(store, "b", line)
    expect(list(await store.read("a")) in ([], line), "a cancelled append was kept in part")
    with suppress(Conflict):
        # Whichever lands, the cancelled one or this: both carry the same records.
        await store.append("a", 0, line)
    await expect_line(store, "a", line)


# Names that may be used once.


async def _a_once_name_is_kept_once(store: Store) -> None:
    line = line_of(intent("c1"), receipt("c1"), intent("c2"), intent("c2", attempt=2))
    await store.append("a", 0, line)
    for event in (receipt("c1"), intent("c2", attempt=2), intent("c1")):
        again = line_of(event, prefix=line)
        await expect_refusal(store.append("a", 4, again), Conflict, f"{event.once!r} a second time")
    await expect_line(store, "a", line)
    await store.append("b", 0, line_of(receipt("c1")))
    plain = line_of(said("x"), said("x"), said("x"), prefix=line)
    await store.append("a", 4, plain)
    await expect_line(store, "a", [*line, *plain])


async def _a_fork_inherits_once_names(store: Store) -> None:
    line = line_of(said("one"), receipt("c1"), receipt("c2"))
    await store.append("a", 0, line)
    await store.fork("a", 2, "b")
    await store.fork("b", 2, "c")
    again = line_of(receipt("c1"), prefix=line[:2])
    for child in ("b", "c"):
        await expect_refusal(
            store.append(child, 2, again), Conflict, f"an inherited receipt, again, in {child}"
        )
    own = [*line[:2], *line_of(receipt("c2"), prefix=line[:2])]
    await store.append("b", 2, own[2:])
    again = line_of(receipt("c2"), prefix=own)
    await expect_refusal(store.append("b", 3, again), Conflict, "a fork's own receipt, again,")


async def _a_fork_does_not_inherit_later_names(store: Store) -> None:
    line = line_of(said("one"), said("two"))
    await store.append("a", 0, line)
    await store.fork("a", 1, "b")
    await store.fork("a", 2, "c")
    await store.fork("c", 1, "d")
    for name, shared in (("c", 2), ("a", 2), ("b", 1), ("d", 1)):
        own = line_of(receipt("c9"), prefix=line[:shared])
        await store.append(name, shared, own)
        await expect_line(store, name, [*line[:shared], *own])


# Forks.


async def _a_fork_shares_what_was_before_and_nothing_after(store: Store) -> None:
    line = line_of(*(said(f"a{n}") for n in range(5)))
    await store.append("a", 0, line[:4])
    for at in range(5):
        await store.fork("a", at, f"at{at}")
        await expect_line(store, f"at{at}", line[:at])
    await store.append("a", 4, line[4:])
    for at in range(5):
        await expect_line(store, f"at{at}", line[:at])
        own = line_of(said(f"own {at}"), said("more"), prefix=line[:at])
        await store.append(f"at{at}", at, own)
        await expect_line(store, f"at{at}", [*line[:at], *own])
    await expect_line(store, "a", line)


async def _a_fork_goes_on_from_the_record_it_forked_at(store: Store) -> None:
    line = line_of(said("one"), said("two"), said("three"))
    await store.append("a", 0, line)
    await store.fork("a", 2, "b")
    anew, stranger = line_of(said("x")), line_of(said("other"), said("past"), said("x"))
    later, earlier = line_of(said("x"), prefix=line), line_of(said("x"), prefix=line[:1])
    await expect_refusal(store.append("b", 0, anew), Conflict, "a fork's record that begins anew")
    await expect_refusal(store.append("b", 3, later), Conflict, "a fork's record at its parent's end")
    await expect_refusal(store.append("b", 1, earlier), Conflict, "a fork's record before its fork point")
    await expect_refusal(store.append("b", 2, stranger[2:]), Conflict, "a fork's record on another past")
    own = line_of(said("x"), prefix=line[:2])
    await store.append("b", 2, own)
    await expect_line(store, "b", [*line[:2], *own])


async def _forks_of_forks_show_their_own_line_only(store: Store) -> None:
    """Forking a fork before its own fork point is where a careless store shows too much."""
    lines = {"a": line_of(*(said(f"a{n}") for n in range(6)))}
    await store.append("a", 0, lines["a"])
    for family in ("b<a4", "c<b6", "d<c2", "e<c5", "f<d1", "g<e4", "h<d2"):
        new, parent, at = family[0], family[2], int(family[3])
        await store.fork(parent, at, new)
        own = line_of(*(said(f"{new}{n}") for n in range(3)), prefix=lines[parent][:at])
        await store.append(new, at, own)
        lines[new] = [*lines[parent][:at], *own]
    later = line_of(said("later"), prefix=lines["a"])
    await store.append("a", 6, later)
    lines["a"] += later
    for name, line in lines.items():
        for after in range(len(line) + 1):
            expect_same(await store.read(name, after), line[after:], f"reading {name} after {after}")


async def _a_fork_that_makes_no_sense_is_refused(store: Store) -> None:
    line = line_of(said("one"), said("two"))
    await store.append("a", 0, line)
    await store.append("taken", 0, line)
    await expect_refusal(
        store.fork("nobody", 0, "b"), SessionNotFound, "a fork of a session that is not there"
    )
    await expect_refusal(store.fork("a", 3, "b"), MisuseError, "a fork beyond the end")
    await expect_refusal(store.fork("a", -1, "b"), MisuseError, "a fork before the start")
    await expect_refusal(store.fork("a", 1, "taken"), Conflict, "a fork under a name that is taken")
    await expect_refusal(store.fork("a", 1, "a"), Conflict, "a fork under its parent's name")
    await expect_line(store, "b", [])
    await expect_line(store, "taken", line)
    expect(len(await store.sessions()) == 2, "a refused fork made a session")


# The list, and the end.


async def _sessions_are_listed_newest_first(store: Store) -> None:
    line = line_of(said("one"), said("two"), said("three"))
    for name in ("a", "b", "c"):
        await store.append(name, 0, line[:2])
    await store.append("a", 2, line[2:])
    await store.fork("b", 1, "d")
    listed = list(await store.sessions())
    order = [info.id for info in listed]
    expect(order == ["d", "a", "c", "b"], f"touched last were d, a, c, b; it says {order}")
    expect(list(await store.sessions(2)) == listed[:2], "the limit was not kept")
    expect(not await store.sessions(limit=0), "a limit of nothing gave something")
    first, last = line[0].at, line[2].at
    session = SessionInfo(id="a", length=3, created_at=first, updated_at=last)
    expect(listed[1] == session, f"what it tells of a session is not what was written: {listed[1]}")
    fork = SessionInfo(id="d", length=1, created_at=first, updated_at=first, parent="b", forked_at=1)
    expect(listed[0] == fork, f"what it tells of a fork is not what was done: {listed[0]}")
    await store.append("d", 1, line_of(said("x"), prefix=line[:1], at=50.0))
    fork = (await store.sessions(1))[0]
    expect(
        fork.length == 2 and fork.created_at == fork.updated_at > 50,
        f"a fork's own record is not told: {fork}",
    )


async def _closing_twice_is_harmless(store: Store) -> None:
    await store.append("a", 0, line_of(said("one")))
    await store.close()
    await store.close()


PROMISES: tuple[Promise, ...] = (
    _records_come_back_exactly_and_in_order, _reading_starts_after_the_number_given,
    _an_unknown_session_is_empty, _appending_nothing_does_nothing,
    _sessions_do_not_mix, _any_text_survives, _times_survive_to_the_last_bit, _big_records_survive,
    _a_second_writer_gets_a_conflict, _a_writer_with_another_past_gets_a_conflict,
    _of_many_writers_at_once_one_wins, _many_sessions_at_once_do_not_disturb_one_another,
    _an_append_is_all_or_nothing, _a_batch_that_is_not_a_line_is_refused,
    _a_cancelled_append_is_all_or_nothing_too,
    _a_once_name_is_kept_once, _a_fork_inherits_once_names, _a_fork_does_not_inherit_later_names,
    _a_fork_shares_what_was_before_and_nothing_after, _a_fork_goes_on_from_the_record_it_forked_at,
    _forks_of_forks_show_their_own_line_only, _a_fork_that_makes_no_sense_is_refused,
    *BLOB_PROMISES, _sessions_are_listed_newest_first, _closing_twice_is_harmless,
)  # fmt: skip


def _title(promise: Promise) -> str:
    return getattr(promise, "__name__", repr(promise)).strip("_").replace("_", " ")
