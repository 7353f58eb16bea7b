"""Type checkers infer the context of hooks, and reject a hook for another context.

Pyright is used if it is installed; see tests/run/context/test_context_typing.py.
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

from bridle import Agent, Answer, Change, HookDecision, ModelInput, Refuse, Reply, RunContext, ToolCall, ToolResult
from bridle import FinishedRun
from bridle.hooks import RedactPii, after_model, after_tool, before_model, before_tool, guard_input, guard_output, on_end

@dataclass
class Shop:
    limit: int

@dataclass
class BigShop(Shop):
    floors: int

@dataclass
class Other:
    size: int

@dataclass
class Report:
    score: int

@before_tool(tools=["refund"])
def limit(run: RunContext[Shop], call: ToolCall) -> HookDecision:
    reveal_type(run.context)  # Shop
    return Refuse(reason="no") if run.context.limit else None

@before_model(timeout=5)
async def prepare(run: RunContext[Shop], request: ModelInput) -> Change | None:
    return Change(text="x")

@after_model()
def review(run: RunContext[Shop], reply: Reply) -> Answer | None:
    return None

@after_tool(tools=["refund"], name="hide")
async def hide(run: RunContext, call: ToolCall, result: ToolResult) -> HookDecision:
    return Change(text=result.text)

@on_end()
def sign(run: RunContext[Shop], end: FinishedRun) -> HookDecision:
    return None

@guard_input()
async def on_topic(run: RunContext[Shop], text: str) -> str | None:
    return None

@guard_output()
def polite(run: RunContext[Other], text: str) -> str | None:
    reveal_type(run.context.size)  # int
    return None

@before_tool()
def elsewhere(run: RunContext[Other], call: ToolCall) -> HookDecision:
    return None

class Audit:
    name = "audit"

    def before_tool(self, run: RunContext[Shop], call: ToolCall) -> HookDecision:
        return None

    async def on_end(self, run: RunContext[Shop], end: FinishedRun) -> HookDecision:
        return None

class AuditElsewhere:
    def before_tool(self, run: RunContext[Other], call: ToolCall) -> HookDecision:
        return None

class NoHook:
    def before(self) -> None: ...

reveal_type(limit)  # BeforeToolFunction[Shop]
reveal_type(on_topic)  # BeforeModelFunction[Shop]
hooks = [limit, prepare]
everything = Agent(
    "sim:",
    hooks=[limit, prepare, review, hide, sign, on_topic, Audit(), RedactPii()],
    context_type=Shop,
    output=Report,
)
reveal_type(everything)  # Agent[Shop, Report]
given: Agent[Shop, str] = Agent("sim:", hooks=[limit, Audit(), RedactPii()])
larger: Agent[BigShop, str] = Agent("sim:", hooks=[limit, Audit()])
reveal_type(Agent("sim:", hooks=[RedactPii()]))  # Agent[object, str]

async def main() -> None:
    result = await everything.run("?", context=Shop(3))
    reveal_type(result.output)  # Report | None
    reveal_type(result.raise_for_stop().output)  # Report
    stream = everything.stream("?", context=Shop(3))
    reveal_type(stream)  # Stream[Report]
    reveal_type((await stream.result()).output)  # Report | None
    await given.run("?", context=Other(3))  # wrong
    everything.stream("?", context=Other(3))  # wrong

Agent("sim:", hooks=[elsewhere], context_type=Shop)  # wrong
Agent("sim:", hooks=[polite], context_type=Shop)  # wrong
Agent("sim:", hooks=[AuditElsewhere()], context_type=Shop)  # wrong
Agent("sim:", hooks=[NoHook()])  # wrong
Agent("sim:", hooks=[RedactPii])  # wrong
mixed: Agent[Shop, str] = Agent("sim:", hooks=[limit, elsewhere])  # wrong
before_tool(lambda run, call: None)  # wrong
RedactPii(input="block")  # wrong
"""


def expectations():
    lines = list(enumerate(PROGRAM.splitlines(), 1))
    wrong = [number for number, line in lines if line.endswith("# wrong")]
    revealed = {
        number: line.partition("  # ")[2]
        for number, line in lines
        if "reveal_type(" in line and "import" not in line
    }
    return wrong, revealed


def test_mypy_infers_the_context_of_hooks(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    seen = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(program)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    wrong, revealed = expectations()
    lines = [line.split(":", 2) for line in seen.stdout.splitlines() if line.startswith("program.py:")]
    assert sorted({int(number) for _, number, text in lines if "error:" in text}) == wrong, seen.stdout
    found = {
        int(number): re.sub(r"\b(?:\w+\.)+(?=\w)", "", text.split('"')[1])
        for _, number, text in lines
        if "Revealed type" in text
    }
    assert found == revealed


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed; `make pyright` installs it")
def test_pyright_infers_the_context_of_hooks(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    seen = subprocess.run(
        [PYRIGHT, "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    found = json.loads(seen.stdout)["generalDiagnostics"]
    at = [(each["range"]["start"]["line"] + 1, each["severity"], each["message"]) for each in found]
    wrong, revealed = expectations()
    assert sorted({line for line, severity, _ in at if severity == "error"}) == wrong, at
    shown = {
        line: message.split('" is "')[1].rstrip('"')
        for line, severity, message in at
        if severity == "information"
    }
    assert shown == revealed
