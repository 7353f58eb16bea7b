"""Reports for people and machines, and the comparison with a baseline."""

import json
from decimal import Decimal
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from bridle.cli.main import main
from bridle.evals.baseline import (
    compare_baseline,
    format_comparison,
    make_baseline,
    read_baseline,
    write_baseline,
)
from bridle.evals.report import format_report, make_trials_report
from bridle.evals.report_files import make_html, make_junit
from bridle.values.errors import MisuseError
from bridle.values.evals import Score, TrialScored
from tests.evals.suites import write_suite, write_task
from tests.suite.command import bridle

HOSTILE = "</pre><script>alert(1)</script>\x1b[2J\x00&\"'<img src=x onerror=alert(1)>"


def make_trials(**rates):
    """Trials of tasks: `a=(3, 5)` are three passes of five."""
    return [
        TrialScored(
            task=task, number=number + 1, passed=number < passed, usd=Decimal("0.01"), plan="p", suite="s"
        )
        for task, (passed, count) in rates.items()
        for number in range(count)
    ]


def report_of(**rates):
    trials = make_trials(**rates)
    return make_trials_report("s-1", trials, planned=len(trials))


def test_report_counts_rates_intervals_and_flaky_tasks():
    report = report_of(a=(5, 5), b=(3, 5), c=(0, 5))
    assert [(each.task, each.passed, each.is_flaky, each.is_met) for each in report.tasks] == [
        ("a", 5, False, True), ("b", 3, True, False), ("c", 0, False, False),
    ]  # fmt: skip
    lines = list(format_report(report))
    assert "ok    a  5/5 100% (57-100)" in lines
    assert "FAIL  b  3/5 60% (23-88)  flaky" in lines
    assert "s-1: 1 of 3 tasks as required, 1 flaky" in lines
    assert report.usd == Decimal("0.15")
    assert all(len(line) <= 80 for line in lines)


def test_required_rate_decides():
    trials = [replace(each, pass_rate=0.6) for each in make_trials(a=(3, 5))]
    assert make_trials_report("r", trials, planned=5).is_met
    assert not make_trials_report("r", trials[2:], planned=3).is_met
    assert not make_trials_report("r", trials, planned=6).is_met, "a trial is missing"


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def make_hostile():
    trial = TrialScored(
        task=HOSTILE, number=1, cell={"model": HOSTILE}, session=HOSTILE, output=HOSTILE, suite=HOSTILE,
        scores=(Score(name=HOSTILE, passed=False, reason=HOSTILE),),
    )  # fmt: skip
    return make_trials_report(HOSTILE, [trial, replace(trial, number=2, error=HOSTILE)], planned=2)


def test_page_contains_text_from_outside_only_as_text():
    page = Tags(make_html(make_hostile()))
    assert "script" not in page.tags and "img" not in page.tags
    assert not [name for name in page.attributes if name.startswith("on")]
    assert "default-src 'none'" in make_html(make_hostile())


def test_junit_is_valid_xml_for_any_text():
    root = ElementTree.fromstring(make_junit(make_hostile()))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "1")
    assert [case[0].tag for case in suite] == ["failure", "error"]
    assert "<script>" in suite[0][0].text


def test_junit_has_a_case_per_trial():
    root = ElementTree.fromstring(make_junit(report_of(a=(1, 2))))
    assert [(case.get("name"), len(case)) for case in root[0]] == [("a #1", 0), ("a #2", 1)]


def test_baseline_is_written_alike_and_read_back(tmp_path):
    path = tmp_path / "baseline.json"
    write_baseline(path, report_of(b=(1, 2), a=(5, 5)))
    before = path.read_bytes()
    write_baseline(path, report_of(a=(5, 5), b=(1, 2)))
    assert path.read_bytes() == before
    assert read_baseline(path) == make_baseline(report_of(b=(1, 2), a=(5, 5)))
    for text in ("{", "{}", '{"format": 9, "suite": "", "run": "", "version": "", "tasks": []}'):
        path.write_text(text)
        with pytest.raises(MisuseError, match="--save-baseline"):
            read_baseline(path)
    with pytest.raises(MisuseError, match="has format 9, this Bridle reads format 1; upgrade Bridle, or"):
        read_baseline(path)
    with pytest.raises(MisuseError, match="cannot read the baseline"):
        read_baseline(tmp_path / "none")


