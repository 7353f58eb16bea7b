"""Runs the server in this process until it is told to stop.

The first SIGINT or SIGTERM stops it gracefully: no new work, runs pause after their step, streams end. A second one
ends the process at once; runs that were working are then as after a crash, and the next start resumes them.
"""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

import uvicorn
from starlette.applications import Starlette

from bridle.run.context.made_context import MakeContext
from bridle.run.context.resources import StoreLike
from bridle.values.errors import MisuseError

from .app import make_host_app
from .host import AgentHost, AnyAgent
from .http_protocol import LimitedHttpProtocol
from .identity import Identify
from .options import ServeOptions, is_loopback

BACKLOG = 2_048
CLOSE_SECONDS = 2
"""Time for open requests to end after the runs have ended."""
EXIT_INTERRUPTED = 130


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; raises `MisuseError` if the address is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        hint = "; choose another with --port, or 0 for a free one" if error.errno == errno.EADDRINUSE else ""
        raise MisuseError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None
    return listening


def format_url(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name if is_loopback(host) else socket.gethostname()}:{port}"


def make_config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedHttpProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


async def serve_until_stopped(
    host: AgentHost,
    listening: socket.socket,
    on_ready: Callable[[str], None],
    on_stopping: Callable[[int], None],
    app: Starlette | None = None,
) -> None:
    """Serve on the socket until a signal arrives; `on_stopping` gets the number of runs in progress."""
    server = EmbeddedServer(make_config(app or make_host_app(host)))
    stop = asyncio.Event()

    def ask_to_stop() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask_to_stop)
    with closing(listening):
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        waiting = asyncio.create_task(stop.wait())
        try:
            while not server.started and not serving.done():
                await asyncio.wait((serving,), timeout=0.01)
            if server.started:
                on_ready(format_url(host.options.host, listening))
                await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                on_stopping(len(host.runs))
                await host.drain()
                server.should_exit = True
            await serving
        finally:
            waiting.cancel()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


async def serve_agents(
    agents: Mapping[str, AnyAgent],
    store: StoreLike,
    options: ServeOptions,
    listening: socket.socket,
    on_ready: Callable[[str], None],
    on_stopping: Callable[[int], None],
    identify: Identify | None = None,
    make_context: MakeContext | None = None,
) -> None:
    """Serve these agents on the socket until a signal arrives."""
    host = AgentHost(agents, store=store, options=options, identify=identify, make_context=make_context)
    await serve_until_stopped(host, listening, on_ready, on_stopping)


class EmbeddedServer(uvicorn.Server):
    """A server that leaves the signals of the process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
