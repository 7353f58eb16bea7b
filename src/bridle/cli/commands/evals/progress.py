"""Progress of an evaluation on standard error: one line that changes on a terminal, else one line per trial."""

import sys

from bridle.cli.format.columns import screen_width
from bridle.cli.format.printing import print_line
from bridle.evals.report import format_label, format_usd
from bridle.evals.suite_run import SuiteRun, add_costs
from bridle.values.evals import TrialScored
from bridle.values.text import escape_text

CLEAR_LINE = "\r\x1b[K"


class EvalProgress:
    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet, self._is_terminal = is_quiet, sys.stderr.isatty()

    def __call__(self, run: SuiteRun, scored: TrialScored | None) -> None:
        planned = sum(not each.skip for each in run.plan)
        if scored is None:
            done = f"; {run.continued} of them are done" if run.continued else ""
            print_line(f"{run.run}: {planned} trials{done}", file=sys.stderr)
            for each in run.columns:
                if each.problem:
                    print_line(f"harness {each.name} cannot run: {each.problem}", file=sys.stderr)
            return
        if self._is_quiet:
            return
        finished = sum(not each.error for each in run.scored.values())
        verdict = "error" if scored.error else "ok" if scored.passed else "FAIL"
        label = format_label(scored.task, scored.cell)
        if not self._is_terminal:
            print_line(f"{finished}/{planned} {verdict} {label} #{scored.number}", file=sys.stderr)
            return
        failed = sum(not each.passed for each in run.scored.values())
        spent = format_usd(add_costs([each.usd for each in run.scored.values()]))
        line = escape_text(f"{finished}/{planned} trials, {failed} not passed, {spent}: {verdict} {label}")
        sys.stderr.write(f"{CLEAR_LINE}{line[: screen_width() - 1]}")
        sys.stderr.flush()

    def finish(self) -> None:
        """End the line of a terminal."""
        if self._is_terminal and not self._is_quiet:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
