"""The hostile MCP server as a source of tools, and what tests ask about its processes."""

import os
import sys
import time
from pathlib import Path

from bridle import RunContext
from bridle.mcp import server

SCRIPT = Path(__file__).parent / "hostile_server.py"
CONTEXT = RunContext(context=None, session="s", call_id="c", idempotency_key="k")


def hostile_server(*modes, name="h", **options):
    return server([sys.executable, str(SCRIPT), *modes], name=name, **options)


def more_hostile(*modes, **options):
    """The server with tools that ask the client, return any kind of content and look around."""
    return hostile_server("more", *modes, **options)


def list_pids(path):
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def list_session_members(leaders):
    """Processes of the sessions that these processes lead or led; zombies do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) in leaders and fields[0] not in (b"Z", b"X"):
                found.append(int(entry.name))
    return found


def wait_until_gone(leaders, seconds=20.0):
    until = time.monotonic() + seconds
    while (left := list_session_members(leaders)) and time.monotonic() < until:
        os.sched_yield()
    return left
