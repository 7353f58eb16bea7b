"""Serves an agent at the paths that the drivers of this folder use, so that foreign clients can be tried with it:

    python bench/foreign/run.py --install --served              # all clients
    python bench/foreign/served.py --port 8091                  # the server alone

The agent is a simulated model without tools of its own; the tools are those of the client. The simulator has all wires
below one URL, a real server has each below its own mount: here the mounts are removed.
"""

import argparse
import asyncio
import json
import signal
from functools import partial

from starlette.applications import Starlette
from starlette.routing import Route

from bridle import Agent
from bridle.providers.families import list_served_wires, load_served_wire
from bridle.serve.host import AgentHost
from bridle.serve.process import EmbeddedServer, make_config, open_socket
from bridle.serve.wires.endpoints import ACTIONS, WireServer, guard_request

MOUNTS = {"/openai/v1": "/v1"}


def make_app(host: AgentHost) -> Starlette:
    server = WireServer(host)
    routes = []
    for wire in map(load_served_wire, list_served_wires()):
        placed = wire._replace(mount=MOUNTS.get(wire.mount, ""))
        for route in placed.routes:
            handle = partial(guard_request, wire, partial(ACTIONS[route.action], server, placed))
            routes.append(Route(placed.mount + route.path, handle, methods=[route.method]))
    return Starlette(routes=routes)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8091)
    parser.add_argument("--model", default="sim:")
    options = parser.parse_args()
    host = AgentHost({"helper": Agent(options.model)})
    listening = open_socket("127.0.0.1", options.port)
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    server = EmbeddedServer(make_config(make_app(host)))
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGINT, partial(setattr, server, "should_exit", True)
    )
    await server.serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main())
