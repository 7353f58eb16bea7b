"""The status lines of a run: what the model and the tools are doing, and for how long."""

import re

from msgspec.structs import replace

from bridle.values import events as e
from bridle.values.message import ToolResult
from bridle.values.record import GENESIS, seal_record
from bridle.values.result import (
    AttemptRestarted,
    Progress,
    ReasoningDelta,
    SubrunItem,
    TextDelta,
    ToolCallDelta,
)
from bridle.watchers.activity import LINES_MAX, RunActivity
from bridle.watchers.wrap import cell_count

ASKED = e.ModelAsked(step=1, attempt=1, digest="d")


class Watch:
    """An activity, and the time it is shown at."""

    def __init__(self, **options):
        self.now = 0.0
        self.activity = RunActivity(now=lambda: self.now, **options)

    def apply(self, *happenings):
        for each in happenings:
            is_event = isinstance(each, e.EventBase)  # type: ignore[attr-defined]
            self.activity.apply(seal_record(1, 1.0, each, GENESIS) if is_event else each)

    def lines(self, width=80):
        return [re.sub(r"^  [⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ", "", line) for line in self.activity.render(width)]


def tool_started(call_id, name="look", arguments="{}"):
    return e.ToolStarted(call_id=call_id, name=name, key="k", attempt=1, arguments=arguments)


def test_a_model_call_says_what_arrives_and_for_how_long():
    watch = Watch()
    watch.apply(ASKED)
    assert watch.lines() == ["waiting for the model"]
    watch.now = 3.4
    assert watch.lines() == ["waiting for the model · 3 s"]
    watch.apply(ReasoningDelta(reasoning="hm"))
    assert watch.lines() == ["the model is thinking · 3 s"]
    watch.apply(ToolCallDelta(index=0, name="look", arguments="{"))
    watch.now = 75.0
    assert watch.lines() == ["the model is calling look · 1 min 15 s"]
    watch.apply(TextDelta(text="a"))
    assert watch.lines() == ["the model is answering · 1 min 15 s"]


def test_text_that_is_on_the_screen_needs_no_status():
    watch = Watch(shows_text=True)
    watch.apply(ASKED, TextDelta(text="a"))
    assert watch.lines() == []


def test_a_wait_is_counted_down_and_names_its_reason():
    watch = Watch()
    watch.apply(
        AttemptRestarted(attempt=2, reason="slow down", after_failure="rate_limited", wait_seconds=12.0)
    )
    assert watch.lines() == ["waiting 12 s: rate limited (attempt 2)"]
    watch.now = 10.5
    assert watch.lines() == ["waiting 2 s: rate limited (attempt 2)"]


def test_every_tool_has_a_line_with_its_progress():
    watch = Watch()
    watch.apply(tool_started("c1", "build", '{"target": "docs"}'), tool_started("c2"))
    watch.now = 2.0
    watch.apply(Progress(name="build", message="reading", fraction=0.4, call_id="c1"))
    assert watch.lines() == ['build({"target": "docs"}) · 2 s · 40% · reading', "look({}) · 2 s"]
    watch.apply(SubrunItem(call_id="c2", session="s", item=tool_started("x", "inner")))
    assert watch.lines()[1] == "look({}) · 2 s · inner"
    watch.apply(e.ToolFinished(result=ToolResult(call_id="c1", parts=())))
    assert watch.lines() == ["look({}) · 2 s · inner"]
    watch.apply(e.RunEnded(stop="cancelled"))
    assert watch.lines() == []


def test_a_wait_before_a_call_starts_is_shown_by_its_progress():
    watch = Watch()
    watch.apply(Progress(name="look", message="waits 12 s for the rate limit of look", call_id="c1"))
    assert watch.lines() == ["look · waits 12 s for the rate limit of look"]
    watch.apply(replace(tool_started("c1"), wait_seconds=12.0, wait_source="rate-limit"))
    assert watch.lines() == ["look({})"]


def test_progress_of_a_call_that_began_before_its_reply_ended_is_kept():
    watch = Watch()
    watch.apply(ASKED, Progress(name="look", message="opening the map", call_id="c1"))
    assert watch.lines() == ["look · opening the map"]
    watch.apply(tool_started("c1"))
    assert watch.lines() == ["look({}) · opening the map"]


def test_lines_fit_for_any_text():
    watch = Watch()
    for number in range(7):
        watch.apply(tool_started(f"c{number}", "tool", '{"text": "\x1b[2J日本' + "word " * 40 + '"}'))
        watch.apply(Progress(name="tool", message="\x1b]0;title\x07 line " * 9, call_id=f"c{number}"))
    for width in (20, 39, 79):
        lines = watch.activity.render(width)
        assert len(lines) == LINES_MAX
        assert all(cell_count(line) <= width for line in lines)
        assert "\x1b" not in "".join(lines)
    assert lines[-1] == "  and 4 more"
