"""A suite runs with several versions of Bridle, each in a process of its own, and shows how they differ."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bridle as package
from bridle.evals import RunChoices, load_suite, run_suite
from bridle.evals.baseline import compare_harness
from bridle.evals.report import format_report, make_report, make_stored_report
from bridle.evals.report_files import make_html, make_junit
from bridle.evals.suite_run import read_trials
from bridle.evals.versions.columns import find_column
from bridle.evals.versions.peer import Peer, PeerGone
from bridle.evals.versions.piped_store import PipedStore, StoreServer
from bridle.stores.memory import MemoryStore
from bridle.testing.conformance.store import check_store
from bridle.values.errors import Conflict, MisuseError, StoreError
from tests.evals.suites import AGENT, TOOLS, write_suite, write_task
from tests.suite.command import bridle
from tests.suite.patience import PATIENCE_SECONDS

SOURCE = Path(package.__file__).parent


DEFECT = ("run/calls/run_tool.py", "parts=ended, reveals", "parts=(), reveals")
"""The results of tools are lost."""
READS = (
    """prompt = "Where is order 7?"\ntrials = 5\n"""
    """replies = ['!call find_order {"id": 7}', {expect = "shipped", say = "Shipped."}]\n"""
    + AGENT
    + """[expect]\nequals = "Shipped."\n"""
)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Another version of Bridle: a copy of the source with a defect."""
    return copy_source(tmp_path_factory.mktemp("broken"), *DEFECT)


def copy_source(folder, file, old, new):
    target = folder / "src" / "bridle"
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    text = (target / file).read_text()
    assert old in text, f"{file} has changed"
    (target / file).write_text(text.replace(old, new))
    return folder


def run(suite, store, **choices):
    return asyncio.run(run_suite(suite, store, RunChoices(**choices)))


@pytest.mark.slow
def test_matrix_of_versions_finds_a_defect(tmp_path, broken):
    suite = load_suite(write_suite(tmp_path / "s", eval_reads=READS, eval_plain=write_task("steps_max = 2")))
    store = MemoryStore()
    done = run(suite, store, harness={"released": "this", "new": str(broken)}, jobs=2)
    report = make_report(done)
    released, new = report.harness
    assert (released.name, released.passed, released.trials) == ("released", 6, 6)
    assert (new.name, new.passed, new.trials) == ("new", 1, 6)
    assert released.version == new.version == package.__version__
    assert len(released.source) == len(new.source) == 12 and released.source != new.source
    (comparison,) = compare_harness(report).values()
    assert [each.label for each in comparison.regressions] == ["reads"]
    assert comparison.is_regression and comparison.compared == 2
    text = "\n".join(format_report(report))
    assert f"new       {new.version}    {new.source}" in text
    assert "FAIL  reads [harness=new]" in text and "ok    reads [harness=released]" in text
    page, cases = make_html(report), make_junit(report)
    assert new.source in page and "new compared with released:" in page
    assert f'name="harness new" value="{new.version} {new.source}' in cases
    stored = make_stored_report(done.run, list(asyncio.run(read_trials(store, done.run)).values()))
    assert stored.harness == report.harness
    for each in done.trials:
        assert asyncio.run(store.read(each.session)), "the log of the trial is in the store of the evaluation"


