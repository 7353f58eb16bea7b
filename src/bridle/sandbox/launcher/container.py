"""Runs a command in a container and ends the container with it.

The docker program only talks to a daemon: if it is killed, its container goes on.  So it runs below this process, which
removes the container when it is asked to stop, and a second process removes it if this one is killed.  The one that is
left looks for new settings.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

REMOVE_SECONDS = 0.1
"""Time between two attempts to remove a container that may not exist yet."""


def run_container(words: list[str], remove: list[str], finish: Callable[[], None]) -> int:
    """Run docker with `words` to its end, then `finish`; `remove` is the command that removes its container."""
    held = start_guard(remove, finish)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    docker = subprocess.Popen(words, start_new_session=True)  # noqa: S603 - our own words
    while True:
        try:
            status = docker.wait(REMOVE_SECONDS)
            finish()
            os.write(held, b".")
            return status
        except subprocess.TimeoutExpired:
            if stopped.is_set():
                remove_container(remove)


def remove_container(remove: list[str]) -> None:
    quiet = subprocess.DEVNULL
    subprocess.run(remove, stdin=quiet, stdout=quiet, stderr=quiet, check=False)  # noqa: S603 - our own words


def start_guard(remove: list[str], finish: Callable[[], None]) -> int:
    """Start a process that waits for the end of this one, however it comes, and removes the container.

    It also calls `finish`, unless a byte is written to the descriptor that is returned.
    """
    ended, held = os.pipe()
    if os.fork() == 0:
        guard_container(ended, held, remove, finish)
    os.close(ended)
    os.set_inheritable(held, False)
    return held


def guard_container(ended: int, held: int, remove: list[str], finish: Callable[[], None]) -> NoReturn:
    os.setsid()
    os.close(held)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream.fileno())
    is_finished = os.read(ended, 1)
    if is_finished:
        os.read(ended, 1)
    remove_container(remove)
    if not is_finished:
        finish()
    os._exit(0)
