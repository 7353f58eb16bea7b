"""Transport to an application in this process: no socket, otherwise like HTTP.

An application is `async def app(outgoing)`, given as a function or as `module:function`, which is imported on
the first request. It returns a complete response (`HttpReply`) or a timed one (`ResponseTimeline`). Chunks
are yielded one at a time, and other tasks run between two of them as they would during network waits: what
can be cancelled there can be cancelled here.

Pauses sleep on the given clock and the deadlines apply as on a network, so a test of a provider that hangs
for an hour takes no time.
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
            await self._wait(timeline.delay_seconds, received=False)
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
        received = False
        for step in self._timeline.steps if self._timeline is not None else ():
            if not isinstance(step, (SilentPause, ConnectionCut)):
                await asyncio.sleep(0)
                received, self._waited = True, 0.0
                yield step
            elif isinstance(step, SilentPause):
                await self._wait(step.seconds, received=received)
            else:
                when = "in the middle of its answer" if received else "before it answered"
                raise _make_failure("cut", f"broke off {when}; try again")

    async def _wait(self, seconds: float, *, received: bool) -> None:
        limit = self._deadlines.idle_seconds if received else self._deadlines.first_byte_seconds
        limit_left = inf if limit is None else max(0.0, limit - self._waited)
        total = self._deadlines.total_seconds
        total_left = inf if total is None else max(0.0, total - self._spent)
        if seconds > total_left and total_left <= limit_left:
            await self._sleep(total_left)
            raise _make_failure(
                "timeout",
                f"had not finished after {total:g} s (total_seconds) and was given up;"
                " ask for less, or allow more time with Deadlines(total_seconds=…)",
                should_retry=False,
            )
        if seconds > limit_left:
            await self._sleep(limit_left)
            name = "idle_seconds" if received else "first_byte_seconds"
            raise _make_failure(
                "timeout",
                f"sent nothing for {limit:g} s ({name}) and was given up;"
                f" try again, or allow more time with Deadlines({name}=…)",
            )
        await self._sleep(seconds)
        self._waited += seconds
        self._spent += seconds


def to_timeline(reply: HttpReply | ResponseTimeline) -> ResponseTimeline:
    """Convert a complete response to a timeline without pauses; a timeline is returned unchanged."""
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
