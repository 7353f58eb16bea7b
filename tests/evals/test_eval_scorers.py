"""Every scorer passes what it should pass and fails what it should fail."""

import asyncio

import pytest

from bridle.evals import RunChoices, load_suite, run_suite
from bridle.stores.memory import MemoryStore
from tests.evals.suites import CALL, write_suite, write_task

CHECKS = """
from bridle.evals import Score


def says_yes(trial):
    return True

def says_no(trial):
    return False

def gives_reason(trial):
    return f"called {len(trial.calls)} tools"

def asserts(trial):
    assert trial.calls[0].arguments == {"id": 8}, "another order"

async def scores(trial):
    return [Score(name="half", passed=True, value=0.5), 0.4]

def raises(trial):
    return {}["missing"]

def returns_nonsense(trial):
    return object()
"""


def run_task(folder, text, **files):
    """The scored trial of a suite with one task."""
    suite = load_suite(write_suite(folder / "s", eval_a=text, checks_py=CHECKS, **files))
    run = asyncio.run(run_suite(suite, MemoryStore(), RunChoices()))
    (scored,) = run.trials
    return scored


def failed_scores(folder, expect, files=(), **more):
    scored = run_task(folder, write_task(expect, **more), **dict(files))
    assert not scored.error, scored.error
    return {each.name: each.reason for each in scored.scores if not each.passed}


@pytest.mark.parametrize(
    "expect",
    [
        "",
        "equals = ' It is on its way: 7. '",
        "contains = ['way', '7']",
        "excludes = 'lost'",
        r"matches = 'way: \d'",
        "called = ['find_order']",
        "not_called = ['refund']",
        "order = ['find_order']",
        "calls = [{tool = 'find_order', arguments = {id = 7}, times = 1, outcome = 'ok'}]",
        "usd_max = 1\nsteps_max = 2\ntool_calls_max = 1\ntokens_max = 10000\nseconds_max = 5\ncache_share_min = 0",
        "check = 'checks.py:says_yes'",
    ],
)
def test_trial_passes(tmp_path, expect):
    assert failed_scores(tmp_path, expect) == {}


@pytest.mark.parametrize(
    ("expect", "name", "detail"),
    [
        ("stop = 'waiting'", "stop", "the run ended as done"),
        ("equals = 'no'", "equals", "the answer is 'It is on its way: 7.'"),
        ("contains = ['way', 'lost']", "contains", "lacks 'lost'"),
        ("excludes = ['x', '7']", "excludes", "contains '7'"),
        ("matches = '^7'", "matches", "does not match '^7'"),
        ("schema = {type = 'object'}", "schema", "is not JSON"),
        ("output = {a = 1}", "output", "is not JSON"),
        ("called = ['refund']", "called", "refund was not called; called: find_order"),
        ("not_called = ['find_order']", "not_called", "find_order was called with {'id': 7}"),
        ("order = ['find_order', 'find_order']", "order", "find_order does not follow"),
        ("calls = [{tool = 'find_order', arguments = {id = 8}}]", "calls", "not as wanted"),
        ("calls = [{tool = 'find_order', times = 2}]", "calls", "1 times, not 2"),
        ("calls = [{tool = 'find_order', arguments = {id = true}}]", "calls", "not as wanted"),
        ("files = {'a.txt' = 'x'}", "files", "a.txt is missing"),
        ("steps_max = 1", "steps_max", "2, at most 1"),
        ("usd_max = 0.0001", "usd_max", "at most 0.0001"),
        ("tokens_max = 10", "tokens_max", "at most 10"),
        ("tool_calls_max = 0", "tool_calls_max", "1, at most 0"),
        ("cache_share_min = 1", "cache_share_min", "at least 1"),
        ("check = 'checks.py:says_no'", "says_no", "returned False"),
        ("check = 'checks.py:gives_reason'", "gives_reason", "called 1 tools"),
        ("check = 'checks.py:asserts'", "asserts", "another order"),
        ("check = 'checks.py:scores'", "scores", "0.4"),
    ],
)
def test_trial_fails_with_the_reason(tmp_path, expect, name, detail):
    failed = failed_scores(tmp_path, expect)
    assert list(failed) == [name]
    assert detail in failed[name]


