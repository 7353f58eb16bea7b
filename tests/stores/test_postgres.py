"""What is particular to the PostgreSQL store: its address, its server, its connections, its tables.

The promises that all stores keep are in test_stores.py, and processes that are killed in test_postgres_crashes.py.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import asyncpg
import pytest

from bridle import Agent
from bridle.stores import find_store_file, name_store, open_store
from bridle.stores.postgres import notifications, rows, tables
from bridle.stores.postgres.address import parse_address
from bridle.stores.postgres.connections import find_socket
from bridle.stores.postgres.rows import escape_nul, unescape_nul
from bridle.testing.conformance.sample_records import make_prompt, make_records, make_tool_finish
from bridle.values.calls import ContentRedacted
from bridle.values.errors import Conflict, Corrupt, MisuseError, Unusable
from bridle.values.record import seal_record
from tests.stores.postgres_stores import line, run_with
from tests.suite.command import bridle
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.postgres_server import change_rows

SECRET = "hunter2"
WAITING_TRANSACTIONS = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
WAITING_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def url(postgres):
    return postgres.new_url()


# The address.


@pytest.mark.parametrize(
    ("url", "name", "schema"),
    [
        (f"postgresql://me:{SECRET}@db.example:5433/logs", "postgresql://db.example:5433/logs", "bridle"),
        (f"postgres://me:{SECRET}@db/logs?schema=a&sslmode=require", "postgresql://db/logs?schema=a", "a"),
        (f"postgresql:///logs?host=/run/pg&password={SECRET}", "postgresql:///logs", "bridle"),
        (f"postgresql://me:{SECRET}@a:1,b:2/logs", "postgresql://a:1,b:2/logs", "bridle"),
    ],
)
def test_the_name_of_a_store_has_no_password(url, name, schema):
    address = parse_address(url)
    assert (address.name, address.schema) == (name, schema)
    store = open_store(url)
    for shown in (repr(store), repr(address), name_store(url), str(store)):
        assert SECRET not in shown
    assert find_store_file(url) is None
    assert "schema" not in address.dsn


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}/x@host/db",
        f"postgresql://me:{SECRET}?x@host/db",
        f"postgresql://me:{SECRET}#x@host/db",
        f"postgresql://me:{SECRET}@[::1/db",
        f"postgresql://me:{SECRET}@host/db?schema=",
        f"postgresql://me:{SECRET}@host/db?schema={'x' * 64}",
    ],
)
def test_a_wrong_address_is_refused_without_being_repeated(url):
    with pytest.raises(MisuseError) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECRET not in name_store(url)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("bridle:secret@", f"bridle:{SECRET}@"), "refuses the user or the password"),
        (("bridle:secret@", f"nobody:{SECRET}@"), "refuses the user"),
        (("/postgres?", "/missing?"), "there is no such database"),
        (("?schema", "?sslmode=require&schema"), "TLS|cannot be reached|cannot be used"),
        (("?schema", f"?sslmode={SECRET}&schema"), "the driver rejects the URL"),
        (("127.0.0.1:", "127.0.0.1:1"), "."),
    ],
)
def test_a_server_that_cannot_be_used_is_told_in_one_line_without_secrets(url, change, words, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises((Unusable, MisuseError), match=words) as caught:
        run_with(url.replace(*change), lambda store: store.read("a"))
    whole = "".join(map(str, [caught.value, caught.value.__cause__, caplog.text]))
    assert SECRET not in whole
    assert "secret" not in whole
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_what_to_type(url):
    code = f"import sys; sys.modules['asyncpg'] = None; import bridle.stores as s; s.open_store({url!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1].endswith("install it: pip install 'bridle[postgres]'")


def test_texts_that_the_server_cannot_hold_come_back():
    for text in ("", "a", "\0", "\\0", "\\\0", "\\\\0", "a\\b\0c\\0", "\\", "\0\0\\\\"):
        assert unescape_nul(escape_nul(text)) == text
        assert "\0" not in escape_nul(text)


def test_ids_and_keys_with_nul_are_kept(url):
    records = make_records(make_tool_finish("a\0\\b"))

    async def main(store):
        await store.append("s\0\\0", 0, records)
        await store.fork("s\0\\0", 1, "f\0")
        again = make_records(make_tool_finish("a\0\\b"), prefix=records)
        for session in ("s\0\\0", "f\0"):
            with pytest.raises(Conflict, match="may be recorded only once"):
                await store.append(session, 1, again)
            assert list(await store.read(session)) == records
        assert [(each.id, each.parent) for each in await store.sessions()] == [
            ("f\0", "s\0\\0"),
            ("s\0\\0", ""),
        ]

    run_with(url, main)


# The server.


@pytest.mark.parametrize("setting", ["synchronous_commit", "fsync"])
def test_a_server_that_may_lose_what_it_acknowledged_is_refused(own_server, setting):
    own_server.options[setting] = "off"
    own_server.restart()
    with pytest.raises(Unusable, match=f"{setting} is off.*turn it on"):
        run_with(own_server.url(), lambda store: store.append("a", 0, line("x")))
    assert own_server.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'bridle'") == "0"


def test_a_database_with_another_encoding_is_refused(own_server):
    own_server.sql("CREATE DATABASE odd ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(Unusable, match="encoded in LATIN1; create one with UTF8"):
        run_with(own_server.url(database="odd"), lambda store: store.read("a"))


def test_a_role_without_privileges_and_a_read_only_server_are_told(own_server):
    run_with(own_server.url(), lambda store: store.append("a", 0, line("x")))
    own_server.sql("CREATE ROLE guest LOGIN PASSWORD 'secret'")
    guest = own_server.url().replace("bridle:secret", "guest:secret")
    with pytest.raises(Unusable, match="lacks a privilege"):
        run_with(guest, lambda store: store.read("a"))
    own_server.sql("GRANT USAGE ON SCHEMA bridle TO guest")
    own_server.sql("GRANT SELECT ON ALL TABLES IN SCHEMA bridle TO guest")
    assert len(run_with(guest, lambda store: store.read("a"))) == 1, "reading needs no more than SELECT"
    own_server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on")
    with pytest.raises(Unusable, match="it is read-only"):
        run_with(own_server.url(), lambda store: store.append("b", 0, line("x")))


def test_a_takeover_without_a_connection_for_its_lock_leaves_the_session_to_its_owner(own_server):
    own_server.sql("CREATE ROLE guest LOGIN PASSWORD 'secret' CONNECTION LIMIT 1")
    guest = own_server.url().replace("bridle:secret", "guest:secret")

    async def main(store):
        await store.append("a", 0, line("x"))
        own_server.sql("GRANT USAGE ON SCHEMA bridle TO guest")
        own_server.sql("GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA bridle TO guest")
        async with store.lease("a") as lease:
            other = open_store(guest)
            with pytest.raises(Unusable, match="too many connections"):
                async with other.lease("a", take_over=True):
                    raise AssertionError
            await other.close()
            await store.append("a", 1, line("x", "y")[1:], epoch=lease.epoch)

    run_with(own_server.url(), main)


def test_an_error_of_the_server_is_told_and_keeps_what_is_stored(own_server):
    """A constraint that somebody else added stands for everything that the server can refuse."""
    records = line("x" * 100, "y")

    async def main(store):
        await store.append("a", 0, records[:1])
        own_server.sql("ALTER TABLE bridle.events ADD CHECK (length(data) < 500)")
        outcomes = await asyncio.gather(
            store.append("b", 0, line("z" * 1000)), store.append("a", 1, records[1:]), return_exceptions=True
        )
        assert isinstance(outcomes[0], Corrupt)
        assert outcomes[1] is None
        assert list(await store.read("a")) == records
        assert not await store.read("b")

    run_with(own_server.url(), main)


# The tables.


def test_tables_of_a_newer_version_and_of_others_are_refused(postgres, url):
    run_with(url, lambda store: store.append("a", 0, line("x")))
    schema = parse_address(url).schema
    postgres.sql(f"UPDATE {schema}.format SET version = 9")
    with pytest.raises(Unusable, match=r"newer Bridle \(format 9, this one knows 1\); upgrade"):
        run_with(url, lambda store: store.read("a"))
    postgres.sql(f"CREATE SCHEMA {schema}x; CREATE TABLE {schema}x.customers (id int)")
    with pytest.raises(Unusable, match="tables of another program"):
        run_with(f"{url}x", lambda store: store.read("a"))
    assert postgres.sql(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}x'") == "1"


@pytest.mark.parametrize("change", ["UPDATE format SET version = 0", "DELETE FROM format"])
def test_a_format_that_another_program_changed_is_told(postgres, url, change):
    run_with(url, lambda store: store.append("a", 0, line("x")))
    change_rows(url, change)
    with pytest.raises(
        Unusable, match=r"another program changed it; restore .* or correct the row in .*format$"
    ):
        run_with(url, lambda store: store.read("a"))


def test_many_processes_create_the_tables_once(postgres, url):
    records = line("x", "y")

    def use(number):
        run_with(url, lambda store: store.append(f"s{number}", 0, records))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    schema = parse_address(url).schema
    assert postgres.sql(f"SELECT version FROM {schema}.format") == str(tables.FORMAT) == "1"
    assert postgres.sql(f"SELECT count(*) FROM {schema}.sessions") == "8"


def test_schemas_of_one_database_are_separate_stores(postgres):
    one, two = postgres.new_url(), postgres.new_url()

    async def main():
        stores = [open_store(one), open_store(two), open_store(one)]
        for number, store in enumerate(stores[:2]):
            await store.append("a", 0, line(f"{number}"))
        async with stores[0].lease("a"), stores[1].lease("a"):
            with pytest.raises(Conflict):
                async with stores[2].lease("a"):
                    pass
        for number, store in enumerate(stores[:2]):
            assert list(await store.read("a")) == line(f"{number}")
        for store in stores:
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE events SET data = replace(data, 'two', 'TWO') WHERE seq = 2", "record 2 was changed"),
        ("UPDATE events SET at = at + 1 WHERE seq = 2", "record 2 was changed"),
        ("UPDATE events SET once = 'x' WHERE seq = 2", "record 2 has a wrong unique key"),
        ("DELETE FROM events WHERE seq = 2", "record 2 is missing"),
        ("DELETE FROM events WHERE seq = 3", "record 3 is missing at its end"),
        ("UPDATE sessions SET seq = 2, head = (SELECT hash FROM events WHERE events.sid = sessions.sid AND events.seq = 2) WHERE uid = 'a'", "record 2 is not the last|missing|times"),
        ("UPDATE sessions SET updated = updated + 1", "times differ"),
        ("UPDATE sessions SET uid = uid || 'x'; UPDATE sessions SET uid = CASE uid WHEN 'ax' THEN 'b' ELSE 'a' END", "belong to another session"),
        ("UPDATE events SET seq = seq + 100 WHERE seq IN (2, 3); UPDATE events SET seq = 105 - seq WHERE seq > 100", "record 2 was changed"),
    ],
)  # fmt: skip
def test_changed_rows_are_found(postgres, url, change, words):
    run_with(url, lambda store: store.append("a", 0, line("one", "two", "three")))
    run_with(url, lambda store: store.append("b", 0, line("eins", "zwei", "drei")))
    postgres.sql(f"SET search_path = {parse_address(url).schema}; {change}")
    with pytest.raises(Corrupt, match=words):
        run_with(url, lambda store: store.read("a"))


def test_a_damaged_blob_is_found_and_restored_by_putting_it_again(postgres, url):
    hash_ = run_with(url, lambda store: store.put_blob(b"content"))
    postgres.sql(f"UPDATE {parse_address(url).schema}.blobs SET bytes = 'other'")
    with pytest.raises(Corrupt, match="is not what was written"):
        run_with(url, lambda store: store.get_blob(hash_))
    run_with(url, lambda store: store.put_blob(b"content"))
    assert run_with(url, lambda store: store.get_blob(hash_)) == b"content"


def test_a_fork_that_begins_during_a_redaction_is_noticed(postgres, url):
    """The redaction waits for the fork's transaction, then finds a session that lacks the evidence."""
    records = line("one", "secret", "three")
    left = seal_record(2, 0.0, make_prompt("gone"), "")
    event = ContentRedacted(
        record=2,
        record_hash=records[1].hash,
        body=sha256(left.data).hexdigest(),
        digest=sha256(records[1].data).hexdigest(),
    )
    evidence = {"s": seal_record(4, 1.0, event, records[2].hash)}

    async def main(store):
        await store.append("s", 0, records)
        forker = await asyncpg.connect(
            postgres.url(), server_settings={"search_path": parse_address(url).schema}
        )
        async with forker.transaction():
            await rows.insert_fork(forker, "s", 3, "f", again=False)
            redacting = asyncio.create_task(store.redact("s", 2, left.data, evidence))
            while await asyncio.to_thread(postgres.sql, WAITING_TRANSACTIONS) != "1":
                assert not redacting.done()
        with pytest.raises(Conflict, match="is shared with 'f'"):
            await redacting
        for session in ("s", "f"):
            assert list(await store.read(session)) == records
        await forker.close()

    run_with(url, main)