@pytest.mark.full
@pytest.mark.slow
def test_columns_give_the_same_results_as_this_process(tmp_path):
    """A differential: everything but the time and the session is equal."""
    suite = load_suite(
        write_suite(
            tmp_path / "s",
            suite='[matrix]\nmodel = ["sim:", "sim:gemini/gemini-3.8-flash"]\nmax_tokens = [900]\n',
            eval_reads=READS,
            eval_fails=write_task("contains = 'lost'", head="faults = ['error-529']"),
            eval_error=write_task("check = 'checks.py:boom'"),
            eval_asks=write_task("stop = 'waiting'", replies="""['!call refund {"order": 7}']"""),
            checks_py="def boom(trial):\n    raise ZeroDivisionError('no')\n",
        )
    )
    here, there = run(suite, MemoryStore()), run(suite, MemoryStore(), harness={"x": "this"})

    def describe(each):
        label = {key: value for key, value in each.cell.items() if key != "harness"}
        return each.task, each.number, label, each.passed, each.scores, each.stop, each.output, each.error, each.steps, each.usd, each.usage  # fmt: skip

    assert [describe(each) for each in there.trials] == [describe(each) for each in here.trials]
    assert any(each.error for each in there.trials) and any(each.passed for each in there.trials)


@pytest.mark.full
@pytest.mark.slow
def test_version_that_is_too_old_has_one_line(tmp_path, broken):
    old = tmp_path / "old"
    shutil.copytree(broken, old)
    shutil.rmtree(old / "src/bridle/evals/versions")
    folder = write_suite(tmp_path / "s", eval_a=write_task(), eval_b=write_task())
    words = ("eval", str(folder), "--store", str(tmp_path / "log.db"))
    ended = bridle(*words, "--harness", "this", "--harness", f"old={old}")
    assert ended.code == 3, ended
    lines = [line for line in ended.out.splitlines() if "old" in line]
    assert len(lines) == 1 and "cannot run: Bridle" in lines[0] and "save a baseline with it" in lines[0]
    assert "not finished: 2 of 4 trials; a version of Bridle cannot run them" in ended.out
    assert "Traceback" not in ended.err
    alone = bridle(*words, "--harness", f"old={old}")
    assert alone.code == 2 and "harness 'old': Bridle" in alone.err, alone


