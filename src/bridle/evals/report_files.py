"""Reports as files: HTML (one static file without scripts) and JUnit XML. All text from outside is escaped."""

import re
from collections.abc import Iterator
from html import escape
from xml.sax.saxutils import escape as escape_xml
from xml.sax.saxutils import quoteattr

from bridle.values.evals import HARNESS_KEY

from .baseline import compare_harness, format_harness_comparison
from .report import EvalReport, TaskSummary, format_label, format_rate, format_usd, format_version

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, not even escaped."""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c1c1c }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0 }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums }}
.pass {{ color: #176b2c }} .fail {{ color: #a11616; font-weight: 600 }} .flaky {{ color: #8a5a00 }}
pre {{ white-space: pre-wrap; background: #f5f5f5; padding: .5rem; margin: .3rem 0 }}
@media (prefers-color-scheme: dark) {{ body {{ background: #181818; color: #ddd }} pre {{ background: #262626 }}
th, td {{ border-color: #444 }} .pass {{ color: #6fcf87 }} .fail {{ color: #ff8080 }} .flaky {{ color: #e0b050 }} }}
</style></head><body>
<h1>{title}</h1>
<p>{summary}</p>
{harness}
<table><thead><tr><th></th><th>task</th><th class="number">passed</th><th class="number">95 %</th>
<th class="number">cost</th><th class="number">seconds</th><th class="number">steps</th><th class="number">cached</th>
</tr></thead><tbody>
{rows}
</tbody></table>
<h2>Trials that did not pass</h2>
{failures}
</body></html>
"""


def make_html(report: EvalReport) -> str:
    rate = format_rate(report.passed, report.finished, report.low, report.high)
    summary = (
        f"{len(report.tasks)} tasks, {report.finished} of {report.planned} trials finished, {report.flaky} flaky; "
        f"trials passed: {rate}, 95 % Wilson interval; cost {format_usd(report.usd)}, judges "
        f"{format_usd(report.judge_usd)}; Bridle {report.version}"
    )
    return PAGE.format(
        title=escape(f"Evaluation {report.run}"),
        summary=escape(summary),
        harness="\n".join(_list_versions(report)),
        rows="\n".join(_make_row(each) for each in report.shown_tasks),
        failures="\n".join(_list_failures(report)) or "<p>None.</p>",
    )


def _list_versions(report: EvalReport) -> Iterator[str]:
    """The versions of Bridle, and each compared with the first."""
    if not report.harness:
        return
    yield "<table><thead><tr><th>harness</th><th>version</th><th>source</th><th>Python</th><th>trials passed</th>"
    yield "</tr></thead><tbody>"
    for each in report.harness:
        kind = ' class="fail"' if each.problem else ""
        cells = (each.name, each.version, each.source, each.python)
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f"<tr>{row}<td{kind}>{escape(format_version(each))}</td></tr>"
    yield "</tbody></table>"
    lines = "\n".join(format_harness_comparison(report, compare_harness(report)))
    if lines:
        yield f"<pre>{escape(lines)}</pre>"


def _make_row(task: TaskSummary) -> str:
    kind = "pass" if task.is_met else "fail"
    flaky = ' <span class="flaky">flaky</span>' if task.is_flaky else ""
    cells = (
        f"{task.passed}/{task.trials}",
        f"{100 * task.low:.0f}-{100 * task.high:.0f} %",
        format_usd(task.usd),
        f"{task.seconds:.1f}",
        f"{task.steps:.1f}",
        f"{100 * task.cache_share:.0f} %",
    )
    numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
    return f'<tr><td class="{kind}">{kind}</td><td>{escape(task.label)}{flaky}</td>{numbers}</tr>'


def _list_failures(report: EvalReport) -> Iterator[str]:
    unusable = {each.name for each in report.harness if each.problem}
    for each in report.trials:
        if each.passed or each.cell.get(HARNESS_KEY) in unusable:
            continue
        label = escape(f"{format_label(each.task, each.cell)}, trial {each.number}, session {each.session}")
        reasons = [f"error: {each.error}"] if each.error else []
        reasons += [f"{score.name}: {score.reason}" for score in each.scores if not score.passed]
        answer = f"<p>Answer:</p><pre>{escape(each.output)}</pre>" if each.output else ""
        yield f"<h3>{label}</h3><pre>{escape(chr(10).join(reasons))}</pre>{answer}"


def make_junit(report: EvalReport) -> str:
    """JUnit XML: one test case per trial."""
    failed = sum(not each.passed and not each.error for each in report.trials)
    errors = sum(bool(each.error) for each in report.trials)
    head = (
        f"<testsuite name={_quote(report.run)} tests={_quote(len(report.trials))} failures={_quote(failed)}"
        f" errors={_quote(errors)} time={_quote(round(sum(each.seconds for each in report.trials), 3))}>"
    )
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            "<testsuites>",
            head,
            *_list_properties(report),
            *_list_cases(report),
            "</testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _list_properties(report: EvalReport) -> Iterator[str]:
    if report.harness:
        yield "<properties>"
        for each in report.harness:
            value = f"{each.version} {each.source} Python {each.python}"
            yield f"<property name={_quote(f'harness {each.name}')} value={_quote(value)}/>"
        yield "</properties>"


def _list_cases(report: EvalReport) -> Iterator[str]:
    for each in report.trials:
        name = f"{format_label(each.task, each.cell)} #{each.number}"
        owner, seconds = _quote(report.suite or report.run), _quote(each.seconds)
        start = f"<testcase classname={owner} name={_quote(name)} time={seconds}"
        if each.passed:
            yield f"{start}/>"
            continue
        kind = "error" if each.error else "failure"
        reasons = [f"{score.name}: {score.reason}" for score in each.scores if not score.passed]
        text = each.error or "\n".join(reasons)
        first = text.split("\n", 1)[0]
        yield f"{start}><{kind} message={_quote(first)}>{escape_xml(_clean(text))}</{kind}></testcase>"


def _quote(value: object) -> str:
    return quoteattr(_clean(str(value)))


def _clean(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
