"""A program that imports Bridle loads only what a run needs. Modules are counted: their number is the same on every machine."""

import json
import os
import subprocess
import sys

import pytest

LIST_MODULES = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
FIRST_USE = "from bridle import Agent, Budget, tool"
FOUNDATION = "import binascii, contextvars, importlib, random, unicodedata, msgspec"
"""The modules of others that declaring an agent and its tools needs. Modules such as pathlib, difflib and dataclasses
take longer to load than most of ours, so they wait for their first use."""
HELP = """
import contextlib, io
from bridle.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
"""
LOADED_LATER = {
    "aiohttp", "asyncio", "hashlib", "jsonschema_rs", "sqlite3", "tempfile", "yarl", "mcp", "pydantic", "bridle.hooks.pii", "bridle.hosted",
    "bridle.core", "bridle.providers", "bridle.run.agent_settings", "bridle.run.driver", "bridle.run.replay", "bridle.sim",
    "bridle.stores", "bridle.testing", "bridle.toolkit", "bridle.tools.mcp", "bridle.tools.search",
    "bridle.transports", "bridle.watchers",
}  # fmt: skip
"""Modules of features, of the first agent and of the first request."""


LOADED_AT_A_REQUEST = {
    "aiohttp", "jsonschema_rs", "sqlite3", "tempfile", "yarl", "mcp", "pydantic", "bridle.hooks.pii", "bridle.hosted",
    "bridle.providers.schema.compiler", "bridle.run.archive", "bridle.run.replay", "bridle.sim",
    "bridle.stores.sqlite", "bridle.testing", "bridle.toolkit", "bridle.tools.mcp",
    "bridle.tools.search.lexical_index", "bridle.transports.http", "bridle.watchers.otel",
}  # fmt: skip


def list_loaded(program: str) -> set[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", program + LIST_MODULES],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("program", "own"),
    [
        ("import bridle", {"bridle"}),
        (HELP, {"bridle", "bridle.cli", "bridle.cli.command_table", "bridle.cli.main"}),
    ],
)
def test_modules_that_are_loaded(program, own):
    assert {name for name in list_loaded(program) if name.split(".")[0] == "bridle"} == own


def test_an_import_loads_no_other_modules_than_the_foundation():
    others = list_loaded(FIRST_USE) - list_loaded(FOUNDATION)
    assert sorted(name for name in others if name.split(".")[0] != "bridle") == []


def test_features_are_loaded_when_they_are_used():
    assert sorted(list_loaded(FIRST_USE) & LOADED_LATER) == []


def test_an_agent_is_made_without_the_modules_of_its_first_request():
    make = (
        FIRST_USE
        + "\nAgent('anthropic:claude-sonnet-5-5', tools=[tool(lambda: 1, name='one')], budget=Budget())"
    )
    assert sorted(list_loaded(make) & LOADED_AT_A_REQUEST) == []


def test_help_loads_no_event_loop_and_no_settings():
    assert not list_loaded(HELP) & {
        "argparse",
        "asyncio",
        "msgspec",
        "bridle.config",
        "bridle.providers",
        "bridle.run",
        "bridle.values.events",
    }


@pytest.mark.parametrize(
    "package", ["bridle.tools", "bridle.hooks", "bridle.run", "bridle.sandbox", "bridle.testing"]
)
def test_names_of_packages_are_found_when_they_are_used(package):
    """Every name that the package promises exists in the module that the table names."""
    program = f"import {package} as package\nfor name in package._WHERE: getattr(package, name)"
    assert package in list_loaded(program)
