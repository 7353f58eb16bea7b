"""The store's threads: usable from any event loop, errors stay with their caller, and they end with the program."""

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
import weakref
from contextlib import closing

import pytest

from bridle.stores.sqlite.store import SqliteStore
from bridle.stores.sqlite.watching import NAMES_PER_QUERY
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.values.errors import Conflict, Corrupt, MisuseError
from bridle.values.record import GENESIS, seal_record
from tests.stores.sqlite_locks import write_lock
from tests.suite.patience import PATIENCE_SECONDS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.db"


EARLIER: set[threading.Thread] = set()
"""Threads of stores that other tests have not closed."""


@pytest.fixture(autouse=True)
def _know_earlier_threads():
    EARLIER.update(threading.enumerate())
    yield
    EARLIER.clear()


def store_threads():
    found = [thread for thread in threading.enumerate() if thread.name.startswith("bridle-store")]
    return [thread for thread in found if thread not in EARLIER]


async def append_many(store, session, count):
    prev = GENESIS
    for seq in range(1, count + 1):
        record = seal_record(seq, float(seq), make_prompt(f"{session} {seq}"), prev)
        await store.append(session, seq - 1, [record])
        prev = record.hash


def test_several_loops_in_several_threads_share_one_store(path):
    store = SqliteStore(path)
    failures = []

    def drive(number):
        async def main():
            await asyncio.gather(*(append_many(store, f"{number}.{n}", 10) for n in range(4)))
            for n in range(4):
                assert len(await store.read(f"{number}.{n}")) == 10

        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(asyncio.run(store.sessions())) == 16
    asyncio.run(store.close())
    assert not store_threads()


def test_one_bad_append_does_not_cost_its_group(path):
    async def main():
        store = SqliteStore(path)
        line = make_records(make_prompt("one"), make_prompt("two"))
        await store.append("stale", 0, line)
        with write_lock(path):
            # All of these are waiting together, so they end in one transaction.
            tasks = [asyncio.ensure_future(store.append(f"good {n}", 0, line)) for n in range(20)]
            bad = [asyncio.ensure_future(store.append("stale", 1, line[1:])) for _ in range(3)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        for outcome in await asyncio.gather(*bad, return_exceptions=True):
            assert isinstance(outcome, Conflict)
        for n in range(20):
            assert await store.read(f"good {n}") == tuple(line)
        await store.close()

    asyncio.run(main())


def test_appends_of_one_session_may_wait_together(path):
    async def main():
        store = SqliteStore(path)
        line = make_records(*(make_prompt(f"{n}") for n in range(30)))
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.append("a", n, line[n : n + 1])) for n in range(30)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert await store.read("a") == tuple(line)
        await store.close()

    asyncio.run(main())


def test_one_bad_read_does_not_cost_its_group(path):
    async def main():
        store = SqliteStore(path)
        for name in ("a", "b", "c"):
            await append_many(store, name, 3)
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE events SET at = 9.0 WHERE sid = 2 AND seq = 2")
            db.commit()
        read = await asyncio.gather(*map(store.read, "abc"), return_exceptions=True)
        assert isinstance(read[1], Corrupt)
        assert [len(read[0]), len(read[2])] == [3, 3]  # type: ignore[arg-type]
        await store.close()

    asyncio.run(main())


def test_each_of_many_waiting_tasks_sees_its_own_session_only(path):
    async def main():
        store, names = SqliteStore(path), [f"s{number}" for number in range(2 * NAMES_PER_QUERY + 3)]
        waiting = {name: asyncio.ensure_future(store.wait_for_records(name, 1)) for name in names}
        await asyncio.sleep(0)
        await append_many(store, names[1], 1)
        for name in (names[0], names[NAMES_PER_QUERY], names[-1]):
            await append_many(store, name, 2)
            await asyncio.wait_for(waiting.pop(name), PATIENCE_SECONDS)
        assert not any(task.done() for task in waiting.values())
        await store.close()
        await asyncio.gather(*waiting.values())

    asyncio.run(main())


def test_reading_does_not_wait_for_a_writer(path):
    async def main():
        store = SqliteStore(path)
        line = make_records(make_prompt("one"), make_prompt("two"))
        await store.append("a", 0, line[:1])
        with write_lock(path):
            waiting = asyncio.ensure_future(store.append("a", 1, line[1:]))
            assert await store.read("a") == tuple(line[:1])
            assert not waiting.done()
        await waiting
        assert await store.read("a") == tuple(line)
        await store.close()

    asyncio.run(main())


def test_a_cancelled_append_ends_when_nothing_can_be_appended_any_more(path):
    async def main():
        store = SqliteStore(path)
        first, second = make_records(make_prompt("one"), make_prompt("two"))
        await store.append("a", 0, [first])
        with write_lock(path):
            task = asyncio.ensure_future(store.append("a", 1, [second]))
            for _ in range(3):
                await asyncio.sleep(0)
                task.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done(), "the write may still happen"
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await store.read("a")
        await store.close()
        return found

    assert len(asyncio.run(main())) == 2


def test_a_cancelled_append_is_not_waited_for_without_end(path, monkeypatch):
    monkeypatch.setattr("bridle.stores.finished_writes.CANCELLED_SECONDS_MAX", 0.01)

    async def main():
        store = SqliteStore(path)
        first, second = make_records(make_prompt("one"), make_prompt("two"))
        await store.append("a", 0, [first])
        with write_lock(path):
            task = asyncio.ensure_future(store.append("a", 1, [second]))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,), timeout=PATIENCE_SECONDS)
            assert task.cancelled()
        await store.close()

    asyncio.run(main())


