"""Decodes replies of Chat Completions: JSON or server-sent events, from any server.

A stream is a reply once the finish reason or the final sentinel has arrived; until then it is truncated,
however much has arrived. Usage may come with the reason, after it, with every piece or not at all; the last
one counts. Of several choices the first is read. Comments, empty choices, unknown members and repeated
reasons are skipped; an error is an error wherever it is. An unreadable event is one too, because it may have
been part of the reply.

Plain text, reasoning and arguments take a fast path: one typed parse, one append, one delta. Everything else
goes through `_process_event`, which checks before it changes anything.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from bridle.providers.wire.decoder import DONE_EVENT, BaseDecoder
from bridle.providers.wire.failures import UNRECOGNISED_LENGTH_MAX, to_one_line
from bridle.providers.wire.json import parse_integer, text_or_empty
from bridle.values.errors import ProviderError
from bridle.values.message import Reply, Text
from bridle.values.model import Model
from bridle.values.result import Delta
from bridle.values.usage import Usage

from .content import Block
from .dialect import ChatDialect
from .failures import classify_error, classify_status_code, decode_failure, find_error
from .partial_reply import PartialChatMessage
from .parts import decode_content_parts
from .usage import EXECUTED_FIELD, FAILURE_STOPS, REPLY_FIELDS, build_reply, decode_total_usage
from .usual_reply import convert_reply, decode_usual_reply

_CHUNK_MEMBERS = frozenset({"choices", "usage", "id"})
"""Members that identify an event as a piece of a reply."""
_FIRST_MEMBERS = ("id", "model")
_LAST_MEMBERS = frozenset({"service_tier", "content_filter_results", *REPLY_FIELDS})
"""Members of a reply beside its choices and its usage: the first one counts, or the last one."""


class _CallFunction(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    arguments: str
    name: str | None = None


class _CallPiece(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A piece of a call; one with a name or an id does not take the fast path."""

    index: int
    function: _CallFunction
    id: str | None = None
    type: str | None = None


