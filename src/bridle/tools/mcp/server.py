"""`server(…)`: an MCP server as a source of tools for agents.

    Agent(…, tools=[server("npx -y @modelcontextprotocol/server-memory"), server("https://mcp.example.com/mcp")])

The server is started, or connected to, when the first run needs its tools, and stays connected until the event loop
ends or `close` is called.  All runs and agents of an event loop that share the object share the connection.  A lost
connection is opened again for the next call, after a pause that grows while it keeps failing.
"""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json, Tool, ToolListing
from bridle.tools.process.run_process import PASSED_VARIABLES
from bridle.values.errors import MisuseError, OutcomeUnknown
from bridle.values.message import Media, Text
from bridle.values.request import TOOL_SECONDS_DEFAULT, ToolSpec
from bridle.values.text import escape_text

from .definitions import Definitions, ListedTool, make_definitions
from .names import check_server_name, make_prefix, suggest_command_name, suggest_url_name
from .server_settings import ConnectionLost, RequestNotSent, ServerSettings, ToolRefusal, TransportKind

if TYPE_CHECKING:
    from mcp import Client

    from .connection import Connection

INSTALL_HINT = "MCP servers need the extra: pip install 'bridle[mcp]'"
CONNECT_SECONDS_DEFAULT = 30.0
BACKOFF_SECONDS = (0.0, 0.5, 2.0, 5.0, 15.0, 30.0)
"""Pause before a connection is opened again, by the number of failures in a row."""
PATIENCE_SECONDS = 3.0
"""A call waits for a pause of this length; a longer one is an error at once."""
ATTEMPTS_MAX = 3
"""Starts of a call that may be repeated; after that its result is an error."""
REFRESH_SECONDS = 5.0
REASON_CHARACTERS_MAX = 1_500
NOTES_MAX = 20
NO_LISTING = Definitions((), {}, ())

R = TypeVar("R")


def server(
    target: str | Sequence[str],
    *,
    name: str = "",
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = PASSED_VARIABLES,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    auth: object = None,
    transport: TransportKind | None = None,
    tools: Sequence[str] = (),
    trust: bool = False,
    required: bool = False,
    timeout: float | None = TOOL_SECONDS_DEFAULT,
    connect_timeout: float = CONNECT_SECONDS_DEFAULT,
) -> "McpServer":
    """An MCP server for `Agent(tools=[…])`: a command, as a text or a list of words, or an http(s) address.

    A command runs without a shell, with `env` and the variables that `pass_env` names.  `headers` and `auth` (an
    `httpx2.Auth`, such as the OAuth provider of the `mcp` package) are for addresses; `transport="sse"` is for old
    servers.  `tools` limits the tools, by the server's own names.  `trust` believes what the server says about the
    effects of its tools.  An agent runs without a server that cannot be used, unless it is `required`.
    """
    if find_spec("mcp") is None:
        raise MisuseError(INSTALL_HINT)
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        if env is not None or cwd is not None:
            raise MisuseError(
                "`env` and `cwd` are for servers that are started by a command, not for addresses"
            )
        kind, words, url = transport or "http", tuple[str, ...](), target
        suggested = name or suggest_url_name(target)
    else:
        if headers is not None or auth is not None:
            raise MisuseError("`headers` and `auth` are for servers at an address, not for commands")
        kind, words, url = transport or "stdio", _split_command(target), ""
        suggested = name or suggest_command_name(words)
    if (kind == "stdio") != bool(words):
        raise MisuseError(f"transport={kind!r} does not fit {target!r}")
    for option, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise MisuseError(f"{option} must be a number of seconds above 0, not {seconds!r}")
    return McpServer(
        ServerSettings(
            name=check_server_name(suggested),
            transport=kind,
            argv=words,
            url=url,
            env=dict(env or {}),
            pass_env=tuple(pass_env),
            cwd=cwd,
            headers=dict(headers or {}),
            auth=auth,
            trust=trust,
            required=required,
            tools=tuple(tools),
            call_seconds=timeout,
            connect_seconds=connect_timeout,
        )
    )


