"""A disk that is full, a disk that cannot be written, a log that is removed, a clock that goes back.

In each case the run ends with one clear line before the next call of the model, the log is whole, and the session goes
on once the cause is gone.  The disk is a small one in memory; mounting it needs rights that a test may lack.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from bridle import Agent, tool
from bridle.cli.main import main
from bridle.run.recovery.verification import verify_store
from bridle.stores.sqlite.store import SqliteStore
from bridle.testing import FakeClock, scripted
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.testing.scripted_model import call_reply
from bridle.values.errors import Unusable
from bridle.values.events import ModelAsked, RunEnded

DISK_KILOBYTES = 2_000


class CountModelCalls:
    def __init__(self):
        self.count = 0

    def on_event(self, session, happening):
        self.count += isinstance(getattr(happening, "event", None), ModelAsked)


@pytest.fixture
def small_disk():
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = Path(tempfile.mkdtemp())
    options = ["-t", "tmpfs", "-o", f"size={DISK_KILOBYTES}k", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let a test mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def make_agent(store, spoil, clock=None):
    """An agent whose tool spoils something between two calls of the model."""

    @tool
    async def work() -> str:
        """Work."""
        spoil()
        return "worked " + "x" * 20_000

    calls = CountModelCalls()
    model = scripted(call_reply(("work", {})), "Done.")
    agent = Agent(model, tools=[work], store=store, watchers=[calls], **({"clock": clock} if clock else {}))
    return agent, calls


def run_spoiled(path, spoil):
    """Run in a store of its own; returns the line with which the run ends."""

    async def main():
        store = SqliteStore(path)
        agent, calls = make_agent(store, spoil)
        with pytest.raises(Unusable) as caught:
            await agent.run("Go.", "s")
        assert calls.count == 1, "the model was called although nothing could be recorded"
        await store.close()
        return str(caught.value)

    line = asyncio.run(main())
    assert "\n" not in line
    return line


def check_log(path):
    """The log is whole, and the session goes on."""

    async def main():
        store = SqliteStore(path)
        sessions, problems = await verify_store(store, {})
        assert [*problems, *(each for session in sessions for each in session.problems)] == []
        result = await make_agent(store, lambda: None)[0].resume("s")
        await store.close()
        return result

    assert asyncio.run(main()).stop in ("done", "waiting")


def test_a_full_disk_ends_the_run_before_the_next_model_call(small_disk):
    def fill():
        # The loop ends when the disk is full.
        with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    path = small_disk / "log.db"
    assert "the disk is full; make room and resume" in run_spoiled(path, fill)
    (small_disk / "ballast").unlink()
    check_log(path)


def fill_disk(folder, room):
    """Fill a disk up to some kilobytes."""
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        with suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        ballast.truncate(max(ballast.tell() - room * 1024, 0))


COMMANDS = {
    "backup": ["store", "backup", "copy.db"],
    "export": ["session", "export", "s1", "-o", "out.jsonl"],
    "redact": ["session", "redact", "s1", "--record", "1", "--reason", "r", "--by", "b"],
    "gc": ["store", "gc", "--older-than", "1970-01-02", "--yes"],
    "verify": ["store", "verify"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_full_disk_says_so_and_leaves_no_file(
    small_disk, command, tmp_path, monkeypatch, capsys
):
    """With any room between none and enough, it succeeds or is one line that names the cause and what to do."""
    path, saved = small_disk / "log.db", tmp_path / "saved.db"

    async def write():
        store = SqliteStore(saved)
        for name in ("s1", "s2"):
            line = make_records(make_prompt(name + "x" * 50_000), RunEnded(stop="done"), at=1_000.0)
            await store.append(name, 0, line)
        await store.put_blob(b"unused" * 10_000)
        await store.close()

    asyncio.run(write())
    monkeypatch.chdir(small_disk)
    monkeypatch.setenv("BRIDLE_STORE", str(path))
    outcomes = []
    for room in (0, 4, 12, 36, 44, 60, 76, 100, 140, 200, 300, 500, 900):
        for left in small_disk.iterdir():
            left.unlink()
        shutil.copy(saved, path)
        fill_disk(small_disk, room)
        code = main(COMMANDS[command])
        told = capsys.readouterr().err
        names = {each.name for each in small_disk.iterdir()} - {"log.db-wal", "log.db-shm", "log.db-held"}
        (small_disk / "ballast").unlink()
        made = {"backup": {"copy.db"}, "export": {"out.jsonl"}}.get(command, set()) if code == 0 else set()
        assert names - {"ballast"} == {"log.db", *made}
        if code != 0:
            assert (code, told.count("\n")) == (2, 1), told
            assert "the disk is full; make room" in told
        assert main(["store", "verify"]) == 0, "the log was torn"
        capsys.readouterr()
        outcomes.append(code)
    assert outcomes[0] == 2
    assert outcomes[-1] == 0


def test_a_full_disk_of_the_anchors_is_named_and_the_log_stays_whole(small_disk, tmp_path):
    anchors = small_disk / "anchors"

    async def main():
        store = SqliteStore(tmp_path / "log.db", anchors=anchors)
        agent, _ = make_agent(store, lambda: fill_disk(small_disk, 0))
        with pytest.raises(Unusable, match="the disk is full; make room and resume"):
            await agent.run("Go.", "s")
        await store.close()

    asyncio.run(main())
    (small_disk / "ballast").unlink()
    check_log(tmp_path / "log.db")


def test_a_disk_that_cannot_be_written_is_refused_before_the_first_model_call(small_disk):
    path = small_disk / "log.db"
    asyncio.run(SqliteStore(path).close())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    calls = CountModelCalls()
    agent = Agent(scripted("Done."), store=path, watchers=[calls])
    with pytest.raises(Unusable, match="cannot be written; change its permissions or choose another path"):
        asyncio.run(agent.run("Go.", "s"))
    assert calls.count == 0


def test_a_log_that_is_removed_under_a_run_ends_it_before_the_next_model_call(tmp_path):
    path, saved = tmp_path / "log.db", tmp_path / "saved.db"
    line = run_spoiled(path, lambda: path.rename(saved))
    assert "the file was removed or replaced while in use; put it back and resume" in line
    assert not path.exists(), "an empty store took the place of the removed one"


def test_a_clock_that_jumps_back_changes_nothing(tmp_path):
    clock = FakeClock()
    path = tmp_path / "log.db"

    async def main():
        store = SqliteStore(path)
        agent, _ = make_agent(store, lambda: clock.set_wall(-86_400.0), clock)
        result = await agent.run("Go.", "s")
        records = await store.read("s")
        sessions, problems = await verify_store(store, {})
        await store.close()
        return result, records, [*problems, *(each for session in sessions for each in session.problems)]

    result, records, problems = asyncio.run(main())
    assert (result.text, problems) == ("Done.", [])
    times = [record.at for record in records]
    assert times == sorted(times)
    assert clock.now() < times[0], "the clock did not jump"
