"""A process that appends to a SQLite store is killed at random moments: nothing acknowledged is lost, nothing is torn.

A child of a process that has imported everything opens the store, continues four logs, and writes a line to a pipe for
each append that was acknowledged.  It is killed a random time after the first of them, or while it opens the file; so
in the middle of a write, of a commit, or while it merges the write-ahead log.  Then the parent reads what is new in the file, which verifies every record.

    python -m tests.campaigns.run_campaign killed_appends KILLS [FIRST_SEED]
"""

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.suite.campaign import FIRST_SEED, scale
from tests.suite.crashes import kill_appending_child

KILLS = scale(60)
KILLS_PER_FILE = 40
SESSIONS = ("a", "b", "c", "d")
LONGEST_LIFE_SECONDS = 0.008
"""Time from the first acknowledged append to the kill."""


def live_once(path, chance):
    """Start a child and kill it; returns the last acknowledged record of each session, and the number of appends."""
    from bridle.stores.sqlite.store import SqliteStore

    lines = kill_appending_child(lambda: SqliteStore(path), SESSIONS, chance, LONGEST_LIFE_SECONDS)
    return {session: (int(seq), hash_) for session, seq, hash_ in lines}, len(lines)


def check_file(path, verified, acknowledged):
    """Read and verify what is new; each session has at least what was acknowledged."""
    from bridle.stores.sqlite import rows
    from bridle.stores.sqlite.database_file import open_connection, prepare_file

    prepare_file(path)
    with closing(open_connection(path, 5_000)) as db:
        for session in SESSIONS:
            new = rows.select_records(session, verified.get(session, 0), db)
            kept = {record.seq: record.hash for record in new}
            if session in acknowledged:
                seq, hash_ = acknowledged[session]
                assert kept.get(seq) == hash_, f"acknowledged record {seq} of {session} is lost"
            if new:
                verified[session] = new[-1].seq


def run_kills(kills, seed, folder):
    chance = random.Random(seed)
    total, alive, path, verified = 0, 0, None, {}
    for kill in range(kills):
        if kill % KILLS_PER_FILE == 0:
            path, verified = Path(folder) / f"{kill}.db", {}
        acknowledged, count = live_once(path, chance)
        check_file(path, verified, acknowledged)
        total, alive = total + count, alive + bool(count)
        if (kill + 1) % KILLS_PER_FILE == 0 or kill + 1 == kills:
            with closing(sqlite3.connect(path)) as db:  # type: ignore[arg-type]
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for old in Path(folder).glob(f"{path.name}*"):
                old.unlink()
            print(f"{kill + 1} kills, {total} appends", file=sys.stderr, flush=True)
    return f"{kills} kills, {alive} of them among appends, {total} appends acknowledged, 0 lost"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_process_killed_at_any_moment_loses_nothing(tmp_path):
    command = [
        sys.executable,
        "-m",
        "tests.campaigns.run_campaign",
        "killed_appends",
        str(KILLS),
        str(FIRST_SEED + 1),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0 lost" in done.stdout
    assert "kills, 0 of them" not in done.stdout, "no child lived long enough to append"


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    from bridle.stores.sqlite import store as _  # noqa: F401 - imported before the forks

    with tempfile.TemporaryDirectory() as folder:
        print(run_kills(count, first, folder))
