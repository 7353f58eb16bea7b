"""The UI message stream of the Vercel AI SDK (version 5 and later), protocol `v1`.

What a broken attempt left behind is taken back by `reset-step`, which version 7 knows. For an earlier one it stays as a
part of its own. A transient part `data-restarted` follows in both cases. Version 7 also shows the reason of an approval
and the answer to it (`tool-approval-response`), and messages that a person sent to the run (`steering-message`).
"""

from collections.abc import Iterator, Sequence

import msgspec

from bridle.core.calls.argument_changes import complete_arguments
from bridle.serve.feeds import FeedItem

from .sse import join_frames, make_frame
from .steps import FrontEndStep, StepReader, describe_question

DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {
    "done": "stop", "refused": "content-filter", "failed": "error", "context": "length", "waiting": "tool-calls",
}  # fmt: skip
"""Reasons of the protocol by our stop reasons; the others are `other`."""
Chunk = dict[str, object]
VERSION_WITH_RESET = 7
"""First version of the SDK with the parts `reset-step`, `steering-message` and `tool-approval-response`, and reasons of
approvals."""


class UiMessageAdapter:
    """One assistant message: the run from its start to its end."""

    headers: dict[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}  # noqa: RUF012 - never changed

    def __init__(self, session: str, version: int = VERSION_WITH_RESET - 1) -> None:
        self._session, self._steps = session, StepReader(session)
        self._can_reset = version >= VERSION_WITH_RESET
        self._open = ""
        """Kind of the open part; empty if none is open."""
        self._part, self._in_step, self._has_ended = 0, False, False
        self._started_calls: set[str] = set()
        self._step_calls: dict[str, list[Chunk]] = {}
        """Calls of the current step, with what was sent of each."""
        self._inputs: dict[str, str] = {}
        """Arguments of the calls as they were shown."""
        self._asked: set[str] = set()
        """Approvals that were asked for in this stream: the client refuses the answer to another one."""
        self._steered = 0
        self._step_steering: list[Chunk] = []
        """Messages of a person that were shown in the current step."""

    def begin(self) -> bytes:
        return make_frame({"type": "start", "messageMetadata": {"session": self._session}})

    def encode(self, items: Sequence[FeedItem]) -> bytes:
        return join_frames(
            chunk for item in items for step in self._steps.read(item) for chunk in self._write(step)
        )

    def finish(self) -> bytes:
        if self._has_ended:
            return DONE
        return join_frames((*self._close_step(), {"type": "finish", "finishReason": "other"})) + DONE

    def _write(self, step: FrontEndStep) -> Iterator[Chunk]:
        match step.kind:
            case "step_started":
                yield from self._close_step()
                self._in_step = True
                self._step_calls, self._step_steering = {}, []
                yield {"type": "start-step"}
            case "text" | "reasoning":
                yield from self._write_text(step)
            case "call_piece":
                yield from self._start_call(step)
                if step.text:
                    yield {"type": "tool-input-delta", "toolCallId": step.id, "inputTextDelta": step.text}
            case "call":
                yield from self._start_call(step)
                made = self._make_input(step)
                self._step_calls.setdefault(step.id, []).append(made)
                yield made
            case "asked":
                self._asked.add(step.id)
                yield from self._correct_input(step)
                reason: Chunk = {}
                if self._can_reset:
                    described = describe_question(step.asked) if step.asked is not None else None
                    shown = {"reason": step.text, "approvalDescriptor": described}
                    reason = {name: value for name, value in shown.items() if value}
                yield {
                    "type": "tool-approval-request",
                    "approvalId": step.id,
                    "toolCallId": step.call_id,
                    **reason,
                }
            case "answered" if self._can_reset and step.id in self._asked:
                answered: Chunk = {"approvalId": step.id, "approved": step.name != "reject"}
                answered |= {"reason": step.text} if step.text else {}
                yield {"type": "tool-approval-response", **answered}
            case "steered" if self._can_reset:
                self._steered += 1
                self._step_steering.append(
                    {
                        "type": "steering-message",
                        "id": f"{self._session}-steered-{self._steered}",
                        "parts": [{"type": "text", "text": step.text}],
                    }
                )
                yield self._step_steering[-1]
            case "result":
                yield self._make_output(step)
            case "restarted":
                yield from self._take_back(keeps_calls=step.name == "text")
                yield {"type": "data-restarted", "data": {"reason": step.text}, "transient": True}
            case "reply_ended":
                yield from self._close_part()
            case "run_ended":
                yield from self._end(step)

    def _write_text(self, step: FrontEndStep) -> Iterator[Chunk]:
        if self._open != step.kind:
            yield from self._close_part()
            self._part += 1
            self._open = step.kind
            yield {"type": f"{step.kind}-start", "id": str(self._part)}
        yield {"type": f"{step.kind}-delta", "id": str(self._part), "delta": step.text}

    def _start_call(self, step: FrontEndStep) -> Iterator[Chunk]:
        yield from self._close_part()
        if step.id not in self._started_calls:
            self._started_calls.add(step.id)
            start: Chunk = {"toolCallId": step.id, "toolName": step.name, "dynamic": True}
            self._step_calls[step.id] = [{"type": "tool-input-start", **start}]
            yield from self._step_calls[step.id]

    def _correct_input(self, step: FrontEndStep) -> Iterator[Chunk]:
        """Show the arguments that the question is about, if a hook has changed those of the model."""
        asked = step.asked
        if asked is None or not asked.arguments:
            return
        # guard: front-end-shows-asked-arguments
        if complete_arguments(None, asked.arguments) != self._inputs.get(step.call_id):
            yield self._make_input(FrontEndStep("call", step.call_id, step.name, asked.arguments))

    def _make_input(self, step: FrontEndStep) -> Chunk:
        common: Chunk = {"toolCallId": step.id, "toolName": step.name, "dynamic": True}
        try:
            msgspec.json.decode(step.text or "{}")
            # On one line, with every number as it is written.
            self._inputs[step.id] = text = complete_arguments(None, step.text or "{}")
            return {"type": "tool-input-available", **common, "input": msgspec.Raw(text.encode())}
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            return {
                "type": "tool-input-error",
                **common,
                "input": step.text,
                "errorText": f"not JSON: {error}",
            }

    def _make_output(self, step: FrontEndStep) -> Chunk:
        if step.name == "ok":
            return {
                "type": "tool-output-available",
                "toolCallId": step.id,
                "output": step.text,
                "dynamic": True,
            }
        if step.name == "denied":
            return {"type": "tool-output-denied", "toolCallId": step.id}
        return {"type": "tool-output-error", "toolCallId": step.id, "errorText": step.text, "dynamic": True}

    def _end(self, step: FrontEndStep) -> Iterator[Chunk]:
        yield from self._close_step()
        self._has_ended = True
        if step.name == "failed":
            yield {"type": "error", "errorText": step.text or "the run failed"}
        if step.name == "cancelled":
            yield {"type": "abort", "reason": step.text}
            return
        end = {"stop": step.name, "reason": step.text}
        reason = FINISH_REASONS.get(step.name, "other")
        yield {"type": "finish", "finishReason": reason, "messageMetadata": {"session": self._session, **end}}

    def _take_back(self, *, keeps_calls: bool) -> Iterator[Chunk]:
        """Take back the parts of the step, if the client can; what stays is sent again: calls, messages of a person."""
        if not self._can_reset or not self._in_step:
            yield from self._close_part()
            return
        self._open = ""
        yield {"type": "reset-step"}
        yield from self._step_steering
        if keeps_calls:
            yield from (chunk for sent in self._step_calls.values() for chunk in sent)
            return
        self._started_calls.difference_update(self._step_calls)
        self._step_calls = {}

    def _close_part(self) -> Iterator[Chunk]:
        if self._open:
            yield {"type": f"{self._open}-end", "id": str(self._part)}
            self._open = ""

    def _close_step(self) -> Iterator[Chunk]:
        yield from self._close_part()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}
