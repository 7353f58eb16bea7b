"""MCP servers from the JSON file that other programs use.

    {"mcpServers": {"memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
                    "docs": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}}}

`${NAME}` in a value is replaced by an environment variable, `${NAME:-text}` by the text if there is none.  Keys of
other programs that Bridle does not have are ignored with a warning, in particular those that approve calls.
"""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bridle.tools.process.run_process import PASSED_VARIABLES
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.media import read_at_most
from bridle.values.request import TOOL_SECONDS_DEFAULT
from bridle.values.text import escape_text

from .oauth import OAuth
from .server import CONNECT_SECONDS_DEFAULT, WAIT_SECONDS_DEFAULT, McpServer, server

LOG = logging.getLogger("bridle")
FILE_BYTES_MAX = 1_000_000
SERVER_KEYS = ("mcpServers", "servers")
"""Names of the table of servers in the files of different programs."""
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KINDS = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
    "": None,
}


class ServerEntry(Value, kw_only=True):
    """One server of the file."""

    type: str = ""
    """`stdio`, `http` (or `streamable-http`) or `sse`; by default from `command` or `url`."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    """Variables set for the command."""
    pass_env: tuple[str, ...] = ()
    """Names of variables that the command gets from the environment, besides PATH and the like."""
    cwd: str = ""
    """Folder of the command; the file's folder if it is relative."""
    url: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    tools: tuple[str, ...] = ()
    """Tools to offer, by the server's own names; `*` and `?` are wildcards."""
    trust: bool = False
    resources: bool = False
    sampling: bool = False
    elicitation: bool = False
    oauth: bool = False
    """Sign in with a browser; the tokens are kept in your settings folder."""
    required: bool = False
    disabled: bool = False
    timeout: float | None = TOOL_SECONDS_DEFAULT
    connect_timeout: float = CONNECT_SECONDS_DEFAULT
    wait: float = WAIT_SECONDS_DEFAULT


def load_servers(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> list[McpServer]:
    """The servers of a file, without disabled ones; raises `MisuseError` with the file and the server's name."""
    file = Path(path)
    try:
        content = msgspec.json.decode(read_at_most(file, FILE_BYTES_MAX), type=dict[str, Any])
    except OSError as error:
        raise MisuseError(
            f"cannot read the MCP servers in {str(file)!r}: {error.strerror or error}"
        ) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MisuseError(f"{str(file)!r} is not a JSON object with MCP servers: {error}") from None
    table = next((content[key] for key in SERVER_KEYS if key in content), None)
    if not isinstance(table, dict) or not table:
        raise MisuseError(
            f'{str(file)!r} has no MCP servers; write {{"mcpServers": {{"name": {{"command": …}}}}}}'
        )
    return make_servers(table, str(file), file.parent, os.environ if environ is None else environ)


def make_servers(
    table: Mapping[str, Any], source: str, folder: Path, environ: Mapping[str, str]
) -> list[McpServer]:
    """The servers of a table from a file; `source` names the file, and relative paths start in `folder`."""
    made = []
    for name, given in table.items():
        try:
            entry = msgspec.convert(given, ServerEntry)
            if entry.disabled:
                continue
            _warn_unknown(given, f"{source}: the MCP server {name!r}")
            made.append(_make_server(name, entry, folder, environ))
        except (msgspec.ValidationError, MisuseError) as error:
            raise MisuseError(f"{source}: the MCP server {escape_text(name)!r}: {error}") from None
    return made


def _make_server(name: str, entry: ServerEntry, folder: Path, environ: Mapping[str, str]) -> McpServer:
    if bool(entry.command) == bool(entry.url):
        raise MisuseError("give either a command or a url")
    if entry.type not in _KINDS:
        raise MisuseError(f"the type {entry.type!r} is unknown; choose one of: stdio, http, sse")
    fill = _VariableFiller(environ)
    is_command = bool(entry.command)
    return server(
        [fill(word) for word in (entry.command, *entry.args)] if is_command else fill(entry.url),
        name=re.sub(r"[^a-zA-Z0-9-]+", "-", name).strip("-"),
        env={key: fill(value) for key, value in entry.env.items()} if is_command else None,
        pass_env=(*PASSED_VARIABLES, *entry.pass_env),
        cwd=(folder / fill(entry.cwd)) if is_command and entry.cwd else None,
        headers=None if is_command else {key: fill(value) for key, value in entry.headers.items()},
        transport=_KINDS[entry.type],  # type: ignore[arg-type]  # one of the kinds of a transport
        tools=entry.tools,
        trust=entry.trust,
        auth=OAuth() if entry.oauth else None,
        resources=entry.resources,
        sampling=entry.sampling,
        elicitation=entry.elicitation,
        required=entry.required,
        timeout=entry.timeout,
        connect_timeout=entry.connect_timeout,
        wait=entry.wait,
    )


class _VariableFiller:
    """Replaces the variables in a text; raises `MisuseError` for one that is not set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, text: str) -> str:
        return _VARIABLE.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        value = self._environ.get(name, default)
        if value is None:
            raise MisuseError(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return value


def _warn_unknown(given: object, where: str) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(ServerEntry)}
    unknown = sorted(str(key) for key in given if key not in known) if isinstance(given, dict) else []
    if unknown:
        LOG.warning("%s", escape_text(f"{where}: ignored: {', '.join(unknown)}"))
