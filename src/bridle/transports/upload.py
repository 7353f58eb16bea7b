"""A long request body on its way out, without a copy of it.

aiohttp puts headers and body into one write, which for a conversation of a megabyte is one more copy of
it, made anew with every step, in memory the system has to clear first: it cost more than everything else
that happens in the step.  So a long body goes out in pieces that are windows on it.  The first is small
and travels with the headers; between the others the loop is let go of, so that an upload does not hold
up anybody's stream.
"""

from aiohttp import Payload
from aiohttp.abc import AbstractStreamWriter

LONG_BYTES = 2**15
"""Shorter bodies are quicker as one write."""
FIRST_BYTES = 2**12
PIECE_BYTES = 2**19


class Upload(Payload):
    _autoclose = True

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._body, self._size = body, len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self._body

    async def write(self, writer: AbstractStreamWriter) -> None:
        whole = memoryview(self._body)
        await writer.write(whole[:FIRST_BYTES])
        for start in range(FIRST_BYTES, len(whole), PIECE_BYTES):
            await writer.write(whole[start : start + PIECE_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        # The length that is announced is the body's own, so there is never less of it to write.
        await self.write(writer)
