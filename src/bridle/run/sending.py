"""Sends one small request beside the model calls (keep a prompt, make a conversation)."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..ports.codec import HttpRequest
from ..ports.transport import Outgoing
from ..values.errors import Failure, ProviderError
from .line import Line

ANSWER_BYTES_MAX = 8 * 1024 * 1024


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
        body = bytearray()
        async for chunk in answer.chunks():
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                message = f"the answer is longer than {ANSWER_BYTES_MAX:,} bytes and was given up"
                raise ProviderError(Failure(kind="garbled", message=message, should_retry=False))
        return answer.status, answer.headers, bytes(body)
