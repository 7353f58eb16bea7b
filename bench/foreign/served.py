"""Serves an agent or a gateway at the paths that the drivers of this folder use, so that foreign clients can be tried with it:

    python bench/foreign/run.py --install --served              # all clients, against an agent with a tool of its own
    python bench/foreign/run.py --install --gateway             # all clients, against a gateway
    python bench/foreign/served.py --port 8091 [--gateway]      # the server alone

The agent is a simulated model with a tool of its own, which the scripts of `--served` call; the other tools are those of the
client. The gateway has a model of each wire, and compares the fields of a client's request with those of the request
that the provider gets on the same wire. The simulator has all wires below one URL, a real server has each below its own
mount: here the mounts are removed. One line of JSON is appended to the log for each call of the agent's tool, each request
that was refused, and each comparison.
"""

import argparse
import asyncio
import json
import re
import signal
import time
from collections import Counter
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from bridle import Agent, tool
from bridle.providers.families import list_served_wires, load_served_wire
from bridle.serve.gateway.server import GatewayServer, make_gateway_host
from bridle.serve.gateway.settings import GatewayModel, GatewaySettings
from bridle.serve.host import AgentHost
from bridle.serve.process import EmbeddedServer, make_config, open_socket
from bridle.serve.wires.endpoints import ACTIONS, WireServer, guard_request
from bridle.sim.simulator import default_simulator

MOUNTS = {"/openai/v1": "/v1"}
GATEWAY_MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai_chat": "sim:openai-chat/gpt-5.4",
    "openai_responses": "sim:openai/gpt-6.1-sol",
    "gemini": "sim:gemini/gemini-3.5-flash",
}
"""The model behind each wire of the gateway: the provider speaks the wire of the client."""
ASKED: ContextVar["Exchange | None"] = ContextVar("asked", default=None)
"""The client's request that is being answered."""
NEUTRAL = {
    "toolchoice": ("auto", {}),
    "toolchoice.type": ("auto",),
    "toolchoice.disableparalleltooluse": (False,),
    "toolconfig": ({},),
    "toolconfig.functioncallingconfig": ({},),
    "toolconfig.functioncallingconfig.mode": ("AUTO",),
    "generationconfig.responsemodalities": (["TEXT"],),
    "messages[].content[].content": ("", []),
    "messages[].content[].iserror": (False,),
    "paralleltoolcalls": (True,),
    "reasoning": ({},),
    "stream": (False,),
    "system": ("", []),
    "systeminstruction.role": ("user", "system"),
    "temperature": (1, 1.0),
    "tools[].type": ("custom",),
    "truncation": ("disabled",),
}
"""Values that say what is true without the field."""


CACHE_MARKS = {"cache_control", "prompt_cache_breakpoint"}
"""Members of a text that are none of it: the gateway sets its own."""
RENAMED = {"maxcompletiontokens": "maxtokens", "input[].content": "instructions"}
"""Fields of a request that the gateway sends, by the names that clients also use for them; a prompt of the system may be a message."""


class Log:
    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, **fields) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"at": time.time(), **fields}) + "\n")


class Exchange:
    """A client's request, the one that the provider got for it, and what the reply names as dropped."""

    def __init__(self, family: str, body: object, log: Log) -> None:
        self.family, self._body, self._log = family, body, log
        self._sent: object = None
        self._named: set[str] | None = None

    def add_sent(self, body: object) -> None:
        if self._sent is None:
            self._sent = body
            self._compare()

    def add_named(self, named: str) -> None:
        self._named = list_named(named)
        self._compare()

    def _compare(self) -> None:
        if self._sent is None or self._named is None or not isinstance(self._body, dict):
            return
        given = drop_neutral(drop_known(self._body, self._named))
        sent = rename_fields(list_fields(self._sent))
        lost = {field for field in list_fields(given) - sent if self._named.isdisjoint(split_path(field))}
        missing = count_values(given) - rename_values(count_values(self._sent))
        changed = {
            f"{field}={json.dumps(value)}"
            for field, value in missing
            if field in sent and self._named.isdisjoint(split_path(field))
        }
        self._log.write(compared=self.family, lost=sorted(lost), changed=sorted(changed))


class OneModelPerWire(GatewayServer):
    """A gateway whose model is that of the wire, because clients have names of their own."""

    def find_model(self, name, caller):
        asked = ASKED.get()
        return super().find_model(asked.family if asked else name, caller)


def make_app(server: WireServer, log: Log) -> Starlette:
    routes = []
    for wire in map(load_served_wire, list_served_wires()):
        placed = wire._replace(mount=MOUNTS.get(wire.mount, ""))
        for route in placed.routes:
            handle = partial(guard_request, wire, partial(ACTIONS[route.action], server, placed))
            routes.append(
                Route(
                    placed.mount + route.path, partial(record_asked, wire.family, handle, log),
                    methods=[route.method],
                )
            )  # fmt: skip
    return Starlette(routes=routes)


