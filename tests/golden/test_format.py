"""The sample of every format is read to the recorded result, resumed, exported and imported; others are refused."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from bridle.run.calls.approval_proof import KEY_FILE_VARIABLE
from bridle.run.recovery.verification import verify_store
from bridle.sessions import export_session, import_session
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.stores.sqlite.database_file import FORMAT
from bridle.testing import FakeClock
from tests.golden import format_sample
from tests.golden.format_sample import SAMPLES

NEWEST = Path(__file__).with_name(f"format_{FORMAT}")
IMPORTED = (format_sample.EXPORTED, "ask_clerk-")
EVENTS = {
    "approval_answered", "approval_asked", "budget_reserved", "budget_settled", "compacted", "configured",
    "content_redacted", "forked", "memory_loaded", "model_asked", "model_replied", "prefix_moved", "prompted",
    "resumed", "run_ended", "subrun_charged", "subrun_started", "tool_finished", "tool_started", "tools_revealed",
}  # fmt: skip
"""Events that the sample must have."""


@pytest.fixture(params=SAMPLES, ids=lambda path: path.name)
def sample(request):
    return request.param


@pytest.fixture
def path(sample, tmp_path, monkeypatch):
    """A copy of the store, and the key that its approvals were signed with."""
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(format_sample.write_key(tmp_path)))
    shutil.copy(sample / "store.db", tmp_path / "log.db")
    return tmp_path / "log.db"


def read_expected(sample):
    return msgspec.json.decode((sample / "expected.json").read_bytes())


def read_marks(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0], db.execute(
            "PRAGMA integrity_check"
        ).fetchall()


def test_there_is_a_sample_of_every_format():
    names = [f"format_{number}" for number in range(1, FORMAT + 1)]
    assert [path.name for path in SAMPLES] == names, "freeze the new format: tests/golden/format_sample.py"
    assert {path.name for path in NEWEST.iterdir()} == {"store.db", "export.jsonl", "expected.json"}
    assert read_marks(NEWEST / "store.db") == (FORMAT, [("ok",)])
    found = {event for session in read_expected(NEWEST).values() for event in session["events"]}
    assert found >= EVENTS


def test_a_sample_verifies_and_folds_to_the_recorded_result(sample, path):
    async def main():
        store = open_store(path)
        sessions, problems = await verify_store(store, {})
        assert problems == []
        assert not [(each.session, each.problems) for each in sessions if each.problems]
        found = await format_sample.describe_store(store)
        await store.close()
        return found

    expected = read_expected(sample)
    found = asyncio.run(main())
    assert found.keys() == expected.keys()
    for name, session in expected.items():
        assert found[name] == session, name


def test_a_sample_is_resumed(path):
    async def main():
        store, clock = open_store(path), FakeClock(1_900_000_000.0)
        agent = format_sample.make_agent(store, clock, format_sample.Gate().make_tool())
        approved = await agent.resume("approved")
        assert (approved.stop, approved.text) == ("done", "Refunded.")
        assert (await agent.resume("waiting")).stop == "waiting"
        (question,) = await agent.approvals("waiting")
        await agent.approve("waiting", question.id, by="bob")
        waiting = await agent.resume("waiting")
        assert (waiting.stop, waiting.text) == ("done", "Refunded.")
        for session in (format_sample.EXPORTED, "fork"):
            result = await agent.run('!call look_up {"order": 5}\n!then\n!say Once more.', session)
            assert (result.stop, result.text) == ("done", "Once more.")
        sessions, problems = await verify_store(store, {})
        assert problems == []
        assert not [(each.session, each.problems) for each in sessions if each.problems]
        await store.close()

    asyncio.run(main())


def test_an_approval_of_a_sample_does_not_count_with_another_key(path, tmp_path):
    (tmp_path / "approval.key").write_bytes(bytes(32))

    async def main():
        store = open_store(path)
        agent = format_sample.make_agent(store, FakeClock(1_900_000_000.0), format_sample.Gate().make_tool())
        assert (await agent.resume("approved")).stop == "waiting"
        await store.close()

    asyncio.run(main())


def test_an_export_of_a_sample_is_imported_and_exported_to_the_same_bytes(sample, path):
    lines = (sample / "export.jsonl").read_bytes().splitlines(keepends=True)
    expected = {name: session for name, session in read_expected(sample).items() if name.startswith(IMPORTED)}

    async def export(store):
        return [line async for line in export_session(store, format_sample.EXPORTED)]

    async def main():
        store, target = open_store(path), MemoryStore()
        assert await export(store) == lines
        await import_session(target, lines)
        assert await export(target) == lines
        assert await format_sample.describe_store(target) == expected
        agent = format_sample.make_agent(target, FakeClock(1_900_000_000.0), format_sample.Gate().make_tool())
        assert (await agent.run("!say Here too.", format_sample.EXPORTED)).text == "Here too."
        await store.close()

    asyncio.run(main())


def test_the_sample_is_written_alike_by_every_run_of_its_program(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    running = [subprocess.Popen([sys.executable, format_sample.__file__, folder]) for folder in folders]
    assert [process.wait() for process in running] == [0, 0]
    dumps = []
    for folder in folders:
        with closing(sqlite3.connect(folder / "store.db")) as db:
            dumps.append(
                [
                    *db.iterdump(),
                    *((folder / name).read_bytes() for name in ("export.jsonl", "expected.json")),
                ]
            )
    assert dumps[0] == dumps[1]


def test_a_sample_that_exists_is_not_written_again(capsys):
    before = (NEWEST / "store.db").read_bytes()
    assert format_sample.main() == 1
    assert "exists and is never written again" in capsys.readouterr().err
    assert (NEWEST / "store.db").read_bytes() == before
