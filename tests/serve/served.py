"""A real server for tests: agents on a port of this machine, in a thread of its own."""

import asyncio
import threading
from contextlib import contextmanager

import msgspec

from bridle.serve.app import make_host_app
from bridle.serve.gateway.server import make_gateway_app
from bridle.serve.gateway.settings import GatewaySettings, check_settings
from bridle.serve.host import AgentHost
from bridle.serve.process import EmbeddedServer, make_config, open_socket
from tests.suite.patience import PATIENCE_SECONDS


class Served:
    """A running server; `host` belongs to its thread: use `run` to call into it."""

    def __init__(self, host, app):
        self.host, self.app = host, app
        self._socket = open_socket("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = EmbeddedServer(make_config(app))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="served", daemon=True)
        self._thread.start()

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        left = asyncio.all_tasks(self._loop)  # a library keeps one that watches for the end of the process
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def run(self, work):
        """The result of a coroutine that runs in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def close(self):
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the server did not stop"
        self._socket.close()
        self._loop.close()


@contextmanager
def serve_by_name(agents, store=None, make_app=make_host_app, **options):
    """Serve agents by name; yields the running server."""
    host = AgentHost(agents, store=store, **options)
    served = Served(host, make_app(host))
    try:
        yield served
    finally:
        served.close()


@contextmanager
def serving_gateway(settings, store=None, **options):
    """Serve a gateway with the contents of its file."""
    made = check_settings(msgspec.convert(settings, GatewaySettings))
    app = make_gateway_app(made, store=store, **options)
    served = Served(app.state.host, app)
    try:
        yield served
    finally:
        served.close()
