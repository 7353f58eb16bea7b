"""Evaluations are run in parallel, continued, budgeted, and never run a finished trial again."""

import asyncio
import json
import signal
from decimal import Decimal

import pytest

from bridle.cli.main import main
from bridle.evals import RunChoices, load_suite, run_suite
from bridle.evals.report import format_report, make_report, make_stored_report
from bridle.evals.suite_run import find_latest_run, plan_trials, read_trials
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.errors import Conflict, MisuseError
from bridle.values.evals import eval_log_name
from tests.evals.suites import AGENT, TOOLS, write_suite, write_task
from tests.suite.command import bridle

BREAKS = (
    TOOLS
    + '''
import os, signal
from pathlib import Path


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    flag = Path(__file__).parent / "broke"
    if not flag.exists() and len(list(Path(__file__).parent.glob("done*"))) == 2:
        flag.touch()
        os.kill(os.getpid(), getattr(signal, os.environ["BREAK_WITH"]))
        __import__("time").sleep(60)
    (Path(__file__).parent / f"done{at}{len(list(Path(__file__).parent.glob('done*')))}").touch()
    return "seen"
'''
)
LOOKING = (
    'prompt = "Look."\ntrials = 4\nreplies = [\'!call look {"at": "x"}\', "Seen."]'
    + AGENT
    + "[expect]\ncalled = ['look']\n"
)


def run(suite, store, **choices):
    return asyncio.run(run_suite(suite, store, RunChoices(**choices)))


@pytest.fixture
def suite(tmp_path):
    return load_suite(
        write_suite(
            tmp_path / "s", eval_a=write_task(head="trials = 3"), eval_b=write_task("contains = 'lost'")
        )
    )


def test_finished_evaluation_is_followed_by_a_new_one(suite):
    store = MemoryStore()
    first, second = run(suite, store), run(suite, store)
    assert (first.run, second.run) == ("s-1", "s-2")
    assert [(each.task, each.number, each.passed) for each in first.trials] == [
        ("a", 1, True), ("a", 2, True), ("a", 3, True), ("b", 1, False),
    ]  # fmt: skip
    assert {each.session for each in first.trials} & {each.session for each in second.trials} == set()
    assert asyncio.run(find_latest_run(store, "s")) == "s-2"


def test_results_are_in_the_store_with_their_sessions(suite):
    store = MemoryStore()
    done = run(suite, store)
    read = asyncio.run(read_trials(store, "s-1"))
    assert list(read.values()) == done.trials
    for each in done.trials:
        assert asyncio.run(store.read(each.session)), each.session
        assert each.usd > 0 and each.steps == 2 and each.usage.total


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", -signal.SIGKILL), ("SIGINT", 130)])
def test_second_start_runs_only_what_is_left(tmp_path, name, code):
    folder = write_suite(tmp_path / "s", eval_a=LOOKING)
    (folder / "tools.py").write_text(BREAKS)
    log = str(tmp_path / "log.db")
    ended = bridle("eval", str(folder), "--store", log, BREAK_WITH=name)
    assert ended.code == code, ended
    before = asyncio.run(read_log(log))
    assert [each.number for each in before] == [1, 2]
    ended = bridle("eval", str(folder), "--store", log, "--json", BREAK_WITH=name)
    assert ended.code == 0, ended
    assert "2 of them are done" in ended.err
    report = json.loads(ended.out)
    assert (report["finished"], report["passed"], report["run"]) == (4, 4, "s-1")
    assert [each["session"] for each in report["trials"]] == [
        "eval-s-1-a-1", "eval-s-1-a-2", "eval-s-1-a-3.2", "eval-s-1-a-4",
    ]  # fmt: skip
    assert [each for each in asyncio.run(read_log(log)) if each.number < 3] == before
    assert len(list(folder.glob("done*"))) == 4, "a finished trial ran again"


async def read_log(path):
    store = open_store(path)
    try:
        return list((await read_trials(store, "s-1")).values())
    finally:
        await store.close()


def test_changed_suite_starts_a_new_evaluation(tmp_path):
    folder, store = write_suite(tmp_path / "s", eval_a=write_task(), eval_b=write_task()), MemoryStore()
    assert run(load_suite(folder), store, tasks=("a",)).run == "s-1"
    continued = run(load_suite(folder), store)
    assert (continued.run, continued.continued) == ("s-1", 1)
    (folder / "eval_b.toml").write_text(write_task("steps_max = 9"))
    assert run(load_suite(folder), store).run == "s-2"
    with pytest.raises(MisuseError, match="has changed since evaluation 's-1' started"):
        run(load_suite(folder), store, run="s-1")


