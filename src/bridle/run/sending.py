"""Sends one small request beside the model calls (keep a prompt, make a conversation)."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..ports.codec import HttpRequest
from ..ports.transport import Outgoing
from .line import Line


async def send(line: Line, wanted: HttpRequest, now: float) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of the answer; `now` dates a signature.  Raises `ProviderError`."""
    outgoing = Outgoing(
        method=wanted.method,
        url=line.model.endpoint.base_url.rstrip("/") + wanted.path,
        headers=(*wanted.headers, *line.headers),
        body=wanted.body,
    )
    if line.sign is not None:
        outgoing = replace(outgoing, headers=(*outgoing.headers, *line.sign(outgoing, now)))
    async with line.transport.open(outgoing) as answer:
        body = b"".join([chunk async for chunk in answer.chunks()])
        return answer.status, answer.headers, body
