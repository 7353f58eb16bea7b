"""The connection of a server in one event loop: opened when it is needed, and again after it was lost."""

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json
from bridle.values.errors import OutcomeUnknown
from bridle.values.message import Media, Text
from bridle.values.text import escape_text

from .definitions import Definitions, ListedTool, make_definitions
from .server_settings import ConnectionLost, McpError, RequestNotSent, ServerSettings, ToolRefusal

if TYPE_CHECKING:
    from mcp import Client

    from .connection import Connection

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


class ServerLink:
    """The connection of a server in one event loop, opened when it is needed and again after it was lost."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._lost_connection: Connection | None = None
        self._lock, self._call_lock = asyncio.Lock(), asyncio.Lock()
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
        if self._settings.sampling is None and not self._settings.elicitation:
            return await self._call(name, arguments, context)
        async with self._call_lock:  # a request of the server belongs to the one call in progress
            return await self._call(name, arguments, context)

    async def _call(
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
                with connection.requests.serve_call(context):
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

    async def use(self, function: str, *arguments: object) -> Any:
        """The result of a function of contents.py, which changes nothing; tried again once after a lost connection.

        Raises `McpError` with the reason if there is none in time.
        """
        seconds = self._settings.call_seconds
        try:
            async with asyncio.timeout(seconds):
                connection = await self._connect(patience=PATIENCE_SECONDS)
                ask: Any = getattr(import_module("bridle.tools.mcp.contents"), function)

                async def work(client: "Client") -> object:
                    return await ask(client, *arguments)

                try:
                    return await connection.request(work)
                except ConnectionLost as error:
                    self._note_loss(connection, error)
                    return await (await self._connect(patience=PATIENCE_SECONDS)).request(work)
        except TimeoutError:
            reason: Exception = RequestNotSent(f"no answer within {seconds:g} seconds")
        except (ConnectionLost, ToolRefusal) as error:
            reason = error
        raise McpError(self._describe(reason))

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
