"""Shared parts of the reference decoders, which read recorded replies without any codec.

A codec that is only compared with itself can be wrong in the same way every time. So each family's replies
are also read by a reference decoder, as simply as possible: the body is split into its JSON documents, and
`reference_<family>.py` walks them as dictionaries and lists. It is slow, does not stream, keeps no state and
shares no code with the codecs. `reply_agreement.py` lists the differences between the two.

    split_documents(body)     the JSON documents in a body, each with the name it was sent under
    ReferenceReply            the content of a reply, in the provider's own words and numbers
"""

import json
import re
from collections.abc import Sequence
from struct import unpack_from
from typing import Any

from msgspec import field

from bridle.values.base import Value

NamedDocument = tuple[str, Any]
"""One JSON document and the name it was sent under."""
WHOLE_BODY = "the whole body"
"""Name of a document that is the whole body."""
_LINE = re.compile(r"\r\n|\r|\n")
_FRAME_AROUND = 16
_STRING = 7


class ReferenceReply(Value, kw_only=True):
    """The content of a reply, in the provider's own words and numbers."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] | None = ()
    """Name and arguments of each call, as written; None if this decoder cannot tell."""
    counts: dict[str, int] = field(default_factory=dict)
    """Token counts of the provider, by our names in `Usage`; missing counts are absent."""
    stop: str = ""
    """Class of the stop reason; empty if the word is unknown here."""
    exceptions: dict[str, str] = field(default_factory=dict)
    """Fields that need not agree, with the reason."""


def split_documents(body: bytes) -> list[NamedDocument]:
    """Split a body into JSON documents. Unreadable ones are skipped, which shows as a difference later."""
    if body[:1] == b"\0":
        return [
            (name, found) for name, data in _split_frames(body) if (found := _parse_json(data)) is not None
        ]
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text[:1] in ("{", "["):
        whole = _parse_json(text)
        return (
            [("", each) for each in whole]
            if isinstance(whole, list)
            else [(WHOLE_BODY, whole)]
            if whole
            else []
        )
    return _split_events(text)


def read_count(members: object, *path: str) -> int:
    """Return the count at this path, or 0."""
    found = get_path(members, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found // 1 or found < 0:
        return 0
    return int(found)


def get_path(members: object, *path: str) -> Any:
    for name in path:
        members = members.get(name) if isinstance(members, dict) else None
    return members


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def arguments_text(arguments: object) -> str:
    """Return arguments as text; missing arguments become an empty object."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() not in ("", "null") else "{}"
    return json.dumps(arguments if arguments is not None else {})


def first_nonzero(*values: int) -> int:
    return next((value for value in values if value), 0)


def explain_uneven_total(total: int, *parts: int) -> dict[str, str]:
    """Return an exception for a total that the provider's own counts do not add up to."""
    if total in (0, sum(parts)):
        return {}
    return {"total": f"the provider's own counts do not add up to its total of {total}"}


def join_pieces(pieces: Sequence[str]) -> str:
    return "".join(pieces)


def _split_events(text: str) -> list[NamedDocument]:
    documents: list[NamedDocument] = []
    name, data = "", list[str]()
    for line in [*_LINE.split(text), ""]:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line[:1] in ("{", "}", " "):
            data.append(line)  # a bare document among the events: some servers report an abort this way
        elif not line:
            if (found := _parse_json("\n".join(data))) is not None:
                documents.append((name, found))
            name, data = "", []
    return documents


def _split_frames(body: bytes) -> list[tuple[str, bytes]]:
    """Split binary event stream messages into their names and payloads; all headers are strings."""
    frames, at = list[tuple[str, bytes]](), 0
    while at + _FRAME_AROUND <= len(body):
        total, size = unpack_from(">II", body, at)
        if total < _FRAME_AROUND or at + total > len(body):
            break
        headers, name, place = body[at + 12 : at + 12 + size], "", 0
        while place < len(headers):
            label = headers[place + 1 : place + 1 + headers[place]]
            place += 1 + len(label)
            if headers[place] != _STRING:
                break
            (length,) = unpack_from(">H", headers, place + 1)
            value = headers[place + 3 : place + 3 + length].decode("utf-8", "replace")
            place += 3 + length
            if label in (b":event-type", b":exception-type"):
                name = value
        frames.append((name, body[at + 12 + size : at + total - 4]))
        at += total
    return frames


def _parse_json(data: str | bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
