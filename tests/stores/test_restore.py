"""Backups touch no other file, and a restore leaves the old log or the backup, however it ends."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys

import pytest

from bridle import Agent
from bridle.cli.main import main
from bridle.stores.sqlite.database_file import sync_folder
from bridle.stores.sqlite.store import SqliteStore
from bridle.testing import scripted
from bridle.values.errors import StoreError

WRITER = """
import asyncio, os, sys
from bridle import Agent
from bridle.testing import scripted
async def main(path, session, keep):
    agent = Agent(scripted(*["x" * 20_000] * 5), store=path)
    for _ in range(5):
        await agent.run("go", session)
    if keep == "open":
        print("open", flush=True)
        sys.stdin.read()
    os._exit(9)
asyncio.run(main(*sys.argv[1:]))
"""


def write(path, session, keep="crash"):
    """A process that writes a session and dies, or that keeps the store open."""
    return subprocess.Popen([sys.executable, "-c", WRITER, path, session, keep], stdin=-1, stdout=-1)


def crash(path, session):
    process = write(path, session)
    process.communicate()
    assert process.returncode == 9 and path.with_name(f"{path.name}-wal").stat().st_size


def list_sessions(path):
    async def read():
        store = SqliteStore(path)
        try:
            assert await store.check_file() == ()
            return sorted(info.id for info in await store.sessions())
        finally:
            await store.close()

    return asyncio.run(read())


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.db"
    asyncio.run(use(path, "kept"))
    return path


async def use(path, session):
    store = SqliteStore(path)
    await Agent(scripted("done"), store=store).run("go", session)
    await store.close()


def run(*words):
    return main([str(word) for word in words])


@pytest.fixture
def copy(log, tmp_path):
    assert run("store", "backup", tmp_path / "copy.db", "--store", log) == 0
    return tmp_path / "copy.db"


def test_a_backup_trusts_no_file_that_exists(log, tmp_path, capsys):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "a.db.partial").symlink_to(victim)
    assert run("store", "backup", tmp_path / "a.db", "--store", log) == 0
    (tmp_path / "b.db.partial").write_text("also mine")
    (tmp_path / "b.db.partial").chmod(0o666)
    assert run("store", "backup", tmp_path / "b.db", "--store", log) == 0
    assert victim.read_text() == "mine" and (tmp_path / "b.db.partial").read_text() == "also mine"
    for name in ("a.db", "b.db"):
        about = (tmp_path / name).stat()
        assert stat.S_IMODE(about.st_mode) == 0o600 and about.st_nlink == 1
        assert list_sessions(tmp_path / name) == ["kept"]
    for ending in ("", "-wal", "-shm", "-journal"):
        (tmp_path / f"c.db{ending}").write_text("mine")
        assert run("store", "backup", tmp_path / "c.db", "--store", log) == 2
        assert (tmp_path / f"c.db{ending}").read_text() == "mine"
        (tmp_path / f"c.db{ending}").unlink()
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_appears_during_the_backup_is_not_replaced(log, tmp_path, monkeypatch):
    link = os.link

    def appear(source, target, **options):
        target.write_text("mine")
        link(source, target, **options)

    monkeypatch.setattr(os, "link", appear)
    assert run("store", "backup", tmp_path / "a.db", "--store", log) == 2
    assert (tmp_path / "a.db").read_text() == "mine" and not list(tmp_path.glob(".*"))


def test_a_backup_is_restored_and_the_old_log_is_kept(log, copy, capsys):
    before = copy.read_bytes()
    crash(log, "later")
    assert list_sessions(shutil.copy(copy, copy.with_name("again.db"))) == ["kept"]
    assert run("store", "restore", copy, "--store", log) == 0
    assert list_sessions(log) == ["kept"] and copy.read_bytes() == before
    (kept,) = (path for path in log.parent.glob("log.db.before-restore-*") if path.suffix.count("-") == 2)
    assert list_sessions(kept) == ["kept", "later"]
    assert "is kept" not in capsys.readouterr().err


@pytest.mark.parametrize("how", ["copied", "moved"])
def test_a_write_ahead_log_of_another_file_is_noticed(log, copy, capsys, how):
    crash(log, "later")
    put = shutil.copyfile if how == "copied" else os.replace
    put(copy, log)
    wal = log.with_name("log.db-wal").read_bytes()
    for words in (["sessions"], ["run", "-m", "sim:", "x"], ["store", "verify"]):
        assert run(*words, "--store", log) == 2
        assert (
            "belongs to another file" in (line := capsys.readouterr().err) and "bridle store restore" in line
        )
    assert log.with_name("log.db-wal").read_bytes() == wal
    if how == "copied":
        assert run("store", "restore", copy, "--store", log) == 0
        assert list_sessions(log) == ["kept"]


@pytest.mark.parametrize("left", [0, 5_000, 9_000])
@pytest.mark.parametrize("crashed", [True, False])
def test_a_file_that_was_cut_off_is_noticed(log, copy, capsys, left, crashed):
    asyncio.run(use(log, "more"))
    if crashed:
        crash(log, "later")
    os.truncate(log, left)
    assert run("run", "-m", "sim:", "--store", log, "x") == 2
    assert "bridle store restore" in capsys.readouterr().err
    assert run("store", "restore", copy, "--store", log) == 0
    assert list_sessions(log) == ["kept"]


def test_a_store_in_use_is_not_replaced(log, copy, capsys):
    process = write(log, "later", "open")
    try:
        assert process.stdout.readline() == b"open\n"
        assert run("store", "restore", copy, "--store", log) != 0
        assert "a program has it open" in capsys.readouterr().err
    finally:
        process.communicate()
    assert run("store", "restore", copy, "--store", log) == 0


def test_what_is_no_backup_is_refused_and_nothing_changes(log, copy, tmp_path, capsys):
    before = log.read_bytes()
    damaged = tmp_path / "damaged.db"
    data = bytearray(copy.read_bytes())
    place = data.rindex(b'"type"')
    data[place : place + 6] = b'"tYpe"'
    damaged.write_bytes(data)
    (tmp_path / "text.db").write_text("no database")
    (tmp_path / "open.db").write_bytes(before)
    (tmp_path / "open.db-wal").write_text("x")
    for name in ("damaged.db", "text.db", "open.db", "absent.db", "log.db", "."):
        assert run("store", "restore", tmp_path / name, "--store", log) != 0, name
        assert log.read_bytes() == before
    assert not list(tmp_path.glob(".*")) and not list(tmp_path.glob("*before-restore*"))


KILLED = """
import os, sys, pathlib
from bridle.cli.main import main
left = int(sys.argv[1])
def kill_at(call):
    def made(*words, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return call(*words, **options)
    return made
from bridle.cli.commands.storage import restore as command
from bridle.stores.sqlite import restore
swap = restore._swap
def counted(copy, path):
    for name in ("open", "write", "fsync"):
        setattr(os, name, kill_at(getattr(os, name)))
    for name in ("rename", "unlink"):
        setattr(pathlib.Path, name, kill_at(getattr(pathlib.Path, name)))
    return swap(copy, path)
restore._swap = counted
code = main(["store", "restore", sys.argv[2], "--store", sys.argv[3]])
os._exit(code)
"""


@pytest.mark.slow
def test_a_restore_that_is_killed_anywhere_leaves_no_mixture(log, copy, tmp_path, capsys):
    crash(log, "later")
    at, done = 0, False
    while not done:
        assert at < 60
        folder = tmp_path / f"at{at}"
        folder.mkdir()
        for path in tmp_path.glob("log.db*"):
            shutil.copy(path, folder)
        place = folder / "log.db"
        killed = subprocess.run([sys.executable, "-c", KILLED, str(at), copy, place], check=False)
        done, at = killed.returncode == 0, at + 1
        assert killed.returncode in (0, 9)
        sync_folder(folder)
        try:
            found = list_sessions(place)
        except StoreError as error:
            assert "was interrupted; type: bridle store restore" in str(error)
        else:
            assert found in (["kept"], ["kept", "later"])
            assert done == (found == ["kept"]) or at > 1
        assert run("store", "restore", copy, "--store", place) == 0
        assert list_sessions(place) == ["kept"]
        kept = [
            path
            for path in folder.glob("log.db.before-restore-*")
            if not path.name.endswith(("-wal", "-shm", "-held"))
        ]
        assert ["kept", "later"] in [list_sessions(path) for path in kept]
    assert at > 10
