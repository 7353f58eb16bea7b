"""Type checkers infer the types of context and output through tools, instructions, runs and streams.

Mypy is part of the development environment.  Pyright is used if it is installed (`make pyright` installs it):
`BRIDLE_PYRIGHT` names the program, or `pyright` or `basedpyright` is on the path.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYRIGHT = os.environ.get("BRIDLE_PYRIGHT") or shutil.which("pyright") or shutil.which("basedpyright")
PROGRAM = """
from dataclasses import dataclass
from typing_extensions import reveal_type

from bridle import Agent, RunContext, per_turn, tool

@dataclass
class Clinic:
    name: str

@dataclass
class Other:
    size: int

@dataclass
class Report:
    score: int

@tool
def look(ctx: RunContext[Clinic], patient: str) -> int:
    reveal_type(ctx.context)  # Clinic
    return len(ctx.context.name)

@tool(effect="read")
async def look_later(ctx: RunContext[Clinic], patient: str) -> bool:
    return True

@tool
def plain(city: str) -> str:
    return city

@tool
def elsewhere(ctx: RunContext[Other]) -> str:
    return str(ctx.context.size)

def describe(ctx: RunContext[Clinic]) -> str:
    reveal_type(ctx.context.name)  # str
    return ctx.context.name

async def roster(ctx: RunContext[Clinic]) -> str:
    return ctx.context.name

def nothing() -> str:
    return ""

here = RunContext(context=Clinic("North"))
reveal_type(here)  # RunContext[Clinic]
reveal_type(look(here, "p7"))  # int
reveal_type(Agent("sim:"))  # Agent[object, str]
reveal_type(Agent("sim:", tools=[plain]))  # Agent[object, str]
typed = Agent("sim:", tools=[look, look_later, plain], context_type=Clinic, output=Report)
reveal_type(typed)  # Agent[Clinic, Report]
told = Agent("sim:", instructions=["x", describe, per_turn(roster), nothing], context_type=Clinic)
reveal_type(told)  # Agent[Clinic, str]
given: Agent[Clinic, str] = Agent("sim:", tools=[look], instructions=describe)
reveal_type(Agent("sim:", instructions=describe))  # Agent[Clinic, str]

async def main() -> None:
    result = await typed.run("?", context=Clinic("North"))
    reveal_type(result.output)  # Report | None
    stream = typed.stream("?", context=Clinic("North"))
    reveal_type(stream)  # Stream[Report]
    await typed.resume("s", context=Clinic("North"))
    typed.run_sync("?", context=Clinic("North"))
    typed.resume_stream("s", context=Clinic("North"))
    await typed.compensate("s", context=Clinic("North"))
    await typed.run("?", context=Other(3))  # wrong
    typed.run_sync("?", context="North")  # wrong
    typed.stream("?", context=Other(3))  # wrong
    typed.resume_stream("s", context=Other(3))  # wrong
    await given.resume("s", context=Other(3))  # wrong

look("p7")  # wrong
here.context.size  # wrong
Agent("sim:", instructions=describe, context_type=Other)  # wrong
"""
PYRIGHT_ONLY = """
reveal_type(Agent("sim:", tools=[look, plain]))  # Agent[Clinic, str]
Agent("sim:", tools=[look]).run_sync("?", context=Other(3))  # wrong
"""


def expectations(program):
    lines = list(enumerate(program.splitlines(), 1))
    wrong = [number for number, line in lines if line.endswith("# wrong")]
    revealed = {
        number: line.partition("  # ")[2]
        for number, line in lines
        if "reveal_type(" in line and "import" not in line
    }
    return wrong, revealed


def short_names(shown):
    """A type without the modules of its names."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", shown)


def test_mypy_infers_context_and_output(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    seen = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(program)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    wrong, revealed = expectations(PROGRAM)
    lines = [line.split(":", 2) for line in seen.stdout.splitlines() if line.startswith("program.py:")]
    assert sorted({int(number) for _, number, text in lines if "error:" in text}) == wrong, seen.stdout
    found = {
        int(number): short_names(text.split('"')[1]) for _, number, text in lines if "Revealed type" in text
    }
    assert found == revealed


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed; `make pyright` installs it")
def test_pyright_infers_context_and_output(tmp_path):
    program = tmp_path / "program.py"
    text = PROGRAM + PYRIGHT_ONLY
    program.write_text(text)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps(
            {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": ["program.py"]}
        )
    )
    seen = subprocess.run(
        [PYRIGHT, "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    found = json.loads(seen.stdout)["generalDiagnostics"]
    at = [(each["range"]["start"]["line"] + 1, each["severity"], each["message"]) for each in found]
    wrong, revealed = expectations(text)
    assert sorted({line for line, severity, _ in at if severity == "error"}) == wrong, at
    shown = {
        line: message.split('" is "')[1].rstrip('"')
        for line, severity, message in at
        if severity == "information"
    }
    assert shown == revealed
