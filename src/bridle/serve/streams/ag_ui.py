"""The event stream of AG-UI, protocol 1.0.

A call that waits for a person ends the run with an interrupt; its id is that of the approval.
"""

from collections.abc import Container, Iterator, Sequence

from bridle.serve.feeds import FeedItem

from .sse import join_frames
from .steps import FrontEndStep, StepReader, describe_question

AgUiEvent = dict[str, object]
EXPECTED_STOPS = ("done", "waiting", "cancelled", "paused", "refused")
"""Ends that are not errors."""


class AgUiAdapter:
    """One run of a thread, which is a session."""

    headers: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(
        self, session: str, run: str = "", ignored: Sequence[str] = (), results: Container[str] = ()
    ) -> None:
        """`ignored`: fields of the request that have no effect, which the client is told.

        `results`: calls whose results the client gave, so that it has them already.
        """
        self._ignored, self._results = ignored, results
        self._ids: AgUiEvent = {"threadId": session, "runId": run or session}
        self._steps = StepReader(session)
        self._open = ""
        self._message, self._step, self._in_step, self._has_ended = 0, 0, False, False
        self._calls: dict[str, bool] = {}
        """Calls by id; True while one is open."""
        self._interrupts: list[AgUiEvent] = []

    def begin(self) -> bytes:
        start: AgUiEvent = {"type": "RUN_STARTED", **self._ids}
        told: AgUiEvent = {"type": "CUSTOM", "name": "bridle.ignored", "value": {"fields": self._ignored}}
        return join_frames((start, told) if self._ignored else (start,))

    def encode(self, items: Sequence[FeedItem]) -> bytes:
        return join_frames(
            event for item in items for step in self._steps.read(item) for event in self._write(step)
        )

    def finish(self) -> bytes:
        if self._has_ended:
            return b""
        return join_frames((*self._close_step(), {"type": "RUN_FINISHED", **self._ids}))

    def _write(self, step: FrontEndStep) -> Iterator[AgUiEvent]:
        match step.kind:
            case "step_started":
                yield from self._close_step()
                self._step += 1
                self._in_step = True
                yield {"type": "STEP_STARTED", "stepName": f"step {self._step}"}
            case "text" | "reasoning":
                yield from self._write_text(step)
            case "call_piece":
                yield from self._start_call(step)
                if step.text and self._calls[step.id]:
                    yield {"type": "TOOL_CALL_ARGS", "toolCallId": step.id, "delta": step.text}
            case "call":
                yield from self._start_call(step)
                yield from self._close_call(step.id)
            case "asked":
                interrupt = {
                    "id": step.id,
                    "reason": "tool_call",
                    "message": step.text,
                    "toolCallId": step.call_id,
                    "metadata": describe_question(step.asked) if step.asked is not None else None,
                }
                self._interrupts.append({name: value for name, value in interrupt.items() if value})
            case "result" if step.id not in self._results:
                message = f"{step.id}-result"
                result: AgUiEvent = {"messageId": message, "toolCallId": step.id, "content": step.text}
                yield {"type": "TOOL_CALL_RESULT", **result, "role": "tool"}
            case "restarted":
                yield from self._close_all()
                yield {"type": "CUSTOM", "name": "bridle.restarted", "value": {"reason": step.text}}
            case "reply_ended":
                yield from self._close_all()
            case "run_ended":
                yield from self._end(step)

    @property
    def _message_id(self) -> str:
        return f"{self._ids['runId']}-{self._message}"

    def _write_text(self, step: FrontEndStep) -> Iterator[AgUiEvent]:
        if self._open != step.kind:
            yield from self._close_all()
            self._message += 1
            self._open = step.kind
            if step.kind == "reasoning":
                yield {"type": "REASONING_START", "messageId": self._message_id}
                yield {"type": "REASONING_MESSAGE_START", "messageId": self._message_id, "role": "reasoning"}
            else:
                yield {"type": "TEXT_MESSAGE_START", "messageId": self._message_id, "role": "assistant"}
        kind = "REASONING_MESSAGE_CONTENT" if step.kind == "reasoning" else "TEXT_MESSAGE_CONTENT"
        yield {"type": kind, "messageId": self._message_id, "delta": step.text}

    def _start_call(self, step: FrontEndStep) -> Iterator[AgUiEvent]:
        if step.id not in self._calls:
            yield from self._close_text()
            self._calls[step.id] = True
            yield {"type": "TOOL_CALL_START", "toolCallId": step.id, "toolCallName": step.name}

    def _close_call(self, call_id: str) -> Iterator[AgUiEvent]:
        if self._calls[call_id]:
            self._calls[call_id] = False
            yield {"type": "TOOL_CALL_END", "toolCallId": call_id}

    def _close_all(self) -> Iterator[AgUiEvent]:
        for call_id in self._calls:
            yield from self._close_call(call_id)
        yield from self._close_text()

    def _close_text(self) -> Iterator[AgUiEvent]:
        if self._open == "reasoning":
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._message_id}
            yield {"type": "REASONING_END", "messageId": self._message_id}
        elif self._open:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._message_id}
        self._open = ""

    def _close_step(self) -> Iterator[AgUiEvent]:
        yield from self._close_all()
        if self._in_step:
            self._in_step = False
            yield {"type": "STEP_FINISHED", "stepName": f"step {self._step}"}

    def _end(self, step: FrontEndStep) -> Iterator[AgUiEvent]:
        yield from self._close_step()
        self._has_ended = True
        if step.name not in EXPECTED_STOPS:
            yield {
                "type": "RUN_ERROR",
                "message": step.text or f"the run ended as {step.name}",
                "code": step.name,
            }
            return
        outcome: AgUiEvent = {"type": "cancelled"} if step.name == "cancelled" else {"type": "success"}
        if step.name == "waiting" and self._interrupts:
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
        end = {"stop": step.name, "reason": step.text}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "result": end}
