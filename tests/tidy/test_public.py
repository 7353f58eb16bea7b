"""The public names: listed once, all there, and importing them does nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import bridle

INIT = Path(bridle.__file__)


def test_every_listed_name_exists():
    for name in bridle.__all__:
        assert getattr(bridle, name) is not None


def test_the_checker_and_the_program_see_the_same_names():
    declared = {
        alias.asname
        for node in ast.walk(ast.parse(INIT.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("bridle."))
        for alias in node.names
    }
    assert declared == set(bridle.__all__)


def test_the_contract_of_names():
    promised = {
        "Agent", "Budget", "tool", "Transcript", "Message", "ToolCall", "ToolResult", "Reasoning",
        "FinalAnswer", "Usage",
    }  # fmt: skip
    assert promised <= set(bridle.__all__)


def test_importing_does_nothing():
    script = "import sys, bridle; print(sorted(m for m in sys.modules if m.split('.')[0] in %r))"
    heavy = ("asyncio", "aiohttp", "msgspec", "jsonschema_rs", "sqlite3", "pydantic")
    seen = subprocess.run(
        [sys.executable, "-c", script % (heavy,)], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "[]"


def test_an_agent_needs_no_client_until_it_talks():
    script = (
        "import sys; from bridle import Agent, Budget, tool; Agent('sim:');"
        "print([m for m in ('aiohttp', 'sqlite3', 'pydantic', 'jsonschema_rs') if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
