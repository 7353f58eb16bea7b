"""Builds the ASGI application of a server from its mounts.

A mount adds routes below a path. To add one, write a function that takes the `AgentHost` and returns routes, and add a
row to MOUNTS.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from bridle.run.context.made_context import MakeContext
from bridle.run.context.resources import StoreLike
from bridle.values.errors import BridleError, MisuseError

from .api.endpoints import make_api_routes
from .errors import ServeError, describe_error, render_problem
from .guarded_route import GuardedRoute
from .health import make_health_routes
from .host import AgentHost, AnyAgent
from .identity import HOLDER, LOCAL, UNKNOWN, Access, Identify
from .inspector import PUBLIC_PATHS, make_inspector_routes
from .options import ServeOptions
from .security import ErrorForm, RenderError, SecurityMiddleware, route_path
from .stop_signals import StopSignals
from .wires.endpoints import WireServer, list_wire_mounts, make_wire_routes, render_wire_error


class Mount(NamedTuple):
    """Routes of one part of the server."""

    path: str
    """Start of its paths, by which the form of its errors is found."""
    make_routes: Callable[[AgentHost], Sequence[BaseRoute]]
    render_error: RenderError = render_problem
    public_paths: tuple[str, ...] = ()
    """Static pages that need no token, such as the files of the inspector."""
    slow_paths: tuple[str, ...] = ()
    """Starts of paths whose requests take as long as a run."""


def make_mcp_routes(host: AgentHost) -> Sequence[BaseRoute]:
    """The routes of the MCP server; none without the package."""
    if find_spec("mcp") is None:
        return []
    routes: Sequence[BaseRoute] = import_module(".mcp", __package__).make_mcp_routes(host)
    return routes


def make_wire_mounts(server: WireServer | None = None) -> list[Mount]:
    """The wires of the providers; `server` decides about models and users in place of the host's agents."""
    return [
        Mount(
            mount,
            partial(make_wire_routes, mount=mount, server=server),
            partial(render_wire_error, mount),
            slow_paths=(mount,),
        )
        for mount in list_wire_mounts()
    ]


MOUNTS: tuple[Mount, ...] = (
    Mount("/health", make_health_routes),
    Mount("/api", make_api_routes),
    Mount("/mcp", make_mcp_routes, slow_paths=("/mcp",)),
    *make_wire_mounts(),
    Mount("/", make_inspector_routes, public_paths=PUBLIC_PATHS),
)
"""The parts of the server, the most specific path first."""


HANDLED_ERRORS = (HTTPException, ServeError, BridleError, msgspec.MsgspecError)


def make_app(
    agents: Mapping[str, AnyAgent],
    *,
    store: StoreLike = None,
    options: ServeOptions | None = None,
    context: object = None,
    identify: Identify | None = None,
    make_context: MakeContext | None = None,
) -> Starlette:
    """The application that serves these agents by name, with their sessions in `store`.

    The agents are copied: each uses this store instead of its own. `identify` proves who sends a request; without it,
    a request may do everything that the token of the options opens. `context` is given to every run; with identities,
    the one of the identity or of `make_context` is.
    """
    host = AgentHost(
        agents, store=store, options=options, context=context, identify=identify, make_context=make_context
    )
    return make_host_app(host, drains_at_signals=True)


def make_host_app(
    host: AgentHost, mounts: Sequence[Mount] = MOUNTS, *, drains_at_signals: bool = False
) -> Starlette:
    """The application of a host.

    `drains_at_signals`: end runs and streams when the process is told to stop, for a server of somebody else, which
    waits for its connections before it ends the lifespan.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        signals = StopSignals(host.begin_drain)
        await host.start()
        if drains_at_signals:
            signals.install()
        try:
            yield
        finally:
            signals.remove()
            await host.stop()

    async def answer_error(request: Request, error: Exception) -> Response:
        shown = _as_serve_error(error, has_api=any(mount.path == "/api" for mount in mounts))
        for mount in mounts:
            if route_path(request.scope).startswith(mount.path):
                return mount.render_error(shown)
        return render_problem(shown)

    middleware = Middleware(
        SecurityMiddleware,
        options=host.options,
        metrics=host.metrics,
        styles=tuple(ErrorForm(mount.path, mount.render_error) for mount in mounts),
        public_paths=tuple(path for mount in mounts for path in mount.public_paths),
        slow_paths=tuple(path for mount in mounts for path in mount.slow_paths),
        identify=host.identify,
        default_access=host.default_access,
    )
    routes = [route for mount in mounts for route in mount.make_routes(host)]
    # guard: route-without-right
    if unguarded := [route for route in routes if not isinstance(route, GuardedRoute)]:
        raise MisuseError(f"{unguarded[0]!r} names no right: make it a GuardedRoute")
    app = Starlette(
        routes=routes,
        middleware=[middleware],
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(HANDLED_ERRORS, answer_error),
    )
    app.state.host = host
    return app


def router(
    agent: AnyAgent | Mapping[str, AnyAgent],
    *,
    store: StoreLike = None,
    options: ServeOptions | None = None,
    context: object = None,
    identify: Identify | None = None,
    make_context: MakeContext | None = None,
) -> Starlette:
    """An application to mount in one of yours: `app.mount("/agents", bridle.serve.router(agent))`.

    `identify` proves who sends a request: its tenant, caller, rights and context. Without it the router lets nobody
    in, unless `options` say who may come: those with its token, everyone whom your application lets through
    (`trusts_callers`: to read and prompt in sessions that are nobody's), or this machine only.
    Frameworks do not start mounted applications: to resume runs and to end them well, enter
    `mounted.router.lifespan_context(mounted)` in the lifespan of yours.
    """
    default_access = find_router_access(options)
    options = options or ServeOptions(trusts_callers=True)
    host = AgentHost(
        agent if isinstance(agent, Mapping) else {agent.settings.name or "agent": agent},
        store=store,
        options=options,
        context=context,
        identify=identify,
        make_context=make_context,
        default_access=default_access,
    )
    return make_host_app(host, drains_at_signals=True)


def find_router_access(options: ServeOptions | None) -> Access | None:
    """What every request to a router without identities may do; None for nothing."""
    # guard: router-without-identity
    if options is None:
        return None
    if options.has_secret:
        return HOLDER
    # guard: router-trusts-callers
    return UNKNOWN if options.trusts_callers else LOCAL


def _as_serve_error(error: Exception, *, has_api: bool) -> ServeError:
    if isinstance(error, HTTPException):
        code = "not_found" if error.status_code == 404 else "invalid_request"
        hint = "GET /api/openapi.json lists the paths" if has_api else ""
        return ServeError(error.status_code, code, error.detail, hint)
    return describe_error(error)