# Connections.


def test_connections_that_are_cut_are_opened_again(postgres, url):
    records = line(*map(str, range(30)))

    async def main(store):
        async with store.lease("a") as lease:
            for place in range(len(records)):
                await store.append("a", place, records[place : place + 1], epoch=lease.epoch)
                if place % 5 == 0:
                    postgres.cut_connections()
                assert len(await store.read("a")) == place + 1
            with pytest.raises(Conflict, match="in use"):
                async with store.lease("a"):
                    pass
            other = open_store(url)
            with pytest.raises(Conflict, match="in use"):
                async with other.lease("a"):
                    pass
            await other.close()
        assert list(await store.read("a")) == records

    run_with(url, main)


def test_a_lease_whose_owner_ends_a_moment_later_is_taken(url):
    """As after kill -9: the server frees the locks of a process some milliseconds after it has ended."""

    async def main(store):
        owner = open_store(url)
        held = owner.lease("a")
        await held.__aenter__()
        taking = asyncio.create_task(store.lease("a").__aenter__())
        await asyncio.wait({taking}, timeout=0.05)  # enough for a first attempt, which finds it in use
        await held.__aexit__(None, None, None)
        await owner.close()
        assert (await taking).session == "a"

    run_with(url, main)


def test_a_lease_that_was_lost_with_its_connection_is_not_written_under(postgres, url):
    records = line("one", "two")
    key = tables.make_lock_key("lease", parse_address(url).schema, "a", 0)

    async def main(store):
        rival = await asyncpg.connect(postgres.url())
        async with store.lease("a") as lease:
            await store.append("a", 0, records[:1], epoch=lease.epoch)
            # It waits for the lock, and so gets it in the moment in which the connection ends.
            waiting = asyncio.create_task(rival.execute("SELECT pg_advisory_lock($1)", key))
            while await asyncio.to_thread(postgres.sql, WAITING_LOCKS) != "1":
                assert not waiting.done()
            await asyncio.to_thread(postgres.cut_connections)
            await waiting
            with pytest.raises(Conflict, match="in use by another run"):
                await store.append("a", 1, records[1:], epoch=lease.epoch)
            assert list(await store.read("a")) == records[:1]
        await rival.close()
        async with store.lease("a") as lease:
            await store.append("a", 1, records[1:], epoch=lease.epoch)

    run_with(url, main)


