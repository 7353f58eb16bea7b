"""One request, out and back: encode, send, decode.

Only this place knows both the key and the answer, so it keeps a provider that repeats our key in its
error from putting it into a log.  What is sent raises Python's audit event `bridle.asked` first.
"""

import re
import sys
from collections.abc import Callable

from msgspec.structs import replace

from ..ports.codec import Decoder, Kept
from ..ports.transport import Outgoing
from ..providers.overflows import window_in
from ..values.delta import Delta
from ..values.errors import Failure, ProviderError
from ..values.event import Spot
from ..values.latency import Latency
from ..values.message import Reply
from ..values.request import Request
from ..values.usage import Usage
from .blaming import blamed
from .hearing import Heard
from .line import Line
from .remedies import remedy
from .timing import Stopwatch

KEY_GONE = "[key]"
SECRET = re.compile(r"[^\s,;=]{8,}=*")
"""What of a header could be a key, a token or a signature: no word that anybody says is like it."""


class Exchange:
    """What is sent is known (`digest`) before anything is; what came back so far is known at any time."""

    def __init__(
        self, line: Line, request: Request, kept: Kept, *, stream: bool, now: Callable[[], float]
    ) -> None:
        """`now` is the clock that the call is timed by."""
        request = replace(request, stream=stream)
        encoded = line.codec.encode(request, kept)
        self.digest, self.model = encoded.digest, line.model
        self._line, self._request = line, request
        self._outgoing = Outgoing(
            method=encoded.method,
            url=line.model.endpoint.base_url.rstrip("/") + encoded.path,
            headers=(*encoded.headers, *line.headers),
            body=encoded.body,
        )
        self._decoder: Decoder | None = None
        self._sent = self._refused = False
        self._heard = Heard(request.max_tokens)
        self._stopwatch = Stopwatch(now)
        self._signature: tuple[tuple[str, str], ...] = ()

    @property
    def partial(self) -> str:
        return self._without_key(self._decoder.partial) if self._decoder else ""

    @property
    def usage(self) -> Usage | None:
        """What there is to pay for a reply that never became one; None when there was nothing."""
        if not self._sent or self._refused:
            return None
        return self._heard.usage(self._decoder.counted if self._decoder else Usage(incomplete=True))

    @property
    def latency(self) -> Latency | None:
        """How long it has taken; None when nothing was sent."""
        return self._stopwatch.latency

    def blamed(self, failure: Failure) -> tuple[Spot, ...]:
        """What of the request the provider stumbled over, where its words tell."""
        return blamed(self._line.codec, self._request, failure)

    async def ask(
        self, show: Callable[[Delta], None], now: float, begun: Callable[[], None] = lambda: None
    ) -> Reply:
        """`now` dates a signature, where one is wanted; `begun` is called when an answer begins."""
        self._sent = True
        self._stopwatch.start()
        outgoing = self._outgoing
        if self._line.sign is not None:
            self._signature = self._line.sign(outgoing, now)
            outgoing = replace(outgoing, headers=(*outgoing.headers, *self._signature))
        sys.audit("bridle.asked", self.digest, outgoing.url, outgoing.body)
        try:
            async with self._line.transport.open(outgoing) as answer:
                self._stopwatch.note_byte()
                self._refused = answer.status >= 300
                decoder = self._line.codec.decoder(self._request, answer.status, answer.headers)
                self._decoder = decoder
                if not self._refused:
                    begun()
                async for chunk in answer.chunks():
                    for delta in decoder.feed(chunk):
                        self._stopwatch.note_token()
                        self._heard.take(delta)
                        show(delta)
            reply = self._heard.whole(decoder.close())
            self._stopwatch.note_token()
            return reply
        except ProviderError as error:
            if self._decoder is None and error.failure.kind == "unreachable":
                self._refused = True
            raise ProviderError(self._safe(error.failure)) from None
        finally:
            self._stopwatch.stop()

    def _safe(self, failure: Failure) -> Failure:
        message, code = self._without_key(failure.message), self._without_key(failure.code)
        window = window_in(message) if failure.kind == "context" else None
        if hint := remedy(failure.kind, self._line.model):
            message = f"{message.rstrip('. ')}; {hint}"
        return replace(failure, message=message, code=code, window_tokens=window)

    def _without_key(self, words: str) -> str:
        for _, value in (*self._line.headers, *self._signature):
            for secret in SECRET.findall(value):
                words = words.replace(secret, KEY_GONE)
        return words
