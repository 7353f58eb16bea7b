"""The coding agent: it fixes a failing test in a sandbox, asks first, and takes its changes back."""

import shutil
import subprocess
import sys

import pytest

from bridle.sandbox.local import MECHANISMS, find_problem
from tests.examples.programs import EXAMPLES, run_program

pytestmark = pytest.mark.skipif(
    all(find_problem(each) for each in MECHANISMS), reason="no sandbox works here"
)
CODER = "coder/coder.py"
SAMPLE = EXAMPLES / "coder" / "sample"
FAULT, FIX = "(departure - arrival).days - 1", "(departure - arrival).days + 1"


@pytest.fixture
def repository(tmp_path):
    return shutil.copytree(SAMPLE, tmp_path / "repository", ignore=shutil.ignore_patterns("__pycache__"))


def run_tests(folder):
    command = [sys.executable, "-B", "-m", "unittest", "-q"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def run_coder(folder, *words, **more):
    return run_program(folder, CODER, *words, "--store", str(folder.parent / "log.db"), **more)


@pytest.mark.slow
def test_it_fixes_a_failing_test_and_takes_the_change_back(repository):
    assert run_tests(repository).returncode != 0, "the sample has a fault"
    shown = run_coder(repository, "Fix the failing tests.", "--yes", "--session", "fix")
    assert f"`return {FAULT}` is now `return {FIX}`" in shown and "[fix: done" in shown
    assert run_tests(repository).returncode == 0
    source = (repository / "stays.py").read_text()
    assert source == (SAMPLE / "stays.py").read_text().replace(FAULT, FIX), "nothing else has changed"
    run_coder(repository, "--undo", "fix")
    assert (repository / "stays.py").read_text() == (SAMPLE / "stays.py").read_text()


@pytest.mark.slow
def test_every_change_is_shown_as_a_diff_and_may_be_refused(repository):
    shown = run_coder(repository, "Fix the failing tests.", text="y\n" * 20)
    assert f"│ -    return {FAULT}" in shown and f"│ +    return {FIX}" in shown
    assert run_tests(repository).returncode == 0
    task = '!call edit_file {"path": "stays.py", "old_text": "28", "new_text": "29"}\n!then\n!say Refused.'
    shown = run_coder(repository, task, text="n\n")
    assert "│ +DAYS_MAX = 29" in shown and "Refused." in shown
    assert "DAYS_MAX = 28" in (repository / "stays.py").read_text()


@pytest.mark.slow
def test_a_question_without_an_answer_stays_open_and_the_session_goes_on(repository):
    shown = run_coder(repository, "Fix the failing tests.", "--session", "later", code=1)
    assert "[later: waiting" in shown
    shown = run_coder(repository, "--resume", "later", text="y\n" * 20)
    assert "[later: done" in shown and run_tests(repository).returncode == 0


def test_misuse_is_one_line(repository):
    run_coder(repository, code=2)
    run_program(repository, CODER, "Look.", "--store", "log.db", code=1)
