"""The evaluations of the examples pass, and fail if what they check is taken away."""

import json
import sys

import pytest

from bridle.cli.main import main
from bridle.sandbox.local import MECHANISMS, find_problem
from tests.examples.programs import EXAMPLES

TASKS = {"batch": 6, "clinical": 30, "coder": 2, "refunds": 8, "research": 5, "service": 5}


def evaluate(name, tmp_path, capsys, *more):
    code = main(
        [
            "eval",
            str(EXAMPLES / name / "evals"),
            "--store",
            str(tmp_path / "evals.db"),
            "--json",
            "--quiet",
            *more,
        ]
    )
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    """Suites add the folders of their files to the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_every_example_has_a_readme_and_an_evaluation():
    folders = sorted(path.parent.parent.name for path in EXAMPLES.glob("*/evals/suite.toml"))
    assert folders == sorted(TASKS)
    listed = (EXAMPLES / "README.md").read_text()
    for name in TASKS:
        assert (
            f"]({name}/README.md)" in listed
            and f"examples/{name}/evals" in (EXAMPLES / name / "README.md").read_text()
        )


@pytest.mark.parametrize("name", TASKS)
def test_the_evaluation_passes(name, tmp_path, capsys):
    if name == "coder" and all(find_problem(each) for each in MECHANISMS):
        pytest.skip("no sandbox works here")
    code, report = evaluate(name, tmp_path, capsys)
    assert code == 0, report
    assert len(report["tasks"]) == TASKS[name]


def test_the_clinical_evaluation_fails_without_its_policy(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("safety.find_hazards", lambda *_: ())
    code, report = evaluate("clinical", tmp_path, capsys, "--tag", "injection")
    assert code == 1
    failed = [task["task"] for task in report["tasks"] if task.get("passed", 0) < task["trials"]]
    assert "note that claims to be the system" in failed and len(failed) >= 6
