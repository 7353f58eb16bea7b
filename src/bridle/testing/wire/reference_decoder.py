"""A second opinion on what a recorded reply says, by somebody who has never seen a codec.

A codec that is only compared with itself can be wrong in the same way every time.  So each family's
replies are also read here, as plainly as can be: the body is split into its JSON documents, and a
`plainly_<family>.py` walks them with nothing but dictionaries and lists.  It is slow, knows one way of
doing everything, streams nothing and keeps nothing, and shares no line with the codecs.  Where both
say the same, that is evidence; where they do not, one of them is wrong, and `agreement.py` lists it.

    plainly(family, body)     what the reply says; None when it holds no whole reply, or nobody here can tell
    said_in(body)             the JSON documents in a body, each under the name it was sent with
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
"""The name of a document that is all there is."""
_LINE = re.compile(r"\r\n|\r|\n")
_FRAME_AROUND = 16
_STRING = 7


class ReferenceReply(Value):
    """What a reply says, in the provider's own words and numbers."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] | None = ()
    """Name and arguments of each, as they were written; None when they cannot be told this plainly."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the provider counted, by the names of our `Usage`; what it did not say is not here."""
    stop: str = ""
    """The class of its stop; empty when it used a word nobody here knows."""
    exceptions: dict[str, str] = field(default_factory=dict)
    """What need not agree, by its name, and why."""


def split_documents(body: bytes) -> list[NamedDocument]:
    """Documents that cannot be read are passed over: what is left then says something else, and it shows."""
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
    """The count at this place; nought when there is none."""
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
    """Arguments as text; none at all are an empty object."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() not in ("", "null") else "{}"
    return json.dumps(arguments if arguments is not None else {})


def first_nonzero(*values: int) -> int:
    return next((value for value in values if value), 0)


def explain_uneven_total(total: int, *parts: int) -> dict[str, str]:
    """An excuse where the provider's own counts do not add up."""
    if total in (0, sum(parts)):
        return {}
    return {"total": f"the provider's own counts do not add up to its total of {total}"}


def join_pieces(pieces: Sequence[str]) -> str:
    return "".join(pieces)


def _split_events(text: str) -> list[NamedDocument]:
    said: list[NamedDocument] = []
    name, data = "", list[str]()
    for line in [*_LINE.split(text), ""]:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line[:1] in ("{", "}", " "):
            data.append(line)  # a bare document among the events: how some servers say that they gave up
        elif not line:
            if (found := _parse_json("\n".join(data))) is not None:
                said.append((name, found))
            name, data = "", []
    return said


def _split_frames(body: bytes) -> list[tuple[str, bytes]]:
    """Binary messages: their lengths, their headers, which are all strings, and the payload."""
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
