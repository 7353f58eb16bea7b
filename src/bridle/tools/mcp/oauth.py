"""`OAuth(…)`: sign in to a server with a browser, for `server("https://…", auth=OAuth())`.

Tokens are kept in a file that only its owner can read, or in a storage of yours, under the address of the server that
they belong to.  They are never part of a log, an error or a trace; sign_in.py has the code that uses them.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol, runtime_checkable

from bridle.values.errors import MisuseError

SIGN_IN_SECONDS_DEFAULT = 300.0
DIGEST_CHARACTERS = 12


@runtime_checkable
class TokenStore(Protocol):
    """A storage of tokens; one object may hold those of many servers."""

    async def read(self, server: str) -> str | None:
        """The text that was written last for the server at this address; None if there is none."""
        ...

    async def write(self, server: str, text: str) -> None:
        """Keep the text, which holds tokens, for the server at this address."""
        ...


@dataclass(frozen=True, kw_only=True)
class OAuth:
    """Sign-in with an authorization code and PKCE; the client registers itself if the server allows it."""

    tokens: str | os.PathLike[str] | TokenStore | None = field(default=None, repr=False)
    """File of the tokens, with mode 0600, or a `TokenStore` of yours; by default a file in your settings folder.
    Servers may share one: each gets its own tokens only."""
    scopes: str = ""
    """Scopes to ask for, separated by spaces; by default those that the server names."""
    open_url: Callable[[str], Awaitable[None]] | None = None
    """Shows the sign-in page to a person; by default the address is printed and opened in a browser."""
    port: int = 0
    """Port of this machine to which the page returns; 0 for a free one."""
    timeout: float = SIGN_IN_SECONDS_DEFAULT
    """Seconds that the person has."""
    secrets: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Values that must not be shown: tokens and codes of this process."""

    def __post_init__(self) -> None:
        if self.tokens is not None and not isinstance(self.tokens, str | os.PathLike | TokenStore):
            raise MisuseError(
                "OAuth(tokens=…) must be a path, or an object with async methods read(server) and write(server, text)"
            )
        if not 0 <= self.port <= 65_535:
            raise MisuseError(f"OAuth(port=…) must be a port number, or 0 for a free one, not {self.port!r}")
        if not 0 < self.timeout < float("inf"):
            raise MisuseError(f"OAuth(timeout=…) must be a number of seconds above 0, not {self.timeout!r}")


def find_token_file(url: str, name: str) -> Path:
    """The file of the tokens for the server at an address."""
    if os.name == "nt":
        settings = os.environ.get("APPDATA") or "~/AppData/Roaming"
    else:
        settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    digest = sha256(url.encode()).hexdigest()[:DIGEST_CHARACTERS]
    return Path(settings).expanduser() / "bridle" / "mcp" / f"{name}-{digest}.json"