def test_more_trials_continue_and_new_starts_again(suite):
    store = MemoryStore()
    run(suite, store)
    more = run(suite, store, trials=4)
    assert (more.run, more.continued, len(more.trials)) == ("s-1", 4, 8)
    assert run(suite, store, trials=9, is_new=True).run == "s-2"


def test_two_processes_do_not_run_the_same_evaluation(suite):
    store = MemoryStore()

    async def hold():
        async with store.lease(eval_log_name("s-1")):
            with pytest.raises(Conflict):
                await run_suite(suite, store, RunChoices())

    asyncio.run(hold())


def test_trials_run_at_the_same_time(tmp_path):
    tools = '''
import asyncio
from bridle import tool

def make(setup):
    @tool(effect="read")
    async def meet() -> str:
        """Meet."""
        await asyncio.wait_for(BARRIER.wait(), 20)
        return "met"
    return setup.agent(tools=[meet])
'''
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "meeting.py").write_text("import asyncio\nBARRIER = asyncio.Barrier(3)\n")
    text = 'prompt = "Meet."\ntrials = 3\nagent = "agents.py:make"\nsettings = {model = "sim:"}\nreplies = ["!call meet", {expect = "met", say = "Met."}]\n'
    folder = write_suite(tmp_path / "s", eval_a=text, agents_py="from meeting import BARRIER\n" + tools)
    assert [each.passed for each in run(load_suite(folder), MemoryStore(), jobs=3).trials] == [True] * 3


def test_matrix_combines_models_and_settings(tmp_path):
    folder = write_suite(
        tmp_path / "s",
        suite='[matrix]\nmodel = ["sim:", "sim:gemini/gemini-3.8-flash"]\n',
        eval_a=write_task(),
    )
    done = run(
        load_suite(folder), MemoryStore(), matrix={"thinking.effort": ["low", "high"], "max_tokens": [900]}
    )
    assert [(each.cell["model"], each.cell["thinking.effort"], each.cell["max_tokens"]) for each in done.trials] == [
        ("sim:", "low", "900"), ("sim:", "high", "900"),
        ("sim:gemini/gemini-3.8-flash", "low", "900"), ("sim:gemini/gemini-3.8-flash", "high", "900"),
    ]  # fmt: skip
    assert all(each.passed for each in done.trials)
    only = run(load_suite(folder), MemoryStore(), model="sim:openai/gpt-6.1-sol")
    assert [each.cell for each in only.trials] == [{"model": "sim:openai/gpt-6.1-sol"}]
    with pytest.raises(MisuseError, match="unknown key 'max_tokns'"):
        run(load_suite(folder), MemoryStore(), matrix={"max_tokns": [1]})


def test_tags_and_names_select_tasks(tmp_path):
    suite = load_suite(
        write_suite(tmp_path / "s", eval_a=write_task(head="tags = ['x']"), eval_b=write_task())
    )
    assert [each.task for each in run(suite, MemoryStore(), tags=("x",)).trials] == ["a"]
    assert [each.task for each in run(suite, MemoryStore(), tasks=("b",)).trials] == ["b"]
    with pytest.raises(MisuseError, match="no task has the tag y"):
        run(suite, MemoryStore(), tags=("y",))
    with pytest.raises(MisuseError, match="has no task 'c'; its tasks are: a, b"):
        run(suite, MemoryStore(), tasks=("c",))


def test_budget_of_the_evaluation_is_kept_over_all_starts(tmp_path):
    suite, store = (
        load_suite(write_suite(tmp_path / "s", eval_a=write_task(head="trials = 30"))),
        MemoryStore(),
    )
    first = run(suite, store, usd=0.01, jobs=3)
    spent = sum(each.usd for each in first.trials)
    assert spent < make_report(first).spent_usd <= Decimal("0.01"), "the trial that the budget ended cost too"
    assert first.out_of_budget and not first.is_complete
    assert Decimal("0.002") < spent <= Decimal("0.01")
    again = run(suite, store, usd=0.01)
    assert again.run == "s-1"
    assert len(again.trials) <= len(first.trials) + 1
    raised = run(suite, store, usd=5)
    assert raised.is_complete and len(raised.trials) == 30


