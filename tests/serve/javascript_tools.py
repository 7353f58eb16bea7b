"""ESLint and the TypeScript checker, which `make javascript` installs."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "tests" / "serve" / "javascript"
INSTALLED = ROOT / "bench" / ".work" / "javascript" / "node_modules"
MISSING = "node or its packages are missing: install node 20.19 or newer with npm, then: make javascript"


def find_tools() -> Path | None:
    """The folder of the programs; None if they cannot run here."""
    programs = INSTALLED / ".bin"
    complete = all((programs / name).exists() for name in ("tsc", "eslint"))
    return programs if complete and shutil.which("node") else None


def run_tool(name: str, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(INSTALLED / ".bin" / name), *map(str, arguments)]
    environment = {**os.environ, "NODE_PATH": str(INSTALLED)}
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