def test_a_lease_is_taken_again_when_the_server_is_back(own_server):
    """A run that waits for a person writes nothing, and stays the owner of its session."""

    async def wait_until_leased(store):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await store.is_leased("a"):
                await asyncio.sleep(0.01)

    async def main(store):
        other = open_store(own_server.url())
        async with store.lease("a"):
            for break_connections in (own_server.cut_connections, own_server.restart):
                await asyncio.to_thread(break_connections)
                await wait_until_leased(other)
                with pytest.raises(Conflict, match="in use"):
                    async with other.lease("a"):
                        pass
            own_server.stop()
        await other.close()

    run_with(own_server.url(), main)


def test_a_server_that_is_away_is_told_and_used_again_when_it_is_back(own_server):
    records = line("one", "two", "three")

    async def main(store):
        await store.append("a", 0, records[:1])
        own_server.stop()
        for act in (store.append("a", 1, records[1:2]), store.read("a"), store.sessions()):
            with pytest.raises(Unusable, match=r"cannot be reached|does not answer"):
                await act
        own_server.start()
        await store.append("a", 1, records[1:2])
        own_server.restart(signal.SIGKILL)
        assert list(await store.read("a")) == records[:2]
        await store.append("a", 2, records[2:])
        assert list(await store.read("a")) == records

    run_with(own_server.url(), main)