@pytest.mark.full
@pytest.mark.slow
def test_version_that_lacks_a_key_has_one_line(tmp_path, broken):
    """A suite may say what an older version cannot read."""
    old = tmp_path / "old"
    shutil.copytree(broken, old)
    task = old / "src/bridle/evals/task.py"
    task.write_text(task.read_text().replace("tool_faults: dict", "tool_errors: dict"))
    text = write_task(replies="['Sorry.']", agent="[tool_faults.find_order]\nsays = 'x'" + AGENT)
    suite = load_suite(write_suite(tmp_path / "s", eval_a=text))
    done = run(suite, MemoryStore(), harness={"this": "this", "old": str(old)})
    problem = make_report(done).harness[1].problem
    assert "cannot read the suite" in problem and "unknown key 'tool_faults'" in problem
    assert [bool(each.error) for each in done.trials] == [False, True]


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("", "give a name and where its Bridle is"),
        ("nowhere/python", "there is no Python 'nowhere/python'"),
        ("empty", "has neither a Python (bin/python) nor the source of Bridle (src/bridle)"),
        ("/bin/cat", "does not run as Python"),
        ("bare/bin/python", "has no Bridle: ModuleNotFoundError"),
    ],
)
def test_wrong_places_are_refused(tmp_path, monkeypatch, where, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare/bin").mkdir(parents=True)
    (tmp_path / "bare/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / "bare/bin/python").chmod(0o755)
    suite = load_suite(write_suite(tmp_path / "s", eval_a=write_task()))
    with pytest.raises(MisuseError) as refused:
        run(suite, MemoryStore(), harness={"x": where})
    assert problem in str(refused.value) and "\n" not in str(refused.value)


def test_places_of_a_version(tmp_path, broken):
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").touch()
    assert find_column("x", "venv", tmp_path).python == str(tmp_path / "venv/bin/python")
    assert find_column("x", "venv/bin/python", tmp_path).python == str(tmp_path / "venv/bin/python")
    assert find_column("x", str(broken), tmp_path).folder == str(broken / "src")
    assert find_column("x", str(broken / "src"), tmp_path).folder == str(broken / "src")
    assert find_column("x", "this", tmp_path).folder == str(SOURCE.parent)
    assert Path(find_column("x", "python3", tmp_path).python).name == "python3"


@pytest.mark.full
@pytest.mark.slow
def test_import_path_does_not_hide_the_version(tmp_path, broken, monkeypatch):
    """$PYTHONPATH would make all versions the same one."""
    monkeypatch.setenv("PYTHONPATH", str(broken / "src"))
    suite = load_suite(write_suite(tmp_path / "s", eval_a=READS))
    done = run(suite, MemoryStore(), harness={"installed": sys.executable, "this": "this"}, trials=1)
    installed, this = make_report(done).harness
    assert installed.source == this.source and installed.passed == 1
    assert "installed and this have the same source" in "\n".join(format_report(make_report(done)))


def test_matrix_cannot_have_the_versions(tmp_path):
    suite = load_suite(write_suite(tmp_path / "s", eval_a=write_task()))
    with pytest.raises(MisuseError, match="name them with --harness"):
        run(suite, MemoryStore(), matrix={"harness": ["x"]})


@pytest.mark.full
@pytest.mark.slow
def test_budget_holds_for_all_versions(tmp_path, broken):
    suite = load_suite(write_suite(tmp_path / "s", eval_a=write_task(head="trials = 15")))
    store, harness = MemoryStore(), {"a": "this", "b": str(broken)}
    first = run(suite, store, usd=0.01, jobs=3, harness=harness)
    assert first.out_of_budget and not first.is_complete
    assert Decimal("0.002") < make_report(first).spent_usd <= Decimal("0.01")
    raised = run(suite, store, usd=5, harness=harness, jobs=2)
    assert raised.run == first.run and raised.continued == len(first.trials)
    assert raised.is_complete and len(raised.trials) == 30


BREAKS = (
    TOOLS
    + '''
import os, signal
from pathlib import Path


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    folder = Path(__file__).parent
    if not (folder / "broke").exists() and len(list(folder.glob("done*"))) == 2:
        (folder / "broke").touch()
        Path(os.environ["SIGNS"]).write_text(f"{os.getpid()} {os.getppid()}")
        number = getattr(signal, os.environ["BREAK_WITH"])
        os.kill(os.getpid() if os.environ["WHO"] == "worker" else os.getppid(), number)
        __import__("time").sleep(600)
    (folder / f"done{at}{len(list(folder.glob('done*')))}").touch()
    return "seen"
'''
)
LOOKING = (
    'prompt = "Look."\ntrials = 4\nreplies = [\'!call look {"at": "x"}\', "Seen."]'
    + AGENT
    + "[expect]\ncalled = ['look']\n"
)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "name", "code"),
    [("worker", "SIGKILL", 3), ("parent", "SIGINT", 130), ("parent", "SIGKILL", -signal.SIGKILL)],
)
def test_second_start_runs_only_what_is_left(tmp_path, who, name, code):
    """Ctrl-C and kill end the processes of the versions too, and finished trials are not run again."""
    folder = write_suite(tmp_path / "s", eval_a=LOOKING)
    (folder / "tools.py").write_text(BREAKS)
    words = ("eval", str(folder), "--store", str(tmp_path / "log.db"), "--harness", "x=this", "--json")
    variables = {"BREAK_WITH": name, "WHO": who, "SIGNS": str(tmp_path / "signs")}
    ended = bridle(*words, **variables)
    assert ended.code == code, ended
    worker = int((tmp_path / "signs").read_text().split()[0])
    wait_until_gone(worker)
    if who == "worker":
        error = json.loads(ended.out)["trials"][2]["error"]
        assert "the process of harness 'x' ended during the trial (exit code -9)" in error
    ended = bridle(*words, **variables)
    assert ended.code == 0, ended
    report = json.loads(ended.out)
    assert (report["finished"], report["passed"], report["run"]) == (4, 4, "s-1")
    sessions = [each["session"] for each in report["trials"]]
    assert sessions[2] == "eval-s-1-a-3-1.2", "the interrupted attempt keeps its log"
    assert len(list(folder.glob("done*"))) == 4, "a finished trial ran again"


