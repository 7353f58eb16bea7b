"""An MCP server behind OAuth in a process of its own, and a browser that signs in."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import httpx2

SCRIPT = Path(__file__).parent / "oauth_server.py"


@contextlib.contextmanager
def start_protected_server(mode=""):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(port), mode], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "up\n"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Browser:
    """Follows the sign-in page as a browser does, in the background."""

    def __init__(self):
        self.visits, self.pages, self._tasks = [], [], []

    async def open(self, url):
        self.visits.append(url)
        self._tasks.append(asyncio.create_task(self._follow(url)))

    async def _follow(self, url):
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            self.pages.append((await client.get(url)).text)


def read_secrets(path):
    (kept,) = map(json.loads, json.loads(path.read_text())["servers"].values())
    return [kept["tokens"]["access_token"], kept["tokens"]["refresh_token"]]


def control(url, name):
    with urllib.request.urlopen(f"{url.removesuffix('/mcp')}/control/{name}") as answer:
        return json.load(answer)
