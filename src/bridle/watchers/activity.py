"""Lines that say what a run is doing now: one for each tool at work, else one for the model.

    ⠹ build({"target": "docs"}) · 12 s · 40% · [ 57/140] reading sources
    ⠹ claude-sonnet-5-5 is thinking · 8 s
    ⠹ waiting 11 s: rate limited (attempt 2)

A console draws them at the end of its output, and again several times a second.
"""

import math
import time
from collections.abc import Callable

import msgspec

from bridle.values import events as e
from bridle.values.record import Record
from bridle.values.result import (
    AttemptRestarted,
    Delta,
    Progress,
    ReasoningDelta,
    SubrunItem,
    TextDelta,
    ToolCallDelta,
)
from bridle.values.text import escape_text, join_lines

from .wrap import cell_count, fit_cells

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
LINES_MAX = 4
"""If there are more tools, the last line counts the rest."""
SOME_MODEL = "the model"


class Activity(msgspec.Struct):
    """Something that takes time."""

    label: str
    since: float
    until: float | None = None
    """End of a wait, which is counted down."""
    detail: str = ""
    fraction: float | None = None


class RunActivity:
    """The current activity of a run, derived from its events and deltas."""

    def __init__(self, *, shows_text: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        """`shows_text`: the text of the model is on the screen, so it is not reported as an activity."""
        self._shows_text, self._now = shows_text, now
        self._model_name = SOME_MODEL
        self._model: Activity | None = None
        self._tools: dict[str, Activity] = {}

    def apply(self, happening: Record | Delta) -> None:
        match happening:
            case Record(event=event):
                self._apply_event(event)
            case TextDelta() if self._shows_text:
                self._model = None
            case TextDelta():
                self._relabel_model("is answering")
            case ReasoningDelta():
                self._relabel_model("is thinking")
            case ToolCallDelta(name=name) if name:
                self._relabel_model(f"is calling {name}")
            case AttemptRestarted(wait_seconds=seconds):
                now = self._now()
                self._model = Activity(_describe_wait(happening), now, now + seconds)
            case Progress():
                self._apply_progress(happening)
            case SubrunItem(call_id=call_id, item=item) if call_id in self._tools:
                self._tools[call_id].detail = _describe_inner(item) or self._tools[call_id].detail

    def render(self, width: int) -> list[str]:
        """The lines, each of at most `width` columns; none if nothing is going on."""
        found = [*self._tools.values()] or ([self._model] if self._model is not None else [])
        now = self._now()
        spinner = SPINNER[int(now * FRAMES_PER_SECOND) % len(SPINNER)]
        shown = found if len(found) <= LINES_MAX else found[: LINES_MAX - 1]
        more = [f"  and {len(found) - len(shown)} more"] if len(shown) < len(found) else []
        return [*(_render_activity(each, now, spinner, width) for each in shown), *more]

    def _apply_event(self, event: e.Event) -> None:
        match event:
            case e.Configured(settings=settings):
                self._model_name = settings.model.id
            case e.ModelSwitched(model=model):
                self._model_name = model.id
            case e.ModelAsked(summarizes_until=summarized):
                self._tools.clear()
                what = "summarizing the conversation" if summarized else f"waiting for {self._model_name}"
                self._model = Activity(what, self._now())
            case e.ModelReplied():
                self._model = None
            case e.ModelFailed() | e.RunEnded():
                self._model = None
                self._tools.clear()  # those that a reply started before it broke off
            case e.ToolStarted(call_id=call_id, name=name, arguments=arguments, wait_source=wait):
                self._model = None
                early = self._tools.get(call_id) if not wait else None
                started = self._tools[call_id] = early or Activity("", self._now())
                started.label = f"{name}({join_lines(arguments)})"
            case e.ToolFinished(result=result):
                self._tools.pop(result.call_id, None)
            case e.ApprovalAsked(call_id=call_id):
                self._tools.pop(call_id, None)

    def _relabel_model(self, doing: str) -> None:
        since = self._model.since if self._model is not None else self._now()
        self._model = Activity(f"{self._model_name} {doing}", since)

    def _apply_progress(self, progress: Progress) -> None:
        if progress.call_id:
            current = self._tools.setdefault(progress.call_id, Activity(progress.name, self._now()))
        else:  # of a function that runs between the calls, or a wait before a request
            current = self._model = Activity(progress.name, self._now())
        current.detail, current.fraction = progress.message, progress.fraction or current.fraction


def _describe_wait(restarted: AttemptRestarted) -> str:
    reason = restarted.after_failure or restarted.wait_source or "another attempt"
    return f"{reason.replace('_', ' ')} (attempt {restarted.attempt})"


def _describe_inner(item: e.Event | Delta) -> str:
    """An event of a run inside a tool."""
    match item:
        case e.ModelAsked(step=step):
            return f"step {step}"
        case e.ToolStarted(name=name):
            return name
        case Progress(message=message):
            return message
        case SubrunItem(item=inner):
            return _describe_inner(inner)
    return ""


def _render_activity(activity: Activity, now: float, spinner: str, width: int) -> str:
    label = escape_text(activity.label)
    if activity.until is not None and activity.until > now:
        return fit_cells(f"  {spinner} waiting {math.ceil(activity.until - now)} s: {label}", width)
    seconds = int(now - activity.since)
    facts = [
        format_elapsed(seconds) if seconds else "",
        "" if activity.fraction is None else f"{activity.fraction:.0%}",
        escape_text(join_lines(activity.detail)),
    ]
    rest = "".join(f" · {fact}" for fact in facts if fact)
    room = max(width // 2, width - cell_count(rest) - 4)
    return fit_cells(f"  {spinner} {fit_cells(label, room)}{rest}", width)


def format_elapsed(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
