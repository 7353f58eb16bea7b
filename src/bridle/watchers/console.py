"""Shows a run on a terminal: the model's text on one stream, everything about the run on another.

The reply goes to `out` (None: not shown). Tool calls, notices and the closing line go to `about`, in colour
if that is a terminal. Control and invisible characters in text of a model or a tool are escaped, because a
terminal would obey them.

On a terminal the last lines say what the run is doing (activity.py). They are removed before anything else is
written. `Console(animated=True)` draws them with a spinner and the time that has passed; `animate` keeps them
moving.

After a failed write the error is stored in `failed` and nothing more is written; the caller decides how to
react.
"""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TextIO, cast

from bridle.values import events as e
from bridle.values.budget import SubrunStarted
from bridle.values.cache import CacheDegraded
from bridle.values.message import ToolCall, ToolResult
from bridle.values.record import Record
from bridle.values.result import AttemptRestarted, Delta, Progress, ReasoningDelta, TextDelta
from bridle.values.text import escape_text, join_lines
from bridle.values.usage import Usage

from .activity import FRAMES_PER_SECOND, RunActivity
from .wrap import WordWrap, cell_count, fit_cells, terminal_width

STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# not from outside: our own text, shown to a person or a model
SHOWN_CHARACTERS_MAX = 160