def test_a_refused_append_does_not_affect_the_others_of_its_group(url):
    async def main(store):
        await store.append("warm", 0, line("up"))
        lines = {f"s{number}": make_records(make_tool_finish("c"), make_prompt("x")) for number in range(50)}
        for session, records in lines.items():
            await store.append(session, 0, records[:1])
        twice = make_records(make_tool_finish("c"), prefix=lines["s7"][:1])
        outcomes = await asyncio.gather(
            *(
                store.append(session, 1, twice if session == "s7" else records[1:])
                for session, records in lines.items()
            ),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes if each is not None] == [Conflict]
        for session, records in lines.items():
            assert list(await store.read(session)) == (records[:1] if session == "s7" else records)

    run_with(url, main)


def test_one_store_serves_several_loops_and_threads(url):
    store = open_store(url)

    def drive(number):
        async def main():
            records = line(*map(str, range(10)))
            async with store.lease(f"s{number}") as lease:
                for place in range(10):
                    await store.append(f"s{number}", place, records[place : place + 1], epoch=lease.epoch)
            return list(await store.read(f"s{number}")) == records

        return asyncio.run(main())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(drive, range(12)))
    asyncio.run(store.close())
    with pytest.raises(MisuseError, match="this store was closed"):
        asyncio.run(store.read("a"))
    assert not [each for each in threading.enumerate() if each.name == "bridle-postgres" and each is store]


