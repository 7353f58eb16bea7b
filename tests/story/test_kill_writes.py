"""A driver killed at its n-th write or sync of the store: no acknowledged record is lost, nothing is done twice.

A library loaded before all others (`kill_at_write.c`) ends the process before the call, after it, or when half of
the bytes are written.  BRIDLE_CAMPAIGN multiplies the sessions, and

    python -m tests.campaigns.run_campaign kill_writes KILLS FROM_SEED

kills as often, with seeds of its own, and says how far it is.
"""

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bridle.stores import open_store
from bridle.values.events import ToolFinished
from tests.story.kill_agent import AMOUNT_LONG, RESULT_LONG, SESSION, Ledger
from tests.suite.campaign import new_random, scale

HERE = Path(__file__).parent
HOWS = ("before", "after", "torn")
POLICIES = ("retry", "probe", "report")
AMOUNTS = (1, 2, 3, 5, AMOUNT_LONG, 8)
CALLS_MIN, SYNCS_MIN = 100, 15
"""What a whole session writes and syncs at least: fewer, and the library sees not all of it."""
impossible = (
    "the library that kills at a write is for Linux" if sys.platform != "linux"
    else "there is no gcc to make the library that kills at a write" if shutil.which("gcc") is None
    else ""
)  # fmt: skip


class Drivers:
    """Starts processes that drive a session, each with the call that ends it."""

    def __init__(self, folder: Path) -> None:
        library = folder / "kill_at_write.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", library, HERE / "kill_at_write.c", "-ldl"], check=True
        )
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, HERE / "kill_agent.py", "--serve"], env={**os.environ, "LD_PRELOAD": str(library)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.communicate()

    def drive(self, folder: Path, policy: str, at: int, how: str) -> tuple[int, list[list[str]]]:
        """How one process ended, and what it told."""
        told = folder / "told"
        told.unlink(missing_ok=True)
        words = (told, folder, policy, at, how, self._folder / "count", *AMOUNTS)
        self._server.stdin.write(" ".join(map(str, words)) + "\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        lines = told.read_text().splitlines(keepends=True) if told.exists() else []
        return status, [line.split() for line in lines if line.endswith("\n")]

    def count(self, folder: Path, policy: str) -> int:
        """The calls of a session that nobody kills."""
        folder.mkdir()
        status, told = self.drive(folder, policy, 0, "none")
        assert (status, told[-1]) == (0, ["ended", "done"])
        calls, syncs = map(int, (self._folder / "count").read_text().split())
        assert calls >= CALLS_MIN and syncs >= SYNCS_MIN, "the library does not see what the store writes"
        return calls


def live(drivers: Drivers, folder: Path, policy: str, calls: int, chance: random.Random) -> int:
    """A session that is killed one to six times, and then ends by itself; how often it was killed."""
    folder.mkdir()
    kills, told, where = 0, [], []
    for _ in range(chance.randint(1, 6)):
        # A driver that goes on has fewer calls to make than the first one.
        at, how = chance.randint(1, chance.choice((calls, calls // 4, 20))), chance.choice(HOWS)
        where.append(f"{how} {at}")
        status, lines = drivers.drive(folder, policy, at, how)
        told += lines
        assert status in (0, -signal.SIGKILL), where
        if status == 0:
            break
        kills += 1
    status, lines = drivers.drive(folder, policy, 0, "none")
    told += lines
    assert (status, lines[-1:]) == (0, [["ended", "done"]]), where
    try:
        check(folder, policy, told)
    except AssertionError as error:
        raise AssertionError(f"{policy}, killed {where}: {error}") from error
    return kills


def check(folder: Path, policy: str, told: list[list[str]]) -> None:
    made = Ledger(folder).lines()
    assert len({key for _, key in made}) == len(set(made)), "a payment repeated has the key it had"
    times = Counter(amount for amount, _ in made)
    acknowledged = set()
    for line in told:
        if line[0] == "receipt":
            acknowledged.add(int(line[1]))
        if line[0] == "before":
            assert AMOUNTS.index(int(line[1])) + 1 not in acknowledged, (
                f"{line[1]} was paid again after its receipt"
            )
    line, blobs = asyncio.run(read(folder))
    kept = {(str(record.seq), record.hash) for record in line}
    lost = [words for words in told if words[0] == "kept" and tuple(words[1:]) not in kept]
    assert not lost, f"acknowledged records are gone: {lost}"
    results = {
        record.event.result.call_id: record.event for record in line if isinstance(record.event, ToolFinished)
    }
    assert len(results) == len(AMOUNTS)
    for event in results.values():
        amount = AMOUNTS[int(event.result.call_id.split("_")[1])]
        if event.result.outcome == "ok":
            assert times[amount] == 1 or (policy == "retry" and times[amount] > 1), (
                f"{amount}: {times[amount]} times"
            )
        else:
            assert (policy, event.result.outcome) == ("report", "unknown")
            assert times[amount] <= 1
    assert all(found is not None and len(found) >= RESULT_LONG for found in blobs)
    with closing(sqlite3.connect(folder / "log.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


async def read(folder: Path):
    store = open_store(folder / "log.db")
    line = await store.read(SESSION)
    blobs = [await store.get_blob(hash_) for record in line for hash_ in record.event.required_blobs]
    await store.close()
    return line, blobs


@pytest.mark.skipif(bool(impossible), reason=impossible)
@pytest.mark.slow
def test_killed_at_any_write_or_sync_of_the_store(tmp_path):
    chance, kills = new_random(__name__), 0
    with Drivers(tmp_path) as drivers:
        for policy in POLICIES:
            calls = drivers.count(tmp_path / f"{policy}_counted", policy)
            for number in range(scale(2)):
                kills += live(drivers, tmp_path / f"{policy}_{number}", policy, calls, chance)
    assert kills >= scale(3)


def main(count: int, from_seed: int) -> None:
    kills, seed, reported, begun = 0, from_seed, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name, Drivers(Path(name)) as drivers:
        calls = {policy: drivers.count(Path(name) / policy, policy) for policy in POLICIES}
        print(f"a session writes and syncs {calls} times", flush=True)
        while kills < count:
            policy, folder = POLICIES[seed % len(POLICIES)], Path(name) / str(seed)
            kills += live(drivers, folder, policy, calls[policy], random.Random(seed))
            shutil.rmtree(folder)
            seed += 1
            if kills >= min(reported + 100, count):
                reported, rate = kills, kills / (time.monotonic() - begun)
                print(f"{kills:,} kills in {seed - from_seed:,} sessions, none lost, none twice, {rate:.1f}/s, "
                      f"next seed {seed}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
