"""Starts and kills the processes of till_agent.py."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.suite.campaign import SCALE

CHILD = Path(__file__).with_name("till_agent.py")
PROCESSES, RUNS = (6, 30) if SCALE > 1 else (2, 8)


def child(path, *arguments):
    command = [sys.executable, str(CHILD), str(path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


def kill(path, *arguments):
    """Let a process set something aside, and end it there and then."""
    with child(path, *arguments) as killed:
        assert killed.stdout.readline().strip() == "now"
        killed.send_signal(signal.SIGKILL)