@pytest.mark.parametrize("check", ["raises", "returns_nonsense"])
def test_scorer_that_breaks_is_an_error_and_no_verdict(tmp_path, check):
    scored = run_task(tmp_path, write_task(f"check = 'checks.py:{check}'"))
    assert not scored.passed
    assert ("KeyError" if check == "raises" else "return a bool") in scored.error


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ("output = {order = {id = 7}, state = '/^on/'}", ""),
        ("output = {order = {id = 8}}", "order.id is 7, not 8"),
        ("output = {tags = ['a']}", "tags is ['a', 'b'], not ['a']"),
        ("output = {missing = 1}", "missing is missing"),
        ("schema = {type = 'object', required = ['order']}", ""),
        ("schema = {type = 'object', required = ['price']}", '"price" is a required property'),
    ],
)
def test_structured_answers_are_compared(tmp_path, expect, problem):
    answer = '{"order": {"id": 7}, "state": "on its way", "tags": ["a", "b"]}'
    failed = failed_scores(tmp_path, expect, replies=f"['{answer}']")
    assert (problem in next(iter(failed.values()), "none")) if problem else failed == {}


def test_end_state_of_files(tmp_path):
    head = 'toolkit = true\nfixtures = "start"\nfiles = {"b.txt" = "two"}\n'
    (tmp_path / "s" / "start" / "deep").mkdir(parents=True)
    (tmp_path / "s" / "start" / "deep" / "a.txt").write_text("one")
    replies = """['!call write_file {"path": "c.txt", "content": "three\\n"}', "Done."]"""
    good = '[expect.files]\n"deep/a.txt" = "one"\n"b.txt" = "two"\n"c.txt" = {contains = "thr", matches = "^three$"}\n"d.txt" = {exists = false}\n'
    assert failed_scores(tmp_path, good, head=head, replies=replies) == {}
    bad = '[expect.files]\n"b.txt" = {exists = false}\n'
    assert failed_scores(tmp_path, bad, head=head, replies=replies) == {"files": "b.txt exists"}
    bad = '[expect.files]\n"c.txt" = "other"\n'
    assert failed_scores(tmp_path, bad, head=head, replies=replies) == {"files": "c.txt is 'three\\n'"}


def test_approvals_are_answered_as_the_task_says(tmp_path):
    call = """['!call refund {"order": 7}', "Done."]"""
    for expect, head in (
        ("stop = 'waiting'", "unused = true"),
        ("called = ['refund']", "approvals = 'approve'"),
        ("not_called = ['refund']", "approvals = {refund = 'reject'}"),
        ("stop = 'waiting'", "unused = true\napprovals = {find_order = 'approve'}"),
    ):
        scored = run_task(tmp_path, write_task(expect, replies=call, head=head))
        assert scored.passed, (head, scored)


def test_world_is_the_context_of_the_tools_and_starts_afresh(tmp_path):
    world = '''
from bridle import RunContext, tool

COUNT = []

class Shop:
    def __init__(self, folder):
        COUNT.append(1)
        self.sold, self.folder = [], folder

def open_shop(folder):
    return Shop(folder)

@tool(effect="write")
def sell(run: RunContext[Shop], item: str) -> str:
    """Sell."""
    run.context.sold.append(item)
    return f"sold {item}"

def sold_one(trial):
    return (trial.world.sold == ["tea"] and len(COUNT) == 1 and trial.world.folder == trial.folder) or str(COUNT)
'''
    text = (
        'prompt = "Sell."\ntrials = 3\nworld = "shop.py:open_shop"\n'
        """replies = ['!call sell {"item": "tea"}', "Sold."]\n"""
        '[agent]\nmodel = "sim:"\ntools = ["shop.py"]\n[expect]\ncheck = "shop.py:sold_one"\n'
    )
    suite = load_suite(write_suite(tmp_path / "s", eval_a=text, shop_py=world))
    run = asyncio.run(run_suite(suite, MemoryStore(), RunChoices(jobs=3)))
    assert [(each.passed, each.error) for each in run.trials] == [(True, "")] * 3


