"""Lines with the command `bridle`, from the help and the documentation, and the files that they name."""

import base64
import json
import shlex
import sys

ENDLESS = (
    "bridle serve",
    "bridle worker",
    "bridle gateway -m",
    "bridle gateway gateway.toml",
    "bridle sim --port",
    "bridle sim --script",
    "bridle session tail SESSION --follow",
)
"""Beginnings of lines that end with Ctrl-C only."""
NEEDING_A_RUN = (
    "bridle check waiting",
    "bridle session cancel",
    "bridle session steer",
    "bridle session pause",
)
"""Beginnings of lines that need a run of another process; tests/run/control executes them."""
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOOLS = """
from bridle import tool

@tool(effect="write")
def refund(order: int, usd: int) -> str:
    '''Pay an order back.'''
    return f"refunded {usd}"
"""
AGENT = """
tools = ["tools.py"]

[[policy.rules]]
decision = "ask"
tools = ["refund"]
"""
SERVER = """
from mcp.server.mcpserver import MCPServer

app = MCPServer("notes")

@app.tool()
def read(name: str) -> str:
    '''Reads a note.'''
    return "empty"

app.run()
"""
APP = """
from bridle import Agent

agent = Agent("sim:", instructions="Be short.")
"""


def write_named_files(folder):
    """Write the files that the lines name."""
    for name in ("src", "recordings", "starter"):
        (folder / name).mkdir()
    texts = {"tools.py": TOOLS, "support.toml": AGENT, "app.py": APP, "src/app.py": APP, "server.py": SERVER}
    for name, text in texts.items():
        (folder / name).write_text(text)
    servers = {"mcpServers": {"notes": {"command": sys.executable, "args": [str(folder / "server.py")]}}}
    (folder / "servers.json").write_text(json.dumps(servers))
    (folder / "screen.png").write_bytes(PICTURE)


def split_line(line):
    """Words of the `bridle` command in a line, and the text that a pipe gives it."""
    *before, rest = line.split(" | ")
    words = shlex.split(rest, comments=True)
    assert words[0] == "bridle"
    if ">" in words or ">>" in words:
        del words[next(at for at, word in enumerate(words) if word in (">", ">>")) :]
    given = (
        "".join(word.encode().decode("unicode_escape") for word in shlex.split(before[0])[1:])
        if before
        else ""
    )
    return words[1:], given
