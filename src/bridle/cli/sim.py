"""A simulated provider on a port of this machine, or the tables behind it.

    bridle sim --port 8090        all wire families at http://127.0.0.1:8090
    bridle sim rules [FAMILY]     what is refused, and in which words
                                  (--profile for one kind of server)
    bridle sim faults             what can be made to go wrong
    bridle sim directives         what a prompt can make it say and do

Any client can use it, in any language: set its base URL to the address printed, and its
key to anything.  It ends with Ctrl-C; with --script, the exit code is then 2 when the
script was not played to its end or something was asked that is not in it.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..sim.brain import perform
from ..sim.brains import Adversarial, Scripted, echo
from ..sim.directives import DIRECTIVES
from ..sim.faults import FAULTS, parsed
from ..sim.recordings import recorded_brain
from ..sim.scriptfile import read_script
from ..sim.server import serving
from ..sim.settings import exports
from ..sim.simulator import Simulator
from ..sim.turn import Brain
from ..transports.exchange_file import ExchangeFile
from ..values.errors import MisuseError
from .numbers import port
from .printing import say, say_json, say_lines
from .rules_table import print_rules

TABLES = ("rules", "faults", "directives")
BRAINS: dict[str, Callable[[int], Brain]] = {
    "demo": lambda _: perform,
    "echo": lambda _: echo,
    "adversarial": Adversarial,
}
PORT_DEFAULT = 8090


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", choices=TABLES, help="print this table instead of answering")
    parser.add_argument("family", nargs="?", help="only the rules of this wire family")
    parser.add_argument("--family", dest="only", metavar="F", help="the same")
    parser.add_argument(
        "--port",
        type=port,
        default=PORT_DEFAULT,
        help=f"where to listen; 0 takes a free one (default {PORT_DEFAULT})",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--strict", action="store_true", default=True, help="refuse what providers refuse (default)"
    )
    how.add_argument("--lenient", action="store_true", help="answer whatever can be understood")
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="replies to give, or a recording (.jsonl)"
    )
    parser.add_argument("--brain", choices=BRAINS, default="demo", help="who answers without a script")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME[=P]",
        help="what goes wrong: once, in the order given, or with probability P each time",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="for everything that is thrown by dice")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write every exchange there, one a line")
    parser.add_argument("--profile", default="", help="whose rules to go by, where several are known")
    parser.add_argument("--json", action="store_true", help="print what is printed as JSON")


def execute(options: argparse.Namespace) -> int:
    if options.table:
        return _print(options)
    brain: Brain = BRAINS[options.brain](options.seed)
    if options.script is not None:
        recorded = options.script.suffix == ".jsonl"
        brain = recorded_brain(options.script) if recorded else Scripted(read_script(options.script))
    file = _open_log(options.log) if options.log else None
    simulator = Simulator(
        brain,
        seed=options.seed,
        strict=not options.lenient,
        profile=options.profile,
        faults=parsed(options.fault),
        log=file.write if file else None,
    )
    asyncio.run(_serve(simulator, options.port, as_json=options.json))
    if file is not None:
        file.close()
        if file.complaint:
            say(f"bridle sim: {file.complaint}", file=sys.stderr)
    simulator.finish()
    return 0


async def _serve(simulator: Simulator, port: int, *, as_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(simulator, port) as url:
        say_lines(_ready(url, as_json=as_json), flush=True)
        await stop.wait()


def _ready(url: str, *, as_json: bool) -> str:
    named = exports(url)
    if as_json:
        return msgspec.json.encode({"url": url, "exports": named}).decode()
    lines = [f"  export {name}={value}" for name, value in named.items()]
    return "\n".join([f"simulating every provider at {url} (Ctrl-C ends it)", *lines])


def _open_log(path: Path) -> ExchangeFile:
    try:
        return ExchangeFile(path, append=True)
    except OSError as error:
        raise MisuseError(f"cannot write the log {path}: {error.strerror or error}") from None


def _print(options: argparse.Namespace) -> int:
    if options.table == "rules":
        return print_rules(options.only or options.family, options.profile, as_json=options.json)
    told = (
        [{"name": form, "meaning": meaning} for form, meaning in DIRECTIVES.values()]
        if options.table == "directives"
        else [{"name": fault.name, "meaning": fault.meaning} for fault in FAULTS.values()]
    )
    if options.json:
        say_json(told)
    else:
        width = max(len(row["name"]) for row in told)
        say_lines("\n".join(f"{row['name']:<{width}}  {row['meaning']}" for row in told))
    return 0
