"""The checks of `check_store` for leases, takeovers and stores that can be watched."""

import asyncio

from bridle.ports.store import LiveStore, ServerListStore, Store, WatchableStore, supports
from bridle.values.errors import Conflict, SessionNotFound

from .sample_records import expect_refusal, expect_session, expect_true, make_prompt, make_records

WAITERS = 20
LIVE_BYTES = 60_000


async def _take_briefly(store: Store, session: str, *, take_over: bool = False) -> None:
    await hold_briefly(store, session, take_over=take_over)


async def hold_briefly(store: Store, session: str, *, take_over: bool = False) -> int:
    """Take a lease and give it back; returns its epoch."""
    async with store.lease(session, take_over=take_over) as lease:
        expect_true(lease.session == session, f"the lease of {session!r} names {lease.session!r}")
        return lease.epoch


async def check_lease_is_exclusive(store: Store) -> None:
    async with store.lease("a") as lease:
        expect_true(lease.epoch == 0, "the first lease of a session has an epoch that is not 0")
        await expect_refusal(_take_briefly(store, "a"), Conflict, "a second lease of one session")
        expect_true(await hold_briefly(store, "b") == 0, "a lease of another session was refused")
    expect_true(await hold_briefly(store, "a") == 0, "a lease that was released raised the epoch")
    expect_true(not await store.sessions(), "a lease made a session")


async def check_takeover_fences(store: Store) -> None:
    records = make_records(*(make_prompt(f"words {n}") for n in range(4)))
    async with store.lease("a") as old:
        await store.append("a", 0, records[:1], epoch=old.epoch)
        async with store.lease("a", take_over=True) as new:
            expect_true(new.epoch > old.epoch, "a takeover did not raise the epoch")
            await expect_refusal(
                store.append("a", 1, records[1:2], epoch=old.epoch), Conflict, "an append after a takeover"
            )
            await expect_refusal(
                _take_briefly(store, "a"), Conflict, "a lease of a session that was taken over"
            )
            await store.append("a", 1, records[1:2], epoch=new.epoch)
        await store.append("a", 2, records[2:3])  # without a lease there is nothing to compare
        await expect_refusal(
            store.append("a", 3, records[3:], epoch=old.epoch), Conflict, "an append after the takeover ended"
        )
        expect_true(await hold_briefly(store, "a") == new.epoch, "the epoch was lowered")
    await store.append("a", 3, records[3:], epoch=new.epoch)
    await expect_session(store, "a", records)
    expect_true(await hold_briefly(store, "a", take_over=True) == new.epoch + 1, "a second takeover")


async def check_takeover_of_nothing(store: Store) -> None:
    await expect_refusal(
        _take_briefly(store, "a", take_over=True),
        SessionNotFound,
        "a takeover of a session that is not there",
    )
    expect_true(not await store.sessions(), "a refused takeover made a session")
    await store.append("a", 0, make_records(make_prompt("one")), epoch=0)
    await store.fork("a", 1, "b")
    expect_true(
        await hold_briefly(store, "a", take_over=True) == 1, "a takeover did not raise the epoch by one"
    )
    expect_true(await hold_briefly(store, "b") == 0, "a takeover changed a fork")


async def check_concurrent_takeovers(store: Store) -> None:
    await store.append("a", 0, make_records(make_prompt("one")))
    epochs: list[int] = []
    done = asyncio.Event()

    async def take() -> None:
        try:
            async with store.lease("a", take_over=True) as lease:
                epochs.append(lease.epoch)
                await done.wait()
        except Conflict:
            return

    taking = [asyncio.ensure_future(take()) for _ in range(WAITERS)]
    await asyncio.wait(taking, timeout=0.05)
    done.set()
    await asyncio.gather(*taking)
    expect_true(len(set(epochs)) == len(epochs) > 0, f"takeovers at the same time got the epochs {epochs}")


async def check_wait_for_records(store: Store) -> None:
    """Only for a store that can be watched."""
    if not supports(store, WatchableStore):
        return
    records = make_records(*(make_prompt(f"words {n}") for n in range(3)))
    waiting = [asyncio.ensure_future(_wait_until(store, "a", 0)) for _ in range(WAITERS)]
    other = asyncio.ensure_future(_wait_until(store, "b", 0))
    await asyncio.sleep(0)
    waiting[0].cancel()
    await store.append("a", 0, records[:1])
    woken = await asyncio.gather(*waiting, return_exceptions=True)
    expect_true(woken[1:] == [1] * (WAITERS - 1), f"tasks that waited for a record saw {woken[1:]}")
    await store.wait_for_records("a", 0)  # there is one already
    later = asyncio.ensure_future(_wait_until(store, "a", 1))
    await store.append("a", 1, records[1:])
    expect_true(await later == 3, "a task that waited for later records saw others")
    expect_true(not other.done(), "a task that waits for another session saw records")
    await store.append("b", 0, records[:1])
    expect_true(await other == 1, "the last task that waits was not woken")


async def check_live(store: Store) -> None:
    """Only for a store that shows replies while they are written."""
    if not supports(store, LiveStore):
        return
    expect_true(not await store.publish_live("a", b"unseen"), "a text was stored that no process reads")
    expect_true(await store.read_live("a") == b"", "a reader saw a text from before it came")
    for shown in (b"one", b"one two", b"x" * LIVE_BYTES, b"short"):
        expect_true(await store.publish_live("a", shown), "a reader was not noticed")
        expect_true(await store.read_live("a") == shown, "a reader saw another text than the one shown last")
        expect_true(await store.read_live("b") == b"", "a text is shown in another session")
    await store.publish_live("a", b"")
    expect_true(await store.read_live("a") == b"", "a text that was removed is still there")
    expect_true(not await store.sessions(), "a text that is shown made a session")


async def check_servers(store: Store) -> None:
    """Only for a store that lists the servers that use it."""
    if not supports(store, ServerListStore):
        return
    one, two = "0000000a", "fffffffe"
    expect_true(set(await store.announce_server(one)) == {one}, "a server is not listed alone")
    expect_true(set(await store.announce_server(two)) == {one, two}, "a second server is not listed")
    expect_true(
        set(await store.announce_server(one)) == {one, two}, "a server that is listed again is another"
    )
    await store.withdraw_server(one)
    await store.withdraw_server(one)
    expect_true(set(await store.announce_server(two)) == {two}, "a server that was withdrawn is listed")
    await store.withdraw_server(two)
    expect_true(not await store.sessions(), "a list of servers made a session")


async def _wait_until(store: Store, session: str, after: int) -> int:
    assert supports(store, WatchableStore)
    while not (found := await store.read(session, after)):
        await store.wait_for_records(session, after)
    return found[-1].seq


LEASE_CHECKS = (
    check_lease_is_exclusive, check_takeover_fences,
    check_takeover_of_nothing, check_concurrent_takeovers,
    check_wait_for_records, check_live, check_servers,
)  # fmt: skip
