"""The README is true: its code runs, its files exist, its commands are there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.command import bridle

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bridle"
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "SKILL.md",
    *(ROOT / "docs").rglob("*.md"),
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


def heading_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each)) for each in headings]
    return {each.strip().lower().replace(" ", "-") for each in plain}


def test_links_to_a_section_find_its_heading():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            found = heading_anchors(page.parent / target if target else page)
            assert anchor in found, f"{page.name} links to {target}#{anchor}, and there is no such heading"


@pytest.mark.slow
def test_the_commands_work_word_for_word(tmp_path):
    """Every line of the shell block, in order; SESSION is the session that the first line made."""
    text = (ROOT / "README.md").read_text().split("\n## Command line\n")[1]
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "BRIDLE_STORE": str(tmp_path / "log.db")}

    def run(line: str) -> str:
        words = shlex.split(line, comments=True)
        assert words[0] == "bridle"
        done = bridle(*words[1:], cwd=ROOT, environment=environment)
        assert done.code == 0, f"{line}: {done.err}"
        return done.out

    first, *others = block.strip().splitlines()
    assert "291" in run(first)
    (made,) = json.loads(run("bridle sessions --json"))
    for line in others:
        assert run(line.replace("SESSION", made["session"])), line


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    listed = {*re.findall(r"\]\(([^)#:]+\.md)\)", index)}
    assert pages - listed == {"README.md"}


def test_paths_in_the_pages_exist():
    known = ("src", "tests", "bench", "docs", "examples", *(path.name for path in SOURCE.iterdir()))
    for page in PAGES:
        for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", page.read_text()):
            if path.split("/")[0] in known and path != "bench/.work":
                found = (ROOT / path).exists() or (SOURCE / path).exists()
                assert found, f"{page.name} names {path}, which is not there"


def test_the_skill_for_coding_agents_runs_and_names_itself(tmp_path):
    text = (ROOT / "SKILL.md").read_text()
    assert re.match(r"---\nname: bridle\ndescription: \S.{40,1000}\n---\n", text)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=tmp_path
    )
    assert len(blocks) == 2 and done.returncode == 0, done.stderr
