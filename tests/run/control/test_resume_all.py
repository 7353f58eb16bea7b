"""`bridle resume --all`: as a cron job would call it, without a terminal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.command import bridle, start_bridle
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.postgres_server import change_rows

PROGRAM = Path(__file__).with_name("controlled.py")
PAYING = '!call pay {"amount": 7}\n!then\n!say done'
TOOLS = '''
import os
import signal
from pathlib import Path
from bridle import tool
from bridle.stores import open_store

@tool(effect="write", approve=True, on_unknown="retry")
def pay(amount: int) -> str:
    """Pay."""
    with Path("paid").open("a") as file:
        file.write(f"{amount} ")
    return "paid"

@tool(effect="write", on_unknown="report")
def crash() -> str:
    """End this process."""
    os.kill(os.getpid(), signal.SIGKILL)

@tool(effect="read")
async def lose() -> str:
    """Let another process take this session over."""
    store = open_store(os.environ["BRIDLE_STORE"])
    (info,) = await store.sessions()
    async with store.lease(info.id, take_over=True):
        pass
    await store.close()
    return "lost"
'''
POLICY = '[[rules]]\ndecision = "allow"\ntools = ["crash"]\n'


@pytest.fixture
def home(tmp_path, monkeypatch, shared_log):
    monkeypatch.setenv("BRIDLE_STORE", shared_log)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def run_killed(home, session, count):
    """A run that is killed after so many records."""
    command = [
        sys.executable,
        str(PROGRAM),
        os.environ["BRIDLE_STORE"],
        session,
        PAYING,
        "--kill-after",
        str(count),
    ]
    ended = subprocess.run(command, cwd=home, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def resume_all(*options):
    done = bridle("resume", "--all", "--tools", "tools.py", "--json", *options)
    return done.code, {each["session"]: each for each in json.loads(done.out)}, done.err


def test_crashed_runs_are_continued_answers_are_honoured_and_the_rest_is_reported(home):
    for session, count in (("early", 3), ("asked", 5)):
        run_killed(home, session, count)
    code, found, err = resume_all()
    # Without a terminal a call that a person must approve waits.
    statuses = {name: each["status"] for name, each in found.items()}
    assert (code, statuses) == (0, {"early": "waiting", "asked": "waiting"}), err
    assert not (home / "paid").exists()
    # Nothing is due now: a run that waits for a person is not touched again.
    before = bridle("sessions", "--json").out
    assert {name: each["status"] for name, each in resume_all()[1].items()} == statuses
    assert bridle("sessions", "--json").out == before
    questions = {each["session"]: each["id"] for each in json.loads(bridle("approvals", "--json").out)}
    assert bridle("approvals", "approve", questions["asked"], "--by", "ann").code == 0
    code, found, err = resume_all()
    assert (code, found["asked"]["status"]) == (0, "done"), err
    assert (home / "paid").read_text() == "7 "
    assert resume_all()[1].keys() == {"early"}


def test_a_failure_does_not_stop_the_others_and_sets_the_exit_code(home, shared_log):
    for session in ("one", "two"):
        run_killed(home, session, 3)
    change_rows(shared_log, "UPDATE events SET data = replace(data, 'pay', 'pax') WHERE seq = 2 AND sid = 1")
    code, found, err = resume_all()
    assert code == 1, err
    assert sorted(each["status"] for each in found.values()) == ["failed", "waiting"]
    (failed,) = [each for each in found.values() if each["status"] == "failed"]
    assert "record 2 was changed" in failed["reason"]


def test_a_run_in_use_is_left_alone_and_its_budget_is_kept(home):
    run_killed(home, "dead", 3)
    command = [sys.executable, str(PROGRAM), os.environ["BRIDLE_STORE"], "live", PAYING]
    with subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True) as live:
        try:
            while not any(
                each["session"] == "live" for each in json.loads(bridle("approvals", "--json").out)
            ):
                assert live.poll() is None
            code, found, err = resume_all("--steps", "1")
            assert (code, found["live"]["status"]) == (0, "in use"), err
            assert found["dead"]["status"] == "waiting"
        finally:
            os.kill(live.pid, signal.SIGKILL)


@pytest.mark.slow
def test_crashed_live_waiting_and_doubtful_sessions_are_distinguished(home):
    (home / "policy.toml").write_text(POLICY)
    words = ("--tools", "tools.py", "--policy", "policy.toml")
    run_killed(home, "waiting", 5)
    assert resume_all()[1]["waiting"]["resumed"], "it waits for a person now"
    assert bridle("run", "!call crash\n!then\n!say done", *words).code == -signal.SIGKILL
    (doubt,) = {each["session"] for each in json.loads(bridle("sessions", "--json").out)} - {"waiting"}
    run_killed(home, "dead", 3)
    command = [sys.executable, str(PROGRAM), os.environ["BRIDLE_STORE"], "live", PAYING]
    with subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL) as live:
        try:
            while "live" not in {each["session"] for each in json.loads(bridle("approvals", "--json").out)}:
                assert live.poll() is None
            done = bridle("resume", "--all", "--tools", "tools.py")
        finally:
            os.kill(live.pid, signal.SIGKILL)
    lines = [line.split() for line in done.out.splitlines()]
    assert done.code == 0, done.err
    assert ["live", "left", "alone", "in", "use"] in lines
    assert ["bridle", "resume", "live", "--tools", "tools.py", "--take-over"] in [
        words[:6] for words in lines
    ]
    assert ["waiting", "left", "alone", "waiting"] in lines
    assert {words[0] for words in lines if words[1:3] == ["resumed", "done"]} == {doubt}
    assert ["dead", "resumed", "waiting"] in [words[:3] for words in lines]
    assert "in doubt: crash (report)" in done.out
    assert done.out.endswith("2 resumed, 2 left alone\n")
    assert max(map(len, done.out.splitlines())) < 80


def test_a_run_that_is_taken_over_while_it_continues_is_not_called_left_alone(home):
    (home / "policy.toml").write_text(POLICY)
    words = ("--tools", "tools.py", "--policy", "policy.toml")
    killed = bridle("run", "!call crash\n!then\n!call lose\n!then\n!say done", *words)
    assert killed.code == -signal.SIGKILL
    (outcome,) = resume_all()[1].values()
    assert (outcome["status"], outcome["resumed"]) == ("in use", True)


def test_wrong_usage_is_one_line(home):
    run_killed(home, "dead", 3)
    for words in (("dead", "--all"), ("--all", "--take-over")):
        done = bridle("resume", *words)
        assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_run_on_the_command_line_waits_for_an_answer_from_elsewhere(home):
    with start_bridle("run", PAYING, "--tools", "tools.py", "--wait", cwd=home) as live:
        while not (asked := json.loads(bridle("approvals", "--json").out or "[]")):
            assert live.poll() is None
        assert bridle("approvals", "approve", asked[0]["id"]).code == 0
        out, err = live.communicate(timeout=PATIENCE_SECONDS)
    assert (live.returncode, out) == (0, "done\n"), err
    assert f"waiting; in another terminal: bridle approvals approve {asked[0]['id']}" in err
    assert (home / "paid").read_text() == "7 "