def test_agents_use_it_like_any_store(url):
    agent = Agent("sim:", store=url)
    first = agent.run_sync("Hello")
    second = Agent("sim:", store=url).run_sync("And again?", session=first.session)
    assert second.session == first.session
    assert len(run_with(url, lambda store: store.read(first.session))) > 8


def test_a_child_made_by_fork_neither_uses_nor_holds_the_connections(url):
    code = f"""if True:
        import asyncio, os, signal, sys, time
        from bridle.stores import open_store
        from bridle.testing.conformance.sample_records import make_prompt, make_records
        from bridle.values.errors import MisuseError
        store = open_store({url!r})
        async def main():
            async with store.lease("a") as lease:
                await store.append("a", 0, make_records(make_prompt("x")), epoch=lease.epoch)
                if not os.fork():
                    try:
                        asyncio.new_event_loop().run_until_complete(store.read("a"))
                    except MisuseError as error:
                        os.write(1, f"{{os.getpid()}} {{error}}\\n".encode())
                    except RuntimeError as error:
                        os.write(1, f"{{os.getpid()}} opened before fork() {{error}}\\n".encode())
                    time.sleep(600)
                await asyncio.Event().wait()
        asyncio.run(main())
    """
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        child, _, words = parent.stdout.readline().partition(" ")
        try:
            assert "opened before fork()" in words

            async def take(store):
                with pytest.raises(Conflict):
                    async with store.lease("a"):
                        pass
                parent.kill()
                parent.wait()
                for _ in range(2000):  # until the server has noticed that the parent is gone
                    try:
                        async with store.lease("a"):
                            return True
                    except Conflict:
                        await asyncio.sleep(0.005)
                return False

            assert run_with(url, take), "the child holds the lock of its dead parent"
        finally:
            os.kill(int(child), signal.SIGKILL)


