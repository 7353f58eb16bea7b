"""Killed processes, many processes on one file, a full disk: nothing acknowledged is lost.

The child writes a line to a pipe for every append that was acknowledged, and only then.  Whatever
is in the pipe when it is killed must be in the store.  BRIDLE_CAMPAIGN multiplies the rounds.
"""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.stores.appending_processes import (
    APPENDER,
    append_in_turns,
    appender,
    check_acknowledged,
    wait_for_all,
)
from tests.suite.campaign import new_random, scale


def check_kept(path, acknowledged):
    """The same, and the file is sound."""
    check_acknowledged(path, acknowledged)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_process_killed_while_it_appends_loses_nothing(tmp_path):
    path = tmp_path / "log.db"
    chance = new_random(__name__)
    acknowledged = []
    kills = scale(8, least=3)
    for kill in range(kills):
        child = appender(path, kill, -1, *(f"s{n}" for n in range(8)))
        with child:
            for _ in range(chance.randint(1, 60)):
                acknowledged.append(child.stdout.readline().split())
            child.send_signal(signal.SIGKILL)
            # What it had written to the pipe before it died counts as well, but for a line cut short.
            acknowledged += [line.split() for line in child.stdout if line.endswith("\n")]
            assert child.stderr.read() == ""
        assert child.returncode == -signal.SIGKILL
        check_kept(path, acknowledged)
    assert len(acknowledged) >= kills


@pytest.mark.parametrize("shared", [False, True], ids=["own sessions", "one session"])
def test_several_processes_on_one_file_take_turns(tmp_path, shared):
    path = tmp_path / "log.db"
    count = scale(25)
    acknowledged = append_in_turns(path, count, shared=shared)
    assert len(acknowledged) >= count * 3 * (1 if shared else 3)
    check_kept(path, acknowledged)


def test_many_processes_may_make_the_same_file(tmp_path):
    for round_ in range(scale(2)):
        path = tmp_path / f"{round_}.db"
        check_kept(path, wait_for_all([appender(path, number, 1, f"s{number}") for number in range(6)]))


@pytest.mark.skipif(sys.platform == "win32", reason="limits on a process are POSIX")
def test_a_disk_that_takes_no_more_is_reported_and_keeps_what_it_has(tmp_path):
    path = tmp_path / "log.db"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
    command = [sys.executable, "-c", limit + APPENDER, path, "1", "-1", "a", "b", "c"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"bridle.values.errors.Unusable: store {path}: the disk")
    acknowledged = [line.split() for line in done.stdout.splitlines()]
    assert acknowledged
    check_kept(path, acknowledged)
