"""Shows runs in a notebook while they happen, without widgets.

    agent = Agent("…", watchers=[NotebookView()])
    agent.run_sync("…")          the cell shows the prompt, the reply as it arrives, and each tool call

Each message and each call is one output of the cell that is updated in place, so that an update sends only
what changed. The outputs are HTML (values/text.py) with a plain text for other front ends.
"""

from importlib import import_module
from typing import Any

import msgspec

from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Reasoning, Text
from bridle.values.record import Record
from bridle.values.result import AttemptRestarted, Delta, Progress, ReasoningDelta, TextDelta
from bridle.values.text import escape_text, render_messages, render_note

REFRESH_CHARACTERS_MIN = 24
REFRESH_SHARE = 16
"""A reply is shown again when it has grown by a 16th, so that all its updates together stay proportional to it."""


class NotebookView:
    """A watcher that shows runs in the output of the current cell. Needs IPython."""

    def __init__(self) -> None:
        try:
            self._display = import_module("IPython.display").display
        except ImportError:
            raise MisuseError("NotebookView needs IPython: pip install ipython") from None
        self._outputs: dict[tuple[str, str], Any] = {}
        self._replies: dict[str, PartialReply] = {}

    def on_event(self, session: str, happening: Record | Delta) -> None:
        match happening:
            case TextDelta() | ReasoningDelta():
                reply = self._replies.setdefault(session, PartialReply())
                if reply.add(happening):
                    self._show_message(session, "reply", reply.message)
            case AttemptRestarted(is_text_void=True, reason=reason):
                self._replies.pop(session, None)
                self._show_note(session, "reply", f"reply interrupted, asking again: {reason}")
                self._end_output(session, "reply")
            case Progress(call_id=call_id, name=name, message=message, fraction=fraction):
                share = "" if fraction is None else f" ({fraction:.0%})"
                self._show_note(session, call_id or name, f"{name}: {message}{share}")
            case Record(event=event):
                self._show_event(session, event)

    def _show_event(self, session: str, event: e.Event) -> None:
        match event:
            case e.Prompted(parts=parts):
                self._show_message(session, "prompt", Message(role="user", parts=parts))
                self._end_output(session, "prompt")
            case e.ModelReplied(reply=reply, summarizes_until="") if reply.parts:
                message = Message(role="assistant", parts=reply.parts)
                self._replies.pop(session, None)
                self._show_message(session, "reply", message)
                self._end_output(session, "reply")
            case e.ToolStarted(call_id=call_id, name=name, arguments=arguments):
                self._show_note(session, call_id, f"running {name}({arguments}) …")
            case e.ApprovalAsked(call_id=call_id, name=name, arguments=arguments):
                self._show_note(session, call_id, f"approval needed: {name}({arguments})")
            case e.ToolFinished(result=result):
                self._show_message(session, result.call_id, Message(role="tool", parts=(result,)))
            case e.RunEnded(stop=stop, reason=reason):
                self._replies.pop(session, None)
                self._outputs = {key: each for key, each in self._outputs.items() if key[0] != session}
                if stop != "done":
                    self._show_note(session, "end", f"{stop}: {reason}", is_error=True)
                    self._end_output(session, "end")

    def _show_message(self, session: str, name: str, message: Message) -> None:
        plain = f"{message.role}: {message.text or ', '.join(each.text for each in message.results)}"
        self._show(session, name, render_messages([msgspec.to_builtins(message)]), plain)

    def _show_note(self, session: str, name: str, text: str, *, is_error: bool = False) -> None:
        self._show(session, name, render_note(text, is_error=is_error), text)

    def _show(self, session: str, name: str, html: str, plain: str) -> None:
        data = {"text/html": html, "text/plain": escape_text(plain, prose=True)}
        output = self._outputs.get((session, name))
        if output is None:
            self._outputs[session, name] = self._display(data, raw=True, display_id=True)
        else:
            output.update(data, raw=True)

    def _end_output(self, session: str, name: str) -> None:
        self._outputs.pop((session, name), None)


class PartialReply:
    """Text and reasoning of a reply that is arriving."""

    def __init__(self) -> None:
        self._text = self._reasoning = ""
        self._unshown = 0

    def add(self, delta: TextDelta | ReasoningDelta) -> bool:
        """Append a delta; returns True if so much is new that the reply is to be shown."""
        if isinstance(delta, TextDelta):
            self._text += delta.text
            self._unshown += len(delta.text)
        else:
            self._reasoning += delta.reasoning
            self._unshown += len(delta.reasoning)
        size = len(self._text) + len(self._reasoning)
        if self._unshown < max(REFRESH_CHARACTERS_MIN, size // REFRESH_SHARE):
            return False
        self._unshown = 0
        return True

    @property
    def message(self) -> Message:
        thought = (Reasoning(text=self._reasoning),) if self._reasoning else ()
        return Message(role="assistant", parts=(*thought, Text(text=self._text)))
