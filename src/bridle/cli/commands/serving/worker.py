"""Perform runs of agents that were started on Temporal.

AGENTS is a Python file or module with agents, FILE.py:name, or an agent file (.toml). Start as many workers as you
like, on any machine that reaches the server and the store. Ctrl-C ends after the parts in progress; other workers
continue the rest. An API key is read from $TEMPORAL_API_KEY.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bridle.cli.format.printing import print_text
from bridle.cli.log_access import add_store_option, store_path
from bridle.cli.option_values import make_count_parser
from bridle.config.agent_loader import find_agents_store, load_agents
from bridle.run.context.resources import copy_agent
from bridle.stores import open_store
from bridle.values.errors import MisuseError

HOST_DEFAULT, QUEUE_DEFAULT = "127.0.0.1:7233", "bridle"
API_KEY_VARIABLE = "TEMPORAL_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("agents", nargs="+", metavar="AGENTS", help="FILE.py, module, FILE.py:name or FILE.toml")
    add("--temporal", default=HOST_DEFAULT, metavar="HOST", help=f"address of the server ({HOST_DEFAULT})")
    add("--namespace", default="default", help="namespace of the server (default)")
    add("--queue", default=QUEUE_DEFAULT, help=f"task queue of the engine ({QUEUE_DEFAULT})")
    add("--tool-queue", action="append", default=[], metavar="NAME", help="also serve this queue of tools")
    add("--place", action="append", default=[], metavar="TOOL=QUEUE", help="run this tool on that queue only")
    add(
        "--at-once",
        action="append",
        default=[],
        metavar="TOOL=N",
        help="calls of this tool at the same time, on all workers",
    )
    add("--parts", type=make_count_parser(1), default=100, metavar="N", help="parts at the same time (100)")
    add(
        "--shutdown-seconds",
        type=make_count_parser(1),
        default=30,
        metavar="N",
        help="time for parts to end (30)",
    )
    add("--tls", action="store_true", help="encrypt the connection")
    add("--tls-ca", type=Path, metavar="FILE", help="certificate of the authority of the server")
    add("--tls-cert", type=Path, metavar="FILE", help="certificate of this client")
    add("--tls-key", type=Path, metavar="FILE", help="key of that certificate")
    add("--build-id", default="", metavar="ID", help="version of this code, for Temporal's worker versioning")
    add("--deployment", default="", metavar="NAME", help="name of the versioned deployment (the queue)")
    add("--single-machine", action="store_true", help="accept a SQLite file: all workers run on this machine")
    add("--json", action="store_true", help="print the address as JSON")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    temporal = load_engine()
    placements = _parse_placements(temporal, options)
    if not all(queue.strip() for queue in options.tool_queue):
        raise MisuseError("--tool-queue takes the name of a queue, not an empty text")
    if options.deployment and not options.build_id:
        raise MisuseError("--deployment needs the version of this code: --build-id ID")
    agents = load_agents(options.agents)
    known = {tool for agent in agents.values() for tool in agent.tools}
    unknown = sorted(placements.keys() - known)
    if unknown and not any(agent.parts.sources for agent in agents.values()):
        raise MisuseError(
            f"--place and --at-once name tools that no agent here has: {', '.join(unknown)};"
            f" they have: {', '.join(sorted(known)) or 'none'}"
        )
    own = None if options.store or "BRIDLE_STORE" in os.environ else find_agents_store(agents)
    place = store_path(options.store) if own is None else own
    store = open_store(place) if isinstance(place, str | os.PathLike) else place
    temporal.check_shared_store(store, single_machine=options.single_machine)
    served = {name: copy_agent(agent, store=store, name=name) for name, agent in agents.items()}
    try:
        asyncio.run(_serve(options, temporal, served, placements))
    finally:
        temporal.wait_for_callbacks()
    return 0


async def _serve(options: argparse.Namespace, temporal: Any, agents: Any, placements: Any) -> None:
    client = await temporal.connect_temporal(
        options.temporal,
        options.namespace,
        tls=options.tls,
        ca=options.tls_ca,
        certificate=options.tls_cert,
        key=options.tls_key,
        api_key=os.environ.get(API_KEY_VARIABLE, ""),
    )
    runners = {}
    for name, agent in agents.items():
        has_servers = bool(agent.parts.sources)  # whose tools are not known yet
        own = {tool: placed for tool, placed in placements.items() if has_servers or tool in agent.tools}
        single = options.single_machine
        engine = temporal.TemporalEngine(agent, client, options.queue, tools=own, single_machine=single)
        runners[name] = engine.runner
    worker = temporal.EngineWorker(
        runners,
        client,
        options.queue,
        queues=options.tool_queue,
        parts_at_once=options.parts,
        shutdown_seconds=options.shutdown_seconds,
        deployment=options.deployment,
        build_id=options.build_id,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    try:
        await worker.run(lambda: _print_ready(options, sorted(agents)))
    finally:
        for agent in agents.values():
            await agent.store.close()


def _print_ready(options: argparse.Namespace, agents: Sequence[str]) -> None:
    shown = {"temporal": options.temporal, "queue": options.queue, "agents": agents}
    text = f"working for {', '.join(agents)} at {options.temporal}, queue {options.queue} (Ctrl-C stops it)"
    print_text(msgspec.json.encode(shown).decode() if options.json else text, flush=True)


def _parse_placements(temporal: Any, options: argparse.Namespace) -> dict[str, Any]:
    queues, limits = (_parse_pairs(name, getattr(options, name)) for name in ("place", "at_once"))
    placed = {}
    for tool in queues.keys() | limits.keys():
        limit = limits.get(tool)
        if limit is not None and not (limit.isascii() and limit.isdigit()):
            raise MisuseError(f"--at-once {tool}={limit}: the limit is a number")
        at_once = None if limit is None else int(limit)
        placed[tool] = temporal.ToolPlacement(queue=queues.get(tool, ""), at_once_max=at_once)
    return placed


def _parse_pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        tool, mark, value = each.partition("=")
        if not (tool and mark and value):
            raise MisuseError(f"--{option.replace('_', '-')} takes TOOL=VALUE, not {each!r}")
        pairs[tool] = value
    return pairs


def load_engine() -> Any:
    """The package of the engine; raises `MisuseError` if the SDK is missing."""
    try:
        return import_module("bridle.engines.temporal")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "temporalio":
            raise
        raise MisuseError("a worker needs the Temporal SDK: pip install 'bridle[temporal]'") from None
