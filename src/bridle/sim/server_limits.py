"""The limits of the simulator's server, and its checks of a request before anybody answers it.

Rule 1: the server listens on the loopback address, yet any web page a person opens can send requests there.
        A name that somebody made point to this machine (DNS rebinding) stands in the Host header, so only
        names of the loopback address are answered.  A page may also post text and forms without being asked;
        the providers take JSON only, and so does the server.
Rule 2: a client that sends slowly, or without end, is cut off: heads and bodies have a time and a size.
"""

import re
from collections.abc import Sequence

from aiohttp import web

from ..values.value import Value

JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
SHOWN_CHARACTERS = 80


class ServerLimits(Value):
    """The time and the size of what one client may send."""

    header_seconds: float = 30.0
    """From the first byte of a request (of a new connection: from its beginning) to the end of its head."""
    header_bytes: int = 65_536
    body_seconds: float = 120.0
    """From the end of the head to the last byte of the body."""
    body_bytes: int = 64 * 1024 * 1024
    """Twice what any provider takes, so that a family's own limit is told in its own words."""
    idle_seconds: float = 75.0
    """From an answer to the next request on the same connection."""


class BodyRefused(Exception):
    """A body that is not read to its end; carries the status, and the size as far as it is known."""

    def __init__(self, status: int, size: int) -> None:
        super().__init__(status, size)
        self.status, self.size = status, size


def check_host(hosts: Sequence[str]) -> str:
    """The objection to the Host headers of a request, in one line; empty when there is none."""
    if len(hosts) == 1 and LOOPBACK.fullmatch(hosts[0]):
        return ""
    named = ", ".join(hosts)[:SHOWN_CHARACTERS]
    return f"misdirected request: the simulator answers for localhost, 127.0.0.1 and [::1], not for {named!a}"


def is_json_type(content_type: str) -> bool:
    """A content type with any parameters behind it; an absent one is not JSON."""
    return JSON_TYPE.fullmatch(content_type.partition(";")[0].strip()) is not None


async def read_body(request: web.BaseRequest, bytes_max: int) -> bytes:
    """The whole body; raises `BodyRefused` as soon as it is known to be longer than `bytes_max`."""
    declared = request.content_length or 0
    if declared > bytes_max:
        raise BodyRefused(413, declared)
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise BodyRefused(413, size)
    return b"".join(pieces)
