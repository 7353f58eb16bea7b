"""Every store passes the conformance kit, and the kit notices a store that breaks a promise.

`ListStore` is the oracle: a store in forty lines that copies everything.  Given the name of a
bug it has that bug, which is how the conformance check and the model test are themselves tested.
"""

import asyncio
import itertools
import subprocess
import sys
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bridle.ports.store import Lease, SessionInfo, Store
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.stores.sqlite import maintenance
from bridle.stores.sqlite.store import SqliteStore
from bridle.testing.conformance.sample_records import make_prompt, make_records, make_tool_finish
from bridle.testing.conformance.store import check_store
from bridle.testing.conformance.store_blobs import make_blob_receipt
from bridle.values.errors import BridleError, Conflict, MissingBlob, MisuseError, SessionNotFound
from bridle.values.record import GENESIS, Record, seal_record
from tests.suite.campaign import FIRST_SEED, scale
from tests.suite.postgres_server import PostgresServer

"""How much longer than usual the random tests run."""


class ListStore:
    """What a store does, said as plainly as possible.  `bug` names the promise it breaks."""

    def __init__(self, bug=""):
        self.bug = bug
        self.lines: dict[str, list[Record]] = {}
        self.forks: dict[str, tuple[str, int]] = {}
        self.touched: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self.epochs: dict[str, int] = {}
        self.held: set[tuple[str, int]] = set()

    async def append(self, session, after, records, *, epoch=None):
        if not records:
            return
        if epoch not in (None, self.epochs.get(session, 0)) and self.bug != "ignores epochs":
            raise Conflict("taken over")
        line = self.lines.get(self.key(session), [])
        head = line[-1].hash if line else GENESIS
        if self.bug == "merges":
            records, after = [seal_record(len(line) + 1, records[0].at, records[0].event, head)], len(line)
        if len(line) != after:
            raise Conflict("length")
        if records[0].prev != head and self.bug != "ignores prev":
            raise Conflict("prev")
        names = [] if self.bug == "forgets names" else self.names(session)
        grown = list(line)
        for record in records:
            expected = (after + 1, record.prev if record is records[0] else grown[-1].hash)
            if (record.seq, record.prev) != expected and self.bug != "takes anything":
                raise MisuseError("not a line")
            dangling = any(hash_ not in self.blobs for hash_ in record.event.required_blobs)
            if dangling and self.bug != "refers to nothing":
                raise MissingBlob("dangling")
            if record.event.unique_key in names:
                if self.bug == "drops repetitions":
                    return
                raise Conflict("once")
            names += [record.event.unique_key] if record.event.unique_key else []
            grown.append(record)
            after += 1
            if self.bug == "keeps half":
                self.lines[session] = list(grown)
        line[len(line) :] = MANGLED.get(self.bug, list)(records)
        self.lines[self.key(session)] = line
        self.touch(session)

    async def read(self, session, after=0, limit=None):
        key = self.key(session)
        if self.bug == "makes what it reads":
            self.touch(session)
        if self.bug == "raises for unknown" and key not in self.lines:
            raise SessionNotFound(session)
        start = after + 1 if self.bug == "reads one too few" and after else after
        end = None if limit is None or self.bug == "ignores the limit" else start + max(limit, 0)
        return tuple(self.lines.get(key, [])[start:end])

    async def fork(self, session, at, new):
        if session not in self.lines and self.bug != "forks nothing":
            raise SessionNotFound(session)
        line = self.lines.get(session, [])
        if not 0 <= at <= len(line) and self.bug != "forks anywhere":
            raise MisuseError("at")
        if new in self.lines and self.bug != "overwrites":
            raise Conflict("taken")
        if self.bug == "shows more than the fork point":
            at = max(at, self.forks.get(session, ("", 0))[1])
        self.lines[new] = line if self.bug == "shares the tail" and at == len(line) else line[:at]
        self.forks[new] = (session, at)
        self.touch(new)

    async def put_blob(self, data):
        hash_ = sha256(data).hexdigest()
        hash_ = hash_.upper() if self.bug == "names blobs its own way" else hash_
        if self.bug == "keeps half a blob":
            self.blobs[hash_] = data[: len(data) // 2]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if self.bug == "cuts blobs":
            data = data[:1_000_000]
        if self.bug != "forgets blobs":
            self.blobs[hash_] = data
        return hash_

    async def get_blob(self, hash_):
        if self.bug == "guesses blobs":
            return next((data for known, data in self.blobs.items() if known[:9] == hash_[:9]), None)
        if self.bug == "raises for unknown blobs" and hash_ not in self.blobs:
            raise MisuseError("unknown")
        return self.blobs.get(hash_)

    async def sessions(self, limit=50):
        listed = [self.info(name) for name in reversed(self.touched)]
        if self.bug == "lists oldest first":
            listed.reverse()
        return tuple(listed if self.bug == "lists all" else listed[:limit])

    @asynccontextmanager
    async def lease(self, session, *, take_over=False):
        if take_over and session not in self.lines and self.bug != "takes over nothing":
            raise SessionNotFound(session)
        epoch = self.epochs.get(session, 0)
        if take_over and self.bug != "keeps the epoch":
            epoch += 1
        if (session, epoch) in self.held and self.bug != "lets two in":
            raise Conflict("held")
        if self.bug == "raises the epoch too late":
            await asyncio.sleep(0)
        self.held.add((session, epoch))
        self.epochs[session] = epoch
        yield Lease(session=session, epoch=epoch)
        self.held.discard((session, epoch))
        if self.bug == "forgets takeovers":
            self.epochs[session] = 0

    async def close(self):
        pass

    def key(self, session):
        return session.lower() if self.bug == "folds names" else session

    def names(self, session):
        inherited = self.forks.get(session, ("", 0))[1] if self.bug == "forgets inherited names" else 0
        line = self.lines.get(self.key(session), [])
        return [record.event.unique_key for record in line[inherited:] if record.event.unique_key]

    def info(self, name):
        line = self.lines.get(name, [])
        parent, at = self.forks.get(name, ("", 0))
        own = line[at:] or line[-1:]
        return SessionInfo(
            id=name,
            length=len(line) - (at if self.bug == "counts its own only" else 0),
            created_at=own[0].at if own else 0.0,
            updated_at=line[-1].at if line else 0.0,
            parent=parent,
            forked_at=at,
        )

    def touch(self, name):
        if self.bug == "lists by age" and name in self.touched:
            return
        self.touched = [other for other in self.touched if other != name] + [name]


MANGLED = {
    "forgets": lambda records: records[:2],
    "reorders": lambda records: records[::-1],
    "rounds times": lambda records: [seal_record(r.seq, round(r.at, 6), r.event, r.prev) for r in records],
    "truncates": lambda records: [record for record in records if len(record.data) < 1_000_000],
}

BUGS = (
    *MANGLED, "folds names", "merges", "ignores prev", "forgets names", "forgets inherited names",
    "drops repetitions", "takes anything", "keeps half", "makes what it reads", "raises for unknown",
    "reads one too few", "ignores the limit", "forks nothing", "forks anywhere", "overwrites", "shows more than the fork point",
    "refers to nothing", "names blobs its own way", "cuts blobs", "forgets blobs", "guesses blobs",
    "keeps half a blob", "raises for unknown blobs",
    "ignores epochs", "takes over nothing", "keeps the epoch", "lets two in", "raises the epoch too late",
    "forgets takeovers",
    "shares the tail", "lists oldest first", "lists all", "counts its own only", "lists by age",
)  # fmt: skip


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request, tmp_path):
    numbers = iter(range(1000))
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None

    async def make_store():
        if server is not None:
            return open_store(server.new_url())
        return open_store(None if request.param == "memory" else tmp_path / f"{next(numbers)}.db")

    return make_store


