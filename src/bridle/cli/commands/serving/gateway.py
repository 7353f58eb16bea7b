"""Put budgets, fallback, hooks and the log between any client and any provider.

Clients speak the wire of OpenAI, Anthropic or Gemini; the provider may speak another. FILE lists models, keys and
tenants (docs/gateway.md). Without keys the gateway serves this machine only.
"""

import argparse
import asyncio
import json
import os
import sys
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bridle.cli.format.printing import print_line, print_text
from bridle.cli.log_access import add_store_option, store_path
from bridle.cli.option_values import parse_port
from bridle.providers.families import list_served_wires, load_served_wire
from bridle.serve.gateway.settings import (
    GatewayModel,
    GatewaySettings,
    check_settings,
    digest_key,
    make_key,
    read_gateway_file,
)
from bridle.serve.options import ServeOptions
from bridle.values.errors import MisuseError

PORT_DEFAULT = 8421
TOKEN_VARIABLE = "BRIDLE_SERVE_TOKEN"  # noqa: S105 - a name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", type=Path, metavar="FILE", help="TOML file with [models], [keys] and [tenants]")
    add("-m", "--model", action="append", default=[], metavar="M", help="model string; again for a fallback")
    add(
        "--port", type=parse_port, default=PORT_DEFAULT, help=f"0 chooses a free one (default {PORT_DEFAULT})"
    )
    add("--host", default="127.0.0.1", help="address to listen on; others than loopback need keys")
    add("--strict", action="store_true", help="refuse requests that cannot be carried as they are")
    add("--new-key", metavar="NAME", help="print a new key and its lines for FILE, then stop")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this name in the Host header",
    )
    add("--allow-origin", action="append", default=[], metavar="URL", help="accept web pages of this origin")
    add("--json", action="store_true", help="print the address, or the key, as JSON")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if options.new_key is not None:
        key = make_key()
        print_key(options.new_key, key, digest_key(key), as_json=options.json)
        return 0
    settings = read_settings(options)
    try:
        server, process = import_module("bridle.serve.gateway.server"), import_module("bridle.serve.process")
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MisuseError("bridle gateway needs the extra: pip install 'bridle[serve]'") from None
    for problem in server.list_missing_keys(settings):
        print_line(f"warning: requests for this model fail: {problem}", file=sys.stderr)
    place = store_path(options.store)
    serving = ServeOptions(
        host=options.host,
        token=os.environ.get(TOKEN_VARIABLE, "") if settings.keys else "",
        allowed_hosts=tuple(options.allow_host),
        allowed_origins=tuple(options.allow_origin),
    )

    async def serve() -> None:
        host = server.make_gateway_host(settings, store=place, options=serving)
        folder = options.file.resolve().parent if options.file is not None else None
        app = server.make_gateway_host_app(host, server.GatewayServer(host, settings, folder))
        listening = process.open_socket(options.host, options.port)
        await process.serve_until_stopped(host, listening, print_ready, print_stopping, app)

    def print_ready(url: str) -> None:
        mounts = dict.fromkeys(load_served_wire(family).mount for family in list_served_wires())
        if options.json:
            shown = {"url": url, "mounts": list(mounts), "models": list(settings.models)}
            print_text(msgspec.json.encode(shown).decode(), flush=True)
            return
        print_text(f"gateway at {url} (Ctrl-C stops it)", flush=True)
        for mount in mounts:
            print_line(f"  {url}{mount}")
        print_line(f"  models: {', '.join(settings.models)}", flush=True)

    asyncio.run(serve())
    return 0


def read_settings(options: argparse.Namespace) -> GatewaySettings:
    """The settings of the file and of the options."""
    settings = read_gateway_file(options.file) if options.file is not None else GatewaySettings()
    if options.model:
        models = {**settings.models, options.model[0]: GatewayModel(chain=tuple(options.model))}
        settings = replace(settings, models=models)
    return check_settings(replace(settings, strict=settings.strict or options.strict))


def print_stopping(runs: int) -> None:
    print_line(f"stopping; {runs} requests in progress (Ctrl-C again: at once)", file=sys.stderr)


def print_key(name: str, key: str, digest: str, *, as_json: bool) -> None:
    if as_json:
        print_text(msgspec.json.encode({"name": name, "key": key, "sha256": digest}).decode())
        return
    print_line(f"the key, shown once: {key}")
    print_line("add to the gateway's file:")
    print_line(f"[keys.{json.dumps(name)}]")  # also a string of TOML
    print_line(f'sha256 = "{digest}"')