def _split_command(target: str | Sequence[str]) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(target)) if isinstance(target, str) else tuple(target)
    except ValueError as error:
        raise MisuseError(f"the command {target!r} cannot be split into words: {error}") from None
    if not words or not all(isinstance(word, str) for word in words):
        raise MisuseError(f"an MCP server is a command or an http(s) address, not {target!r}")
    return words


class McpServer:
    """A source of tools; `server(…)` makes one."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, _ServerLink] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def prefix(self) -> str:
        """Start of the names of its tools."""
        return make_prefix(self._settings.name)

    @property
    def is_required(self) -> bool:
        return self._settings.required

    async def list_tools(self) -> ToolListing:
        """Its tools, connecting first if necessary; if it cannot be used, the reason in place of them."""
        return self._make_listing(*await self._link.list_tools())

    async def refresh(self) -> ToolListing:
        """The latest list; waits for a new one only if the server has announced it."""
        return self._make_listing(*await self._link.refresh())

    def restore_tool(self, spec: ToolSpec) -> Tool:
        """A tool of this server with a definition that a session has seen."""
        return ServerTool(spec, self)

    async def call(
        self, name: str, arguments: Mapping[str, Json], context: RunContext
    ) -> tuple[Text | Media, ...]:
        """Call a tool by its name for the model; raises `OutcomeUnknown` if the connection was lost meanwhile."""
        return await self._link.call(name, arguments, context)

    async def close(self) -> None:
        """End the connection of the running event loop; the next use opens it again."""
        await self._link.close()

    @property
    def _link(self) -> "_ServerLink":
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            self._links[loop] = _ServerLink(self._settings)
        return self._links[loop]

    def _make_listing(self, found: Definitions, error: str) -> ToolListing:
        return ToolListing(tuple(ServerTool(spec, self) for spec in found.specs), error, found.notes)

    def __repr__(self) -> str:
        return f"<MCP server {self.name}>"


class ServerTool:
    """A tool of an MCP server."""

    def __init__(self, spec: ToolSpec, owner: McpServer) -> None:
        self.spec, self._owner = spec, owner

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> tuple[Text | Media, ...]:
        try:
            return await self._owner.call(self.spec.name, arguments, context)
        except OutcomeUnknown as error:
            if self.spec.on_unknown == "retry" and context.attempt >= ATTEMPTS_MAX:
                raise ToolRefusal(f"{error}. The call was tried {context.attempt} times.") from None
            raise

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


class _ServerLink:
    """The connection of a server in one event loop, opened when it is needed and again after it was lost."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._lost_connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._failures, self._error = 0, ""
        self._retry_at = 0.0
        self._definitions: Definitions | None = None
        self._has_changed = False

    async def list_tools(self) -> tuple[Definitions, str]:
        try:
            await self._connect(patience=self._settings.connect_seconds)
        except ConnectionLost as error:
            return self._definitions or NO_LISTING, self._describe(error)
        return await self.refresh()

    async def refresh(self) -> tuple[Definitions, str]:
        connection, known = self._connection, self._definitions or NO_LISTING
        if connection is None or not connection.is_open:
            return known, self._describe(RequestNotSent(self._error))
        if self._has_changed:
            try:
                async with asyncio.timeout(REFRESH_SECONDS), self._lock:
                    known = await self._read_definitions(connection)
            except (TimeoutError, ConnectionLost, ToolRefusal) as error:
                return known, self._describe(error)
        return known, ""

    async def call(
        self, name: str, arguments: Mapping[str, Json], context: RunContext
    ) -> tuple[Text | Media, ...]:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                connection = await self._connect(patience=PATIENCE_SECONDS)
            except ConnectionLost as error:
                raise ToolRefusal(f"{self._describe(error)}. The call was not run.") from None
            remote = self._definitions.server_names.get(name) if self._definitions is not None else None
            if remote is None:
                raise ToolRefusal(
                    f"The MCP server {self._settings.name!r} does not offer this tool any more."
                )
            module: Any = import_module("bridle.tools.mcp.connection")
            work = partial(module.call_tool, name=remote, arguments=dict(arguments), context=context)
            try:
                parts: tuple[Text | Media, ...] = await connection.request(work)
                return parts
            except RequestNotSent as error:
                self._note_loss(connection, error)
                if attempt == ATTEMPTS_MAX:
                    raise ToolRefusal(f"{self._describe(error)}. The call was not run.") from None
            except ConnectionLost as error:
                self._note_loss(connection, error)
                raise OutcomeUnknown(self._describe(error)) from None
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    async def use(self, work: "Callable[[Client], Awaitable[R]]") -> R:
        """The result of a request that changes nothing; tried again once if the connection was lost."""
        connection = await self._connect(patience=PATIENCE_SECONDS)
        try:
            return await connection.request(work)
        except ConnectionLost as error:
            self._note_loss(connection, error)
            return await (await self._connect(patience=PATIENCE_SECONDS)).request(work)

    async def _connect(self, patience: float) -> "Connection":
        """The open connection with a current list of tools; raises `ConnectionLost` if there is none in time."""
        if self._connection is not None and self._connection.is_open and self._definitions is not None:
            return self._connection
        async with self._lock:
            if self._connection is not None and self._connection.is_open and self._definitions is not None:
                return self._connection
            loop = asyncio.get_running_loop()
            pause = self._retry_at - loop.time()
            if pause > patience:
                raise RequestNotSent(f"{self._error}; it is tried again in {pause:.0f} seconds")
            if pause > 0:
                await asyncio.sleep(pause)
            return await self._open()

    async def _open(self) -> "Connection":
        # Loaded in a thread with the first connection: the package and what it needs take about a second.
        module = await asyncio.to_thread(import_module, "bridle.tools.mcp.connection")
        if self._connection is not None:
            await self._connection.close()
        connection: Connection = module.Connection(self._settings, self._on_tools_changed)
        self._connection = connection
        try:
            await connection.wait_until_open()
            async with asyncio.timeout(self._settings.connect_seconds):
                await self._read_definitions(connection)
        except BaseException as error:
            self._connection = None
            await connection.close()
            if isinstance(error, TimeoutError):
                error = RequestNotSent("it does not list its tools in time")
            if not isinstance(error, ConnectionLost | ToolRefusal):
                raise error
            self._note_failure(error)
            raise RequestNotSent(str(error)) from None
        self._failures = 0
        return connection

    async def _read_definitions(self, connection: "Connection") -> Definitions:
        module: Any = import_module("bridle.tools.mcp.connection")
        self._has_changed = False
        connection.list_notes.clear()
        listed: list[ListedTool] = await connection.request(module.list_tools)
        wanted = self._settings.tools
        if wanted:
            listed = [tool for tool in listed if any(fnmatchcase(tool.name, each) for each in wanted)]
        found = make_definitions(
            self._settings.name,
            listed,
            trust=self._settings.trust,
            timeout_seconds=self._settings.call_seconds,
        )
        self._definitions = found = found._replace(notes=_limit_notes((*connection.list_notes, *found.notes)))
        return found

    def _on_tools_changed(self) -> None:
        self._has_changed = True

    def _note_loss(self, connection: "Connection", error: Exception) -> None:
        """Count a lost connection once, however many calls were in progress."""
        if connection is self._connection and connection is not self._lost_connection:
            self._lost_connection = connection
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        self._error = str(error)
        self._retry_at = (
            asyncio.get_running_loop().time() + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        )
        self._failures += 1

    def _describe(self, error: Exception) -> str:
        reason = escape_text(str(error) or "it is not connected", prose=True)[:REASON_CHARACTERS_MAX]
        return f"The MCP server {self._settings.name!r} cannot be used: {reason}"


def _limit_notes(notes: tuple[str, ...]) -> tuple[str, ...]:
    more = len(notes) - NOTES_MAX
    return notes if more <= 0 else (*notes[:NOTES_MAX], f"and {more:,} more like these")