@pytest.mark.slow
def test_a_store_keeps_its_promises(make):
    asyncio.run(check_store(make))


def test_the_oracle_keeps_them_too():
    async def make():
        return ListStore()

    asyncio.run(check_store(make))


@pytest.mark.parametrize("bug", BUGS)
def test_the_check_finds_a_store_that(bug):
    async def make():
        return ListStore(bug)

    with pytest.raises(AssertionError) as caught:
        asyncio.run(check_store(make))
    assert ":" in str(caught.value), "the message names the promise and what was seen"


class KeepsSession(SqliteStore):
    async def remove_session(self, session, head, *, at, reason):
        pass


class IgnoresHead(SqliteStore):
    async def remove_session(self, session, head, *, at, reason):
        records = await self.read(session)
        await super().remove_session(session, records[-1].hash if records else GENESIS, at=at, reason=reason)


class RemovesWhileDriven(SqliteStore):
    async def remove_unused_blobs(self, *, dry_run):
        if dry_run:
            return await super().remove_unused_blobs(dry_run=True)
        return await self._writer.run(maintenance.delete_unused_blobs)


class IgnoresDryRun(SqliteStore):
    async def remove_unused_blobs(self, *, dry_run):
        return await super().remove_unused_blobs(dry_run=False)


class SeesProblems(SqliteStore):
    async def check_file(self):
        return ("a problem",)