def test_a_cancelled_caller_does_not_break_the_writer(path):
    async def main():
        store = SqliteStore(path)
        line = make_records(make_prompt("one"))
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.append(f"s{n}", 0, line)) for n in range(10)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True, False] * 5
        # Handed over before it was cancelled, so it was done all the same: the same for every one of them.
        for n in range(10):
            assert await store.read(f"s{n}") == tuple(line)
        await store.close()

    asyncio.run(main())


def test_a_loop_that_is_gone_does_not_break_the_writer(path, monkeypatch):
    monkeypatch.setattr("bridle.stores.finished_writes.CANCELLED_SECONDS_MAX", 0.0)
    store = SqliteStore(path)
    line = make_records(make_prompt("one"))

    async def abandon():
        task = asyncio.ensure_future(store.append("abandoned", 0, line))
        await asyncio.sleep(0)
        task.cancel()

    with write_lock(path):
        asyncio.run(abandon())

    async def main():
        await store.append("later", 0, line)
        assert await store.read("abandoned") == tuple(line)
        assert await store.read("later") == tuple(line)
        await store.close()

    asyncio.run(main())


def test_closing_does_what_was_asked_first(path):
    async def main():
        store = SqliteStore(path)
        line = make_records(make_prompt("one"))
        with write_lock(path):
            tasks = [asyncio.ensure_future(store.append(f"s{n}", 0, line)) for n in range(10)]
            reading = asyncio.ensure_future(store.sessions())
            await asyncio.sleep(0)
            closings = [asyncio.ensure_future(store.close()) for _ in range(3)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, reading, *closings)
        await store.close()
        assert not store_threads()
        for act in (store.append("a", 0, line), store.read("a"), store.fork("s1", 1, "b"), store.sessions()):
            with pytest.raises(MisuseError, match="closed: open it again"):
                await act
        again = SqliteStore(path)
        assert len(await again.sessions()) == 10
        await again.close()

    asyncio.run(main())
    assert [file.name for file in path.parent.iterdir()] == ["log.db"]


def test_an_unused_store_has_no_thread_and_closes(path):
    async def main():
        store = SqliteStore(path)
        assert not store_threads()
        await store.close()
        await store.close()

    asyncio.run(main())


def test_a_forgotten_store_ends_its_threads(path):
    async def main():
        store = SqliteStore(path)
        await append_many(store, "a", 3)
        assert len(await store.read("a")) == 3

    asyncio.run(main())
    gc.collect()
    for thread in store_threads():
        thread.join(30)
        assert not thread.is_alive()


def test_an_idle_store_keeps_no_loop_alive(path):
    store = SqliteStore(path)

    async def main():
        await append_many(store, "a", 3)
        await store.read("a")
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(main())
    for _ in range(200):
        # The thread lets go right after answering, which may be a moment after the loop has ended.
        gc.collect()
        if loop() is None:
            break
    assert loop() is None
    asyncio.run(store.close())


PRELUDE = """if True:
    import asyncio, os, sys, threading, warnings
    from bridle.stores.sqlite.store import SqliteStore
    from bridle.values.errors import MisuseError
    from bridle.values.events import Prompted
    from bridle.values.record import GENESIS, seal_record
    line = [seal_record(1, 1.0, Prompted(parts=()), GENESIS)]
    for n in range(2, 21):
        line.append(seal_record(n, float(n), Prompted(parts=()), line[-1].hash))
    store = SqliteStore(sys.argv[1])
"""

ENDINGS = {
    "of its own accord": """
    async def main():
        await store.append("a", 0, line)
        await store.read("a")
    asyncio.run(main())
    """,
    "with work under way": """
    async def main():
        await store.append("a", 0, line)
        for n in range(50):
            asyncio.ensure_future(store.append(f"more {n}", 0, line))
        await asyncio.sleep(0)
    asyncio.run(main())
    """,
    "by sys.exit in a task": """
    async def main():
        await store.append("a", 0, line)
        sys.exit(0)
    asyncio.run(main())
    """,
    "with the store in a cycle": """
    async def main():
        await store.append("a", 0, line)
        store.me = store
    asyncio.run(main())
    """,
    "from another thread's loop": """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(store.append("a", 0, line), loop).result()
    """,
    "abruptly": """
    async def main():
        await store.append("a", 0, line)
        os._exit(0)
    asyncio.run(main())
    """,
    "after a fork": """
    async def main():
        await store.append("a", 0, line)
    async def child():
        try:
            await store.read("a")
        except MisuseError as error:
            assert "open it again in the child process" in str(error), error
            again = SqliteStore(sys.argv[1])
            assert len(await again.read("a")) == 20
            await again.close()
            return
        raise SystemExit("the child could use its parent's store")
    asyncio.run(main())
    warnings.simplefilter("ignore", DeprecationWarning)
    if os.fork() == 0:
        asyncio.run(child())
    else:
        assert os.wait()[1] == 0
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_that_never_closes_ends_quietly_and_loses_nothing(path, ending):
    program = PRELUDE + ENDINGS[ending]
    flags = ["-W", "error", "-X", "dev"]
    done = subprocess.run(
        [sys.executable, *flags, "-c", program, path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if ending != "abruptly":
        assert [file.name for file in path.parent.iterdir()] == ["log.db"]

    async def main():
        store = SqliteStore(path)
        assert len(await store.read("a")) == 20
        await store.close()

    asyncio.run(main())


def test_waits_that_were_given_up_are_forgotten(path):
    async def main():
        store = SqliteStore(path)
        waits = [asyncio.create_task(store.wait_for_records("none", 5)) for _ in range(100)]
        await asyncio.sleep(0)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while store._waiters._waiting:
                await store.read("none")
        await store.close()

    asyncio.run(main())
