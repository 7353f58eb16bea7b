"""`server(…)`: an MCP server as a source of tools for agents.

    Agent(…, tools=[server("npx -y @modelcontextprotocol/server-memory"), server("https://mcp.example.com/mcp")])

The server is started, or connected to, when the first run needs its tools, and stays connected until the event loop
ends or `close` is called.  All runs and agents of an event loop that share the object share the connection.  A lost
connection is opened again for the next call, after a pause that grows while it keeps failing.
"""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from weakref import WeakKeyDictionary

from bridle.ports.held_folder import WorkingFolder
from bridle.ports.run_context import RunContext
from bridle.ports.sandbox import Sandbox
from bridle.ports.tool import ANY_ERROR, Json, Tool, ToolListing
from bridle.tools.process.run_process import PASSED_VARIABLES
from bridle.values.errors import MisuseError, OutcomeUnknown
from bridle.values.request import TOOL_SECONDS_DEFAULT, ToolSpec
from bridle.values.usage import Budget

from .definitions import Definitions
from .link import ATTEMPTS_MAX, ServerLink
from .names import check_server_name, make_prefix, suggest_command_name, suggest_url_name
from .oauth import OAuth
from .offers import (
    Parts,
    PromptMessages,
    ResourceTemplate,
    ResourceTool,
    ServerPrompt,
    ServerResource,
    make_resource_specs,
)
from .server_settings import SANDBOX_OFF, SandboxChoice, ServerSettings, ToolRefusal, TransportKind

