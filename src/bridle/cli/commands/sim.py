"""Serve simulated providers on a local port, or print the tables of the simulator.

  bridle sim rules [FAMILY]     what is rejected, with status and message
                                (--profile for one kind of server)
  bridle sim faults             faults that can be injected
  bridle sim directives         directives that a prompt can contain

Any client in any language can use it: set its base URL to the address printed, and its API key to anything.
Ctrl-C stops it. With --script, the command fails if the script was not played to its end or a client asked
for more than it contains.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bridle.cli.format.printing import print_json, print_line, print_text
from bridle.cli.option_values import parse_port
from bridle.sim.client_environment import client_environment
from bridle.sim.families import list_families, list_profile_names, list_profiles, list_rules
from bridle.sim.faults.catalogue import FAULTS, parse_faults
from bridle.sim.responder.alternatives import (
    AdversarialResponder,
    ScriptedResponder,
    echo_last_input,
    load_recorded_responder,
)
from bridle.sim.responder.decision import Responder
from bridle.sim.responder.rule_based import respond
from bridle.sim.responder.script import DIRECTIVES
from bridle.sim.responder.script_file import read_script
from bridle.sim.rules.engine import ProviderRule, rules_as_markdown, show_blanks
from bridle.sim.server import serve_simulator
from bridle.sim.simulator import Simulator
from bridle.transports.recorded import ExchangeFile
from bridle.values.errors import MisuseError

# Tables of the rules, as Markdown and as JSON.
#
# Each rule appears once, with the profiles that have it.


RuleRow = dict[str, str | int | list[str]]


def print_rules(family: str | None, profile: str, *, as_json: bool) -> int:
    if family is not None and family not in list_families():
        raise MisuseError(f"unknown wire family {family!r}; choose one of: {', '.join(list_families())}")
    if profile and profile not in list_profile_names():
        raise MisuseError(f"unknown profile {profile!r}; choose one of: {', '.join(list_profile_names())}")
    wanted = list_families() if family is None else (family,)
    if as_json:
        print_json([row for each in wanted for row in _list_rule_rows(each, profile)])
        return 0
    for each in wanted:
        for manners in list_profiles(each):
            if profile in ("", manners.name):
                rules = list_rules(each, manners.name)
                print_text(
                    f"{each}, {manners.name}: {manners.description} ({len(rules)} rules)\n\n"
                    f"{rules_as_markdown(rules)}\n"
                )
    return 0


def _list_rule_rows(family: str, profile: str) -> list[RuleRow]:
    having: dict[str, list[str]] = {}
    found: dict[str, ProviderRule] = {}
    for manners in list_profiles(family):
        for rule in list_rules(family, manners.name) if profile in ("", manners.name) else ():
            found[rule.id] = rule
            having.setdefault(rule.id, []).append(manners.name)
    return [
        {
            "family": family,
            "id": rule.id,
            "profiles": having[rule.id],
            "models": rule.models,
            "status": rule.status,
            "type": rule.type,
            "message": show_blanks(rule),
            "evidence": rule.evidence,
        }
        for rule in found.values()
    ]


SIM_TABLES = ("rules", "faults", "directives")
RESPONDERS: dict[str, Callable[[int], Responder]] = {
    "demo": lambda _: respond,
    "echo": lambda _: echo_last_input,
    "adversarial": AdversarialResponder,
}
PORT_DEFAULT = 8090


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", choices=SIM_TABLES, help="print this table and exit")
    parser.add_argument("family", nargs="?", help="only rules of this wire family")
    parser.add_argument("--family", dest="only", metavar="F", help="the same as FAMILY")
    parser.add_argument(
        "--port",
        type=parse_port,
        default=PORT_DEFAULT,
        help=f"port to listen on; 0 chooses a free one (default {PORT_DEFAULT})",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--strict", action="store_true", default=True, help="reject what providers reject (default)"
    )
    how.add_argument("--lenient", action="store_true", help="answer whatever can be parsed")
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="replies to give, or a recording (.jsonl)"
    )
    parser.add_argument(
        "--responder",
        choices=RESPONDERS,
        default="demo",
        help="what answers without a script (default: demo)",
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME[=P]",
        help="inject a fault: once, in the order given, or with probability P each time",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default 0)")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="record every exchange in this file, one per line"
    )
    parser.add_argument("--profile", default="", help="kind of server whose rules apply")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def execute(options: argparse.Namespace) -> int:
    if options.table:
        return _print_table(options)
    responder: Responder = RESPONDERS[options.responder](options.seed)
    if options.script is not None:
        recorded = options.script.suffix == ".jsonl"
        responder = (
            load_recorded_responder(options.script)
            if recorded
            else ScriptedResponder(read_script(options.script))
        )
    file = _open_log(options.log) if options.log else None
    simulator = Simulator(
        responder,
        seed=options.seed,
        strict=not options.lenient,
        profile=options.profile,
        faults=parse_faults(options.fault),
        log=file.write if file else None,
    )
    asyncio.run(_serve_until_stopped(simulator, options.port, as_json=options.json))
    if file is not None:
        file.close()
        if file.warning:
            print_line(f"bridle sim: {file.warning}", file=sys.stderr)
    simulator.check_finished()
    return 0


async def _serve_until_stopped(simulator: Simulator, port: int, *, as_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve_simulator(simulator, port) as url:
        print_text(_format_ready(url, as_json=as_json), flush=True)
        await stop.wait()


def _format_ready(url: str, *, as_json: bool) -> str:
    named = client_environment(url)
    if as_json:
        return msgspec.json.encode({"url": url, "exports": named}).decode()
    lines = [f"  export {name}={value}" for name, value in named.items()]
    return "\n".join([f"simulating every provider at {url} (Ctrl-C stops it)", *lines])


def _open_log(path: Path) -> ExchangeFile:
    try:
        return ExchangeFile(path, append=True)
    except OSError as error:
        raise MisuseError(f"cannot write the log {path}: {error.strerror or error}") from None


def _print_table(options: argparse.Namespace) -> int:
    if options.table == "rules":
        return print_rules(options.only or options.family, options.profile, as_json=options.json)
    told = (
        [{"name": form, "meaning": meaning} for form, meaning in DIRECTIVES.values()]
        if options.table == "directives"
        else [{"name": fault.name, "meaning": fault.description} for fault in FAULTS.values()]
    )
    if options.json:
        print_json(told)
    else:
        width = max(len(row["name"]) for row in told)
        print_text("\n".join(f"{row['name']:<{width}}  {row['meaning']}" for row in told))
    return 0
