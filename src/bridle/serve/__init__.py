"""Serves agents over HTTP: an API over the log, event streams for front ends, health and metrics.

Belongs here: everything between a request and the functions of run/. Does not belong here: a decision about a run
(core), a second way to run an agent (run/), or the command line (cli/). Needs the extra `bridle[serve]`; importing
`bridle` does not import it.

    bridle.serve.make_app({"helper": agent}, store="log.db")   an ASGI application
    bridle.serve.router(agent, identify=identify)              the same to mount in an application of yours
    bridle.serve.Client("http://127.0.0.1:8420")               a typed client of the API
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bridle.values.errors import MisuseError

if TYPE_CHECKING:
    from .app import make_app as make_app
    from .app import router as router
    from .client import Client as Client
    from .identifiers.json_web_tokens import JsonWebTokens as JsonWebTokens
    from .identifiers.token_file import TokenFile as TokenFile
    from .identifiers.trusted_proxy import TrustedProxy as TrustedProxy
    from .identity import Identity as Identity
    from .options import ServeOptions as ServeOptions

_HOMES = {
    "make_app": "app",
    "router": "app",
    "Client": "client",
    "Identity": "identity",
    "JsonWebTokens": "identifiers.json_web_tokens",
    "ServeOptions": "options",
    "TokenFile": "identifiers.token_file",
    "TrustedProxy": "identifiers.trusted_proxy",
}
EXTRAS = {"starlette": "serve", "uvicorn": "serve", "jwt": "jwt"}
"""Extras by the package whose import failed."""
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise MisuseError(
            f"serving needs the package {error.name}; install it: pip install 'bridle[{EXTRAS[error.name]}]'"
        ) from None
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
