"""Steps of a run as front ends show them, derived from records and deltas.

A step is told once, whether it arrived in deltas, only as a record, or half in each: a viewer that missed deltas gets
the rest of a text from the complete reply. Both front-end protocols are written on top of this.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bridle.core.calls.argument_changes import show_arguments
from bridle.run.calls.approval import make_approval_id
from bridle.serve.feeds import FeedItem
from bridle.values import events as e
from bridle.values.message import Reasoning, Text, ToolCall
from bridle.values.result import AttemptRestarted, CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta

StepKind = Literal[
    "run_started", "step_started", "text", "reasoning", "call_piece", "call", "reply_ended", "restarted", "asked",
    "answered", "result", "steered", "run_ended",
]  # fmt: skip


class FrontEndStep(NamedTuple):
    kind: StepKind
    id: str = ""
    """Id of the call; for `asked` and `answered`, that of the approval."""
    name: str = ""
    """Name of the tool; for `result`, the outcome; for `run_ended`, the stop reason; for `answered`, the answer; for
    `restarted`, `text` if the calls of the reply stay."""
    text: str = ""
    call_id: str = ""
    asked: e.ApprovalAsked | None = None
    """For `asked`, the question."""


def describe_question(asked: e.ApprovalAsked) -> dict[str, object]:
    """What a person is asked about, exactly: the arguments are JSON text, because front ends round long numbers."""
    told: dict[str, object] = {
        "tool": asked.name,
        "arguments": show_arguments(asked.arguments),
        "question": asked.question,
    }
    return {**told, "preview": asked.preview} if asked.preview else told


class StepReader:
    """Derives the steps of one session from its items, in order."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._start_reply()

    def _start_reply(self) -> None:
        self._shown = {"text": "", "reasoning": ""}
        self._pieces: dict[str, str] = {}
        self._calls: set[str] = set()

    def read(self, item: FeedItem) -> Iterator[FrontEndStep]:
        if item.delta is not None:
            yield from self._read_delta(item.delta)
        elif item.record is not None:
            yield from self._read_event(item.record.event)

    def _read_delta(self, delta: Delta) -> Iterator[FrontEndStep]:
        match delta:
            case TextDelta(text=piece) if piece:
                yield self._show("text", piece)
            case ReasoningDelta(reasoning=piece) if piece:
                yield self._show("reasoning", piece)
            case ToolCallDelta(call_id=call_id, name=name, arguments=piece) if call_id and name:
                self._pieces[call_id] = self._pieces.get(call_id, "") + piece
                yield FrontEndStep("call_piece", call_id, name, piece)
            case CallReady(call=call) if call.id not in self._calls:
                yield from self._finish_call(call)
            case AttemptRestarted(reason=reason, is_text_void=True):
                self._start_reply()
                yield FrontEndStep("restarted", text=reason)

    def _show(self, kind: Literal["text", "reasoning"], piece: str) -> FrontEndStep:
        self._shown[kind] += piece
        return FrontEndStep(kind, text=piece)

    def _finish_call(self, call: ToolCall) -> Iterator[FrontEndStep]:
        """The rest of the arguments, and the call as a whole."""
        self._calls.add(call.id)
        shown = self._pieces.get(call.id, "")
        if call.arguments.startswith(shown) and call.arguments != shown:
            yield FrontEndStep("call_piece", call.id, call.name, call.arguments[len(shown) :])
        yield FrontEndStep("call", call.id, call.name, call.arguments)

    def _read_event(self, event: e.Event) -> Iterator[FrontEndStep]:
        match event:
            case e.Prompted() | e.Resumed():
                self._start_reply()
                yield FrontEndStep("run_started")
            case e.ModelAsked(summarizes_until="", attempt=1):
                self._start_reply()
                yield FrontEndStep("step_started")
            case e.ModelReplied(summarizes_until=""):
                yield from self._read_reply(event)
            case e.ToolFinished(result=result):
                yield FrontEndStep("result", result.call_id, result.outcome, result.text)
            case e.ApprovalAsked(call_id=call_id, binding=binding, rule=rule, name=name):
                approval = make_approval_id(self._session, binding)
                yield FrontEndStep("asked", approval, name, rule, call_id, event)
            case e.ApprovalAnswered(call_id=call_id, binding=binding, answer=answer, reason=reason):
                approval = make_approval_id(self._session, binding)
                yield FrontEndStep("answered", approval, answer, reason, call_id)
            case e.Steered(message=message):
                yield FrontEndStep("steered", text=message)
            case e.RunEnded(stop=stop, reason=reason):
                yield FrontEndStep("run_ended", name=stop, text=reason)

    def _read_reply(self, event: e.ModelReplied) -> Iterator[FrontEndStep]:
        parts = event.reply.parts
        reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
        text = "".join(part.text for part in parts if isinstance(part, Text))
        rest_of_text = self._find_rest("text", text)
        if self._shown["text"] and rest_of_text is None:
            yield FrontEndStep(
                "restarted", name="text", text="the text that was shown is not that of the reply"
            )
            rest_of_text = text
        if rest := "" if self._shown["text"] else self._find_rest("reasoning", reasoning):
            yield FrontEndStep("reasoning", text=rest)
        if rest_of_text:
            yield FrontEndStep("text", text=rest_of_text)
        for call in event.reply.calls:
            if call.id not in self._calls:
                yield from self._finish_call(call)
        yield FrontEndStep("reply_ended")
        self._start_reply()

    def _find_rest(self, kind: str, whole: str) -> str | None:
        """The part of a text that was not shown; None if another text was shown."""
        shown = self._shown[kind]
        return whole[len(shown) :] if whole.startswith(shown) else None
