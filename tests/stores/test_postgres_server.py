"""The server of a PostgreSQL store in hard moments: TLS, a standby, a restart, a full disk, few privileges, remnants.

Everything happens on real servers that the tests set up as they like.
"""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from bridle import Agent, KeepRaw, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.recovery import session_log, snapshots
from bridle.run.recovery.retention import remove_session
from bridle.run.recovery.verification import group_anchors, verify_session, verify_store
from bridle.sessions import redact_record
from bridle.stores import open_store
from bridle.stores.anchors import read_anchors
from bridle.stores.postgres.store import PostgresStore
from bridle.testing import FakeClock, scripted
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.testing.conformance.store_blobs import make_blob_receipt
from bridle.testing.scripted_model import call_reply
from bridle.values.errors import Corrupt, Unusable
from bridle.values.events import RunEnded
from bridle.values.record import GENESIS, seal_record
from tests.stores.postgres_stores import line, make_server, run_with
from tests.suite.postgres_server import PostgresServer, change_rows, find_binaries, find_free_port

SECRET = "4111-1111-1111-1111"
VACUUMS = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'bridle' AND relname = 'events'"


def expect_line(url, act, words, kind=Unusable):
    """The store refuses it in one line, which has no password in it."""
    with pytest.raises(kind, match=words) as refused:
        run_with(url, act)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    return str(refused.value)


def read_a(store):
    return store.read("a")


# TLS.


def make_certificate(folder, name):
    """A certificate that signs itself, for a host; and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made with openssl")
    files = folder / f"{name}.crt", folder / f"{name}.key"
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    names = ["-addext", f"subjectAltName=DNS:{name}", "-out", files[0], "-keyout", files[1]]
    subprocess.run(["openssl", "req", *kind, *names], check=True, capture_output=True)
    return files


@pytest.fixture
def tls_server():
    """A server that was built with TLS; that of the wheel is not."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for binaries in (find_binaries(), *installed):
        linked = (
            subprocess.run(["ldd", binaries / "postgres"], capture_output=True, text=True, check=False)
            if binaries
            else None
        )
        if linked is not None and "libssl" in linked.stdout:
            server = PostgresServer(binaries)  # type: ignore[arg-type]
            yield server
            server.remove()
            return
    pytest.skip("no PostgreSQL server here was built with TLS: apt-get install postgresql")


@pytest.mark.slow
def test_tls_is_used_and_verified_as_the_url_says(tls_server, tmp_path):
    own_server = tls_server
    host = own_server.url().replace("127.0.0.1", "localhost")
    certificate, key = make_certificate(tmp_path, "localhost")
    other, _ = make_certificate(tmp_path, "example.org")
    verified = f"{host}?sslmode=verify-full&sslrootcert={certificate}"
    for url in (f"{host}?sslmode=require", verified):
        expect_line(url, read_a, "it offers no TLS; turn on its setting ssl, or change sslmode in the URL")
    for file, name in ((certificate, "server.crt"), (key, "server.key")):
        shutil.copy(file, own_server.data / name)
        if own_server.user:
            shutil.chown(own_server.data / name, "nobody", "nogroup")
        (own_server.data / name).chmod(0o600)
    (own_server.data / "pg_hba.conf").write_text("hostssl all all all scram-sha-256\n")
    own_server.options["ssl"] = "on"
    own_server.restart()
    using = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    for url in (verified, f"{host}?sslmode=require", host):
        assert run_with(url, lambda store: store._use(lambda db: db.fetchval(using))) is True
    for url, words in (
        (
            f"{host}?sslmode=verify-full&sslrootcert={other}",
            "TLS fails; check sslmode and sslrootcert in the URL",
        ),
        (
            verified.replace("localhost", "127.0.0.1", 1),
            "TLS fails; check sslmode and sslrootcert in the URL",
        ),
        (
            f"{host}?sslmode=verify-full&sslrootcert={certificate}.absent",
            f"the file '{certificate}.absent' of sslrootcert does not exist; correct sslrootcert in the URL",
        ),
        (f"{host}?sslmode=disable", "it refuses the user; check the URL and pg_hba.conf"),
    ):
        expect_line(url, read_a, words)


