"""The events of a run as a reply of a model: one text of all its steps, and the calls that the client is to run.

The agent's own tool calls are not shown. A run that ends without an answer becomes the failure or the stop reason that
the client's wire has for it. A run that waits for a person says so in its text.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from bridle.ports.served_wire import ReplyStream, ServedWire
from bridle.values.errors import Conflict, Failure, FailureKind
from bridle.values.events import ModelAsked, ModelReplied, ModelSwitched, RequestAdjusted, RunStop
from bridle.values.hooks import HookDecided
from bridle.values.message import Message, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.request import Request
from bridle.values.result import (
    AttemptRestarted,
    CallReady,
    FinalAnswer,
    ReasoningDelta,
    Result,
    TextDelta,
    ToolCallDelta,
)
from bridle.values.usage import Usage

from .client_view import describe_wait, list_accepted_texts, review_reply, show_answer
from .options import ClientOptions
from .sessions import make_call_id

BETWEEN_STEPS = "\n\n"
UNANSWERED_STOPS = ("steps", "seconds", "no_progress", "context", "paused", "cancelled", "failed")
"""Ends of a run without an answer that a client sees as a truncated reply, if the run said anything."""
FAILURE_KINDS: dict[RunStop, FailureKind] = {"context": "context", "seconds": "timeout"}
"""Kinds of failure for ends of a run without an answer or a text; the others are failures of the server."""


NOT_AS_SENT = (
    "The model began again after a part of its reply was sent; send the request again to get the reply."
)
SIGNS_OF_LIFE = (TextDelta, ReasoningDelta, ToolCallDelta, CallReady, ModelReplied)
"""Items by which a model answers, also if the client does not see them: its stream begins."""


class ReplyCollector:
    """Writes the reply of one run; `failure` is set if it has none."""

    def __init__(self, writer: ReplyStream, request: Request, options: ClientOptions, session: str) -> None:
        self.writer, self._request, self._options, self._session = writer, request, options, session
        self._family = request.model.endpoint.family
        self.dropped = [*options.dropped]
        """Parts of the request that were not sent to the model, as far as known."""
        self.failure: Failure | None = None
        self.reply: Reply | None = None
        self.result: Result[Any] | None = None
        self._last: Reply | None = None
        self._has_ended_step = False
        self._usage = Usage()
        self._replies: list[Reply] = []
        """Replies of the run, as far as hooks accepted them."""
        self._is_streamed = options.text_source == "stream"
        self._shows_text = self._is_streamed and (
            request.output is None or (request.stream and options.streams_output)
        )
        self._is_void = False
        """True if something that was sent is not part of the answer, and cannot be taken back."""

    async def write(
        self, items: AsyncIterator[object], before: Sequence[Reply] = (), partial: str = ""
    ) -> AsyncIterator[bytes]:
        """The body of a streamed reply, piece by piece.

        `before` are the replies that its run had already, `partial` a text after them that the next reply continues.
        """
        has_begun = False
        if before or partial:  # an answer in JSON is given whole then
            self._shows_text = self._is_streamed and self._request.output is None
        for reply in before:
            self._replies.append(reply)
            pieces = self._write_text(reply.text) if reply.text and self._shows_text else b""
            self._last, self._has_ended_step = reply, True
            self._usage += reply.usage
            if pieces:
                yield pieces
        if partial and self._shows_text:
            yield self._write_text(partial)
        async for item in items:
            if isinstance(item, FinalAnswer):
                self.result = item.result
                if piece := self._finish(item.result):
                    yield piece
                return
            piece = self._take(item)
            if piece or (isinstance(item, SIGNS_OF_LIFE) and not has_begun):
                has_begun = True
                yield piece

    def _take(self, item: object) -> bytes:
        match item:
            case TextDelta(text=text) if self._shows_text:
                return self._write_text(text)
            case ToolCallDelta(call_id=call_id, name=name, arguments=piece):
                return self._write_call(call_id, name, piece)
            case CallReady(call=call) if not self._has_call(call.id):
                return self._write_call(call.id, call.name, call.arguments)
            case AttemptRestarted() if self._is_cut_short():
                self._is_void = True
            case ReasoningDelta() if self._request.thinking is not None and self._is_streamed:
                return self.writer.write(item)
            case AttemptRestarted(is_text_void=True, text=text) if not self._is_void:
                return self._write_text(text) if self._is_streamed and self._request.output is None else b""
            case RequestAdjusted(adjustments=sentences) | ModelAsked(notes=sentences):
                self.dropped += [sentence for sentence in sentences if sentence not in self.dropped]
            case ModelSwitched(model=model) if model.endpoint.family != self._family:
                self.dropped += [name for name in self._options.elsewhere if name not in self.dropped]
            case ModelReplied(summarizes_until="", reply=reply):
                self._last, self._has_ended_step = reply, True
                self._replies.append(reply)
                self._usage += reply.usage
            case HookDecided():
                review_reply(self._replies, item)
            case ModelReplied(reply=reply):
                self._usage += reply.usage
        return b""

    def _write_text(self, text: str) -> bytes:
        has_text = any(isinstance(part, Text) for part in self.writer.parts)
        between = BETWEEN_STEPS if self._has_ended_step and has_text and text.strip() else ""
        self._has_ended_step = False
        return self.writer.write(TextDelta(text=between + text))

    def _write_call(self, call_id: str, name: str, piece: str) -> bytes:
        """A piece of a call; calls that have to wait for the end of the run are written there."""
        if not self._request.stream or self._is_void or name not in self._options.streamed_tools:
            return b""
        wire_id = make_call_id(self._session, call_id)
        return self.writer.write_call(ToolCall(id=call_id, name=name, arguments=piece, wire_id=wire_id))

    def _has_call(self, call_id: str) -> bool:
        return any(call.id == call_id for call in self._written_calls)

    @property
    def _written_calls(self) -> list[ToolCall]:
        return [part for part in self.writer.parts if isinstance(part, ToolCall)]

    def _is_cut_short(self) -> bool:
        """True if the attempt that breaks off has sent a call, or a part of an answer in JSON."""
        return bool(self._written_calls) or (self._request.output is not None and bool(self.writer.parts))

    def _is_as_sent(self, result: Result[Any]) -> bool:
        """True if the run ended with what the client was sent while it worked."""
        calls = {call.id: call for call in result.external_calls}
        texts = "".join(part.text for part in self.writer.parts if isinstance(part, Text))
        return (
            not self._is_void
            and all(
                calls.get(each.id, each).arguments.strip() == each.arguments.strip()
                for each in self._written_calls
            )
            and all(each.id in calls for each in self._written_calls)
            and (self._request.output is None or not texts or texts == result.text)
        )

    def _finish(self, result: Result[Any]) -> bytes:
        has_text = any(isinstance(part, Text) for part in self.writer.parts)
        more = self._list_accepted(result)
        stop, self.failure = self._judge(result, has_text=has_text or any(more))
        if self.failure is None and not self._is_as_sent(result):
            self.failure = Failure(kind="server", message=NOT_AS_SENT)
        if self.failure is not None:
            return b""
        if result.stop == "waiting" and not result.external_calls:
            more.append(describe_wait(result.reason, result.session))
        elif not has_text and self._is_streamed:
            more.append(self._show_answer(result))
        piece = b""
        for text in filter(None, more):
            self._has_ended_step = True
            piece += self._write_text(text)
        calls = tuple(
            ToolCall(
                id=call.id,
                name=call.name,
                arguments=call.arguments,
                wire_id=make_call_id(result.session, call.id),
                native=self._options.call_natives.get(call.name),
            )
            for call in result.external_calls
            if not self._has_call(call.id)
        )
        self.reply = Reply(
            parts=self.writer.name_parts((*self.writer.parts, *calls)),
            stop=stop,
            origin=Origin(family="", endpoint="", model=self._request.model.id),
            usage=self._usage,
            id=self.writer.identity,
        )
        return piece

    def _list_accepted(self, result: Result[Any]) -> list[str]:
        """The texts that hooks and validators accepted, if they have not been sent while the run worked."""
        if self._is_streamed:
            return []
        steps = self._replies if self._options.text_source == "accepted" else ()
        return list_accepted_texts(steps, result.stop, self._show_answer(result))

    def _show_answer(self, result: Result[Any]) -> str:
        return show_answer(result.text, is_wrapped=self._options.wraps_answer)

    def _judge(self, result: Result[Any], *, has_text: bool) -> tuple[Stop, Failure | None]:
        """The stop reason of the reply, or the failure in its place."""
        last = self._last.stop if self._last is not None else Stop.DONE
        if result.stop == "done":
            return (last if last is Stop.LENGTH else Stop.DONE), None
        if result.external_calls:
            return Stop.TOOLS, None
        if result.stop == "waiting":
            return Stop.DONE, None
        if result.stop == "refused":
            return (last if last in (Stop.REFUSED, Stop.FILTERED) else Stop.REFUSED), None
        if result.stop == "budget":
            message = f"the budget does not allow another model call: {result.reason}"
            return last, Failure(kind="quota", message=message, should_retry=False)
        if result.failure is not None:
            return last, hide_provider(result.failure)
        why = f"{result.stop}: {result.reason or 'the run ended without an answer'}"
        failure = Failure(kind=FAILURE_KINDS.get(result.stop, "server"), message=why, should_retry=False)
        if result.stop == "context" and not has_text:
            return last, failure
        is_cut = result.stop in UNANSWERED_STOPS and self._last is not None
        if is_cut and last not in (
            Stop.DONE,
            Stop.TOOLS,
        ):  # the calls were the agent's own: the client has none
            return last, None
        if has_text and result.stop != "failed":
            return Stop.LENGTH, None
        return last, failure

    @property
    def message(self) -> Message:
        """The reply as the client returns it with its next request."""
        assert self.reply is not None
        return Message(role="assistant", parts=self.reply.parts)


def describe_taken_over(error: Conflict) -> Failure:
    """The end of a run whose session another process continues: the same request again would run its tools again."""
    return Failure(kind="invalid", message=str(error), status=409, should_retry=False)


def use_words_of_wire(wire: ServedWire, failure: Failure) -> Failure:
    """The failure with the words by which clients of a wire notice that a conversation is too long."""
    if failure.kind != "context" or wire.overflow_words.lower() in failure.message.lower():
        return failure
    return replace(failure, message=f"{wire.overflow_words}: {failure.message}")


def hide_provider(failure: Failure) -> Failure:
    """The failure of a provider as one of ours: a client must not take our credentials or limits for its own."""
    # guard: provider-failure-hidden
    if failure.kind in ("unauthorized", "quota", "not_found"):
        return Failure(
            kind="server",
            message=f"the model of this agent cannot be used: {failure.message}",
            should_retry=False,
        )
    if failure.kind in ("invalid", "context", "too_large", "reasoning_refused", "forgotten"):
        return replace(failure, code="", status=None, refused_parameter=None)
    return replace(failure, code="", status=None)
