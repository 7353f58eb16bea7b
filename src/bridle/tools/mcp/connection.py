"""One connection to an MCP server, owned by one task.

The owner opens the connection, starts the requests that others put into its queue, and closes it: the contexts of the
`mcp` package must be entered and left by the same task.  A request that is cancelled, or that outlives the connection,
ends with it; no other request is affected.

A connection that ends is not opened again here; the server opens a new one when it is needed (server.py).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from bridle.ports.forbidden_requests import check_request
from bridle.ports.run_context import RunContext
from bridle.tools.process.run_process import make_environment
from bridle.values.message import Media, Text
from bridle.values.text import describe_error

from .contents import read_pages
from .definitions import TOOLS_MAX, ListedTool
from .oauth import OAuth
from .requests import RequestHandler
from .results import make_call_parts, make_error_text
from .server_settings import ConnectionLost, RequestNotSent, ServerSettings, ToolRefusal
from .sign_in import SignInClient, describe_sign_in_error, find_sign_in_problem, make_provider
from .stdio import ServerLog, open_process
from .tool_filter import filter_tools
from .unsent_calls import CURRENT_CALL, UnsentCall, UnsentCalls

CLOSE_SECONDS = 10.0
RESPONSE_BYTES_MAX = 64 * 1024 * 1024
SESSION_TERMINATED = "Session terminated"
"""Message of the `mcp` package for a request to a session that the server does not know (any more)."""
CONNECTION_CLOSED = "Connection closed"
"""Message of the `mcp` package for a connection that ended; the reason is elsewhere."""
# not from outside: our own text, shown to a person or a model
PROBLEM_CHARACTERS_MAX = 500
META_PREFIX = "bridle/"

for _name in ("mcp", "client"):
    # Without a handler, Python prints their warnings to standard error; configured handlers still get them.
    logging.getLogger(_name).addHandler(logging.NullHandler())

R = TypeVar("R")


class _Request(Generic[R]):
    def __init__(self, work: Callable[[Client], Awaitable[R]]) -> None:
        self.work = work
        self.done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class Connection:
    """An open connection; `open_connection` makes one."""

    def __init__(
        self, settings: ServerSettings, on_tools_changed: Callable[[], None], unsent: UnsentCalls
    ) -> None:
        self._settings, self._on_tools_changed, self._unsent = settings, on_tools_changed, unsent
        self._queue: asyncio.Queue[_Request[Any] | None] = asyncio.Queue()
        self._active: set[asyncio.Task[None]] = set()
        self._log = ServerLog()
        self.requests = RequestHandler(settings)
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._lost_reason = ""
        self.list_notes: list[str] = []
        """Tools that were left out of the latest list, one sentence each."""
        self.is_open = True
        self._owner = asyncio.create_task(self._own(), name=f"mcp {settings.name}")

    @property
    def instructions(self) -> str:
        return self._opened.result().instructions or "" if self._opened.done() else ""

    async def wait_until_open(self) -> None:
        """Return once requests can be sent; raises `ConnectionLost` with the reason if they never can."""
        await asyncio.wait((self._opened,))
        self._opened.result()

    async def close(self) -> None:
        """End the connection and its process; requests in progress fail."""
        self._lost_reason = self._lost_reason or "it was closed"
        if not self._opened.done():
            self._owner.cancel()  # a server that does not answer would not read the queue either
        self._queue.put_nowait(None)
        await asyncio.wait((self._owner,), timeout=CLOSE_SECONDS)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait((self._owner,))

    async def request(self, work: Callable[[Client], Awaitable[R]]) -> R:
        """The result of `work`, which the owner starts; raises `ConnectionLost` if the connection ends first."""
        if not self.is_open:
            raise RequestNotSent(self.describe_end())
        request = _Request(work)
        self._queue.put_nowait(request)
        try:
            return await request.done
        except asyncio.CancelledError:
            if request.task is not None:  # it tells the server that the result is not needed any more
                request.task.cancel()
                await asyncio.wait((request.task,))
            raise

    def describe_end(self) -> str:
        """Reason why the connection ended, with the end of what the server wrote to standard error."""
        log = self._log
        reasons = [self._lost_reason or log.problem or "the connection was lost"]
        if log.exit_code is not None:
            reasons.append(f"exit code {log.exit_code}")
        if log.stray_line:
            reasons.append(f"standard output: {log.stray_line!r}")
        if stderr := log.stderr.text().strip():
            reasons.append(f"standard error: {stderr[-self._settings.stderr_characters :]}")
        return self._settings.hide_secrets("; ".join(reasons))

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._settings.connect_seconds) as limit:
                    client = await self._open_client(stack, limit)
                self._opened.set_result(client)
                await self._serve(client)
        except TimeoutError:
            self._lost_reason = f"no answer within {self._settings.connect_seconds:g} seconds"
        except asyncio.CancelledError:
            self._lost_reason = self._lost_reason or "it was closed"
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self._lost_reason = self._lost_reason or describe_leaves(error)
        finally:
            self.is_open = False
            self._fail_open_requests()

    def _fail_open_requests(self) -> None:
        if not self._opened.done():
            self._opened.set_exception(RequestNotSent(self.describe_end()))
            self._opened.exception()  # seen, even if the connection is not awaited any more
        while not self._queue.empty():
            request = self._queue.get_nowait()
            if request is not None and not request.done.done():
                request.done.set_exception(RequestNotSent(self.describe_end()))

    async def _serve(self, client: Client) -> None:
        try:
            while (request := await self._queue.get()) is not None:
                if not request.done.done():
                    request.task = asyncio.create_task(self._perform(client, request))
                    self._active.add(request.task)
                    request.task.add_done_callback(self._active.discard)
        finally:
            self.is_open = False
            active = tuple(self._active)
            # The answers of a server that has just exited may still be on their way to their requests.
            if active:
                await asyncio.wait(active, timeout=0.0 if self._lost_reason else 1.0)
            for task in active:
                task.cancel()
            await asyncio.gather(*active, return_exceptions=True)

    async def _perform(self, client: Client, request: _Request[R]) -> None:
        try:
            result = await request.work(client)
        except asyncio.CancelledError:
            if not request.done.done():
                request.done.set_exception(ConnectionLost(self.describe_end()))
            raise
        except Exception as error:  # noqa: BLE001 - every error belongs to the request
            failure = self._classify(error)
            if isinstance(failure, ConnectionLost):
                self.is_open = False
                self._lost_reason = self._lost_reason or self._log.problem or describe_error(error)
                self._queue.put_nowait(None)
            if not request.done.done():
                request.done.set_exception(failure)
        else:
            if not request.done.done():
                request.done.set_result(result)

    def _classify(self, error: Exception) -> Exception:
        hide = self._settings.hide_secrets
        if isinstance(error, MCPError):
            if problem := find_sign_in_problem(error.message):
                return ToolRefusal(hide(f"{problem}. The call was not run."))
            if error.code == types.CONNECTION_CLOSED:
                if error.message != CONNECTION_CLOSED:
                    self._lost_reason = self._lost_reason or error.message
                return ConnectionLost(self.describe_end())
            if error.message == SESSION_TERMINATED:
                return RequestNotSent("the server has ended the session")
            return ToolRefusal(hide(f"the server answered with error {error.code}: {error.message}"))
        if isinstance(error, ToolRefusal | ConnectionLost):
            return error
        problem = f"{type(error).__name__}: {describe_error(error)[:PROBLEM_CHARACTERS_MAX]}"
        return ToolRefusal(hide(f"its answer is invalid, and the call may have taken effect ({problem})"))

    async def _open_client(self, stack: AsyncExitStack, limit: asyncio.Timeout) -> Client:
        auth = self._settings.auth
        if isinstance(auth, OAuth):
            auth = make_provider(
                self._settings, auth, partial(self._extend, limit, auth.timeout), self._unsent
            )
        assert auth is None or isinstance(auth, httpx2.Auth)
        # guard: sampling-announced
        client = Client(
            filter_tools(self._open_transport(auth), self.list_notes),
            mode=self._settings.protocol,
            message_handler=self._on_message,
            sampling_callback=self.requests.sample if self._settings.sampling is not None else None,
            elicitation_callback=self.requests.elicit if self._settings.elicitation else None,
            client_info=types.Implementation(name="bridle", version=self._settings.client_version),
            cache=None,
        )
        return await stack.enter_async_context(client)

    def _open_transport(self, auth: httpx2.Auth | None) -> Any:
        settings = self._settings
        if settings.transport == "stdio":
            command = settings.wrap_command(make_environment(settings.pass_env, settings.env))
            return open_process(
                command.argv,
                environment=command.environment,
                cwd=settings.folder.find(),
                log=self._log,
                on_end=self._on_end,
                is_marked=command.argv == settings.argv,
            )
        check_request(settings.url)
        headers = dict(settings.headers)
        if settings.transport == "sse":
            return sse_client(
                settings.url, headers=headers, auth=auth, httpx_client_factory=self._make_http_client
            )
        return _open_http(settings.url, self._make_http_client(headers, auth=auth), self._log)

    def _make_http_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return SignInClient(self._opened.done, headers, timeout, auth)

    def _extend(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Give a person the time to sign in, in place of the time to connect, unless it is connected already."""
        if not self._opened.done() and not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _on_end(self) -> None:
        self.is_open = False
        self._queue.put_nowait(None)

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()