KEEPALIVE_OF_SERVER = {
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
KEEPALIVE_OF_CLIENT = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
HOLDS_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


def test_a_machine_that_vanishes_is_noticed_in_ten_seconds_by_the_connection_of_the_locks(url):
    async def read(connection):
        assert await connection.fetchval(HOLDS_LOCKS)
        shown = {name: await connection.fetchval(f"SHOW {name}") for name in KEEPALIVE_OF_SERVER}
        found = find_socket(connection)
        options = {
            name: found.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in KEEPALIVE_OF_CLIENT
        }
        return shown, options, found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    async def hold(store):
        await store.append("a", 0, line("x"))
        async with store.lease("a"):
            return await store._loop.run(store._leases.use_connection(read))

    assert run_with(url, hold) == (KEEPALIVE_OF_SERVER, KEEPALIVE_OF_CLIENT, 1)


# Watching.


def test_notifications_are_gathered_and_outside_of_the_appends(postgres, url):
    async def main(store):
        heard = []
        listener = await asyncpg.connect(postgres.url())
        channel = notifications.Notifications(store._connections)._channel
        await listener.add_listener(channel, lambda *seen: heard.append(seen[-1]))
        records = line(*map(str, range(20)))

        async def drive(session):
            for place in range(20):
                await store.append(session, place, records[place : place + 1])

        await asyncio.gather(*(drive(f"s{number}") for number in range(10)))
        await store.append("last", 0, records[:1])
        wanted = notifications._hash("last")
        for _ in range(2000):
            if any(wanted in payload for payload in heard):
                break
            await asyncio.sleep(0.005)
        await listener.close()
        named = {name for payload in heard for name in payload.split()}
        assert named == {notifications._hash(f"s{number}") for number in range(10)} | {wanted}
        assert len(heard) < 201 / 2, "one notification for several appends"

    run_with(url, main)


def test_a_reader_misses_nothing_when_notifications_are_lost(url, monkeypatch):
    monkeypatch.setattr(notifications.Notifications, "announce", lambda self, sessions: None)
    monkeypatch.setattr(notifications, "LOOK_SECONDS", 0.02)
    records = line(*map(str, range(20)))

    async def main(store):
        other: Any = open_store(url)
        seen = []

        async def follow():
            while len(seen) < len(records):
                await other.wait_for_records("a", len(seen))
                seen.extend(await other.read("a", len(seen)))

        following = asyncio.ensure_future(follow())
        for place in range(20):
            await store.append("a", place, records[place : place + 1])
        await following
        assert seen == records
        await other.close()

    run_with(url, main)


def test_closing_ends_the_waits(url):
    async def main():
        store: Any = open_store(url)
        waiting = asyncio.ensure_future(store.wait_for_records("a", 0))
        await store.append("b", 0, line("x"))
        await store.close()
        await waiting

    asyncio.run(main())


# The command line.


def test_doctor_and_config_show_the_store_without_its_password(postgres, url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", url)
    rows = {row["name"]: row for row in json.loads(bridle("doctor", "--json").out)}
    assert "created by the first run" in rows["store"]["detail"]
    assert postgres.sql(f"SELECT to_regnamespace('{parse_address(url).schema}') IS NULL") == "t"
    run_with(url, lambda store: store.append("a", 0, line("x")))
    rows = {row["name"]: row for row in json.loads(bridle("doctor", "--json").out)}
    assert rows["store"]["state"] == "ok"
    assert rows["store"]["detail"].startswith(
        f"postgresql://127.0.0.1:{postgres.port}/postgres, 1 session, PostgreSQL "
    )
    assert rows["store"]["detail"].endswith("synchronous_commit on")
    shown = bridle("doctor").out + bridle("config").out + bridle("config", "--json").out
    assert "secret" not in shown
    assert f"postgresql://127.0.0.1:{postgres.port}/postgres" in shown
    monkeypatch.setenv("BRIDLE_STORE", url.replace("secret", SECRET))
    rows = {row["name"]: row for row in json.loads(bridle("doctor", "--json").out)}
    assert rows["store"]["state"] == "fail"
    assert SECRET not in json.dumps(rows)


def test_commands_work_on_it(url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", url)
    ran = json.loads(bridle("run", "--json", "--model", "sim:", "Hello").out)
    session = ran["session"]
    assert session in bridle("sessions").out
    assert "Hello" in bridle("show", session).out
    assert json.loads(bridle("show", "--as", "log", session, "--json").out)
    fork = json.loads(bridle("session", "fork", session, "--json").out)
    assert fork["session"] != session
    assert bridle("session", "tail", session, "--store", url).code == 0


def test_verify_finds_a_log_that_was_rewritten_as_a_whole(postgres, url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", url)
    monkeypatch.setenv("BRIDLE_ANCHORS", str(tmp_path / "heads"))
    session = json.loads(bridle("run", "--json", "--model", "sim:", "Hello").out)["session"]
    assert bridle("store", "verify").code == 0
    assert "1 session anchored" in bridle("store", "verify").out
    schema = parse_address(url).schema
    postgres.sql(f"TRUNCATE {schema}.sessions, {schema}.events CASCADE")
    monkeypatch.delenv("BRIDLE_ANCHORS")
    run_with(url, lambda store: store.append(session, 0, line("forged")))
    assert bridle("store", "verify").code == 0, "without anchors it cannot be told"
    told = bridle("store", "verify", "--anchors", str(tmp_path / "heads"))
    assert (told.code, session in told.out) == (1, True)
