"""Run a suite of tasks against an agent, score each trial, and compare the pass rates with a baseline.

  bridle eval SUITE             run a suite (a folder or a file), or continue it
  bridle eval new FOLDER        write a suite with one task
  bridle eval add SESSION       make a task of a session, in --suite FOLDER
  bridle eval compare BASELINE  compare the latest evaluation with a file
  bridle eval report RUN        show an evaluation again

A trial that is finished is not run again: after Ctrl-C or a crash, start the same command again.
"""

import argparse
import asyncio
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, read_session, use_log
from bridle.cli.session_names import find_session
from bridle.evals.baseline import (
    ALPHA_DEFAULT,
    Baseline,
    EvalComparison,
    compare_baseline,
    compare_harness,
    format_comparison,
    format_harness_comparison,
    read_baseline,
    write_baseline,
)
from bridle.evals.growth import add_case, write_starter
from bridle.evals.report import EvalReport, format_report, make_report, make_stored_report
from bridle.evals.report_files import make_html, make_junit
from bridle.evals.suite_files import load_suite
from bridle.evals.suite_run import RunChoices, clean_name, find_latest_run, read_trials, run_suite
from bridle.evals.versions.columns import THIS
from bridle.ports.store import Store
from bridle.values.base import Value
from bridle.values.errors import MisuseError

from .progress import EvalProgress

EVAL_ACTIONS = ("new", "add", "compare", "report")
FAILED, UNFINISHED = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", metavar="SUITE", help=f"folder or file of a suite, or one of: {', '.join(EVAL_ACTIONS)}")
    add("target", nargs="?", help="of new, add, compare and report")
    add("-m", "--model", default="", help="model to use instead of the agent's")
    add(
        "--matrix",
        action="append",
        default=[],
        metavar="KEY=A,B",
        help="run with each of these values; repeatable",
    )
    add(
        "--harness",
        action="append",
        metavar="NAME=WHERE",
        help="run with this version of Bridle too: a Python, a virtual environment or a folder with the source;"
        " `this` is the running one; repeatable, the first is the one to compare with",
    )
    add("--trials", type=int, metavar="N", help="trials per task, instead of those in the files")
    add("--jobs", type=int, metavar="N", help="trials at a time (default: 1, or that of suite.toml)")
    add("--usd", type=float, help="limit of the whole evaluation in US dollars")
    add("--tag", action="append", default=[], metavar="TAG", help="only tasks with this tag; repeatable")
    add("--task", action="append", default=[], metavar="NAME", help="only this task; repeatable")
    add("--run", default="", metavar="NAME", help="name of the evaluation (default: the suite and a number)")
    add("--new", dest="is_new", action="store_true", help="start a new evaluation, even if one is unfinished")
    add(
        "--fail-fast",
        dest="fails_fast",
        action="store_true",
        help="stop after the first trial that does not pass",
    )
    add("--html", type=Path, metavar="FILE", help="also write the report as one HTML file")
    add("--junit", type=Path, metavar="FILE", help="also write the report as JUnit XML")
    add("--baseline", type=Path, metavar="FILE", help="compare with this file; a regression is exit code 1")
    add("--save-baseline", type=Path, metavar="FILE", help="write the pass rates to a file to commit")
    add("--alpha", type=float, default=ALPHA_DEFAULT, help="level of significance (default: %(default)s)")
    add("--any", dest="fails_on_any", action="store_true", help="every task that got worse is a regression")
    add("--suite", type=Path, metavar="FOLDER", help="with add: the suite that gets the task")
    add("--agent", metavar="FILE", help="with add: agent file of the task")
    add(
        "--offline",
        action="store_true",
        help="with add: keep the recorded replies, so that it runs on the simulator",
    )
    add("--json", action="store_true", help="print the report as JSON")
    add("--quiet", action="store_true", help="no progress, and only tasks that did not pass")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    action = options.what if options.what in EVAL_ACTIONS else ""
    if action and not options.target:
        raise MisuseError(f"`bridle eval {action}` needs an argument; see `bridle eval --help`")
    if not action and options.target:
        near = ", ".join(EVAL_ACTIONS)
        raise MisuseError(f"`bridle eval {options.what} {options.target}`: give one suite, or one of: {near}")
    if not 0 < options.alpha < 1:
        raise MisuseError(f"--alpha must be between 0 and 1, not {options.alpha:g}")
    if action == "new":
        return _write_suite(options)
    run = {"add": _add, "compare": _compare, "report": _report}.get(action, _evaluate)
    return asyncio.run(run(options))