class _ChatDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """All members that a delta of plain text, reasoning or arguments may have."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: None = None
    tool_calls: tuple[_CallPiece] | None = None
    function_call: None = None


class _ChatChoice(msgspec.Struct, gc=False):
    delta: _ChatDelta | None = None
    index: int = 0
    finish_reason: str | None = None
    error: None = None


class _ChatChunk(msgspec.Struct, gc=False):
    """A chunk with one choice and neither a reason nor usage takes the fast path."""

    choices: list[_ChatChoice]
    usage: Any = None
    error: None = None
    x_groq: None = None
    base_resp: None = None


_decode_chunk = msgspec.json.Decoder(_ChatChunk).decode


class ChatDecoder(BaseDecoder):
    expected_content = "chat completion"
    end_marker = "reason to stop"
    decode_failure = staticmethod(decode_failure)

    def __init__(
        self, model: Model, dialect: ChatDialect, status: int, headers: Mapping[str, str], *, tools: bool
    ) -> None:
        super().__init__(status, headers)
        self._model, self._dialect, self._tools = model, dialect, tools
        self._partial = PartialChatMessage(think_tags=dialect.think_tags)
        self._meta: Block = {}
        self._choice: int | None = None
        self._reason = ""
        self._ended = False

    @property
    def partial_text(self) -> str:
        parts = decode_content_parts(self._partial.content, self._dialect)
        return "".join(part.text for part in parts if isinstance(part, Text))

    @property
    def partial_usage(self) -> Usage:
        executed = self._partial.build_message().get(EXECUTED_FIELD)
        return replace(decode_total_usage(self._meta, executed), incomplete=True)

    @property
    def _is_complete(self) -> bool:
        # Some servers send no reason, and some proxies properly end a stream that was cut upstream.
        return bool(self._reason) or (self._ended and self._partial.is_complete)

    def _build_reply(self) -> Reply:
        message, usual = self._partial.build_message(), None
        if not self._dialect.think_tags:
            usual = convert_reply(message, self._reason, self._meta, self._model, tools=self._tools)
        return usual or self._assemble_reply(message)

    def _process_events(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            if self._ended:
                break
            if data != DONE_EVENT:
                try:
                    chunk = _decode_chunk(data)
                except (ValueError, RecursionError):
                    pass
                else:
                    if self._apply_fast_chunk(chunk, deltas):
                        continue
            self._process_event(name, data, deltas)
        return deltas

    def _apply_fast_chunk(self, chunk: _ChatChunk, deltas: list[Delta]) -> bool:
        """Apply a chunk on the fast path; False, without any effect, if it needs the slow one."""
        if chunk.usage is not None or len(chunk.choices) != 1:
            return False
        choice = chunk.choices[0]
        delta = choice.delta
        if delta is None or choice.finish_reason is not None or choice.index != self._choice:
            return False
        if delta.tool_calls:
            piece = delta.tool_calls[0]
            if piece.id or piece.function.name is not None:
                return False
            if (appended := self._partial.append_arguments(piece.index, piece.function.arguments)) is None:
                return False
            deltas.append(appended)
        if delta.reasoning_content:
            deltas += self._partial.append_reasoning("reasoning_content", delta.reasoning_content)
        if delta.reasoning:
            deltas += self._partial.append_reasoning("reasoning", delta.reasoning)
        if delta.content:
            deltas += self._partial.append_text(delta.content)
        return True

    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        if self._ended:
            return
        if data.strip() == DONE_EVENT:
            self._ended = True
            deltas += self._partial.flush()
            return
        event = self._parse_event(data)
        if not isinstance(event, dict):
            shown = to_one_line(data, UNRECOGNISED_LENGTH_MAX)
            raise self._make_error("garbled", f"the provider sent an event of unknown kind: {shown}")
        if name == b"error" or _CHUNK_MEMBERS.isdisjoint(event):
            # Some servers send the bare error in place of a piece of the reply.
            error = find_error(event) or ({"message": to_one_line(data)} if name == b"error" else None)
            if error is not None:
                raise ProviderError(classify_error(error, self._status))
        self._apply_event(event, deltas)

    def _apply_event(self, event: Block, deltas: list[Delta]) -> None:
        self._update_metadata(event)
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            index = parse_integer(choice.get("index")) or 0
            if self._choice is None:
                self._choice = index
            if index != self._choice:
                continue
            if choice.get("error") or choice.get("base_resp"):
                self._raise_for(choice)
            delta = choice.get("delta")
            if delta is None and self._partial.is_empty:
                # A few servers stream one complete message; others repeat it at the end, or beside each
                # delta.
                delta = choice.get("message")
            if isinstance(delta, dict):
                deltas += self._partial.apply_delta(delta)
            if reason := text_or_empty(choice.get("finish_reason")):
                self._set_finish_reason(reason)
                self._meta["content_filter_results"] = choice.get("content_filter_results")
                deltas += self._partial.flush()

    def _update_metadata(self, chunk: Block) -> None:
        """Update the metadata. The first id and model are kept, because some servers change them later."""
        if chunk.get("error") or chunk.get("base_resp"):
            self._raise_for(chunk)
        if isinstance(usage := chunk.get("usage") or _find_nested_usage(chunk), dict):
            self._meta["usage"] = usage
        for name in _FIRST_MEMBERS:
            if not self._meta.get(name):
                self._meta[name] = chunk.get(name)
        for name in _LAST_MEMBERS.intersection(chunk):
            if value := chunk[name]:
                self._meta[name] = value

    def _raise_for(self, chunk: Block) -> None:
        if chunk.get("error"):
            raise ProviderError(
                classify_error(find_error(chunk) or {"message": chunk["error"]}, self._status)
            )
        result = chunk.get("base_resp")
        if isinstance(result, dict) and result.get("status_code"):
            raise ProviderError(classify_status_code(result, self._status))

    def _set_finish_reason(self, reason: str) -> None:
        if (kind := FAILURE_STOPS.get(reason.lower())) is not None:
            raise self._make_error(kind, f"the provider aborted its reply: {reason}")
        self._reason = reason

    def _assemble_reply(self, message: Block) -> Reply:
        return build_reply(message, self._reason, self._meta, self._model, self._dialect, tools=self._tools)

    def _decode_body(self, body: bytes) -> Reply:
        if not self._dialect.think_tags:
            usual = decode_usual_reply(body, self._model, tools=self._tools)
            if usual is not None:
                return usual
        whole = self._parse_body(body)
        choices = whole.get("choices") if isinstance(whole, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            if (error := find_error(whole)) is not None:
                raise ProviderError(classify_error(error, self._status))
            if isinstance(whole, dict):
                self._raise_for(whole)
            raise self._unrecognised_reply(body)
        self._update_metadata(whole)
        self._raise_for(choice)
        message, reason = choice.get("message"), text_or_empty(choice.get("finish_reason"))
        if not isinstance(message, dict) and not reason:
            raise self._unrecognised_reply(body)
        if reason:
            self._set_finish_reason(reason)
        self._meta["content_filter_results"] = choice.get("content_filter_results")
        return self._assemble_reply(message if isinstance(message, dict) else {})


def _find_nested_usage(chunk: Block) -> Any:
    beside = chunk.get("x_groq")
    return beside.get("usage") if isinstance(beside, dict) else None