@pytest.mark.refusals
def test_simulated_provider_judges_too(tmp_path):
    left = failed_scores(tmp_path, "", replies=f"[{CALL}, 'It is on its way: 7.', 'never']")
    assert "never asked for" in left["provider"]
    agents = """
from bridle.values.request import Extra

def make(setup):
    return setup.agent(extras=[Extra(name="no_such_field", json="1", unlisted=True)])
"""
    text = write_task(
        "stop = ['failed', 'done']",
        head="unused = true\nagent = 'agents.py:make'\nsettings = {model = 'sim:'}",
        agent="",
    )
    refused = run_task(tmp_path, text, agents_py=agents)
    assert "refused a request" in refused.scores[-1].reason
    assert not refused.passed
    assert run_task(tmp_path, "refusals = true\n" + text, agents_py=agents).passed


def test_tools_misbehave_as_the_task_says(tmp_path):
    lie = f"[{CALL}, {{expect = 'no such order', say = 'It is on its way: 7.'}}]"
    assert (
        failed_scores(
            tmp_path,
            "called = ['find_order']",
            head="tool_faults = {find_order = {says = 'no such order'}}",
            replies=lie,
        )
        == {}
    )
    error = f"[{CALL}, {{expect = 'offline', call = {{name = 'find_order', arguments = {{id = 9}}}}}}, {{expect = 'order 9', say = 'ok'}}]"
    head = "tool_faults = {find_order = {error = 'offline', times = 1}}"
    assert (
        failed_scores(
            tmp_path,
            "calls = [{tool = 'find_order', arguments = {id = 9}, times = 1}]",
            head=head,
            replies=error,
        )
        == {}
    )
    slow = "tool_faults = {find_order = {seconds = 50}}"
    assert "at most 5" in failed_scores(tmp_path, "seconds_max = 5", head=slow)["seconds_max"]


def test_faults_of_the_provider_are_survived_or_not(tmp_path):
    assert failed_scores(tmp_path, "", head="faults = ['error-529', 'error-503-wait:30']") == {}
    failed = failed_scores(tmp_path, "", head="faults = ['quota']\nunused = true")
    assert "the run ended as failed" in failed["stop"]


def test_fault_of_the_first_call_holds_for_parallel_calls(tmp_path):
    replies = '["""!call find_order {\\"id\\": 7}\n!call find_order {\\"id\\": 8}""", "Done."]'
    head = "tool_faults = {find_order = {says = 'LIE', times = 1}}"
    check = "def lied(trial):\n    told = [word in trial.requests[-1] for word in (b'LIE', b'order 7 was', b'order 8 was')]\n    return told == [True, False, True] or repr(told)\n"
    assert (
        failed_scores(tmp_path, "check = 'own.py:lied'", head=head, replies=replies, files={"own_py": check})
        == {}
    )


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-1", "7"])
def test_score_outside_of_0_to_1_is_an_error_and_not_stored(tmp_path, value):
    own = f"from bridle.evals import Score\n\ndef odd(trial):\n    return Score(name='x', passed=True, value={value})\n"
    scored = run_task(tmp_path, write_task("check = 'own.py:odd'"), own_py=own)
    assert "a number from 0 to 1" in scored.error


def test_text_that_is_not_unicode_is_repaired(tmp_path):
    own = (
        "from bridle.evals import Score\n\nBAD = 'x\\ud800'\n\n"
        "def odd(trial):\n    return [Score(name=BAD, passed=False, reason=BAD), BAD]\n\n"
        "def claims(trial):\n    assert False, BAD\n\n"
        "def breaks(trial):\n    raise ValueError(BAD)\n"
    )
    scored = run_task(tmp_path, write_task("check = ['own.py:odd', 'own.py:claims']"), own_py=own)
    found = [each for each in scored.scores if not each.passed]
    assert [each.reason for each in found] == ["x\ufffd"] * 3
    assert found[0].name == "x\ufffd"
    broken = run_task(tmp_path, write_task("check = 'own.py:breaks'"), own_py=own)
    assert broken.error == "ValueError: x\ufffd"


@pytest.mark.parametrize(
    ("expect", "head"),
    [
        ("not_called = ['refnd']", ""),
        ("calls = [{tool = 'refnd', times = 0}]", ""),
        ("", "approvals = {refnd = 'reject'}"),
    ],
)
def test_names_of_tools_that_do_not_exist_are_errors(tmp_path, expect, head):
    scored = run_task(tmp_path, write_task(expect, head=head))
    assert "the agent has no tool 'refnd'; it has: find_order, read_result, refund" in scored.error
    assert scored.usd == 0, "no model was asked"
    assert not run_task(tmp_path, write_task(expect.replace("refnd", "refund"))).error