@pytest.mark.parametrize(
    ("before", "now", "regression"),
    [
        ({"a": (5, 5)}, {"a": (5, 5)}, False),
        ({"a": (5, 5)}, {"a": (4, 5)}, False),  # chance
        ({"a": (5, 5)}, {"a": (0, 5)}, True),  # one task, p = 0.004
        ({"a": (3, 3)}, {"a": (0, 3)}, True),  # p = 0.05, and chance explains it in 1 of 64 cases at most
        ({"a": (3, 3)}, {"a": (1, 3)}, False),
        ({"a": (2, 3)}, {"a": (0, 3)}, False),  # it was flaky
        ({f"t{n}": (3, 3) for n in range(20)}, {f"t{n}": (3 * int(n > 0), 3) for n in range(20)}, True),
        ({"a": (2, 2)}, {"a": (1, 2)}, True),  # no result could be significant: the required rate decides
        ({"a": (1, 2)}, {"a": (0, 2)}, False),  # it had not that rate before
        ({"a": (0, 5)}, {"a": (5, 5)}, False),  # better
        (
            {f"t{n}": (1, 1) for n in range(20)},
            {f"t{n}": (int(n > 3), 1) for n in range(20)},
            False,
        ),  # 4 of 20
        (
            {f"t{n}": (1, 1) for n in range(20)},
            {f"t{n}": (int(n > 4), 1) for n in range(20)},
            True,
        ),  # 5 of 20
        (
            {f"t{n}": (10, 10) for n in range(20)},
            {f"t{n}": (9, 10) for n in range(20)},
            True,
        ),  # a little everywhere
        ({"a": (5, 5), "b": (5, 5)}, {"a": (5, 5)}, True),  # a task is missing
        ({"a": (5, 5)}, {"a": (5, 5), "b": (0, 5)}, False),  # a new task has no baseline
    ],
)
def test_significant_regressions_are_found(before, now, regression):
    found = compare_baseline(make_baseline(report_of(**before)), report_of(**now).tasks)
    assert found.is_regression is regression, list(format_comparison(found))


def test_any_worse_task_is_a_regression_if_asked():
    base, now = make_baseline(report_of(a=(3, 3), b=(3, 3))), report_of(a=(2, 3), b=(3, 3)).tasks
    assert not compare_baseline(base, now).is_regression
    found = compare_baseline(base, now, fails_on_any=True)
    assert [each.label for each in found.regressions] == ["a"]
    assert "worse  a  3/3 → 2/3  p=1.000  REGRESSION" in list(format_comparison(found))


@pytest.mark.parametrize(("alpha", "needed"), [(0.1, 2), (0.05, 3), (0.01, 4)])
def test_comparison_without_enough_trials_says_how_many_it_needs(alpha, needed):
    base = make_baseline(report_of(a=(1, 1), b=(1, 1)))
    found = compare_baseline(base, report_of(a=(1, 1), b=(1, 1)).tasks, alpha)
    assert (found.trials_needed, found.is_regression) == (needed, False)
    assert any(f"use --trials {needed} or more" in line for line in format_comparison(found))
    enough = report_of(a=(needed, needed), b=(needed, needed))
    found = compare_baseline(make_baseline(enough), report_of(a=(0, needed), b=(needed, needed)).tasks, alpha)
    assert [each.label for each in found.regressions] == ["a"] and not found.trials_needed


def test_gate_of_the_starter_suite_fails_when_everything_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    folder, base = tmp_path / "evals", str(tmp_path / "b.json")
    assert main(["eval", "new", str(folder)]) == 0
    assert main(["eval", str(folder), "--save-baseline", base]) == 0
    task = folder / "eval_order.toml"
    task.write_text(task.read_text().replace('contains = "Monday"', 'contains = "Tuesday"'))
    assert main(["eval", str(folder), "--baseline", base]) == 1
    assert "worse  order  3/3 → 0/3  p=0.050  REGRESSION" in capsys.readouterr().out


@pytest.mark.slow
def test_gate_without_a_pass_to_compare_with_takes_the_required_rates(tmp_path, capsys, monkeypatch):
    """Nothing can get worse than a baseline without these tasks, or a first version that fails everything."""
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    lost = write_task("contains = 'way'", replies='["lost"]')
    folder, base = write_suite(tmp_path / "s", eval_a=lost), tmp_path / "b.json"
    gates = ["--baseline", str(base)], ["--harness", "one=this", "--harness", "two=this"]
    run = ["eval", str(folder), "--trials", "3"]
    write_baseline(base, report_of())
    reasons = "no task is in both", "the baseline has no pass of these tasks"
    for gate, reason in zip(gates, reasons, strict=True):
        assert main([*run, *gate]) == 1
        out = capsys.readouterr().out
        assert f"nothing can be worse: {reason}, so the pass rates that the tasks require decide" in out
        assert "too few trials" not in out
    (folder / "eval_a.toml").write_text(write_task("contains = 'way'"))
    assert [main([*run, *gate]) for gate in gates] == [0, 0]


