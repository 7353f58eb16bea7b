"""The UI message stream of the Vercel AI SDK (version 5 and later), protocol `v1`.

Text that a broken attempt left behind cannot be taken back in this protocol: it stays as a part of its own, and a
transient part `data-restarted` follows it.
"""

from collections.abc import Iterator, Sequence

import msgspec

from bridle.serve.feeds import FeedItem

from .sse import join_frames, make_frame
from .steps import FrontEndStep, StepReader

DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {
    "done": "stop", "refused": "content-filter", "failed": "error", "context": "length", "waiting": "tool-calls",
}  # fmt: skip
"""Reasons of the protocol by our stop reasons; the others are `other`."""
Chunk = dict[str, object]


class UiMessageAdapter:
    """One assistant message: the run from its start to its end."""

    headers: dict[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}  # noqa: RUF012 - never changed

    def __init__(self, session: str) -> None:
        self._session, self._steps = session, StepReader(session)
        self._open = ""
        """Kind of the open part; empty if none is open."""
        self._part, self._in_step, self._has_ended = 0, False, False
        self._started_calls: set[str] = set()

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
                yield {"type": "start-step"}
            case "text" | "reasoning":
                yield from self._write_text(step)
            case "call_piece":
                yield from self._start_call(step)
                if step.text:
                    yield {"type": "tool-input-delta", "toolCallId": step.id, "inputTextDelta": step.text}
            case "call":
                yield from self._start_call(step)
                yield self._make_input(step)
            case "asked":
                yield {"type": "tool-approval-request", "approvalId": step.id, "toolCallId": step.call_id}
            case "result":
                yield self._make_output(step)
            case "restarted":
                yield from self._close_part()
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
            yield {"type": "tool-input-start", "toolCallId": step.id, "toolName": step.name, "dynamic": True}

    def _make_input(self, step: FrontEndStep) -> Chunk:
        common: Chunk = {"toolCallId": step.id, "toolName": step.name, "dynamic": True}
        try:
            return {"type": "tool-input-available", **common, "input": msgspec.json.decode(step.text or "{}")}
        except msgspec.DecodeError as error:
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

    def _close_part(self) -> Iterator[Chunk]:
        if self._open:
            yield {"type": f"{self._open}-end", "id": str(self._part)}
            self._open = ""

    def _close_step(self) -> Iterator[Chunk]:
        yield from self._close_part()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}