def _write_suite(options: argparse.Namespace) -> int:
    written = write_starter(Path(options.target))
    if options.json:
        print_json([str(each) for each in written])
    else:
        for each in written:
            print_line(f"wrote {each}")
        print_line(f"try it: bridle eval {options.target}")
    return 0


def parse_matrix(given: Sequence[str]) -> Mapping[str, Sequence[object]]:
    """`KEY=A,B` options as lists of values; numbers, true and false are read as in TOML."""
    matrix: dict[str, Sequence[object]] = {}
    for each in given:
        key, equals, values = each.partition("=")
        if not equals or not key.strip() or not values:
            raise MisuseError(f"--matrix {each!r}: write KEY=A,B, for example --matrix model=A,B")
        matrix[key.strip()] = [_parse_value(value.strip()) for value in values.split(",")]
    return matrix


def parse_harness(given: Sequence[str] | None) -> Mapping[str, str] | None:
    """`NAME=WHERE` options, or `this`, by name; None if there are none."""
    if given is None:
        return None
    pairs = [(each, each) if each == THIS else each.partition("=")[::2] for each in given]
    if len({name for name, _ in pairs}) < len(pairs):
        raise MisuseError("--harness: two versions have the same name")
    return dict(pairs)


def _parse_value(text: str) -> object:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return str(Path(text).resolve()) if Path(text).is_file() else text
    return value if isinstance(value, str | int | float | bool) else text


async def _evaluate(options: argparse.Namespace) -> int:
    _check_files(options)
    baseline = read_baseline(options.baseline) if options.baseline else None
    suite = load_suite(options.what)
    choices = RunChoices(
        model=options.model or "",
        matrix=parse_matrix(options.matrix),
        harness=parse_harness(options.harness),
        trials=options.trials,
        jobs=options.jobs,
        usd=options.usd,
        tags=tuple(options.tag),
        tasks=tuple(options.task),
        run=options.run,
        is_new=options.is_new,
        fails_fast=options.fails_fast,
    )
    progress = EvalProgress(is_quiet=options.quiet or options.json)
    async with use_log(options.store, to_read=False) as store:
        try:
            run = await run_suite(suite, store, choices, progress)
        finally:
            progress.finish()
    report = make_report(run)
    return _finish(options, report, _compare_report(options, baseline, report) if baseline else None)


def _finish(options: argparse.Namespace, report: EvalReport, comparison: EvalComparison | None = None) -> int:
    """Print the report and write the files; returns the exit code."""
    versions = compare_harness(report, options.alpha, fails_on_any=options.fails_on_any)
    _print_report(options, report, versions, comparison)
    _write_files(options, report)
    if not report.is_complete:
        return UNFINISHED
    compared = [*versions.values(), *([comparison] if comparison is not None else [])]
    if any(each.is_regression for each in compared):
        return FAILED
    if compared and all(each.base_passed for each in compared):
        return 0
    return 0 if report.is_met else FAILED


def _compare_report(options: argparse.Namespace, baseline: Baseline, report: EvalReport) -> EvalComparison:
    return compare_baseline(baseline, report.tasks, options.alpha, fails_on_any=options.fails_on_any)


