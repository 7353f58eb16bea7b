"""A tree signals no process of another, finds those that hide, and looks without waiting."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridle.tools import run_process
from bridle.tools.process import process_tree
from bridle.tools.process.process_tree import ProcessTree, _get_guard, _live_trees
from tests.suite.patience import PATIENCE_SECONDS

PROC = Path("/proc")
LAST_NUMBER = PROC / "sys/kernel/ns_last_pid"
REUSE_ATTEMPTS = 2_000

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="looks processes up where Linux lists them")

SERVICE = "setsid sh -c 'trap \"\" TERM; echo $$ >&3; while :; do sleep 1000; done' & while [ ! -s {0} ]; do :; done"
"""Exits once its service, which ignores TERM, has left the session."""

HIDING = """
import ctypes, os, signal, sys, time
how, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(count):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()
        first, end = int(fields[45]), int(fields[48])
        if how == "title":
            ctypes.memset(first, 0, end - first)
            ctypes.memmove(first, b"server: worker", 14)
        else:
            libc = ctypes.CDLL(None)
            libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            begin = (first + 4095) // 4096 * 4096  # the page before can hold frames of the program itself
            libc.munmap(begin, (end + 4095) // 4096 * 4096 - begin)
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\\n")
        for fd in (0, 1, 2):
            os.close(fd)
        while True:
            time.sleep(1000)
if sys.argv[4:] == ["exits"]:
    while not os.path.exists(path) or len(open(path).read().split()) < count:
        time.sleep(0.005)
else:
    time.sleep(1000)
"""
"""Starts processes outside the session that erase (title) or unmap their arguments and environment."""


def wait_until(true):
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.005)


def read_numbers(path):
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def is_alive(pid):
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def start_tree(argv, **options):
    def start(marks):
        return subprocess.Popen(argv, env={**os.environ, **marks}, start_new_session=True)

    return ProcessTree(start, **options)


@pytest.fixture
def service_tree(tmp_path):
    """A tree whose leader was reaped, and which has a service."""
    path = tmp_path / "pids"
    tree = start_tree(["sh", "-c", f"exec 3>{path}; {SERVICE.format(path)}"], ends_services=True)
    wait_until(lambda: not tree.check_gone() and tree.exit_code is not None)
    yield tree, *read_numbers(path)
    tree.abandon()
    wait_until(tree.check_gone)


def test_the_group_of_a_reaped_leader_is_not_signalled(service_tree, monkeypatch):
    """Its number is free: another process may get it at any time."""
    tree, service = service_tree
    signalled, killpg = [], os.killpg

    def record(group, number):
        if number:
            signalled.append(group)
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", record)
    tree.signal(signal.SIGTERM)
    tree.signal(signal.SIGTERM, look=False)
    assert signalled == [] and is_alive(service)
    assert not any(each.startswith(f"{tree.leader.pid}/") for each in _get_guard()._trees)
    tree.signal(signal.SIGKILL)
    wait_until(tree.check_gone)
    assert signalled == [] and not is_alive(service)


@pytest.fixture
def take_number():
    """Start a process, in a session of its own, with a number."""
    started = []

    def take(number):
        for _ in range(REUSE_ATTEMPTS):
            try:
                LAST_NUMBER.write_text(str(number - 1))
            except OSError:
                pytest.skip("the next number of a process cannot be chosen here")
            started.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
            if started[-1].pid == number:
                return started[-1]
            end(started.pop())
        pytest.skip("others take the numbers too quickly")

    yield take
    for each in started:
        end(each)


def end(process):
    process.kill()
    process.wait()


def test_a_process_with_the_number_of_a_reaped_leader_lives_on(service_tree, take_number):
    tree, service = service_tree
    stranger = take_number(tree.leader.pid)
    tree.signal(signal.SIGKILL)
    wait_until(tree.check_gone)
    assert not is_alive(service) and stranger.poll() is None


def test_a_number_that_changes_hands_between_two_looks_is_not_signalled(tmp_path, take_number):
    """The group had a member when the leader was reaped; it ended, and a stranger got the number."""
    path = tmp_path / "pids"
    tree = start_tree(["sh", "-c", f"exec 3>{path}; sleep 1000 & echo $! >&3"], ends_services=True)
    wait_until(lambda: not tree.check_gone() and tree.exit_code is not None)
    (member,) = read_numbers(path)
    os.kill(member, signal.SIGKILL)
    wait_until(lambda: not (PROC / str(member)).exists())
    stranger = take_number(tree.leader.pid)
    for look in (False, True):
        tree.signal(signal.SIGKILL, look=look)
    assert tree.check_gone() and stranger.poll() is None


@pytest.mark.parametrize("script", ["sleep 1000", "sleep 1000 & sleep 1000 & wait"])
def test_without_a_list_of_processes_an_ended_tree_is_gone(monkeypatch, tmp_path, script):
    monkeypatch.setattr(process_tree, "PROC_FOLDER", tmp_path / "none")
    before = set(_live_trees)
    ended = asyncio.run(run_process(["sh", "-c", script], timeout=0.05, grace=PATIENCE_SECONDS))
    assert ended.timed_out and ended.exit_code == -signal.SIGTERM
    assert _live_trees <= before


def hide(how, path, count, *options):
    """A command that hides; its arguments fill the first page of what it unmaps, so that the environment is in others."""
    return [sys.executable, "-c", HIDING + "#" * 8192, how, str(path), str(count), *options]


@pytest.mark.parametrize("how", ["title", "unmapped"])
def test_a_process_that_erases_its_environment_ends_with_its_parent(tmp_path, how):
    path = tmp_path / "pids"

    async def main():
        running = asyncio.create_task(run_process(hide(how, path, 2), grace=0.05))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(read_numbers(path)) < 2:
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(main())
    wait_until(lambda: not any(map(is_alive, read_numbers(path))))


def test_a_look_does_not_wait_for_processes_without_an_environment(tmp_path):
    """They are looked at again for a limited time, so that the tree is gone in the end."""
    path, count = tmp_path / "pids", 20
    tree = start_tree(hide("unmapped", path, count, "exits"), ends_services=True)
    try:
        wait_until(lambda: len(read_numbers(path)) == count and tree.leader.poll() is not None)
        begun = time.monotonic()
        tree.signal(signal.SIGTERM)
        assert time.monotonic() - begun < count * process_tree.EXEC_SECONDS / 2
        assert all(map(is_alive, read_numbers(path))), "nothing shows that they are ours"
        wait_until(tree.check_gone)
    finally:
        for pid in read_numbers(path):
            os.kill(pid, signal.SIGKILL)