def wait_until_gone(pid):
    """Wait for the end of a process that is not ours; the crash guard needs a second after a kill."""
    gone = threading.Event()
    for _ in range(int(PATIENCE_SECONDS * 20)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state in "ZX":
            return
        gone.wait(0.05)
    raise AssertionError(f"process {pid} is still running")


def test_output_of_tools_is_not_part_of_the_protocol(tmp_path):
    tools = TOOLS.replace(
        "SEEN.append(id)", "print('{}', flush=True); __import__('os').system('echo []; cat')"
    )
    folder = write_suite(tmp_path / "s", eval_a=write_task("called = ['find_order']"))
    (folder / "tools.py").write_text("print('loaded')\n" + tools)
    done = run(load_suite(folder), MemoryStore(), harness={"x": "this"})
    assert [each.passed for each in done.trials] == [True], done.trials


async def join_peers(handlers):
    """Two ends in one process: the second has the handlers."""
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    near, far = Peer({}), Peer(handlers)
    await near.connect(os.fdopen(a_read, "rb"), os.fdopen(a_write, "wb"))
    await far.connect(os.fdopen(b_read, "rb"), os.fdopen(b_write, "wb"))
    return near, far, [asyncio.create_task(each.serve()) for each in (near, far)]


class ClosingStore(PipedStore):
    async def close(self):
        self._peer.close()
        await asyncio.gather(*self.tasks)  # type: ignore[attr-defined]


def test_store_over_the_pipe_keeps_the_promises_of_a_store():
    async def make():
        server = StoreServer(MemoryStore())
        near, _, tasks = await join_peers(server.handlers)
        store: Any = ClosingStore(near)
        store.tasks = tasks
        return store

    asyncio.run(check_store(make))


def test_peers_answer_with_values_and_errors():
    async def refuse(given):
        raise Conflict(f"no {given['name']}")

    async def fail(given):
        raise ZeroDivisionError("by zero")

    async def wait(given):
        await asyncio.Event().wait()

    async def check():
        near, far, tasks = await join_peers({"refuse": refuse, "fail": fail, "wait": wait})
        with pytest.raises(Conflict, match="no way"):
            await near.call("refuse", name="way", unknown=1)
        with pytest.raises(StoreError, match="by zero"):
            await near.call("fail")
        with pytest.raises(MisuseError, match="has no call 'other'"):
            await near.call("other")
        waiting = asyncio.create_task(near.call("wait"))
        await asyncio.sleep(0)
        far.close()
        with pytest.raises(PeerGone):
            await waiting
        with pytest.raises(PeerGone):
            await near.call("fail")
        near.close()
        await asyncio.gather(*tasks)

    asyncio.run(check())


@pytest.mark.full
@pytest.mark.slow
def test_versions_are_named_in_the_suite(tmp_path, broken):
    folder = write_suite(
        tmp_path / "s", suite=f'[harness]\nnow = "this"\nnext = "{broken}"\n', eval_reads=READS
    )
    words = ("eval", str(folder), "--store", str(tmp_path / "log.db"), "--quiet")
    html, junit = tmp_path / "r.html", tmp_path / "r.xml"
    ended = bridle(*words, "--html", str(html), "--junit", str(junit))
    assert ended.code == 1, ended
    assert "next compared with now:" in ended.out and "REGRESSION" in ended.out
    again = bridle("eval", "report", "s-1", "--store", str(tmp_path / "log.db"), "--json")
    data = json.loads(again.out)
    assert again.code == 1 and data["versions_compared"]["next"]["is_regression"] is True
    assert [each["name"] for each in data["harness"]] == ["now", "next"]
    subprocess.run(
        [sys.executable, "-c", "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])", str(junit)],
        check=True,
    )
