"""`make demo` from the outside: the ledger, the log and the requests that it leaves, its exit code, its end."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.suite.command import bridle
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.terminal import open_terminal

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = (sys.executable, str(EXAMPLES / "demo.py"))


@pytest.fixture
def place(tmp_path):
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    return tmp_path


def surroundings(place):
    """With variables of a person's own that the demo must not use."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "temporary"),
        "TERM": "xterm",
        "BRIDLE_MODEL": "local:no-model@http://127.0.0.1:9/v1",
        "ANTHROPIC_AUTH_TOKEN": "a-token-of-mine",
        "https_proxy": "http://127.0.0.1:9",
    }


def play(place, *options, examples=EXAMPLES):
    return subprocess.run(
        [sys.executable, str(examples / "demo.py"), *options],
        capture_output=True,
        text=True,
        env=surroundings(place),
        timeout=3 * PATIENCE_SECONDS,
    )


def read_json(folder, *words):
    done = bridle(*words, "--json", cwd=folder)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def count_payments(folder):
    return Counter(line.split()[1] for line in (folder / "ledger.txt").read_text().splitlines())


@pytest.mark.slow
def test_every_claim_of_the_demo_is_true(place):
    done = play(place, "--keep")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.count("\n✓ ") == 9 and "✗" not in done.stdout and "\x1b" not in done.stdout
    assert [f"{n} of 6" in done.stdout for n in range(1, 7)] == [True] * 6
    assert '  refund({"order": 4412, "usd": 24}) → paid order 4412' in done.stdout, (
        "looked up, and shown as a call"
    )
    (folder,) = (place / "temporary").iterdir()
    assert f"kept: {folder}\n" in done.stdout
    assert not any((place / "home").iterdir())

    assert count_payments(folder) == dict.fromkeys(("4411", "4412", "4413", "4414"), 1)
    ((found,),) = read_json(folder, "sessions")
    events = [record["event"] for record in read_json(folder, "show", found["session"])]
    receipts = [each for each in events if each["type"] == "tool_finished" and each["name"] == "refund"]
    assert [each.get("source", "run") for each in receipts] == ["run", "probe", "run", "run"]
    keys = [line.split()[-1] for line in (folder / "ledger.txt").read_text().splitlines()]
    assert [each["result"]["parts"][0]["text"].split()[-1] for each in receipts] == keys
    stops = [each["stop"] for each in events if each["type"] == "run_ended"]
    assert stops == ["done", "waiting", "done", "budget", "done", "done"]
    (answer,) = [each for each in events if each["type"] == "approval_answered"]
    assert answer["by"] == "maria"

    requests = [json.loads(line)["request"] for line in (folder / "requests.jsonl").read_text().splitlines()]
    assert [each["path"] for each in requests] == 8 * ["/v1/messages"] + ["/v1/responses"]
    assert "a-token-of-mine" not in (folder / "requests.jsonl").read_text()


@pytest.mark.slow
def test_a_tool_that_pays_twice_fails_the_demo(place):
    shutil.copytree(EXAMPLES, place / "examples")
    tools = place / "examples" / "refunds" / "tools.py"
    safe = 'on_unknown="probe", probe=find_payment'
    assert safe in tools.read_text()
    tools.write_text(tools.read_text().replace(safe, 'on_unknown="retry"'))
    done = play(place, "--keep", examples=place / "examples")
    assert done.returncode == 1
    assert "✗ NOT TRUE: one payment for each order, none twice" in done.stdout
    (folder,) = (place / "temporary").iterdir()
    assert count_payments(folder)["4412"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["order 4412", "1 of 6"])
def test_ctrl_c_leaves_nothing(place, moment):
    """In the middle of a payment, and while a person reads."""
    with open_terminal(program=DEMO, cwd=place, env=surroundings(place)) as terminal:
        terminal.wait_for(moment)
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130, terminal.seen
    assert "Traceback" not in terminal.seen
    assert not any((place / "temporary").iterdir()) and not any((place / "home").iterdir())
    assert not list_processes(place), "the simulator is still running"


def list_processes(place):
    """Command lines of processes that work in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "cwd").readlink()).startswith(str(place)):
                found.append((process / "cmdline").read_bytes())
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


@pytest.mark.slow
def test_the_lines_of_the_demo_fit_a_terminal(place):
    with open_terminal("--fast", program=DEMO, cwd=place, env=surroundings(place)) as terminal:
        assert terminal.wait_for_end() == 0, terminal.seen
    own = [line for line in terminal.seen.splitlines() if line.startswith(("──", "$", "✓", "    "))]
    assert len(own) > 20
    assert [line for line in own if len(line) > 80] == []
    assert not any((place / "temporary").iterdir())