@asynccontextmanager
async def _open_http(url: str, made: httpx2.AsyncClient, log: ServerLog) -> AsyncGenerator[Any]:
    """Streamable HTTP with a client of our own: it has the headers, and limits the size of a response."""
    async with made as client:
        client.event_hooks = {"request": [], "response": [partial(_limit_size, log)]}
        async with streamable_http_client(
            url, http_client=client, max_sse_event_size=RESPONSE_BYTES_MAX
        ) as streams:
            yield streams


async def _limit_size(log: ServerLog, response: httpx2.Response) -> None:
    """Limit a response that is one message; a stream of events may be of any length."""
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _LimitedStream(response.stream, log)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, log: ServerLog) -> None:
        self._stream, self._log = stream, log

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            # guard: mcp-response-limit
            if size > RESPONSE_BYTES_MAX:
                # The call ends before the owner sees the exception.
                self._log.problem = f"it sent a response of more than {RESPONSE_BYTES_MAX:,} bytes"
                raise ConnectionLost(self._log.problem)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def describe_leaves(error: BaseException) -> str:
    """The messages of an exception, or of those in a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(describe_leaves(each) for each in error.exceptions))
    if reason := describe_sign_in_error(error):
        return reason
    text = describe_error(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def list_tools(client: Client) -> list[ListedTool]:
    """All tools of the server, from every page."""
    if client.server_capabilities.tools is None:
        return []

    async def read(cursor: str | None) -> types.ListToolsResult:
        return await client.list_tools(cursor=cursor)

    return [
        _make_listed_tool(tool) for tool in await read_pages(read, lambda page: page.tools, TOOLS_MAX + 1)
    ]


def _make_listed_tool(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        hints.read_only_hint if hints else None,
        hints.destructive_hint if hints else None,
        hints.idempotent_hint if hints else None,
    )


async def call_tool(
    client: Client, name: str, arguments: dict[str, Any], context: RunContext, call: UnsentCall
) -> tuple[Text | Media, ...]:
    """The result of a call as parts; raises `ToolRefusal` if the tool reports an error."""
    CURRENT_CALL.set(call)  # in the task of this request

    async def show_progress(progress: float, total: float | None, message: str | None) -> None:
        fraction = progress / total if total and 0 <= progress <= total else None
        context.progress(message or "", fraction)

    meta: dict[str, Any] = {f"{META_PREFIX}idempotency_key": context.idempotency_key}
    if context.traceparent:
        meta["traceparent"] = context.traceparent
    result = await client.call_tool(name, arguments, progress_callback=show_progress, meta=meta)  # type: ignore[arg-type]
    if result.is_error:
        raise ToolRefusal(make_error_text(result))
    return make_call_parts(result)
