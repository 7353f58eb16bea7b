"""Programs held against type checkers: `# wrong` marks a line with an error, another comment a revealed type.

Mypy is part of the development environment.  Pyright is used if it is installed (`make pyright` installs it):
`BRIDLE_PYRIGHT` names the program, or `pyright` or `basedpyright` is on the path.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.suite.paths import ROOT

PYRIGHT = os.environ.get("BRIDLE_PYRIGHT") or shutil.which("pyright") or shutil.which("basedpyright")
needs_pyright = pytest.mark.skipif(
    PYRIGHT is None, reason="pyright is not installed; `make pyright` installs it"
)


def read_expectations(program):
    """Return the lines with an error, and the types that lines reveal."""
    lines = list(enumerate(program.splitlines(), 1))
    wrong = [number for number, line in lines if line.endswith("# wrong")]
    revealed = {
        number: line.partition("  # ")[2]
        for number, line in lines
        if "reveal_type(" in line and "import" not in line
    }
    return wrong, revealed


def shorten_names(shown):
    """Return a type without the modules of its names."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", shown)


def run_checker(command, folder):
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False).stdout


def check_with_mypy(program, tmp_path):
    """Fail unless mypy finds the marked errors and types, and no others."""
    file = tmp_path / "program.py"
    file.write_text(program)
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    seen = run_checker([sys.executable, "-m", "mypy", "--strict", *cache, str(file)], tmp_path)
    lines = [line.split(":", 2) for line in seen.splitlines() if line.startswith("program.py:")]
    errors = sorted({int(number) for _, number, text in lines if "error:" in text})
    revealed = {
        int(number): shorten_names(text.split('"')[1]) for _, number, text in lines if "Revealed type" in text
    }
    assert (errors, revealed) == read_expectations(program), seen


def check_with_pyright(program, tmp_path):
    """Fail unless Pyright finds the marked errors and types, and no others."""
    (tmp_path / "program.py").write_text(program)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [PYRIGHT, "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    found = json.loads(run_checker(command, tmp_path))["generalDiagnostics"]
    at = [(each["range"]["start"]["line"] + 1, each["severity"], each["message"]) for each in found]
    errors = sorted({line for line, severity, _ in at if severity == "error"})
    revealed = {
        line: message.split('" is "')[1].rstrip('"')
        for line, severity, message in at
        if severity == "information"
    }
    assert (errors, revealed) == read_expectations(program), at
