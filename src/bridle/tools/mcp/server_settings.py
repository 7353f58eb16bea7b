"""The settings of an MCP server, and the errors of a connection to it.

Settings are objects of this process.  They are never recorded: a log holds the tools of a server, and neither its
command nor its address, headers or variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from bridle.ports.held_folder import WorkingFolder
from bridle.ports.sandbox import Sandbox, SandboxedCommand
from bridle.values.errors import BridleError
from bridle.values.redaction import find_header_secrets
from bridle.values.usage import Budget

from .oauth import OAuth

SANDBOX_OFF: Final = "off"
SandboxChoice = Sandbox | Literal["off"] | None
TransportKind = Literal["stdio", "http", "sse"]
SECRET_CHARACTERS_MIN = 6
"""Shorter values of variables and headers occur in ordinary texts."""
HIDDEN = "[hidden]"


class McpError(BridleError):
    """A server could not be asked for its resources or prompts, or refused."""


class SignInFailed(Exception):
    """A person could not sign in to a server, or the tokens cannot be used."""


class ToolRefusal(Exception):
    """A server answered a call with an error."""


class ConnectionLost(Exception):
    """A connection ended before the answer to a request came: it is unknown whether the request took effect."""


class RequestNotSent(ConnectionLost):
    """A connection ended before a request was sent, or the server did not accept it: it had no effect."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    name: str
    transport: TransportKind
    argv: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    pass_env: tuple[str, ...] = ()
    folder: WorkingFolder = field(default_factory=lambda: WorkingFolder(None))
    """The folder of the program."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: object = field(default=None, repr=False)
    trust: bool = False
    required: bool = False
    tools: tuple[str, ...] = ()
    """Tools to offer, by the server's own names; `*` and `?` are wildcards; empty for all."""
    resources: bool = False
    """True to give the model tools that list and read resources."""
    sampling: Budget | None = None
    """Budget of each request of the server to the model; None to refuse them."""
    elicitation: bool = False
    """True if the server may ask the person that approves calls."""
    sandbox: SandboxChoice = None
    call_seconds: float | None = None
    connect_seconds: float = 30.0
    wait_seconds: float = 10.0
    """Time that a run waits for the tools of a server that is being connected."""
    protocol: str = "auto"
    client_version: str = ""
    stderr_characters: int = 1_000

    @property
    def list_wait_seconds(self) -> float | None:
        """Time that a run waits for the tools; None for as long as connecting may take."""
        return None if self.required or isinstance(self.auth, OAuth) else self.wait_seconds

    def wrap_command(self, environment: Mapping[str, str]) -> SandboxedCommand:
        """The program to start, in the sandbox if there is one."""
        if self.sandbox is None or self.sandbox == SANDBOX_OFF:
            return SandboxedCommand(argv=self.argv, environment=environment)
        # guard: mcp-server-sandboxed
        return self.sandbox.wrap(self.argv, cwd=self.folder.find(), environment=environment)

    @property
    def secrets(self) -> frozenset[str]:
        """Credentials in the variables and headers, and those that a person's sign-in gave."""
        given = (*self.env.items(), *self.headers.items())
        known = self.auth.secrets if isinstance(self.auth, OAuth) else ()
        return frozenset(known).union(*(find_header_secrets(name, value) for name, value in given))

    def hide_secrets(self, text: str) -> str:
        """The text without values of the variables and headers that were given for this server."""
        known = self.auth.secrets if isinstance(self.auth, OAuth) else ()
        for value in (*self.env.values(), *self.headers.values(), *known):
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= SECRET_CHARACTERS_MIN:
                    # guard: server-error-redacted
                    text = text.replace(secret, HIDDEN)
        return text
