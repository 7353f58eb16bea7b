"""To an application in this process: no socket, otherwise the same road.

An application is `async def app(outgoing) -> HttpReply`, given as a function or as the
words `module:function`, which are looked up when the first request is made.  Its frames
are handed out one by one, and between two of them everybody else gets a turn, as they
would while a network is waited for: what can be cancelled there can be cancelled here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Self

from ..ports.codec import HttpReply
from ..ports.transport import Outgoing
from ..values.errors import Failure, ProviderError

App = Callable[[Outgoing], Awaitable[HttpReply]]


class InProcessTransport:
    def __init__(self, app: str | App) -> None:
        self._app = app

    def open(self, outgoing: Outgoing) -> "LocalExchange":
        return LocalExchange(self._app, outgoing)


class LocalExchange:
    __slots__ = ("_app", "_headers", "_outgoing", "_reply", "status")

    def __init__(self, app: str | App, outgoing: Outgoing) -> None:
        self._app, self._outgoing = app, outgoing
        self._headers: dict[str, str] = {}
        self._reply: HttpReply | None = None
        self.status = 0

    async def __aenter__(self) -> Self:
        app = _find(self._app) if isinstance(self._app, str) else self._app
        try:
            reply = await app(self._outgoing)
        except ProviderError:
            raise
        except Exception as error:
            raise _broken(f"failed: {type(error).__name__}: {error}", self._app) from error
        self._reply, self.status = reply, reply.status
        self._headers = {name.lower(): value for name, value in reply.headers}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reply = None

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def chunks(self) -> AsyncIterator[bytes]:
        reply = self._reply
        for frame in reply.frames if reply is not None else ():
            await asyncio.sleep(0)
            yield frame


@cache
def _find(name: str) -> App:
    module, _, function = name.partition(":")
    try:
        found: object = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise _broken(f"cannot be loaded: {error}", name) from error
    if not callable(found):
        raise _broken("is not a function", name)
    app: App = found
    return app


def _broken(what: str, app: str | App) -> ProviderError:
    name = app if isinstance(app, str) else getattr(app, "__qualname__", repr(app))
    message = f"the in-process application {name!r} {' '.join(what.split())}"
    return ProviderError(Failure(kind="server", message=message, should_retry=False))