class Overwrites(SqliteStore):
    async def back_up(self, target):
        target.unlink(missing_ok=True)
        await super().back_up(target)


@pytest.mark.parametrize(
    "broken", [KeepsSession, IgnoresHead, RemovesWhileDriven, IgnoresDryRun, SeesProblems, Overwrites]
)
def test_the_check_finds_a_store_that_is_pruned_wrongly(broken, tmp_path):
    numbers = itertools.count()

    async def make():
        return broken(tmp_path / f"{next(numbers)}.db")

    with pytest.raises(AssertionError, match=r"removed session|unused blobs|whole store|copy"):
        asyncio.run(check_store(make))


async def outcome(act):
    """What came of it, comparable between stores: a value, or the kind of refusal."""
    try:
        return await act
    except BridleError as error:
        return type(error)


class StoreMachine(RuleBasedStateMachine):
    """Any sequence of calls has the same outcome on the store as on the oracle."""

    def __init__(self):
        super().__init__()
        self.oracle = ListStore()
        self.runner = asyncio.Runner()
        self.store: Store

    def name(self, pick):
        """A session that exists, or with some luck a new one."""
        names = [*self.oracle.lines, f"é {len(self.oracle.lines)}"]
        return names[pick % len(names)]

    def both(self, act):
        async def on_both():
            return await outcome(act(self.oracle)), await outcome(act(self.store))

        expected, found = self.runner.run(on_both())
        assert found == expected

    @rule(
        pick=st.integers(0, 99),
        calls=st.lists(st.integers(0, 11), min_size=1, max_size=3),
        off=st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
        past=st.sampled_from(["own", "own", "own", "own", "other"]),
        size=st.sampled_from([1, 1, 1, 70_000]),
    )
    def append(self, pick, calls, off, past, size):
        name = self.name(pick)
        line = self.oracle.lines.get(name, [])
        start = line[:off] if off < 0 else [*line, *make_records(*[make_prompt("gap")] * off, prefix=line)]
        if past == "other":
            start = make_records(*(make_prompt(f"other {n}") for n in range(len(start))))
        events = [make_tool_finish(f"c{call}") if call < 5 else make_prompt("x" * size) for call in calls]
        records = make_records(*events, prefix=start)
        self.both(lambda store: store.append(name, len(start), records))

    @rule(pick=st.integers(0, 99), number=st.integers(0, 3), putting=st.booleans())
    def excerpt(self, pick, number, putting):
        """A record that refers to bytes which may have been put before, or only now, or never."""
        name, data = self.name(pick), b"%d" % number * 70_000
        if putting:
            self.both(lambda store: store.put_blob(data))
        line = list(self.oracle.lines.get(name, []))
        hash_ = sha256(data).hexdigest()
        records = make_records(make_blob_receipt(f"b{len(line)}", hash_), prefix=line)
        self.both(lambda store: store.append(name, len(line), records))
        self.both(lambda store: store.get_blob(hash_))

    @rule(parent=st.integers(0, 99), new=st.sampled_from([-1, -1, -1, 0, 1]), data=st.data())
    def fork(self, parent, new, data):
        name = self.name(parent)
        at = data.draw(st.integers(-1, len(self.oracle.lines.get(name, [])) + 1))
        fresh = self.name(new)
        self.both(lambda store: store.fork(name, at, fresh))

    @rule(pick=st.integers(0, 99), after=st.integers(0, 12))
    def read(self, pick, after):
        name = self.name(pick)
        self.both(lambda store: store.read(name, after))

    @rule(limit=st.integers(0, 6))
    def listing(self, limit):
        self.both(lambda store: store.sessions(limit))

    def teardown(self):
        try:
            for pick in range(len(self.oracle.lines)):
                self.read(pick, 0)
        finally:
            self.runner.run(self.store.close())
            self.runner.close()


class MemoryMachine(StoreMachine):
    @initialize()
    def start(self):
        self.store = MemoryStore()


