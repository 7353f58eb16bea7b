"""Serves agents over HTTP: an API over the log, event streams for front ends, health and metrics.

Belongs here: everything between a request and the functions of run/. Does not belong here: a decision about a run
(core), a second way to run an agent (run/), or the command line (cli/). Needs the extra `bridle[serve]`; importing
`bridle` does not import it.

    bridle.serve.make_app({"helper": agent}, store="log.db")   an ASGI application
    bridle.serve.router(agent, store="log.db")                 the same to mount in an application of yours
    bridle.serve.Client("http://127.0.0.1:8420")               a typed client of the API
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bridle.values.errors import MisuseError

if TYPE_CHECKING:
    from .app import make_app as make_app
    from .app import router as router
    from .client import Client as Client
    from .options import ServeOptions as ServeOptions

_HOMES = {"make_app": "app", "router": "app", "Client": "client", "ServeOptions": "options"}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MisuseError(
            f"serving needs the package {error.name}; install it: pip install 'bridle[serve]'"
        ) from None
    return found