class Console:
    def __init__(
        self, out: TextIO | None, about: TextIO, *, reasoning: bool = False, animated: bool = False
    ) -> None:
        """`animated` is ignored if `about` is not a terminal that can erase a line."""
        self._out, self._about = out, about
        self.failed: OSError | None = None
        self._colour = about.isatty()
        self._styled = self._colour and is_color_wanted()
        self._reasoning = reasoning
        self._streamed = False
        self._in_line = False
        self._line_in_about = False
        """True if the incomplete line is reasoning, or was printed by a tool."""
        self._started: dict[str, float] = {}
        self._calls: dict[str, ToolCall] = {}
        self._running: dict[str, str] = {}
        can_erase = self._colour and os.environ.get("TERM") != "dumb"
        self._activity = RunActivity(shows_text=out is not None) if animated and can_erase else None
        self._status_lines = 0
        """Number of lines at the end of the output that say what the run is doing."""
        self._held: list[tuple[TextIO, str]] | None = None
        """Output that waits for the answer to a question."""
        self._lock = threading.RLock()
        """Tools in threads may print at any time."""
        self._wrap = WordWrap() if out is not None and out.isatty() else None

    def on_event(self, session: str, happening: Record | Delta) -> None:
        match happening:
            case TextDelta(text=text):
                self._streamed = True
                self._print_text(text)
            case ReasoningDelta(reasoning=text):
                self._print_reasoning(text)
            case AttemptRestarted():
                self._print_restart(happening)
            case Progress():
                self._print_progress(happening)
            case Record(event=event, at=at):
                self._print_event(event, at)
        if self._activity is not None:
            self._activity.apply(happening)
            self._draw_status()

    @asynccontextmanager
    async def animate(self) -> AsyncIterator[None]:
        """Redraw the status lines several times a second, and remove them at the end."""
        drawing = asyncio.create_task(self._redraw()) if self._activity is not None else None
        try:
            yield
        finally:
            if drawing is not None:
                drawing.cancel()
            self._clear_status()

    async def _redraw(self) -> None:
        while True:
            await asyncio.sleep(1 / FRAMES_PER_SECOND)
            self._draw_status()

    @contextmanager
    def hold_output(self, question: str) -> Iterator[None]:
        """Write a question, and nothing after it until it has been answered."""
        self._end_text_line()
        self._write(self._about, escape_text(question))
        self._held, answered = [], False
        try:
            yield
            answered = True
        finally:
            held, self._held = self._held, None
            for stream, text in held if answered else [(self._about, "\n"), *held]:
                self._write(stream, text)

    def wrap_output(self) -> TextIO:
        """A stream for what tools print, which keeps clear of the status lines."""
        wrapped = ForeignOutput(self, self._about) if self._activity is not None else self._about
        return cast("TextIO", wrapped)

    def write_foreign(self, text: str) -> None:
        """Write what a tool printed, unchanged."""
        with self._lock:
            if not self._line_in_about:
                self._end_text_line()
            self._write(self._about, text)
            self._in_line = self._line_in_about = not text.endswith("\n")

    def note(self, message: str, style: str = "dim") -> None:
        self._end_text_line()
        text = escape_text(message)
        if self._colour:
            wrap = WordWrap()
            text = wrap.feed(text) + wrap.flush()
        self._write(
            self._about, "\n".join(self._apply_style(line, style) for line in text.split("\n")) + "\n"
        )

    def _print_event(self, event: e.Event, at: float) -> None:
        match event:
            case e.Configured(settings=settings) if settings.skipped_models:
                for _, reason in settings.skipped_models:
                    self.note(f"· skipped: {shorten(reason)}", "yellow")
            case e.ModelAsked(notes=notes):
                self._streamed = False
                self._note_lines(notes)
            case e.ModelReplied(summarizes_until=summarized_until) if summarized_until:
                pass  # not part of the conversation; the Compacted event that follows is shown
            case e.ModelReplied(reply=reply):
                if not self._streamed and reply.text:
                    self._print_text(reply.text)
                self._calls.update((call.id, call) for call in reply.calls)
                self._end_text_line()
            case e.ModelSwitched(model=model, why=why):
                self.note(f"· continuing with {model.name}: {shorten(why)}", "yellow")
            case e.ToolStarted(call_id=call_id, name=name, arguments=arguments):
                self._calls.setdefault(call_id, ToolCall(id=call_id, name=name, arguments=arguments))
                self._started[call_id] = at
                self._running[call_id] = name
                self._show_running()
            case e.ToolFinished(result=result, name=name, arguments=arguments, raised=raised):
                if name:  # a call made before this run was resumed
                    call = ToolCall(id=result.call_id, name=name, arguments=arguments)
                    self._calls.setdefault(result.call_id, call)
                self._print_tool_result(result, at)
                if raised is not None:
                    self.note(f"· the tool raised {raised.type} at {raised.place}", "yellow")
            case e.ViewChanged(changes=changes, why=why):
                self.note(f"· {format_count(len(changes), 'part')} no longer sent: {why}", "yellow")
            case e.Compacted(before_tokens=before, after_tokens=after, why=why):
                self.note(f"· conversation compacted from {before:,} to {after:,} tokens: {why}", "yellow")
            case e.ToolsRevealed(names=names, why=why) if names:
                self.note(f"· now available: {', '.join(names)}: {why}", "dim")
            case e.ToolsChanged() | e.ToolInterrupted() as report:
                self._note_lines(describe_tool_changes(report))
            case e.LogRepaired(items=items):
                self._note_lines(f"log repaired: {item}" for item in items)
            case e.RequestAdjusted(adjustments=adjustments):
                self._note_lines(adjustments)
            case e.PrefixMoved(layer=layer, block=block, why=why):
                self.note(
                    f"· the start of the prompt changed (not read from the cache): {layer}, from {block} on: {why}",
                    "yellow",
                )
            case CacheDegraded(rate=rate, calls=calls, outcome=verdict, usd=usd):
                lost = format_dollars(None if usd is None else float(usd))
                self.note(
                    f"· cache hit rate of the last {calls} calls: {rate:.0%}; {verdict} ({lost} lost)",
                    "yellow",
                )
            case e.Reprompted(why="wrap up", message=message):
                self.note(f"· {message.partition('. ')[0]}: asked the model to finish", "yellow")
            case e.Reprompted(why=why):
                self.note(f"· {why}: asked the model to try again", "yellow")
            case e.OutputChecked(validator=name, verdict=verdict, reason=reason) if verdict != "accepted":
                self.note(f"· validator {name}: {shorten(reason)}", "yellow")
            case e.Steered(message=message, by=by):
                self.note(f"· message{f' of {by}' if by else ''} added: {shorten(message)}", "dim")
            case e.ApprovalAnswered(by=by) | e.ControlRefused(by=by) as told if told.request:
                self.note(f"· {describe_request(told)} {by or 'another process'}", "dim")
            case e.RunEnded():
                self._running.clear()
                self._clear_status()
            case e.ServerAnswered(server=server, kind=kind, action=action, reason=reason):
                why = f": {shorten(reason)}" if reason else ""
                self.note(f"· {kind} request of the MCP server {server}: {action}{why}", "dim")
            case SubrunStarted(session=session):
                self.note(f"· run inside this tool: session {session}", "dim")

    def _note_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.note(f"· {line}", "yellow")

    def _print_restart(self, restarted: AttemptRestarted) -> None:
        wait = f" in {format_duration(restarted.wait_seconds)}" if restarted.wait_seconds else ""
        void = "; the text shown so far is discarded" if restarted.is_text_void else ""
        why = f": {shorten(restarted.reason)}" if restarted.reason else ""
        self.note(f"· retrying{wait} (attempt {restarted.attempt}){void}{why}", "yellow")

    def _print_progress(self, progress: Progress) -> None:
        if progress.is_output or self._activity is not None:
            return  # shown by the status lines
        share = "" if progress.fraction is None else f" {progress.fraction:.0%}"
        self.note(f"  {progress.name}{share}: {shorten(progress.message)}")
        self._show_running()

    def _print_tool_result(self, result: ToolResult, at: float) -> None:
        call = self._calls.get(result.call_id)
        took = (
            f" {format_duration(at - self._started[result.call_id])}"
            if result.call_id in self._started
            else ""
        )
        mark, style = ("✗", "red") if result.is_error else ("→", "green")
        shown = f"{call.name}({shorten(call.arguments)})" if call else result.call_id
        self._running.pop(result.call_id, None)
        self._end_text_line()
        head, text = f"  {escape_text(shown)}", escape_text(shorten(result.text))
        if self._colour:
            # One line only; `bridle show` prints all of it.
            text = fit_cells(text, terminal_width() - cell_count(f"{head} {mark} {took}"))
        self._write(
            self._about,
            f"{self._apply_style(head, 'cyan')} {self._apply_style(mark, style)} {text}"
            f"{self._apply_style(took, 'dim')}\n",
        )
        self._show_running()

    def _show_running(self) -> None:
        """Show the running tools on a status line that the next output replaces; terminals only."""
        if self._colour and self._running and self._activity is None:
            self._end_text_line()
            names = escape_text(", ".join(self._running.values()))
            self._draw_lines([fit_cells(f"  running {names} …", terminal_width() - 1)])

    def _draw_status(self) -> None:
        """Draw the status lines again, unless the last line of the output is not complete."""
        with self._lock:
            if self._activity is None or self._in_line or self._held is not None or self.failed is not None:
                return
            self._draw_lines(self._activity.render(terminal_width() - 1))

    def _draw_lines(self, lines: list[str]) -> None:
        text = "\n".join(self._apply_style(line, "dim") for line in lines)
        self._write(self._about, self._take_clearing() + text)
        self._status_lines = len(lines)

    def _clear_status(self) -> None:
        self._write(self._about, self._take_clearing())

    def _take_clearing(self) -> str:
        """Text that erases the status lines, which are no longer drawn then."""
        count, self._status_lines = self._status_lines, 0
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (count - 1) if count else ""

    def _print_text(self, text: str) -> None:
        if self._out is None:
            return
        if self._line_in_about:
            self._end_text_line()
        shown = escape_text(text, prose=True)
        self._write(self._out, self._wrap.feed(shown) if self._wrap else shown)
        self._in_line = not text.endswith("\n")

    def _print_reasoning(self, text: str) -> None:
        if not self._reasoning:
            return
        self._line_in_about = True
        self._write(self._about, self._apply_style(escape_text(text, prose=True), "dim"))
        self._in_line = not text.endswith("\n")

    def _end_text_line(self) -> None:
        """End the current line of the reply before a notice is written."""
        if self._wrap and self._out is not None and self._in_line and not self._line_in_about:
            self._write(self._out, self._wrap.flush())
            self._wrap.start_line()
        if self._in_line:
            self._write(self._about if self._line_in_about or self._out is None else self._out, "\n")
        self._in_line = self._line_in_about = False

    def _write(self, stream: TextIO, text: str) -> None:
        with self._lock:
            if self.failed is not None or not text:
                return
            if self._held is not None:
                self._held.append((stream, text))
                return
            if self._status_lines:
                self._clear_status()
            try:
                stream.write(text)
                stream.flush()
            except OSError as error:
                self.failed = error

    def _apply_style(self, text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self._styled and text.strip() else text


class ForeignOutput(io.TextIOBase):
    """Standard output and error of the tools of a run."""

    def __init__(self, console: Console, about: TextIO) -> None:
        self._console, self._about = console, about

    def write(self, text: str, /) -> int:
        self._console.write_foreign(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._about.isatty()

    def fileno(self) -> int:
        return self._about.fileno()


def is_color_wanted() -> bool:
    """False if the user asks for text without colour: NO_COLOR is set, or TERM is dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shorten(text: str, limit: int = SHOWN_CHARACTERS_MAX) -> str:
    """Join lines and cut the text to `limit` characters."""
    flat = join_lines(text)
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun: `1 step`, `2 steps`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def describe_request(event: e.ApprovalAnswered | e.ControlRefused) -> str:
    """The outcome of a request; the name of its author follows."""
    if isinstance(event, e.ControlRefused):
        return f"{event.action} refused: {event.why}; requested by"
    return f"{event.answer}: answered by"


def describe_tool_changes(report: e.ToolsChanged | e.ToolInterrupted) -> list[str]:
    """One line about each difference between a server's tools and those that the session has seen."""
    if isinstance(report, e.ToolInterrupted):
        return [f"{report.name} was interrupted: {report.why}"]
    added = tuple(spec.name for spec in report.added)
    lines = [f"{report.server}: {note}" for note in report.notes]
    for names, what in (
        (added, "new"),
        (report.missing, "not offered any more"),
        (report.changed, "defined in another way now; the session keeps the definition it has seen"),
    ):
        if names:
            lines.append(f"{report.server}: {what}: {', '.join(names)}")
    if report.error:
        lines.append(report.error)
    return lines or [f"{report.server}: its tools are available again"]


def format_duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def format_latency(latency: e.Latency | None) -> str:
    """Time to first byte, to first token, and in total."""
    if latency is None:
        return ""
    points = (("first byte", latency.first_byte_seconds), ("first token", latency.first_token_seconds))
    reached = [f"{name} after {format_duration(at)}" for name, at in points if at is not None]
    return f" · {', '.join([*reached, f'total {format_duration(latency.total_seconds)}'])}"


def format_usage(usage: Usage) -> str:
    read = f"{usage.input:,} in"
    if usage.cache_read or usage.cache_write:
        read += f" + {usage.cache_read:,} cached + {usage.cache_write:,} written to cache"
    thought = f" ({usage.reasoning:,} reasoning)" if usage.reasoning else ""
    return f"{read} · {usage.output:,} out{thought}" + (" · incomplete" if usage.incomplete else "")


def format_dollars(usd: float | None) -> str:
    if usd is None:
        return "cost unknown"
    return f"${usd:.4f}" if usd >= 0.0001 or usd == 0 else f"${usd:.6f}"
