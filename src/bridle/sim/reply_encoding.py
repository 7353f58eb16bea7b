"""Helpers that the simulated families share to encode replies and failures."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.wire.json import dumps
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Part

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
    return next((term for term in terms if not term.startswith("geo-")), "")