# Failover.


def start_standby(primary):
    """A standby that follows the server."""
    standby = PostgresServer.__new__(PostgresServer)
    standby.__dict__.update(primary.__dict__)
    standby.folder = Path(tempfile.mkdtemp(prefix="bridle-standby-", dir=primary.folder.parent))
    standby.data, standby.port = standby.folder / "data", find_free_port()
    if primary.user:
        shutil.chown(standby.folder, "nobody", "nogroup")
    primary.run("pg_basebackup", "-d", primary.url(), "-D", standby.data, "-R", "-X", "stream", "-c", "fast")
    standby.options = {**primary.options, "unix_socket_directories": str(standby.folder)}
    standby.process = None
    standby.start()
    return standby


def test_a_standby_is_refused_and_used_once_it_is_the_primary(own_server):
    (own_server.data / "pg_hba.conf").write_text("host all,replication all all scram-sha-256\n")
    own_server.restart()
    records = line("one", "two", "three")
    run_with(own_server.url(), lambda store: store.append("a", 0, records[:1]))
    standby = start_standby(own_server)
    both = own_server.url().replace(
        f"127.0.0.1:{own_server.port}", f"127.0.0.1:{standby.port},127.0.0.1:{own_server.port}"
    )

    async def fail_over(store):
        """The primary dies under an open store; the standby takes its place."""
        await store.append("a", 1, records[1:2])
        last = await asyncio.to_thread(own_server.sql, "SELECT pg_current_wal_lsn()")
        while await asyncio.to_thread(standby.sql, f"SELECT pg_last_wal_replay_lsn() < '{last}'") == "t":
            assert standby.process.poll() is None
        await asyncio.to_thread(own_server.stop, signal.SIGKILL)
        await asyncio.to_thread(standby.sql, "SELECT pg_promote()")
        await store.append("a", 2, records[2:])
        return await store.read("a")

    try:
        for act in (read_a, lambda store: store.append("a", 1, records[1:2])):
            expect_line(standby.url(), act, "it is a standby, which is read-only; connect to the primary")
        assert list(run_with(f"{both}?target_session_attrs=primary", fail_over)) == records
    finally:
        standby.remove()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_a_run_survives_a_restart_of_the_server_between_two_steps(own_server, how):
    async def main(store):
        run = SpoiledRun(lambda: own_server.restart(how))
        result = await run.make_agent(store).run("Go.", "s")
        await check_store_is_whole(store)
        return result

    assert run_with(own_server.url(), main).text == "Done."


# Hard disks.


class SpoiledRun:
    """A run whose tool spoils something between two calls of the model."""

    def __init__(self, spoil):
        @tool
        async def work() -> str:
            """Work."""
            await asyncio.to_thread(spoil)
            return "worked " + "x" * 200_000

        self._work = work
        self.model = scripted(call_reply(("work", {})), "Done.")

    def make_agent(self, store, **more):
        return Agent(self.model, tools=[self._work], store=store, **more)

    async def fail(self, store):
        await self.make_agent(store).run("Go.", "s")

    def check_calls(self):
        assert len(self.model.script.requests) == 1, "the model was called although nothing could be recorded"


async def check_store_is_whole(store):
    sessions, problems = await verify_store(store, {})
    assert [*problems, *(each for session in sessions for each in session.problems)] == []


