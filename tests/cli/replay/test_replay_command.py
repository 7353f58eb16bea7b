"""`bridle session replay`: equal, different, continued live, and turned into a test."""

import json
import subprocess
import sys

import pytest

from bridle.cli.main import main
from tests.suite.patience import PATIENCE_SECONDS

PROMPT = "You are a clerk. Be brief and kind."
SCRIPT = '!call refund {"order": 4411, "usd": 20}\n!then\n!say done'
TOOLS = """
from pathlib import Path
from bridle import tool

@tool(effect="write")
def refund(order: int, usd: int) -> str:
    \'\'\'Pay an order back.\'\'\'
    with Path("refunds.txt").open("a") as out:
        out.write(f"{order}\\n")
    return f"refunded {usd}"
"""


@pytest.fixture(autouse=True)
def session(monkeypatch, tmp_path, capsys):
    """A session of an agent file, recorded in this folder."""
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BRIDLE_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS)
    write_agent(tmp_path, PROMPT)
    assert main(["run", SCRIPT, "-a", "agent.toml", "--yes", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["session"]


def write_agent(folder, prompt):
    (folder / "agent.toml").write_text(f'model = "sim:"\ninstructions = "{prompt}"\ntools = ["tools.py"]\n')


def run(capsys, *words):
    code = main([*words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_session_replays_and_runs_no_tool(session, capsys, tmp_path):
    code, out, _ = run(capsys, "session", "replay", session)
    assert (code, out) == (0, f"{session}: equal, 9 records, 2 model calls, 1 tool run, done\n")
    code, out, _ = run(capsys, "session", "replay", session, "--json", "--until", "5")
    report = json.loads(out)
    assert (code, report["is_equal"], report["records"]) == (0, True, 5)
    assert (tmp_path / "refunds.txt").read_text() == "4411\n"


def test_the_agent_file_that_ran_it_makes_no_difference(session, capsys):
    assert run(capsys, "session", "replay", session, "-a", "agent.toml")[0] == 0
    assert run(capsys, "session", "replay", session, "--tools", "tools.py")[0] == 0
    assert run(capsys, "session", "replay", session, "-i", PROMPT)[0] == 0


def test_a_changed_word_is_named(session, capsys, tmp_path):
    write_agent(tmp_path, PROMPT.replace("brief", "terse"))
    for words in (["-a", "agent.toml"], ["-i", PROMPT.replace("brief", "terse")]):
        code, out, _ = run(capsys, "session", "replay", session, *words, "--diff")
        assert code == 1
        assert "the request of record 3 differs: instructions" in out
        assert "after 'a clerk. Be': 'brief' became 'terse'" in out
        assert '-   "text": "You are a clerk. Be brief and kind."' in out
    code, out, _ = run(capsys, "session", "replay", session, "-m", "sim:openai/gpt-6.1-sol", "--json")
    assert (code, json.loads(out)["divergence"]["request"]["layer"]) == (1, "model")


def test_a_what_if_goes_on_live_in_a_fork(session, capsys, tmp_path):
    before = run(capsys, "show", session, "--json")[1]
    words = ["-m", "sim:openai/gpt-6.1-sol", "--tools", "tools.py", "--yes", "--continue", "--as", "other"]
    code, out, err = run(capsys, "session", "replay", session, *words)
    assert (code, out) == (0, "done\n"), err
    assert "other starts after record 2" in err
    assert run(capsys, "show", session, "--json")[1] == before
    assert run(capsys, "session", "replay", "other")[0] == 0
    # The request that differs is the first one, so the model asked for the refund again.
    assert (tmp_path / "refunds.txt").read_text() == "4411\n4411\n"


def test_wrong_options_are_refused_in_one_line(session, capsys):
    for words, told in (
        (["--diff"], "--diff needs an agent"),
        (["--continue"], "--continue needs an agent"),
        (["--as", "x"], "--as names the session"),
        (["--as-test", "x.txt"], "ends in .py"),
        (["--until", "m99"], "m99"),
    ):
        code, _, err = run(capsys, "session", "replay", session, *words)
        assert code == 2
        assert told in err
        assert err.count("\n") == 1


def run_tests(folder, **variables):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **variables},
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.slow
def test_a_log_becomes_a_regression_test(session, capsys, tmp_path):
    code, out, _ = run(
        capsys, "session", "replay", session, "-a", "agent.toml", "--as-test", "tests/test_refund.py"
    )
    assert code == 0
    assert "tests/test_refund.py" in out
    assert (
        run(capsys, "session", "replay", session, "--as-test", "tests/test_refund.py")[0] == 2
    )  # never overwritten
    (tmp_path / "conftest.py").write_text("")
    passed = run_tests(tmp_path)
    assert passed.returncode == 0, passed.stdout
    write_agent(tmp_path, PROMPT.replace("brief", "terse"))
    failed = run_tests(tmp_path)
    assert failed.returncode == 1
    assert "'brief' became 'terse'" in failed.stdout
    assert "BRIDLE_UPDATE_REPLAY=1" in failed.stdout
    assert run_tests(tmp_path, BRIDLE_UPDATE_REPLAY="1").returncode == 0
    assert run_tests(tmp_path).returncode == 0
    code, _, err = run(
        capsys, "session", "replay", session, "-a", "agent.toml", "--as-test", "tests/test_other.py"
    )
    assert code == 2
    assert "does not replay" in err
