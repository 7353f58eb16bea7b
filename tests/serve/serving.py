"""A real server in the event loop of a test."""

import asyncio
import socket
from contextlib import asynccontextmanager, closing

from bridle.serve import Client, ServeOptions
from bridle.serve.app import MOUNTS, make_host_app
from bridle.serve.host import AgentHost
from bridle.serve.process import EmbeddedServer, make_config, open_socket
from tests.suite.patience import PATIENCE_SECONDS


@asynccontextmanager
async def serve(app):
    """Serve an ASGI application on a free port; yields its address."""
    server = EmbeddedServer(make_config(app))
    with closing(open_socket("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.wait((serving,), timeout=0.01)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            if (host := getattr(app.state, "host", None)) is not None:
                await host.drain()
            server.should_exit = True
            await asyncio.wait_for(serving, PATIENCE_SECONDS)


class Serving:
    def __init__(self, host, url, token=""):
        self.host, self.url = host, url
        self.port = int(url.rpartition(":")[2])
        self.client = Client(url, token=token)

    async def exchange(self, method, path, *, headers=(), body=b""):
        """Send bytes as no client of ours would; returns status, headers and body."""
        given = {"host": f"127.0.0.1:{self.port}", "connection": "close", **dict(headers)}
        if body or method == "POST":
            given.setdefault("content-length", str(len(body)))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
        return await send_bytes(self.port, "\r\n".join(lines).encode() + body)


async def send_bytes(port, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        received = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
    finally:
        writer.close()
    head, _, rest = received.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status_line.split()[1]), headers, rest


@asynccontextmanager
async def serve_agents(agents, store=None, *, options=None, mounts=MOUNTS, context=None):
    options = options or ServeOptions()
    host = AgentHost(agents, store=store, options=options, context=context)
    async with serve(make_host_app(host, mounts)) as url:
        yield Serving(host, url, options.token)


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