async def record_asked(family: str, handle, log: Log, request: Request):
    body = await request.body()
    exchange = Exchange(family, json.loads(body) if body[:1] == b"{" else None, log)
    ASKED.set(exchange)
    response = await handle(request)
    exchange.add_named(response.headers.get("x-bridle-dropped", ""))
    if response.status_code >= 400:
        log.write(refused=f"{response.status_code} {request.method} {request.url.path}")
    return response


def compare_requests() -> None:
    """Compare what the simulated provider gets with what the client sent, if both speak one wire."""
    simulator = default_simulator()
    answer = simulator.answer

    async def compare_and_answer(outgoing):
        if (asked := ASKED.get()) is not None:
            asked.add_sent(json.loads(outgoing.body))
        return await answer(outgoing)

    simulator.answer = compare_and_answer


def drop_known(body: dict, named: set[str]) -> dict:
    """The request without its items of a kind that is named as dropped, and without the replies in it.

    The gateway sends the replies that it has; clients return them with changes.
    """
    kept = dict(body)
    for name in ("messages", "input", "contents"):
        if isinstance(kept.get(name), list):
            kept[name] = [
                item
                for item in kept[name]
                if not is_reply(item) and str(item.get("type")).replace("_", "") not in named
            ]
    return kept


def is_reply(item: dict) -> bool:
    kind = str(item.get("type", ""))
    return item.get("role") in ("assistant", "model") or kind == "reasoning" or kind.endswith("_call")


def drop_neutral(value: object, path: str = "") -> object:
    """The value without members that say what is true without them."""
    if isinstance(value, list):
        return [drop_neutral(item, f"{path}[]") for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, item in value.items():
        inner = join_path(path, name)
        left = drop_neutral(item, inner)
        if left not in NEUTRAL.get(inner, ()):
            kept[name] = left
    return kept


def list_fields(value: object, path: str = "") -> set[str]:
    """The paths of all members of a JSON value, in one spelling; items of arrays are one path, and texts one form."""
    if isinstance(value, dict):
        inner = [(join_path(path, name), item) for name, item in value.items() if item is not None]
        return {name for name, _ in inner}.union(*(list_fields(item, name) for name, item in inner))
    if isinstance(value, list) and not is_text(value):
        return set().union(*(list_fields(item, f"{path}[]") for item in value))
    return set()


def count_values(value: object, path: str = "") -> Counter[tuple[str, str | float | bool]]:
    """The texts, numbers and truth values at each path, with how often each is there; a text in parts is one of each."""
    if isinstance(value, dict):
        inner = [count_values(item, join_path(path, name)) for name, item in value.items()]
        return sum(inner, Counter())
    if isinstance(value, list):
        if is_text(value):
            return Counter((path, each["text"]) for each in value)
        return sum((count_values(item, f"{path}[]") for item in value), Counter())
    return Counter() if value is None else Counter([(path, value)])


def rename_fields(fields: set[str]) -> set[str]:
    return fields | {RENAMED[field] for field in fields if field in RENAMED}


def rename_values(values: Counter) -> Counter:
    return values + Counter(
        {(RENAMED[path], held): n for (path, held), n in values.items() if path in RENAMED}
    )


def is_text(value: list) -> bool:
    """Whether a list of parts is only text, which wires also take as a string."""
    texts = ({"text"}, {"text", "type"})
    return bool(value) and all(isinstance(each, dict) and {*each} - CACHE_MARKS in texts for each in value)


def list_named(header: str) -> set[str]:
    """The names in a list of what was dropped: its words, and two words beside each other, such as `tool choice`."""
    named = set()
    for part in header.split(";"):
        words = re.findall(r"[a-z0-9]+", part.replace("_", "").lower())
        named.update(words, map("".join, pairwise(words)))
    return named


def join_path(path: str, name: str) -> str:
    return f"{path}.{name.replace('_', '').lower()}".lstrip(".")


def split_path(field: str) -> list[str]:
    """The last two names of a path: a reply names a field, or the object around it."""
    return field.replace("[]", "").split(".")[-2:]


def make_agent_server(model: str, log: Log) -> WireServer:
    @tool
    def own_clock() -> str:
        """Tell the time of the server."""
        log.write(own="own_clock")
        return "noon"

    return WireServer(AgentHost({"helper": Agent(model, tools=[own_clock])}))


def make_gateway_server() -> WireServer:
    compare_requests()
    models = {family: GatewayModel(chain=(name,)) for family, name in GATEWAY_MODELS.items()}
    settings = GatewaySettings(models=models)
    return OneModelPerWire(make_gateway_host(settings), settings)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8091)
    parser.add_argument("--model", default="sim:")
    parser.add_argument("--gateway", action="store_true")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    log = Log(options.log)
    server = make_gateway_server() if options.gateway else make_agent_server(options.model, log)
    listening = open_socket("127.0.0.1", options.port)
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    embedded = EmbeddedServer(make_config(make_app(server, log)))
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGINT, partial(setattr, embedded, "should_exit", True)
    )
    await embedded.serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main())
