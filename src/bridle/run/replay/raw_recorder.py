"""Keeps the bytes of a model call in the store: `Agent(keep_raw=…)`.

The bytes pass through the same filter as recorded traffic (transports/recorded.py): no credential, only harmless
headers. A text filter of a hook decides what of a reply may be stored, so with one the bytes of replies are withheld.
"""

from collections.abc import Awaitable, Callable
from copy import copy

from bridle.run.context.reply_filter import ReplyFilter
from bridle.run.model_connection import ModelConnection
from bridle.transports.recorded import RecordedExchange, RecordingTransport
from bridle.values.message import RawCall
from bridle.values.settings import KeepRaw

FILTERED = "a hook filters the text of replies, and the bytes would bypass it"


class RawRecorder:
    """Records the exchange of one model call."""

    def __init__(self, connection: ModelConnection, keep: KeepRaw, *, streamed: bool) -> None:
        self._keep, self._streamed = keep, streamed
        self._exchange: RecordedExchange | None = None
        self.connection = copy(connection)  # `replace` would call the constructor of a subclass
        transport = RecordingTransport(connection.transport, self._take)
        object.__setattr__(self.connection, "transport", transport)

    def _take(self, exchange: RecordedExchange) -> None:
        self._exchange = exchange

    async def save(
        self, put_blob: Callable[[bytes], Awaitable[str]], reply_filter: ReplyFilter | None = None
    ) -> RawCall | None:
        """Store the bytes before the event that refers to them; None if nothing was exchanged."""
        exchange, limit = self._exchange, self._keep.bytes_max
        if exchange is None:
            return None
        answer, is_filtered = exchange.answer, reply_filter is not None and reply_filter.is_active
        # guard: filtered-bytes-withheld
        has_reply = bool(answer.body) and not is_filtered
        return RawCall(
            reply=await put_blob(answer.body[:limit]) if has_reply else "",
            reply_bytes=len(answer.body),
            request=await put_blob(exchange.body[:limit]) if self._keep.request else "",
            status=answer.status,
            headers=answer.headers,
            streamed=self._streamed,
            withheld=FILTERED if is_filtered else "",
        )
