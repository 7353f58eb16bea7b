"""Replies of Chat Completions, from bytes in any slices: JSON or server-sent events, from any server.

A stream is a reply once the model's reason for stopping has arrived, or the sentinel that ends it;
before that it is cut, however much was said.  Counts may come with the reason, after it, with every
piece or not at all; the last ones count.  Of several choices the first is read.  Comments, empty
choices, unknown members and repeated reasons are passed over; an error is an error wherever it stands.
An event that cannot be read at all is one too, because it may have been part of what was said.

Plain words, thoughts and arguments take a short road of their own: one typed parse, one append, one
delta.  Everything else goes through `_happened`, which looks before it touches.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..values.delta import Delta
from ..values.errors import Failure, ProviderError
from ..values.message import Reply
from ..values.model import Model
from ..values.parts import Text
from ..values.usage import Usage
from ._failures import STRANGER_LENGTH_MAX, one_line
from ._json import whole
from ._openai_chat_content import Block, word
from ._openai_chat_dialect import Dialect
from ._openai_chat_ends import GAVE_UP, counted, reply_of
from ._openai_chat_failures import error_in, failure_by_verdict, failure_from, failure_of
from ._openai_chat_growing import GrowingMessage
from ._openai_chat_message import content_parts
from ._shell import DONE, DecoderShell

_FRAME = frozenset({"choices", "usage", "id"})
"""What shows that an event is a piece of a reply, whatever else it holds."""


class _Function(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    arguments: str
    name: None = None


class _Piece(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A further piece of a call's arguments."""

    index: int
    function: _Function
    id: Literal[""] | None = None
    type: str | None = None


class _Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Everything a delta of plain words, thoughts or arguments may have, and nothing else."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: None = None
    tool_calls: tuple[_Piece] | None = None
    function_call: None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    index: int = 0
    finish_reason: None = None
    error: None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: tuple[_Choice]
    usage: None = None
    error: None = None
    x_groq: None = None
    base_resp: None = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class ChatDecoder(DecoderShell):
    wanted = "chat completion"
    ending = "reason to stop"

    def __init__(
        self, model: Model, dialect: Dialect, status: int, headers: Mapping[str, str], *, tools: bool
    ) -> None:
        super().__init__(status, headers)
        self._model, self._dialect, self._tools = model, dialect, tools
        self._grown = GrowingMessage(think_tags=dialect.think_tags)
        self._meta: Block = {}
        self._choice: int | None = None
        self._reason = ""
        self._ended = False

    @property
    def partial(self) -> str:
        said = content_parts(self._grown.content, self._dialect)
        return "".join(part.text for part in said if isinstance(part, Text))

    @property
    def counted(self) -> Usage:
        return replace(counted(self._meta), incomplete=True)

    @property
    def _is_over(self) -> bool:
        # Some servers give no reason, and some proxies end properly what was cut off behind them.
        return bool(self._reason) or (self._ended and self._grown.is_whole)

    def _told(self) -> Reply:
        return self._reply(self._grown.message())

    def _refusal(self, body: bytes) -> Failure:
        return failure_of(self._status, self._headers, body)

    def _take(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            if self._ended:
                break
            try:
                choice = _decode_chunk(data).choices[0]
            except (ValueError, RecursionError):
                self._read(name, data, deltas)
                continue
            if choice.index != self._choice or not self._say(choice.delta, deltas):
                self._read(name, data, deltas)
        return deltas

    def _say(self, delta: _Delta | None, deltas: list[Delta]) -> bool:
        """Whether this was all there is to say; if not, nothing has been said."""
        if delta is None:
            return False
        if delta.tool_calls:
            piece = delta.tool_calls[0]
            if (grown := self._grown.argue(piece.index, piece.function.arguments)) is None:
                return False
            deltas.append(grown)
        if delta.reasoning_content:
            deltas += self._grown.think("reasoning_content", delta.reasoning_content)
        if delta.reasoning:
            deltas += self._grown.think("reasoning", delta.reasoning)
        if delta.content:
            deltas += self._grown.say(delta.content)
        return True

    def _read(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        if self._ended:
            return
        if data.strip() == DONE:
            self._ended = True
            deltas += self._grown.rest()
            return
        event = self._event(data)
        if not isinstance(event, dict):
            seen = one_line(data, STRANGER_LENGTH_MAX)
            raise self._problem("garbled", f"the provider sent an event of no known kind: {seen}")
        if name == b"error" or not _FRAME & event.keys():
            # Some servers put the bare error where a piece of the reply belongs.
            error = error_in(event) or ({"message": one_line(data)} if name == b"error" else None)
            if error is not None:
                raise ProviderError(failure_from(error, self._status))
        self._happened(event, deltas)

    def _happened(self, event: Block, deltas: list[Delta]) -> None:
        self._note(event)
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            index = whole(choice.get("index")) or 0
            if self._choice is None:
                self._choice = index
            if index != self._choice:
                continue
            self._raise_for(choice)
            said = choice.get("delta")
            if said is None and self._grown.is_empty:
                # A few servers stream one whole message; others repeat it at the end, or beside each delta.
                said = choice.get("message")
            if isinstance(said, dict):
                deltas += self._grown.take(said)
            if reason := word(choice.get("finish_reason")):
                self._finish(reason)
                self._meta["content_filter_results"] = choice.get("content_filter_results")
                deltas += self._grown.rest()

    def _note(self, said: Block) -> None:
        """What stands beside the choices.  The first id and model count: some servers change them midway."""
        self._raise_for(said)
        if isinstance(usage := said.get("usage") or _usage_within(said), dict):
            self._meta["usage"] = usage
        for name, value in said.items():
            if name in ("id", "model"):
                self._meta[name] = self._meta.get(name) or value
            elif name not in ("usage", "choices") and value:
                self._meta[name] = value

    def _raise_for(self, said: Block) -> None:
        if said.get("error"):
            raise ProviderError(failure_from(error_in(said) or {"message": said["error"]}, self._status))
        verdict = said.get("base_resp")
        if isinstance(verdict, dict) and verdict.get("status_code"):
            raise ProviderError(failure_by_verdict(verdict, self._status))

    def _finish(self, reason: str) -> None:
        if (kind := GAVE_UP.get(reason.lower())) is not None:
            raise self._problem(kind, f"the provider broke its reply off: {reason}")
        self._reason = reason

    def _reply(self, message: Block) -> Reply:
        return reply_of(message, self._reason, self._meta, self._model, self._dialect, tools=self._tools)

    def _from_json(self, body: bytes) -> Reply:
        whole = self._whole(body)
        choices = whole.get("choices") if isinstance(whole, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            if (error := error_in(whole)) is not None:
                raise ProviderError(failure_from(error, self._status))
            if isinstance(whole, dict):
                self._raise_for(whole)
            raise self._stranger(body)
        self._note(whole)
        self._raise_for(choice)
        message, reason = choice.get("message"), word(choice.get("finish_reason"))
        if not isinstance(message, dict) and not reason:
            raise self._stranger(body)
        if reason:
            self._finish(reason)
        self._meta["content_filter_results"] = choice.get("content_filter_results")
        return self._reply(message if isinstance(message, dict) else {})


def _usage_within(said: Block) -> Any:
    beside = said.get("x_groq")
    return beside.get("usage") if isinstance(beside, dict) else None
