"""The connection of a server in one event loop: opened when it is needed, and again after it was lost."""

import asyncio
import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json, NotStarted, is_deadline_cancel
from bridle.values.errors import OutcomeUnknown
from bridle.values.message import Media, Text
from bridle.values.text import escape_text

from .definitions import Definitions, ListedTool, make_definitions, show_name
from .oauth import OAuth
from .server_settings import ConnectionLost, McpError, RequestNotSent, ServerSettings, ToolRefusal
from .unsent_calls import CURRENT_CALL, NOT_SENT_IN_TIME, RESOURCE_CALL, UnsentCall, UnsentCalls

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
# not from outside: our own text, shown to a person or a model
REASON_CHARACTERS_MAX = 1_500
NOTES_MAX = 20
NAMES_SHOWN = 10
LOG = logging.getLogger("bridle")
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
        self._opening: asyncio.Task[Connection] | None = None
        """Opens the connection, also after a run has stopped waiting for it."""
        self._waiting_runs = 0
        """Runs that have waited for the connection that is being opened."""
        self._is_closed = False
        self._unsent = UnsentCalls()

    async def list_tools(self) -> tuple[Definitions, str]:
        """The tools, or the reason why there are none; a server that connects slowly is not waited for."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._connect(patience=self._settings.connect_seconds))
            self._opening.add_done_callback(_see_error)
            self._waiting_runs = 0
        self._waiting_runs += 1
        opening = self._opening
        try:
            await asyncio.wait((opening,), timeout=self._settings.list_wait_seconds)
        except asyncio.CancelledError:
            if self._waiting_runs == 1:  # no other run waits for it, or goes on until it is there
                opening.cancel()
                await asyncio.wait((opening,))
            raise
        if not self._opening.done():
            return self._definitions or NO_LISTING, self._describe_opening()
        try:
            self._opening.result()
        except ConnectionLost as error:
            return self._definitions or NO_LISTING, self._describe(error)
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            return self._definitions or NO_LISTING, self._describe(RequestNotSent("it was closed"))
        return await self.refresh()

    async def refresh(self) -> tuple[Definitions, str]:
        connection, known = self._connection, self._definitions or NO_LISTING
        if self._definitions is None and self._opening is not None and not self._opening.done():
            return known, self._describe_opening()
        if connection is None or not connection.is_open:
            return known, self._describe(RequestNotSent(self._error))
        if self._has_changed:
            try:
                async with asyncio.timeout(REFRESH_SECONDS) as limit, self._lock:
                    with self._unsent.track(UnsentCall(limit=limit)):
                        known = await self._read_definitions(connection)
            except (TimeoutError, ConnectionLost, ToolRefusal) as error:
                return known, self._describe(error)
        return known, ""

    async def call(
        self, name: str, arguments: Mapping[str, Json], context: RunContext
    ) -> tuple[Text | Media, ...]:
        with self._unsent.track(UnsentCall(context)) as call:
            try:
                if self._settings.sampling is None and not self._settings.elicitation:
                    return await self._call(name, arguments, context, call)
                async with self._call_lock:  # a request of the server belongs to the one call in progress
                    return await self._call(name, arguments, context, call)
            except asyncio.CancelledError as error:
                if is_deadline_cancel(error) and self._unsent.is_unsent(call):
                    raise NotStarted(NOT_SENT_IN_TIME.format(server=self._settings.name)) from None
                raise

    async def _call(
        self, name: str, arguments: Mapping[str, Json], context: RunContext, call: UnsentCall
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
            work = partial(
                module.call_tool, name=remote, arguments=dict(arguments), context=context, call=call
            )
            if not isinstance(self._settings.auth, OAuth):
                self._unsent.mark_sent(call)  # otherwise it waits for its tokens first
            try:
                with connection.requests.serve_call(context):
                    parts: tuple[Text | Media, ...] = await connection.request(work)
                    return parts
            except RequestNotSent as error:
                self._note_loss(connection, error)
                self._unsent.mark_unsent(call)
                if attempt == ATTEMPTS_MAX:
                    raise ToolRefusal(f"{self._describe(error)}. The call was not run.") from None
            except ConnectionLost as error:
                self._note_loss(connection, error)
                if self._unsent.is_unsent(call):
                    raise ToolRefusal(f"{self._describe(error)}. The call was not run.") from None
                raise OutcomeUnknown(self._describe(error)) from None
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._is_closed = True
            self._opening.cancel()
            try:
                await asyncio.wait((self._opening,))
            finally:
                self._is_closed = False
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
            async with asyncio.timeout(seconds) as limit:
                with self._unsent.track(UnsentCall(RESOURCE_CALL.get(), limit)) as call:
                    connection = await self._connect(patience=PATIENCE_SECONDS)
                    ask: Any = getattr(import_module("bridle.tools.mcp.contents"), function)

                    async def work(client: "Client") -> object:
                        CURRENT_CALL.set(call)
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
        connection: Connection = module.Connection(self._settings, self._on_tools_changed, self._unsent)
        self._connection = connection
        try:
            await connection.wait_until_open()
            async with asyncio.timeout(self._settings.connect_seconds) as limit:
                with self._unsent.track(UnsentCall(limit=limit)):
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
        unmatched = [each for each in wanted if not any(fnmatchcase(tool.name, each) for tool in listed)]
        notes = tuple(
            f"no tool of the server matches {show_name(each)}, which `tools` names; it lists"
            f" {', '.join(show_name(tool.name) for tool in listed[:NAMES_SHOWN]) or 'no tools'}"
            for each in unmatched
        )
        for note in notes:
            LOG.warning("MCP server %s: %s", self._settings.name, note)
        if wanted:
            listed = [tool for tool in listed if any(fnmatchcase(tool.name, each) for each in wanted)]
        found = make_definitions(
            self._settings.name,
            listed,
            trust=self._settings.trust,
            timeout_seconds=self._settings.call_seconds,
        )
        self._definitions = found = found._replace(
            notes=_limit_notes((*notes, *connection.list_notes, *found.notes))
        )
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

    def _describe_opening(self) -> str:
        waited = self._settings.list_wait_seconds or 0.0
        return self._describe(
            RequestNotSent(
                f"no answer within {waited:g} seconds; it is still being connected, and its tools join the run"
                " when they are there"
            )
        )

    def _describe(self, error: Exception) -> str:
        # guard: server-error-escaped
        reason = escape_text(str(error) or "it is not connected", prose=True)[:REASON_CHARACTERS_MAX]
        return f"The MCP server {self._settings.name!r} cannot be used: {reason}"


def _see_error(opening: "asyncio.Task[Connection]") -> None:
    """Mark the error of a connection that no run waits for any more as seen; the next listing has it."""
    if not opening.cancelled():
        opening.exception()


def _limit_notes(notes: tuple[str, ...]) -> tuple[str, ...]:
    more = len(notes) - NOTES_MAX
    return notes if more <= 0 else (*notes[:NOTES_MAX], f"and {more:,} more like these")
