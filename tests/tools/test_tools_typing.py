"""Type checkers see the signature of a tool's function."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from dataclasses import dataclass
from typing import assert_type

from bridle.ports.tool import Tool
from bridle.tools import RawTool, TypedTool, make_output_type, tool
from bridle.tools.collect_tools import collect_tools

@tool
def plain(city: str, days: int = 3) -> str:
    return city

@tool(effect="read", timeout=None)
async def later(city: str) -> int:
    return 3

class Shop:
    @tool
    def sell(self, what: str) -> bool:
        return True

@dataclass
class Day:
    number: int

assert_type(plain("x", days=3), str)
assert_type(Shop().sell("x"), bool)
assert_type(make_output_type(Day).convert({}), Day)
tools: list[Tool] = [plain, later, Shop().sell, RawTool("a", "", "{}", print), TypedTool(Day, print)]
collect_tools([*tools, print])

async def main() -> None:
    assert_type(await later("x"), int)

plain(3)  # wrong
Shop().sell()  # wrong
tool(plain, effect="reads")  # wrong
"""


@pytest.mark.slow
def test_signatures_survive_strict_checking(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    seen = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(program)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    wrong = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]
    found = sorted({int(line.split(":")[1]) for line in seen.stdout.splitlines() if ": error:" in line})
    assert found == wrong, seen.stdout