INSTALL_HINT = "MCP servers need the extra: pip install 'bridle[mcp]'"
CONNECT_SECONDS_DEFAULT = 30.0
WAIT_SECONDS_DEFAULT = 10.0


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
    resources: bool = False,
    sampling: bool | Budget = False,
    elicitation: bool = False,
    sandbox: SandboxChoice = None,
    timeout: float | None = TOOL_SECONDS_DEFAULT,
    connect_timeout: float = CONNECT_SECONDS_DEFAULT,
    wait: float = WAIT_SECONDS_DEFAULT,
) -> "McpServer":
    """An MCP server for `Agent(tools=[…])`: a command, as a text or a list of words, or an http(s) address.

    A command runs without a shell, with `env` and the variables that `pass_env` names.  `headers` and `auth`
    (`OAuth(…)`, or an `httpx2.Auth`) are for addresses; `transport="sse"` is for old
    servers.  `tools` limits the tools, by the server's own names.  `trust` believes what the server says about the
    effects of its tools.  An agent runs without a server that cannot be used, unless it is `required`.

    `resources` gives the model tools to list and read the server's resources.  `sampling` lets the server ask the
    agent's model, each time within that budget; `elicitation` lets it ask the agent's approver.  Both are refused
    without it.  `sandbox` isolates a command; without one, that of the agent is used, unless it is "off".

    A run waits `wait` seconds for a server that is still connecting, then goes on; its tools join the run when they
    are there.  A `required` server, or one with `OAuth`, is waited for.
    """
    if find_spec("mcp") is None:
        raise MisuseError(INSTALL_HINT)
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        if env is not None or cwd is not None or sandbox is not None:
            raise MisuseError(
                "`env`, `cwd` and `sandbox` are for servers that are started by a command, not for addresses"
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
    _check_options(auth, sampling, timeout=timeout, connect_timeout=connect_timeout, wait=wait)
    return McpServer(
        ServerSettings(
            name=check_server_name(suggested),
            transport=kind,
            argv=words,
            url=url,
            env=dict(env or {}),
            pass_env=tuple(pass_env),
            folder=WorkingFolder(cwd),
            headers=dict(headers or {}),
            auth=auth,
            trust=trust,
            required=required,
            tools=tuple(tools),
            resources=resources,
            sampling=Budget() if sampling is True else sampling or None,
            elicitation=elicitation,
            sandbox=sandbox,
            call_seconds=timeout,
            connect_seconds=connect_timeout,
            wait_seconds=wait,
        )
    )


def _check_options(auth: object, sampling: object, **seconds: float | None) -> None:
    if auth is not None and not isinstance(auth, OAuth) and not hasattr(auth, "async_auth_flow"):
        raise MisuseError(f"auth must be OAuth(…) or an httpx2.Auth, not {type(auth).__name__}")
    for option, given in seconds.items():
        if given is not None and not 0 < given < float("inf"):
            raise MisuseError(f"{option} must be a number of seconds above 0, not {given!r}")
    if not isinstance(sampling, bool | Budget):
        raise MisuseError(f"sampling must be True, False or a Budget per request, not {sampling!r}")


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
        settings.wrap_command({})  # raises `MisuseError` for a folder outside of the sandbox
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, ServerLink] = WeakKeyDictionary()
        self._resource_specs = (
            make_resource_specs(settings.name, settings.call_seconds) if settings.resources else ()
        )

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def prefix(self) -> str:
        """Start of the names of its tools."""
        return make_prefix(self._settings.name)

    @property
    def secrets(self) -> frozenset[str]:
        """Credentials that no result may contain."""
        return self._settings.secrets

    @property
    def is_required(self) -> bool:
        return self._settings.required

    @property
    def is_program(self) -> bool:
        return self._settings.transport == "stdio"

    @property
    def workspace(self) -> Path | None:
        """The folder that the server can write, if it runs in a sandbox."""
        box = self._settings.sandbox
        return None if box is None or box == SANDBOX_OFF else box.workspace

    def with_sandbox(self, sandbox: Sandbox) -> "McpServer":
        """This server in a sandbox; unchanged if it names one, or is at an address."""
        if self._settings.sandbox is not None or not self.is_program:
            return self
        return McpServer(replace(self._settings, sandbox=sandbox))

    async def list_tools(self) -> ToolListing:
        """Its tools, connecting first if necessary; if it cannot be used, the reason in place of them."""
        return self._make_listing(*await self._link.list_tools())

    async def refresh(self) -> ToolListing:
        """The latest list; waits for a new one only if the server has announced it."""
        return self._make_listing(*await self._link.refresh())

    def restore_tool(self, spec: ToolSpec) -> Tool:
        """A tool of this server with a definition that a session has seen."""
        return ResourceTool(spec, self) if spec in self._resource_specs else ServerTool(spec, self)

    async def list_resources(self) -> tuple[ServerResource, ...]:
        """Its resources; raises `McpError` if it cannot be asked, as do the methods below."""
        found: tuple[ServerResource, ...] = await self._link.use("list_resources")
        return found

    async def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        found: tuple[ResourceTemplate, ...] = await self._link.use("list_resource_templates")
        return found

    async def read_resource(self, uri: str) -> Parts:
        """The contents of a resource: texts, and media that a model can be shown."""
        found: Parts = await self._link.use("read_resource", uri)
        return found

    async def list_prompts(self) -> tuple[ServerPrompt, ...]:
        found: tuple[ServerPrompt, ...] = await self._link.use("list_prompts")
        return found

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> PromptMessages:
        """A prompt with its arguments filled in by the server."""
        found: PromptMessages = await self._link.use("get_prompt", name, dict(arguments or {}))
        return found

    async def call(self, name: str, arguments: Mapping[str, Json], context: RunContext) -> Parts:
        """Call a tool by its name for the model; raises `OutcomeUnknown` if the connection was lost meanwhile."""
        return await self._link.call(name, arguments, context)

    async def close(self) -> None:
        """End the connection of the running event loop; the next use opens it again."""
        await self._link.close()

    @property
    def _link(self) -> ServerLink:
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            self._links[loop] = ServerLink(self._settings)
        return self._links[loop]

    def _make_listing(self, found: Definitions, error: str) -> ToolListing:
        own = {spec.name for spec in found.specs}
        added = tuple(
            spec for spec in self._resource_specs if (found.specs or not error) and spec.name not in own
        )
        notes = tuple(
            f"the server has a tool {spec.name} of its own; resources cannot be read with it"
            for spec in self._resource_specs
            if spec.name in own
        )
        tools = tuple(self.restore_tool(spec) for spec in (*found.specs, *added))
        return ToolListing(tools, error, (*found.notes, *notes))

    def __repr__(self) -> str:
        return f"<MCP server {self.name}>"


class ServerTool:
    """A tool of an MCP server."""

    declared_errors = ANY_ERROR

    def __init__(self, spec: ToolSpec, owner: McpServer) -> None:
        self.spec, self._owner = spec, owner

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Parts:
        try:
            return await self._owner.call(self.spec.name, arguments, context)
        except OutcomeUnknown as error:
            if self.spec.on_unknown == "retry" and context.attempt >= ATTEMPTS_MAX:
                raise ToolRefusal(f"{error}. The call was tried {context.attempt} times.") from None
            raise

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"
