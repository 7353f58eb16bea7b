"""To an application in this process: no socket, otherwise the same road.

An application is `async def app(outgoing)`, given as a function or as the words
`module:function`, which are looked up when the first request is made.  It returns a whole
answer (`HttpReply`) or one that takes its time (`Timeline`).  Pieces are handed out one by
one, and between two of them everybody else gets a turn, as they would while a network is
waited for: what can be cancelled there can be cancelled here.

Silence is slept on the clock this was given, and patience ends where it would on a network,
so that a test of a provider that hangs for an hour takes no time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from math import inf
from types import TracebackType
from typing import Self

from bridle.ports.clock import Clock
from bridle.ports.codec import HttpReply
from bridle.ports.transport import ConnectionCut, OutgoingRequest, ResponseTimeline, SilentPause
from bridle.values.errors import Failure, FailureKind, ProviderError

from .deadlines import Deadlines

App = Callable[[OutgoingRequest], Awaitable[HttpReply | ResponseTimeline]]


class InProcessTransport:
    def __init__(
        self, app: str | App, *, clock: Clock | None = None, deadlines: Deadlines | None = None
    ) -> None:
        self._app, self._deadlines = app, deadlines or Deadlines()
        self._sleep = clock.sleep if clock is not None else asyncio.sleep

    def open(self, outgoing: OutgoingRequest) -> "LocalExchange":
        return LocalExchange(self._app, outgoing, self._sleep, self._deadlines)


class LocalExchange:
    __slots__ = (
        "_app",
        "_deadlines",
        "_headers",
        "_outgoing",
        "_sleep",
        "_spent",
        "_timeline",
        "_waited",
        "status",
    )

    def __init__(
        self,
        app: str | App,
        outgoing: OutgoingRequest,
        sleep: Callable[[float], Awaitable[None]],
        deadlines: Deadlines,
    ) -> None:
        self._app, self._outgoing, self._sleep, self._deadlines = app, outgoing, sleep, deadlines
        self._headers: dict[str, str] = {}
        self._timeline: ResponseTimeline | None = None
        self._waited = self._spent = 0.0
        self.status = 0

    async def __aenter__(self) -> Self:
        app = _load_app(self._app) if isinstance(self._app, str) else self._app
        try:
            reply = await app(self._outgoing)
        except ProviderError:
            raise
        except Exception as error:
            raise _app_error(f"failed: {type(error).__name__}: {error}", self._app) from error
        timeline = to_timeline(reply)
        if timeline.delay_seconds:
            await self._wait(timeline.delay_seconds, heard=False)
        if timeline.steps and isinstance(timeline.steps[0], ConnectionCut):
            raise _make_failure("cut", "closed the connection before it answered; try again")
        self._timeline, self.status = timeline, timeline.status
        self._headers = {name.lower(): value for name, value in timeline.headers}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timeline = None

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def chunks(self) -> AsyncIterator[bytes]:
        heard = False
        for beat in self._timeline.steps if self._timeline is not None else ():
            if not isinstance(beat, (SilentPause, ConnectionCut)):
                await asyncio.sleep(0)
                heard, self._waited = True, 0.0
                yield beat
            elif isinstance(beat, SilentPause):
                await self._wait(beat.seconds, heard=heard)
            else:
                when = "in the middle of its answer" if heard else "before it answered"
                raise _make_failure("cut", f"broke off {when}; try again")

    async def _wait(self, seconds: float, *, heard: bool) -> None:
        patience = self._deadlines.idle_seconds if heard else self._deadlines.first_byte_seconds
        left = inf if patience is None else max(0.0, patience - self._waited)
        total = self._deadlines.total_seconds
        in_all = inf if total is None else max(0.0, total - self._spent)
        if seconds > in_all and in_all <= left:
            await self._sleep(in_all)
            raise _make_failure(
                "timeout",
                f"had not finished after {total:g} s (total_seconds) and was given up;"
                " ask for less, or allow more time with Deadlines(total_seconds=…)",
                should_retry=False,
            )
        if seconds > left:
            await self._sleep(left)
            name = "idle_seconds" if heard else "first_byte_seconds"
            raise _make_failure(
                "timeout",
                f"sent nothing for {patience:g} s ({name}) and was given up;"
                f" try again, or allow more time with Deadlines({name}=…)",
            )
        await self._sleep(seconds)
        self._waited += seconds
        self._spent += seconds


def to_timeline(reply: HttpReply | ResponseTimeline) -> ResponseTimeline:
    """Any answer as it happens; a whole one happens without a pause."""
    if isinstance(reply, ResponseTimeline):
        return reply
    return ResponseTimeline(status=reply.status, headers=reply.headers, steps=reply.frames)


@cache
def _load_app(name: str) -> App:
    module, _, function = name.partition(":")
    try:
        found: object = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise _app_error(f"cannot be loaded: {error}", name) from error
    if not callable(found):
        raise _app_error("is not a function", name)
    app: App = found
    return app


def _make_failure(kind: FailureKind, what: str, *, should_retry: bool | None = None) -> ProviderError:
    message = f"the in-process application {what}"
    return ProviderError(Failure(kind=kind, message=message, should_retry=should_retry))


def _app_error(what: str, app: str | App) -> ProviderError:
    name = app if isinstance(app, str) else getattr(app, "__qualname__", repr(app))
    message = f"the in-process application {name!r} {' '.join(what.split())}"
    return ProviderError(Failure(kind="server", message=message, should_retry=False))
