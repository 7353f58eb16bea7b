"""The README is true: its code runs, its files exist, its commands are there."""

import re
import subprocess
import sys
from pathlib import Path

from bridle.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(ROOT / "docs").glob("*.md"),
]


def test_the_example_runs_as_it_stands():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Tokyo" in done.stdout


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_every_command_is_mentioned():
    text = (ROOT / "README.md").read_text()
    for name in COMMANDS:
        assert f"bridle {name}" in text


def test_files_named_in_the_architecture_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in re.findall(
        r"`((?:core|run|values|ports|providers|stores|cli|tests|sim)/[\w/]+\.(?:py|toml))`", text
    ):
        assert (ROOT / name).exists() or (ROOT / "src" / "bridle" / name).exists(), name
