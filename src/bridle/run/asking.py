"""One request, out and back: encode, send, decode.

Only this place knows both the key and the answer, so it removes our key where a provider
repeats it, in an error or in a reply, before anything is kept.
What is sent raises Python's audit event `bridle.asked` first.
"""

import sys
from collections.abc import Callable

from msgspec.structs import replace

from ..core.refused_parameters import has_parameter
from ..ports.codec import Decoder, Kept
from ..ports.transport import Outgoing
from ..providers.optional_parameters import find_refused_parameter
from ..providers.overflows import window_in
from ..values.delta import Delta
from ..values.errors import Failure, ProviderError
from ..values.event import Spot
from ..values.latency import Latency
from ..values.message import Reply
from ..values.redaction import Redactor, find_header_secrets, is_plain_word
from ..values.request import Request
from ..values.settings import REPLY_BYTES_DEFAULT
from ..values.usage import Usage
from .blaming import blamed
from .hearing import Heard
from .line import Line
from .redacting import StreamRedactor, redact_reply
from .remedies import remedy
from .timing import Stopwatch

ERROR_BYTES_MAX = 1024 * 1024
"""Of an error page nothing is read after this: what it says is in its first lines."""
HTTP_ERROR = 400
KEY_GONE = "[key]"


def _too_long(limit: int) -> Failure:
    message = f"the reply is longer than {limit:,} bytes (reply_bytes_max) and was given up"
    return Failure(kind="garbled", message=message, should_retry=False)


class Exchange:
    """What is sent is known (`digest`) before anything is; what came back so far is known at any time."""

    def __init__(
        self,
        line: Line,
        request: Request,
        kept: Kept,
        *,
        stream: bool,
        now: Callable[[], float],
        bytes_max: int | None = REPLY_BYTES_DEFAULT,
    ) -> None:
        """`now` is the clock that the call is timed by; a reply of more than `bytes_max` is given up."""
        request = replace(request, stream=stream)
        encoded = line.codec.encode(request, kept)
        self.digest, self.model = encoded.digest, line.model
        self._line, self._request, self._bytes_max = line, request, bytes_max
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
        secrets = [each for each in self._secrets() if not is_plain_word(each)]
        redactor = Redactor(secrets, KEY_GONE) if secrets else None
        shown = StreamRedactor(redactor, show) if redactor is not None else None
        take = show if shown is None else shown.take
        try:
            async with self._line.transport.open(outgoing) as answer:
                self._stopwatch.note_byte()
                self._refused = answer.status >= 300
                decoder = self._line.codec.decoder(self._request, answer.status, answer.headers)
                self._decoder = decoder
                if not self._refused:
                    begun()
                heard = 0
                async for chunk in answer.chunks():
                    heard += len(chunk)
                    if self._refused and heard > ERROR_BYTES_MAX:
                        break  # an error has been said by now; leaving closes the connection
                    if self._bytes_max is not None and heard > self._bytes_max:
                        raise ProviderError(_too_long(self._bytes_max))
                    for delta in decoder.feed(chunk):
                        if self._stopwatch.token_at is None:
                            self._stopwatch.note_token()
                        self._heard.take(delta)
                        take(delta)
            reply = self._heard.whole(decoder.close())
            if shown is not None:
                shown.flush()
            if self._stopwatch.token_at is None:
                self._stopwatch.note_token()
            return reply if redactor is None else redact_reply(reply, redactor)
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
        refused = failure.refused_parameter
        if failure.kind == "invalid" and (failure.status or 0) < HTTP_ERROR:
            refused = find_refused_parameter(failure.message)  # it came inside a stream
        if refused and not has_parameter(self._request, refused):
            refused = None
        return replace(failure, message=message, code=code, window_tokens=window, refused_parameter=refused)

    def _without_key(self, words: str) -> str:
        return Redactor(self._secrets(), KEY_GONE).redact_text(words)

    def _secrets(self) -> frozenset[str]:
        if not self._signature:
            return self._line.secrets
        signed = (find_header_secrets(name, value) for name, value in self._signature)
        return self._line.secrets.union(*signed)
