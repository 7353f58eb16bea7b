"""What a newcomer finds: the CI workflow, templates and hooks run commands that exist and that CONTRIBUTING.md explains."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOST = ROOT / ".github"
LANES = {"make test", "make test-all", "make campaign"}
IMAGES = {"make container"}


def test_the_workflow_runs_the_three_lanes_builds_the_image_and_nothing_else():
    jobs = yaml.safe_load((HOST / "workflows" / "test.yml").read_text())["jobs"]
    assert {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step} == LANES | IMAGES
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"| `{lane}` |" in contributing for lane in LANES)
    assert all(f"`{each}`" in contributing for each in IMAGES)


@pytest.mark.parametrize("form", ["defect.yml", "idea.yml"])
def test_a_form_for_issues_asks_for_something(form):
    found = yaml.safe_load((HOST / "ISSUE_TEMPLATE" / form).read_text())
    assert found["name"] and found["description"]
    assert any(field["validations"]["required"] for field in found["body"] if "validations" in field)


def test_commands_of_hooks_and_pages_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "AGENTS.md",
        HOST / "pull_request_template.md",
    ]
    named = {name for page in pages for name in re.findall(r"`make ([\w-]+)", page.read_text())}
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    named |= {words[-1] for hook in hooks if (words := hook["entry"].split())[0] == "make"}
    assert named and named <= targets