def _check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, before trials are paid."""
    for path in (options.html, options.junit, options.save_baseline):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            problem = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise MisuseError(f"cannot write {path}: {problem}")


def _write_files(options: argparse.Namespace, report: EvalReport) -> None:
    for path, make in ((options.html, make_html), (options.junit, make_junit)):
        if path is not None:
            path.write_text(make(report), encoding="utf-8")
    if options.save_baseline is not None:
        if report.is_complete:
            write_baseline(options.save_baseline, report)
        else:
            print_line("the evaluation is not finished, so no baseline is written", file=sys.stderr)


def _print_report(
    options: argparse.Namespace,
    report: EvalReport,
    versions: Mapping[str, EvalComparison],
    comparison: EvalComparison | None,
) -> None:
    if options.json:
        data = {**describe_value(report), "is_met": report.is_met}
        if versions:
            data["versions_compared"] = {name: _describe_comparison(each) for name, each in versions.items()}
        if comparison is not None:
            data["comparison"] = _describe_comparison(comparison)
        print_json(data)
        return
    for line in format_report(report, shows_all=not options.quiet):
        print_line(line)
    for line in format_harness_comparison(report, versions):
        print_line(line)
    for line in format_comparison(comparison) if comparison is not None else ():
        print_line(line)


def _describe_comparison(comparison: EvalComparison) -> dict[str, object]:
    return {**describe_value(comparison), "is_regression": comparison.is_regression}


def describe_value(value: Value) -> dict[str, object]:
    """The fields of a value with those that have their default, so that a program finds every key."""
    return {name: _describe_member(getattr(value, name)) for name in value.__struct_fields__}


def _describe_member(member: object) -> object:
    if isinstance(member, Value):
        return describe_value(member)
    if isinstance(member, tuple):
        return [_describe_member(each) for each in member]
    return msgspec.to_builtins(member)


async def _compare(options: argparse.Namespace) -> int:
    baseline = read_baseline(Path(options.target))
    async with use_log(options.store) as store:
        name = options.run or await find_comparable_run(store, baseline)
        trials = list((await read_trials(store, name)).values()) if name else []
    if not trials:
        raise MisuseError(
            f"there is no evaluation {name or baseline.suite!r} in this log; run the suite first, or name one: --run"
        )
    report = make_stored_report(name, trials)
    comparison = _compare_report(options, baseline, report)
    if options.json:
        print_json(_describe_comparison(comparison))
    else:
        for line in format_comparison(comparison):
            print_line(line)
    if not report.is_complete:
        left = report.planned - report.finished
        print_line(f"not finished: {left} of {report.planned} trials of {name}", file=sys.stderr)
        return UNFINISHED
    return FAILED if comparison.is_regression else 0


async def find_comparable_run(store: Store, baseline: Baseline) -> str:
    """The latest evaluation of the suite of a baseline; else the one that it was made of, which has a name."""
    stem, _, number = baseline.run.rpartition("-")
    return (
        (await find_latest_run(store, stem) if number.isdecimal() else "")
        or await find_latest_run(store, clean_name(baseline.suite))
        or baseline.run
    )


async def _report(options: argparse.Namespace) -> int:
    _check_files(options)
    async with use_log(options.store) as store:
        trials = list((await read_trials(store, options.target)).values())
    if not trials:
        raise MisuseError(f"there is no evaluation {options.target!r} in this log")
    return _finish(options, make_stored_report(options.target, trials))


async def _add(options: argparse.Namespace) -> int:
    if options.suite is None:
        raise MisuseError("name the suite that gets the task: --suite FOLDER")
    async with use_log(options.store) as store:
        options.target = await find_session(store, options.target)
        records = await read_session(store, options.target)
    path = add_case(
        options.suite, options.target, records, agent=options.agent or "", keeps_replies=options.offline
    )
    if options.json:
        print_json({"file": str(path)})
    else:
        print_line(f"wrote {path}; review what it expects, then: bridle eval {options.suite}")
    return 0