def test_errors_are_run_again_by_the_next_start(tmp_path):
    flag = tmp_path / "ready"
    check = f"from pathlib import Path\n\ndef ready(trial):\n    return Path({str(flag)!r}).read_text() == 'yes'\n"
    suite = load_suite(
        write_suite(tmp_path / "s", eval_a=write_task("check = 'checks.py:ready'"), checks_py=check)
    )
    store = MemoryStore()
    broken = run(suite, store)
    assert "FileNotFoundError" in broken.trials[0].error
    assert not broken.is_complete
    lost = broken.trials[0].usd
    assert lost > 0 and make_report(broken).spent_usd == lost
    assert f"spent in total: ${lost:.4f}" in "\n".join(format_report(make_report(broken)))
    flag.write_text("yes")
    (again,) = run(suite, store).trials
    assert (again.passed, again.lost_usd) == (True, lost)
    stored = make_stored_report("s-1", list(asyncio.run(read_trials(store, "s-1")).values()))
    assert stored.spent_usd == again.usd + lost


def test_tasks_with_faults_are_skipped_for_real_models(tmp_path):
    faulty = write_task(head="faults = ['error-529']")
    suite = load_suite(write_suite(tmp_path / "s", eval_a=faulty, eval_b=write_task()))
    plan = plan_trials(suite, RunChoices(model="anthropic:claude-sonnet-5-5"))
    assert [each.skip for each in plan] == ["faults need a simulated model", ""]
    with pytest.raises(MisuseError, match="there is no trial to run: faults need a simulated model"):
        run(suite, MemoryStore(), model="anthropic:claude-sonnet-5-5", tasks=("a",))


def test_model_is_required(tmp_path):
    suite = load_suite(write_suite(tmp_path / "s", eval_a=write_task(agent="")))
    with pytest.raises(MisuseError, match=r"no model is given; add -m MODEL"):
        run(suite, MemoryStore())
    assert run(suite, MemoryStore(), model="sim:", tasks=("a",)).trials[0].stop == "done"


def test_prompts_follow_each_other_in_one_session(tmp_path):
    text = (
        'prompt = ["Order 7.", "And 8?"]\nreplies = ["Seven.", {expect = "And 8", say = "Eight."}]'
        + AGENT
        + '[expect]\nequals = "Eight."\nsteps_max = 2\n'
    )
    (scored,) = run(load_suite(write_suite(tmp_path / "s", eval_a=text)), MemoryStore()).trials
    assert scored.passed, scored
    assert scored.steps == 2


def test_fail_fast_stops_after_a_failure(suite):
    done = run(suite, MemoryStore(), fails_fast=True, tasks=("b", "a"))
    assert [each.task for each in done.trials] == ["a", "a", "a", "b"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--trials", "-1"], "--trials must be from 1 to 10,000, not -1"),
        (["--trials", "0"], "--trials must be from 1 to 10,000, not 0"),
        (["--jobs", "0"], "--jobs must be 1 or more, not 0"),
        (["--usd", "nan"], "--usd must be a number above 0, not nan"),
        (["--alpha", "nan"], "--alpha must be between 0 and 1, not nan"),
        (["--matrix", "max_tokens=1000,1000"], "the matrix has a value of 'max_tokens' twice"),
    ],
)
def test_wrong_numbers_are_refused_before_anything_runs(tmp_path, capsys, given, problem):
    folder = write_suite(tmp_path / "s", eval_a=write_task())
    assert main(["eval", str(folder), "--store", str(tmp_path / "log.db"), *given]) == 2
    shown = capsys.readouterr()
    assert problem in shown.err and shown.err.count("\n") == 1
    assert not shown.out


def test_tasks_with_names_alike_have_their_own_sessions(tmp_path):
    names = ("a b", "a-b", "a_b", "a b_2")
    files = {f"eval_{at}": write_task(head=f"name = '{name}'\ntrials = 2") for at, name in enumerate(names)}
    done = run(load_suite(write_suite(tmp_path / "s", **files)), MemoryStore(), jobs=8)
    assert all(each.passed for each in done.trials), [each.error for each in done.trials]
    assert len({each.session for each in done.trials}) == 8
    assert all(each.lost_usd == 0 for each in done.trials)
