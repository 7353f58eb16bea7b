"""Our own events as server-sent events, and the response that streams any adapter.

A record is an event with `id:` = its number and data as in `GET …/events`; a delta has no id, because it is not in the
log. A client that reconnects sends the last id and gets the records after it, none twice.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Send

from bridle.run.stream import to_sse
from bridle.serve.feeds import FeedClosed, FeedItem

LOG = logging.getLogger("bridle")
HEARTBEAT = b": \n\n"
RETRY = b"retry: 1000\n\n"


class StreamAdapter(Protocol):
    """One front-end protocol."""

    headers: dict[str, str]

    def begin(self) -> bytes:
        """Bytes at the start of a stream."""
        ...

    def encode(self, items: Sequence[FeedItem]) -> bytes: ...

    def finish(self) -> bytes:
        """Bytes at the end of a stream whose run has ended."""
        ...


class EventStream(StreamingResponse):
    """Streams batches of items in the form of an adapter; the view is closed with the connection."""

    media_type = "text/event-stream"

    def __init__(
        self,
        view: AsyncGenerator[Sequence[FeedItem], None],
        adapter: StreamAdapter,
        on_leave: Callable[[], None] | None = None,
    ) -> None:
        """`on_leave` is called if the client leaves before the end."""
        self._view, self._adapter, self._on_leave = view, adapter, on_leave
        headers = {"x-accel-buffering": "no", **adapter.headers}
        super().__init__(self._generate(), headers=headers)

    async def _generate(self) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._view):
                yield self._adapter.begin()
                async for batch in self._view:
                    if encoded := self._adapter.encode(batch) if batch else HEARTBEAT:
                        yield encoded
                self._on_leave = None
                yield self._adapter.finish()
        except FeedClosed:
            self._on_leave = None
        finally:
            if self._on_leave is not None:
                self._on_leave()

    async def stream_response(self, send: Send) -> None:
        generated = self.body_iterator
        assert isinstance(generated, AsyncGenerator)
        try:
            async with aclosing(generated):
                await super().stream_response(send)
        except TimeoutError:
            LOG.info("a viewer took no data for too long; its connection is closed")


class EventAdapter:
    """Our own events."""

    headers: dict[str, str] = {}  # noqa: RUF012 - never changed

    def begin(self) -> bytes:
        return RETRY

    def encode(self, items: Sequence[FeedItem]) -> bytes:
        return b"".join(map(encode_item_frame, items))

    def finish(self) -> bytes:
        return b"event: end\ndata: {}\n\n"


def encode_item_frame(item: FeedItem) -> bytes:
    """The frame of an item, encoded once for all viewers."""
    if item.frame is None:
        if item.record is not None:
            record = item.record
            row = {"seq": record.seq, "at": record.at, "event": msgspec.Raw(record.data)}
            tag = record.event.__struct_config__.tag
            item.frame = b"id: %d\nevent: %s\ndata: %s\n\n" % (
                record.seq, str(tag).encode(), msgspec.json.encode({**row, "is_redacted": record.is_redacted}),
            )  # fmt: skip
        else:
            assert item.delta is not None
            item.frame = to_sse(item.delta, full=True).encode()
    return item.frame


def make_frame(data: dict[str, object]) -> bytes:
    """A frame without a name and an id, as other protocols use."""
    return b"data: %s\n\n" % msgspec.json.encode(data)


def join_frames(frames: Iterable[dict[str, object]]) -> bytes:
    return b"".join(map(make_frame, frames))
