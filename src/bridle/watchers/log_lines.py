"""Writes runs to the standard `logging` module, one line per event.

    Agent(…, watchers=[LogLines()])

Lines contain metadata only unless `content` says otherwise: names, numbers, outcomes. The fields are also in
`record.bridle`, for a formatter of your own.
"""

import logging
from collections.abc import Sequence

import msgspec

from bridle.ports.watcher import RunSummary
from bridle.values import events as e
from bridle.values.cache import CacheDegraded
from bridle.values.record import Record
from bridle.values.result import Delta
from bridle.values.text import escape_text

from .content_filter import ContentLevel, RedactRule, describe_scalars, filter_value, make_content_filter

LOGGER = "bridle.runs"
FAILED_STOPS = ("failed", "no_progress", "context")
QUIET_STOPS = ("done", "waiting", "paused", "cancelled")
EXPECTED_OUTCOMES = ("ok", "denied", "cancelled", "waiting")
INFO_EVENTS = (
    e.Prompted, e.Resumed, e.ModelReplied, e.ToolFinished, e.ModelSwitched, e.ApprovalAsked, e.ApprovalAnswered,
    e.Compacted, e.CompensationFinished, e.RunEnded, e.Forked,
)  # fmt: skip
WARNING_EVENTS = (e.ModelFailed, e.LogRepaired, CacheDegraded)


class LogLines:
    """A watcher that logs events: failed runs as errors, failures as warnings, steps as info, the rest as debug."""

    def __init__(
        self,
        logger: logging.Logger | str = LOGGER,
        *,
        json: bool = False,
        content: ContentLevel = "off",
        redact: RedactRule | Sequence[RedactRule] | None = None,
    ) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._json, self._content = json, make_content_filter(content, redact)
        self._names: dict[str, str] = {}
        """Names of the tools that are running, by call id."""
        self._summaries: dict[str, RunSummary] = {}
        """Summaries of runs whose end is shown next."""

    def on_run_end(self, session: str, summary: RunSummary) -> None:
        self._summaries[session] = summary

    def on_event(self, session: str, happening: Record | Delta) -> None:
        if not isinstance(happening, Record):
            return
        event, level = happening.event, choose_level(happening.event)
        if isinstance(event, e.ToolStarted):
            self._names[event.call_id] = event.name
        tool = self._names.pop(event.result.call_id, "") if isinstance(event, e.ToolFinished) else ""
        summary = self._summaries.pop(session, None)
        if not self._logger.isEnabledFor(level):
            return
        found: dict[str, object] = {"event": "", "session": session, "seq": happening.seq, "at": happening.at}
        found |= describe_scalars(filter_value(event, self._content))
        found["event"] = found.pop("type")
        if tool:
            found["tool"] = tool
        if summary is not None:
            found |= describe_summary(summary)
        self._logger.log(level, "%s", self._format(found), extra={"bridle": found})

    def _format(self, found: dict[str, object]) -> str:
        if self._json:
            return escape_text(msgspec.json.encode(found).decode())
        fields = (f"{name}={value}" for name, value in found.items() if name not in ("event", "at"))
        return escape_text(f"{found['event']} {' '.join(fields)}")


def describe_summary(summary: RunSummary) -> dict[str, object]:
    """Fields of the line of a run's end; those that are unknown are left out."""
    usd = float(summary.usd) if summary.usd is not None else None
    fields = {"agent": summary.agent, "tenant": summary.tenant, "cost": usd, "trace_id": summary.trace_id}
    return {name: value for name, value in fields.items() if value not in ("", None)}


def choose_level(event: e.Event) -> int:
    match event:
        case e.RunEnded(stop=stop) if stop in FAILED_STOPS:
            return logging.ERROR
        case e.RunEnded(stop=stop) if stop not in QUIET_STOPS:
            return logging.WARNING
        case e.ToolFinished(result=result) if result.outcome not in EXPECTED_OUTCOMES:
            return logging.WARNING
    if isinstance(event, WARNING_EVENTS):
        return logging.WARNING
    return logging.INFO if isinstance(event, INFO_EVENTS) else logging.DEBUG