class SqliteMachine(StoreMachine):
    @initialize()
    def start(self):
        self.folder = TemporaryDirectory()
        self.store = open_store(Path(self.folder.name, "log.db"))

    @precondition(lambda self: self.oracle.touched)
    @rule()
    def open_anew(self):
        self.runner.run(self.store.close())
        self.store = open_store(Path(self.folder.name, "log.db"))

    def teardown(self):
        try:
            super().teardown()
        finally:
            self.folder.cleanup()


class PostgresMachine(StoreMachine):
    server: PostgresServer

    @initialize()
    def start(self):
        self.url = self.server.new_url()
        self.store = open_store(self.url)

    @precondition(lambda self: self.oracle.touched)
    @rule()
    def open_anew(self):
        self.runner.run(self.store.close())
        self.store = open_store(self.url)

    @precondition(lambda self: self.oracle.touched)
    @rule()
    def lose_connections(self):
        """What is idle is opened again, unnoticed."""
        self.server.cut_connections()


def steps(examples, phases=tuple(Phase)):
    return settings(
        max_examples=examples,
        phases=phases,
        stateful_step_count=40,
        deadline=None,
        derandomize=not FIRST_SEED,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def test_memory_does_what_the_oracle_does():
    run_state_machine_as_test(MemoryMachine, settings=steps(scale(100)))


def test_sqlite_does_what_the_oracle_does():
    run_state_machine_as_test(SqliteMachine, settings=steps(scale(25)))


def test_postgres_does_what_the_oracle_does(postgres):
    class Machine(PostgresMachine):
        server = postgres

    run_state_machine_as_test(Machine, settings=steps(scale(8)))


@pytest.mark.parametrize(
    "bug",
    [
        "keeps half",
        "forgets inherited names",
        "shows more than the fork point",
        "shares the tail",
        "lists all",
    ],
)
@pytest.mark.full
@pytest.mark.slow
def test_the_model_finds_a_store_that(bug):
    class Machine(StoreMachine):
        @initialize()
        def start(self):
            self.store = ListStore(bug)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=steps(6000, phases=[Phase.generate]))


def test_names_and_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert isinstance(open_store(None), MemoryStore)
    assert isinstance(open_store(":memory:"), MemoryStore)
    for where, path in {
        "log.db": "log.db",
        "sqlite:///url.db": "url.db",
        f"sqlite:///{tmp_path}/abs.db": "abs.db",
        "deep/er/log.db": "deep/er/log.db",
        "~/mine.db": "home/mine.db",
        "odd ?#%20é.db": "odd ?#%20é.db",
    }.items():
        store: Any = open_store(where)
        assert store.path == tmp_path / path
        assert (tmp_path / path).is_file()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("postgresql+asyncpg://me:secret@host/db", "postgresql.asyncpg:// stores are not available"),
        ("redis://host", "redis:// stores are not available"),
        ("sqlite://log.db", "sqlite:///PATH"),
        ("sqlite:///log.db?mode=ro", "sqlite:///PATH"),
        ("sqlite:///", "sqlite:///PATH"),
        ("", "the store path is empty"),
        ("  ", "the store path is empty"),
    ],
)
def test_a_store_that_cannot_be_had_is_refused_in_one_line(where, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MisuseError, match=words) as caught:
        open_store(where)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_a_name_that_cannot_be_written_is_refused(make, name):
    async def main():
        store = await make()
        with pytest.raises(MisuseError):
            await store.append(name, 0, make_records(make_prompt("x")))
        await store.append("a", 0, make_records(make_prompt("x")))
        with pytest.raises(MisuseError):
            await store.fork("a", 1, name)
        assert [info.id for info in await store.sessions()] == ["a"]
        await store.close()

    asyncio.run(main())


def test_no_database_is_loaded_before_one_is_opened():
    code = "import sys, bridle.stores as s; s.open_store(None); sys.exit(bool({'sqlite3', 'asyncpg'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_forks_in_memory_share_the_very_records():
    async def main():
        store = MemoryStore()
        line = make_records(*(make_prompt(f"{n}") for n in range(4)))
        await store.append("a", 0, line)
        await store.fork("a", 3, "b")
        await store.fork("b", 2, "c")
        shared = await store.read("c")
        assert all(one is other for one, other in zip(shared, line[:2], strict=True))

    asyncio.run(main())