@pytest.fixture
def small_server():
    """A server whose tables are on a small disk of their own, in memory."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = Path(tempfile.mkdtemp())
    options = ["-t", "tmpfs", "-o", "size=6m,mode=0755", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let a test mount a small disk")
    shutil.chown(folder, "nobody", "nogroup")
    server = make_server()
    try:
        server.sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
        server.sql("ALTER DATABASE postgres SET default_tablespace = 'small'")
        yield server, folder
    finally:
        server.remove()
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def test_a_full_disk_of_the_server_ends_the_run_before_the_next_model_call(small_server):
    server, disk = small_server

    def fill():
        with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(os.urandom(4096))

    async def go_on(store):
        await check_store_is_whole(store)
        return await SpoiledRun(lambda: None).make_agent(store).resume("s")

    run = SpoiledRun(fill)
    expect_line(server.url(), run.fail, "its disk is full; make room and resume")
    run.check_calls()
    (disk / "ballast").unlink()
    assert run_with(server.url(), go_on).stop in ("done", "waiting")


@pytest.mark.parametrize("what", ["TABLE {}.events CASCADE", "SCHEMA {} CASCADE"])
def test_tables_that_are_removed_under_a_run_end_it_before_the_next_model_call(postgres, what):
    url = postgres.new_url()
    schema = url.rpartition("=")[2]
    run = SpoiledRun(lambda: postgres.sql(f"DROP {what.format(schema)}"))
    expect_line(url, run.fail, "tables are missing; restore them from a backup", Corrupt)
    run.check_calls()


def test_a_clock_that_jumps_back_changes_nothing_in_a_database(postgres):
    clock = FakeClock()

    async def main(store):
        run = SpoiledRun(lambda: clock.set_wall(-86_400.0))
        assert (await run.make_agent(store, clock=clock).run("Go.", "s")).text == "Done."
        await check_store_is_whole(store)
        return [record.at for record in await store.read("s")]

    times = run_with(postgres.new_url(), main)
    assert times == sorted(times)
    assert clock.now() < times[0], "the clock did not jump"


# Redaction and pruning.


def find_secret(server, folder):
    """Files of the server that hold the secret."""
    server.sql("CHECKPOINT")
    files = (path for path in (server.data / folder).rglob("*") if path.is_file())
    return [path for path in files if SECRET.encode() in path.read_bytes()]


async def write_secret(store):
    records = line(f"{SECRET} of a customer", "one", f"and {SECRET}", "two", "three")
    await store.append("s", 0, records)
    hash_ = await store.put_blob(f"card {SECRET} ".encode() * 10)
    receipt = make_records(make_blob_receipt("c1", hash_), prefix=records)
    later = line(*(f"later {n}" for n in range(50)), prefix=[*records, *receipt])
    await store.append("s", 5, [*receipt, *later])


async def redact_secret(store):
    for seq in (1, 3, 6):
        await redact_record(store, "s", seq, reason="r", by="b")


def test_removed_content_leaves_the_files_of_the_tables_and_the_warning_says_what_stays(own_server, caplog):
    run_with(own_server.url(), write_secret)
    assert find_secret(own_server, "base")
    with caplog.at_level(logging.WARNING, "bridle"):
        run_with(own_server.url(), redact_secret)
    assert find_secret(own_server, "base") == []
    assert find_secret(own_server, "pg_wal"), "the warning would be wrong"
    told = [record.getMessage() for record in caplog.records]
    assert all("stays in the server's write-ahead log until its segments" in each for each in told)
    assert not any("VACUUM" in each for each in told)


@pytest.mark.parametrize("holder", ["reader", "prepared"])
def test_content_that_an_older_transaction_may_read_is_not_called_erased(caplog, holder):
    own_server = make_server(max_prepared_transactions="5")

    async def main():
        store, other = open_store(own_server.url()), await asyncpg.connect(own_server.url())
        await write_secret(store)
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.fetch("SELECT 1 FROM bridle.events")
        if holder == "prepared":
            await other.fetch("SELECT pg_current_xact_id()")
            await other.execute("PREPARE TRANSACTION 'held'")
        told = []
        with caplog.at_level(logging.WARNING, "bridle"):
            await redact_record(store, "s", 1, reason="r", by="b")
            told += [record.getMessage() for record in caplog.records]
            assert find_secret(own_server, "base"), "the warning would be wrong"
            await other.execute("ROLLBACK PREPARED 'held'" if holder == "prepared" else "ROLLBACK")
            caplog.clear()
            await redact_record(store, "s", 3, reason="r", by="b")
            told += [record.getMessage() for record in caplog.records]
        name = "prepared transaction held" if holder == "prepared" else f"process {other.get_server_pid()}"
        assert f"(an older transaction is open: {name})" in told[0]
        assert "VACUUM" not in told[1]
        await other.close()
        await store.close()

    try:
        asyncio.run(main())
    finally:
        own_server.remove()


def test_one_redaction_of_many_records_cleans_the_tables_once(own_server, caplog):
    async def main(store):
        agent = Agent("sim:", store=store, keep_raw=KeepRaw(request=True))
        for number in range(5):
            await agent.run(f"card {number}", "s")
        before = own_server.sql(VACUUMS)
        with caplog.at_level(logging.WARNING, "bridle"):
            done = await redact_record(store, "s", 2, reason="r", by="b")
        assert len(done.emptied_requests) == 5
        assert int(own_server.sql(VACUUMS)) == int(before) + 1
        assert len(caplog.records) == 1

    run_with(own_server.url(), main)


def test_files_that_cannot_be_cleaned_are_a_warning_after_the_redaction(own_server, caplog):
    async def main(store):
        await write_secret(store)
        await store.erase_redacted()
        own_server.sql("ALTER TABLE bridle.blobs RENAME TO gone")
        with caplog.at_level(logging.WARNING, "bridle"):
            await store.erase_redacted()
        (told,) = [record.getMessage() for record in caplog.records][-1:]
        assert '"blobs" does not exist' in told

    run_with(own_server.url(), main)


def make_role(server, *grants):
    server.sql("CREATE ROLE guest LOGIN PASSWORD 'secret'")
    for grant in ("USAGE ON SCHEMA bridle", *grants):
        server.sql(f"GRANT {grant} TO guest")
    return server.url().replace("bridle:secret", "guest:secret")


def test_a_role_that_lacks_privileges_is_told_what_to_grant_before_anything_is_removed(own_server, caplog):
    async def write(store):
        await write_secret(store)
        await store.append("old", 0, make_records(make_prompt("x"), RunEnded(stop="done")))
        await store.put_blob(b"unused")

    async def collect(store):
        assert await remove_session(store, "old", now=1.0, reason="r") == ""
        assert len(await store.remove_unused_blobs(dry_run=False)) == 1
        await store.shrink_file()

    run_with(own_server.url(), write)
    guest = make_role(
        own_server,
        "SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA bridle",
        "USAGE ON ALL SEQUENCES IN SCHEMA bridle",
        "DELETE ON bridle.events",
    )
    granted = []
    for act, command, missing in (
        (collect, "bridle store gc", ("DELETE ON bridle.blobs", "DELETE ON bridle.sessions")),
        (redact_secret, "bridle session redact", ("DELETE ON bridle.blobs", "DELETE ON bridle.snapshots")),
    ):
        before = own_server.sql("SELECT count(*) FROM bridle.events")
        told = expect_line(guest, act, f"lacks privileges for {command}")
        grants = told.partition("type as its owner: ")[2].split("; ")
        assert grants == [f"GRANT {each} TO guest" for each in missing]
        assert own_server.sql("SELECT count(*) FROM bridle.events") == before
        granted += grants
    for grant in granted:
        own_server.sql(grant)
    with caplog.at_level(logging.WARNING, "bridle"):
        run_with(guest, collect)
        run_with(guest, redact_secret)
    told = [record.getMessage() for record in caplog.records]
    assert "the space stays taken until the server's next VACUUM (" in told[0]
    assert 'the owner can type: VACUUM "bridle".events, "bridle".blobs' in told[1]


WORKER = (
    *(f"SELECT, INSERT, UPDATE ON bridle.{table}" for table in ("sessions", "events", "blobs", "removals")),
    "SELECT ON bridle.format",
    "USAGE ON ALL SEQUENCES IN SCHEMA bridle",
    "DELETE ON bridle.events",
)
"""Grants without the table of the snapshots."""


@tool(effect="read")
def look() -> str:
    """Look."""
    return "fine"


async def live(store):
    """Runs of a session that take a snapshot; returns how many records it covers."""
    for _ in range(3):
        await Agent("sim:", tools=[look], store=store).run("!call look {}\n!then\n!say done", session="s")
    loaded = snapshots.LoadedRecords()
    await loaded.read(store, "s")
    assert loaded.fold() == fold_log(await store.read("s"))
    assert (await verify_session(store, "s")).problems == ()
    return loaded.covered


async def start_again(store):
    records = line("one", "two")
    await store.append("budget:x", 0, records)
    await store.restart("budget:x", records[-1].hash, seal_record(1, 9.0, make_prompt("new"), GENESIS))


@pytest.mark.parametrize("left", ["none", "read", "no table"])
def test_a_role_that_may_not_use_snapshots_needs_none(own_server, monkeypatch, left):
    monkeypatch.setattr(session_log, "SNAPSHOT_RECORDS", 6)
    assert run_with(own_server.url(), live) > 0
    guest = make_role(own_server, *WORKER, *(["SELECT ON bridle.snapshots"] if left == "read" else []))
    if left == "no table":
        own_server.sql("DROP TABLE bridle.snapshots")
    before = own_server.sql("SELECT max(seq) FROM bridle.snapshots") if left != "no table" else "0"
    assert run_with(guest, live) == (int(before) if left == "read" else 0)
    run_with(guest, start_again)
    last = "(SELECT max(seq) FROM bridle.events WHERE sid = 1)"
    own_server.sql(f"DELETE FROM bridle.events WHERE sid = 1 AND seq = {last}")
    run_with(guest, live)  # the torn end is repaired


def test_a_redaction_in_a_database_is_anchored_and_another_one_is_found(postgres, tmp_path):
    url = postgres.new_url()

    async def write(store):
        await store.append("s", 0, make_records(make_prompt(SECRET), make_prompt("y"), RunEnded(stop="done")))
        await redact_record(store, "s", 1, reason="r", by="b")

    async def list_problems(store):
        sessions, found = await verify_store(store, group_anchors(read_anchors(store.anchor_file)))
        return [each.text for each in (*found, *sessions[0].problems)]

    run_with(url, write, anchors=tmp_path)
    assert run_with(url, list_problems, anchors=tmp_path) == []
    run_with(url, lambda store: redact_record(store, "s", 2, reason="r", by="b"))
    (text,) = run_with(url, list_problems, anchors=tmp_path)
    assert "that is not anchored" in text
    assert change_rows(url, "SELECT count(*) FROM events") == "5"


def test_a_text_that_cannot_be_removed_stops_neither_redaction_nor_removal(own_server, tmp_path, caplog):
    async def remove(store):
        records = await store.read("old")
        await store.remove_session("old", records[-1].hash, at=1.0, reason="r")

    async def write(store):
        await write_secret(store)
        await store.append("old", 0, line("one"))

    run_with(own_server.url(), write)
    own_server.sql("ALTER TABLE bridle.live RENAME COLUMN data TO other")  # every statement about texts fails
    with caplog.at_level(logging.WARNING, "bridle"):
        run_with(own_server.url(), redact_secret)
        run_with(own_server.url(), remove, anchors=tmp_path / "anchors")
    told = [record.getMessage() for record in caplog.records]
    assert find_secret(own_server, "base") == []
    assert sum("a reply that other processes see was not removed" in each for each in told) == 4
    assert [anchor.removed for anchor in read_anchors(tmp_path / "anchors")] == [True]


@pytest.mark.parametrize("is_old", [False, True])
def test_first_viewers_find_the_table_of_texts_and_the_server_logs_no_error(is_old):
    server = make_server(log_min_messages="error")
    try:
        run_with(server.url(), read_a)
        guest = make_role(server, *WORKER)
        if is_old:  # tables of a release that made this one with the first viewer
            server.sql("DROP TABLE bridle.live")
            assert run_with(guest, publish) == (False, b""), "the role may not make it"
        viewers = [PostgresStore(server.url()) for _ in range(8)]

        async def view():
            found = await asyncio.gather(*(viewer.read_live("s") for viewer in viewers))
            await asyncio.gather(*(viewer.close() for viewer in viewers))
            return found

        assert asyncio.run(view()) == [b""] * 8
        if is_old:
            assert run_with(guest, publish) == (True, b"text"), (
                "it has the rights that the role has on events"
            )
        errors = [each for each in (server.folder / "log").read_text().splitlines() if "ERROR" in each]
        assert errors == []
    finally:
        server.remove()


async def publish(store):
    await store.read_live("s")
    return await store.publish_live("s", b"text"), await store.read_live("s")