def test_command_gates_a_change(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    folder = write_suite(tmp_path / "s", eval_a=write_task("contains = 'way'"))
    base = str(tmp_path / "baseline.json")
    run = ["eval", str(folder), "--trials", "6", "--quiet"]
    assert (
        main(
            [
                *run,
                "--save-baseline",
                base,
                "--html",
                str(tmp_path / "r.html"),
                "--junit",
                str(tmp_path / "r.xml"),
            ]
        )
        == 0
    )
    assert main([*run, "--baseline", base]) == 0
    assert main(["eval", "compare", base]) == 0
    assert "no significant regression" in capsys.readouterr().out
    (folder / "eval_a.toml").write_text(write_task("contains = 'way'", replies='["lost"]'))
    assert main([*run, "--baseline", base, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["comparison"]["is_regression"]
    assert report["comparison"]["changes"][0]["label"] == "a"
    assert main(["eval", "compare", base]) == 1
    assert "worse  a  6/6 → 0/6  p=0.001  REGRESSION" in capsys.readouterr().out
    assert main(["eval", "compare", base, "--run", "s-1"]) == 0
    assert main(["eval", "report", "s-3"]) == 1
    assert main(["eval", "report", "s-9"]) == 2
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert main([*run[:2], "extra"]) == 2
    assert main(["eval", "compare"]) == 2


def test_unfinished_evaluation_has_its_own_exit_code(tmp_path, capsys):
    check = "def broken(trial):\n    raise RuntimeError('no ruler')\n"
    folder = write_suite(tmp_path / "s", eval_a=write_task("check = 'checks.py:broken'"), checks_py=check)
    log = ["--store", str(tmp_path / "log.db")]
    assert main(["eval", str(folder), *log]) == 3
    out = capsys.readouterr().out
    assert "error: RuntimeError: no ruler" in out
    assert "not finished: 1 of 1 trials; start the same command again" in out
    assert main(["eval", str(folder), *log, "--save-baseline", str(tmp_path / "b.json")]) == 3
    shown = capsys.readouterr()
    assert "error: RuntimeError: no ruler" in shown.out
    assert "the evaluation is not finished, so no baseline is written" in shown.err
    assert not (tmp_path / "b.json").exists()


def test_baseline_of_a_matrix_with_two_axes_is_no_regression(tmp_path):
    cell = {"model": "sim:", "max_tokens": "900"}
    trials = [replace(each, cell=cell) for each in make_trials(a=(2, 2))]
    report = make_trials_report("s-1", trials, planned=2)
    write_baseline(tmp_path / "b.json", report)
    found = compare_baseline(read_baseline(tmp_path / "b.json"), report.tasks)
    assert (found.compared, found.missing, found.added, found.is_regression) == (1, (), (), False)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--baseline", "cannot read the baseline"),
        ("--html", "there is no folder"),
        ("--junit", "there is no folder"),
        ("--save-baseline", "there is no folder"),
    ],
)
def test_files_are_checked_before_trials_are_paid(tmp_path, capsys, option, problem):
    folder, log = write_suite(tmp_path / "s", eval_a=write_task()), str(tmp_path / "log.db")
    assert main(["eval", str(folder), "--store", log, option, str(tmp_path / "none" / "file")]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "log.db").exists()


def test_unfinished_evaluation_in_a_log_is_reported_as_unfinished(tmp_path, capsys):
    check = "def odd(trial):\n    return 1 / (not trial.session.endswith('2'))\n"
    folder = write_suite(tmp_path / "s", eval_a=write_task("check = 'checks.py:odd'"), checks_py=check)
    log, base = ["--store", str(tmp_path / "log.db")], tmp_path / "b.json"
    assert main(["eval", str(folder), "--trials", "3", *log]) == 3
    capsys.readouterr()
    assert main(["eval", "report", "s-1", *log, "--save-baseline", str(base)]) == 3
    assert "not finished: 1 of 3 trials" in capsys.readouterr().out
    assert not base.exists()
    write_baseline(base, report_of(a=(2, 2)))
    assert main(["eval", "compare", str(base), *log]) == 3
    assert "not finished: 1 of 3 trials of s-1" in capsys.readouterr().err


def test_baseline_of_a_named_evaluation_is_compared_with_the_latest(tmp_path, capsys):
    folder, base = write_suite(tmp_path / "s", eval_a=write_task()), str(tmp_path / "b.json")
    log = ["--store", str(tmp_path / "log.db"), "--json"]
    assert main(["eval", str(folder), *log, "--run", "nightly-main", "--save-baseline", base]) == 0
    assert main(["eval", "compare", base, *log]) == 0
    assert main(["eval", str(folder), *log]) == 0
    (folder / "eval_a.toml").write_text(write_task("contains = 'lost'"))
    assert main(["eval", str(folder), *log]) == 1
    assert main(["eval", "compare", base, *log, "--any"]) == 1, "the latest evaluation is s-2"


def test_json_has_the_fields_with_their_defaults(tmp_path):
    folder = write_suite(tmp_path / "s", eval_a=write_task())
    ended = bridle("eval", str(folder), "--store", str(tmp_path / "log.db"), "--json")
    data = json.loads(ended.out)
    assert data["harness"] == [] and data["out_of_budget"] is False
    assert data["tasks"][0]["errors"] == 0 and data["tasks"][0]["cell"] == {}
    assert data["trials"][0]["error"] == "" and data["trials"][0]["usage"]["cache_read"] == 0
