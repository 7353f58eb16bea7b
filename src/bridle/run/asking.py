"""One request, out and back: encode, send, decode."""

from collections.abc import Callable

from msgspec.structs import replace

from ..ports.codec import Decoder, Kept
from ..ports.transport import Outgoing
from ..values.delta import Delta
from ..values.message import Reply
from ..values.request import Request
from .line import Line


class Exchange:
    """What is sent is known (`digest`) before anything is; what was said is known (`partial`) at any time."""

    def __init__(self, line: Line, request: Request, kept: Kept, *, stream: bool) -> None:
        request = replace(request, stream=stream)
        encoded = line.codec.encode(request, kept)
        self.digest = encoded.digest
        self._line, self._request = line, request
        self._outgoing = Outgoing(
            method=encoded.method,
            url=line.model.endpoint.base_url.rstrip("/") + encoded.path,
            headers=(*encoded.headers, *line.headers),
            body=encoded.body,
        )
        self._decoder: Decoder | None = None

    @property
    def partial(self) -> str:
        return self._decoder.partial if self._decoder else ""

    async def ask(self, show: Callable[[Delta], None]) -> Reply:
        async with self._line.transport.open(self._outgoing) as answer:
            decoder = self._line.codec.decoder(self._request, answer.status, answer.headers)
            self._decoder = decoder
            async for chunk in answer.chunks():
                for delta in decoder.feed(chunk):
                    show(delta)
        return decoder.close()
