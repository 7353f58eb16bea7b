"""Code that the families share to encode replies and failures: whole, or while a reply is written."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.providers.wire.json import dumps, repair_surrogates
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Part, Reasoning, Reply, Text, ToolCall
from bridle.values.request import Request
from bridle.values.result import ReasoningDelta, TextDelta
from bridle.values.usage import TERM_FIELDS

JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8"
_WORD = re.compile(r"\s*\S+|\s+")
_FRAGMENT_LENGTH = 12
"""Median length of a piece of tool arguments in recorded streams."""


def make_reply(content_type: str, frames: Iterable[bytes]) -> HttpReply:
    return HttpReply(status=200, headers=(("content-type", content_type),), frames=tuple(frames))


def split_words(text: str) -> list[str]:
    """The text in pieces of one word, each with the white space before it."""
    return _WORD.findall(text)


def split_arguments(arguments: str, length: int = _FRAGMENT_LENGTH) -> list[str]:
    return [arguments[at : at + length] for at in range(0, len(arguments), length)]


def unsendable_part(part: Part) -> MisuseError:
    return MisuseError(f"a model cannot say a {type(part).__name__} on this wire: leave it out of the reply")


def encode_error_response(
    failure: Failure, status: int, envelope: Mapping[str, Any], *more: tuple[str, str]
) -> HttpReply:
    """A failure as a provider sends it; `status` applies if the failure has none, `more` replaces the headers."""
    headers = list(more) or [("content-type", JSON_TYPE)]
    if failure.retry_after_seconds is not None:
        headers.append(("retry-after", f"{failure.retry_after_seconds:.15g}"))
    if failure.should_retry is not None:
        headers.append(("x-should-retry", "true" if failure.should_retry else "false"))
    if failure.status is not None and failure.status >= 400:
        status = failure.status
    return HttpReply(status=status, headers=tuple(headers), frames=(dumps(envelope),))


def encode_service_tier(terms: tuple[str, ...]) -> str:
    """The service tier among these terms; empty for the standard tier."""
    others = tuple(filter(None, TERM_FIELDS.values()))
    return next((term for term in terms if not term.startswith(others)), "")


def encode_service_word(terms: tuple[str, ...], field: str) -> str:
    """The word that reports one of these terms in a field that has a prefix; empty if none does."""
    prefix = TERM_FIELDS[field]
    return next((term.removeprefix(prefix) for term in terms if term.startswith(prefix)), "")


class ReplyWriter(ABC):
    """Encodes a reply while it is written, as a provider streams it.

    The results of `open`, `write` and `close`, joined, are the body of the response. `parts` is what was written;
    `close` writes the calls that are not among them.
    """

    content_type = EVENT_STREAM_TYPE
    streams_calls = True
    """False for a wire that has no pieces of arguments."""

    def __init__(
        self, identity: str, request: Request, query: Mapping[str, str], repeated: Mapping[str, object]
    ) -> None:
        """`request` is the client's: its model is named in the reply, and some of its options shape the stream.

        `query` has the parameters of its URL, `repeated` members of every response to it.
        """
        self.identity, self.model, self._request = identity, request.model.id, request
        self._repeated = repeated
        self.parts: list[Text | Reasoning | ToolCall] = []

    def write(self, delta: TextDelta | ReasoningDelta) -> bytes:
        kind, piece = (
            (Text, repair_surrogates(delta.text))
            if isinstance(delta, TextDelta)
            else (Reasoning, repair_surrogates(delta.reasoning))
        )
        if not piece:
            return b""
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, Text | Reasoning) or type(last) is not kind:
            return self._add_part(kind(text=piece), piece)
        self.parts[-1] = replace(last, text=last.text + piece)
        return self._extend_part(self.parts[-1], piece)

    def write_call(self, call: ToolCall) -> bytes:
        if not self.streams_calls:
            return b""
        piece = repair_surrogates(call.arguments)
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, ToolCall) or last.id != call.id:
            return self._add_part(replace(call, arguments=piece), piece)
        self.parts[-1] = replace(last, arguments=last.arguments + piece)
        return self._extend_part(self.parts[-1], piece)

    def _add_part(self, part: Text | Reasoning | ToolCall, piece: str) -> bytes:
        ended = self._end_part() if self.parts else b""
        self.parts.append(part)
        return ended + self._begin_part(part) + (self._extend_part(part, piece) if piece else b"")

    def open(self) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        """A comment, which clients of event streams ignore."""
        return b": keep-alive\n\n"

    def name_parts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts with the ids that this wire gives them."""
        return tuple(parts)

    def _begin_part(self, part: Text | Reasoning | ToolCall) -> bytes:
        return b""

    @abstractmethod
    def _extend_part(self, part: Text | Reasoning | ToolCall, piece: str) -> bytes: ...

    def _end_part(self) -> bytes:
        return b""

    @abstractmethod
    def close(self, reply: Reply) -> bytes:
        """The rest of the response; the parts of `reply` are those written and then its other calls."""

    @abstractmethod
    def fail(self, failure: Failure) -> bytes:
        """The end of a response that fails after its beginning was sent."""
