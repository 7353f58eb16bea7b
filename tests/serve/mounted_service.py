"""A program of a user: an application with agents mounted in it, served by plain uvicorn.

Prints its address when it accepts requests.  Nothing but `ServeOptions` limits how long its shutdown takes.
"""

import socket
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import bridle.serve
from bridle import Agent
from tests.serve.process_agents import worker

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()  # a request that comes before the server accepts waits for it
agents = bridle.serve.router(
    {"worker": worker, "helper": Agent("sim:", name="helper")},
    store="log.db",
    options=bridle.serve.ServeOptions(trusts_callers=True, shutdown_seconds=1),
)


@asynccontextmanager
async def lifespan(app):
    async with agents.router.lifespan_context(agents):
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        yield


app = Starlette(routes=[Mount("/agents", agents)], lifespan=lifespan)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
