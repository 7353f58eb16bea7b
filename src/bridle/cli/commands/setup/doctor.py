"""Check the installation: Python, packages, settings, API keys, the log, and on request the endpoints.

Keys are listed by the name of their variable and never shown.
"""

import argparse
import asyncio
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit

from bridle import __version__
from bridle.cli.format.columns import apply_style, is_color_output, pad_text, screen_width, wrap_text
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, store_path
from bridle.config.agent_file import read_agent_file
from bridle.config.configuration import Configuration
from bridle.config.toml_file import read_policy_file, show_path
from bridle.providers.catalogue import choose_default_model, find_key, find_model
from bridle.providers.tables import load_tables
from bridle.run.archive.sessions import list_sessions
from bridle.sandbox.local import find_sandbox
from bridle.stores import is_postgres, name_store, open_store
from bridle.stores.sqlite.database_file import FORMAT
from bridle.values.base import Value
from bridle.values.errors import BridleError, MissingKey, MisuseError
from bridle.watchers.console import format_count

if TYPE_CHECKING:
    from bridle.stores.postgres.store import PostgresStore
    from bridle.stores.postgres.tables import PostgresState

CheckState = Literal["ok", "warn", "fail"]
STATE_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
PYTHON_MIN = (3, 11)
REACH_SECONDS = 5
SESSIONS_COUNTED_MAX = 1000
DEVELOPMENT_EXTRAS = {"dev", "examples", "oracles"}
DETAIL_LINES_MAX = 6
EXIT_FAILED = 1


class CheckResult(Value, kw_only=True):
    """One line of the report."""

    name: str
    state: CheckState
    detail: str
    remedy: str = ""
    """The next command or step; empty if nothing needs to be done."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reach", action="store_true", help="connect to every endpoint that has a key")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    results = [*_run_checks(options)]
    if options.json:
        print_json(
            [
                {"name": each.name, "state": each.state, "detail": each.detail, "remedy": each.remedy}
                for each in results
            ]
        )
    else:
        for line in _format_results(results):
            print_line(line, styles=True)
    return EXIT_FAILED if any(each.state == "fail" for each in results) else 0


def _run_checks(options: argparse.Namespace) -> Iterator[CheckResult]:
    yield _check_python()
    yield _check_packages()
    yield _check_extras()
    yield _check_settings(options.configuration)
    yield from _check_files(options.configuration)
    yield _check_model(options.configuration)
    yield _check_keys()
    yield _check_store(options.store)
    yield _check_sandbox()
    if options.reach:
        yield from asyncio.run(_reach_endpoints())


def _check_python() -> CheckResult:
    shown = f"{platform.python_version()} on {platform.system()} {platform.machine()}, bridle {__version__}"
    if sys.version_info < PYTHON_MIN:
        return CheckResult(name="python", state="fail", detail=shown, remedy="install Python 3.11 or newer")
    return CheckResult(name="python", state="ok", detail=shown)


def _check_packages() -> CheckResult:
    needed = {name: _installed_version(name) for name in _list_packages()}
    missing = [name for name, found in needed.items() if not found]
    if missing:
        return CheckResult(
            name="packages",
            state="fail",
            detail=f"missing: {', '.join(missing)}",
            remedy="pip install bridle",
        )
    return CheckResult(name="packages", state="ok", detail=_show_versions(needed))


def _check_extras() -> CheckResult:
    """The optional parts of Bridle, each with the packages that it needs."""
    names = sorted({*(metadata("bridle").get_all("Provides-Extra") or ())} - DEVELOPMENT_EXTRAS)
    extras = {name: {each: _installed_version(each) for each in _list_packages(name)} for name in names}
    absent = [name for name in names if not all(extras[name].values())]
    shown = [f"{name} ({_show_versions(extras[name])})" for name in names if name not in absent]
    if absent:
        shown.append(f"not installed: {', '.join(absent)}")
    remedy = f"pip install 'bridle[{','.join(absent)}]'" if absent else ""
    return CheckResult(name="extras", state="ok", detail="; ".join(shown), remedy=remedy)


def _list_packages(extra: str = "") -> list[str]:
    """The packages that Bridle requires, or those that one of its extras requires."""
    parts = [line.partition("extra ==") for line in requires("bridle") or ()]
    return sorted({_package_name(line) for line, _, named in parts if named.strip(" '\"()") == extra})


def _show_versions(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {found}" for name, found in packages.items())


def _package_name(requirement: str) -> str:
    end = next((at for at, letter in enumerate(requirement) if letter in " <>=!~[;("), len(requirement))
    return requirement[:end]


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _check_settings(configuration: Configuration) -> CheckResult:
    given = [each.setting.name for each in configuration.settings if each.source.kind != "default"]
    files = " and ".join(configuration.files) or "no settings file"
    detail = f"{files}; {format_count(len(given), 'setting')} given" + (
        f": {', '.join(given)}" if given else ""
    )
    return CheckResult(name="settings", state="ok", detail=detail)


def _check_files(configuration: Configuration) -> Iterator[CheckResult]:
    """The policy and the agent file that the settings name; reading the latter imports its tools."""
    for name, read in (("policy", read_policy_file), ("agent", read_agent_file)):
        path = configuration.get_text(name)
        if path:
            problem = _find_problem(read, path)
            source = configuration.source_of(name).label
            remedy = f"correct {show_path(Path(path))}, or the setting {name} ({source})" if problem else ""
            state: CheckState = "fail" if problem else "ok"
            yield CheckResult(name=name, state=state, detail=problem or path, remedy=remedy)


def _find_problem(read: Callable[[str], object], path: str) -> str:
    try:
        read(path)
    except BridleError as error:
        return str(error)
    return ""


def _check_model(configuration: Configuration) -> CheckResult:
    """The model of new sessions: known, with an address and a key."""
    named = configuration.get_text("model")
    source = configuration.source_of("model").label if named else "default"
    agent = configuration.get_text("agent")
    if agent and not _find_problem(read_agent_file, agent) and (models := read_agent_file(agent).models):
        named, source = models[0], show_path(Path(agent))
    name = named or choose_default_model(os.environ)
    try:
        model = find_model(name, environ=os.environ)
        find_key(model, os.environ)
    except MissingKey as error:
        return CheckResult(name="model", state="fail", detail=f"{name} ({source})", remedy=str(error))
    except BridleError as error:
        return CheckResult(name="model", state="fail", detail=str(error), remedy="bridle models")
    if model.endpoint.simulated:
        remedy = "" if named else "set an API key, or: bridle run -m VENDOR:MODEL"
        detail = f"{name} ({source}): simulated, nothing is sent"
        return CheckResult(name="model", state="ok" if named else "warn", detail=detail, remedy=remedy)
    price = "" if model.price else "; price unknown, so budgets in dollars do not hold"
    return CheckResult(name="model", state="warn" if price else "ok", detail=f"{name} ({source}){price}")


def _check_keys() -> CheckResult:
    tables = load_tables(os.environ.get("BRIDLE_MODELS", ""))
    names = dict.fromkeys(
        name for row in tables.endpoints.values() for name in row.key_env if os.environ.get(name, "").strip()
    )
    if not names:
        example = next(name for row in tables.endpoints.values() for name in row.key_env)
        remedy = f"export {example}=… or that of another vendor (docs/reference/environment.md)"
        return CheckResult(name="keys", state="warn", detail="no API key is set", remedy=remedy)
    return CheckResult(name="keys", state="ok", detail=", ".join(names))


def _check_store(given: str | None) -> CheckResult:
    """The log: it opens, its format is known, and it can be written. A missing log is not created."""
    path = store_path(given)
    if is_postgres(path):
        return _check_postgres(path)
    if "://" not in path and path != ":memory:" and not Path(path).exists():
        folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
        if os.access(folder, os.W_OK):
            return CheckResult(name="store", state="ok", detail=f"{path} (created by the first run)")
        remedy = "choose another: --store PATH, or store = … in bridle.toml"
        return CheckResult(name="store", state="fail", detail=f"{folder} cannot be written", remedy=remedy)
    try:
        count = asyncio.run(_count_sessions(path))
    except BridleError as error:
        return CheckResult(
            name="store", state="fail", detail=str(error), remedy="choose another: --store PATH"
        )
    if "://" not in path and path != ":memory:" and not os.access(path, os.W_OK):
        remedy = f"chmod u+w {path}, or choose another with --store PATH"
        return CheckResult(name="store", state="fail", detail=f"{path} cannot be written", remedy=remedy)
    more = " or more" if count >= SESSIONS_COUNTED_MAX else ""
    shown = (
        f"{path}, format {FORMAT}, {format_count(count, 'session')}{more}, SQLite {sqlite3.sqlite_version}"
    )
    return CheckResult(name="store", state="ok", detail=shown)


def _check_postgres(url: str) -> CheckResult:
    """The server: it can be reached, and it keeps what it acknowledges. The URL is shown without its password."""
    try:
        count, server = asyncio.run(_ask_server(url))
    except BridleError as error:
        return CheckResult(
            name="store", state="fail", detail=str(error), remedy="choose another: --store PATH or URL"
        )
    more = " or more" if count >= SESSIONS_COUNTED_MAX else ""
    counted = f"{format_count(count, 'session')}{more}" if server.has_tables else "created by the first run"
    shown = f"{name_store(url)}, {counted}, {server.description}"
    remedy = "" if server.is_replicated else "records reach the standbys later: synchronous_commit = on"
    return CheckResult(name="store", state="warn" if remedy else "ok", detail=shown, remedy=remedy)


async def _ask_server(url: str) -> tuple[int, "PostgresState"]:
    store = cast("PostgresStore", open_store(url))
    try:
        server = await store.read_state()
        count = len(await list_sessions(store, SESSIONS_COUNTED_MAX)) if server.has_tables else 0
        return count, server
    finally:
        await store.close()


async def _count_sessions(path: str) -> int:
    store = open_store(path)
    try:
        return len(await list_sessions(store, SESSIONS_COUNTED_MAX))
    finally:
        await store.close()


def _check_sandbox() -> CheckResult:
    """The sandbox that commands of the toolkit run in if this folder is their workspace."""
    try:
        box = find_sandbox()
    except MisuseError as error:
        return CheckResult(
            name="sandbox",
            state="warn",
            detail="the commands of --toolkit are refused in this folder",
            remedy=str(error),
        )
    detail = f"{box.name} isolates the commands of --toolkit; your own tools run in this process"
    return CheckResult(name="sandbox", state="ok", detail=detail)


async def _reach_endpoints() -> list[CheckResult]:
    """Open a connection to every endpoint whose key is set; nothing is sent."""
    tables = load_tables(os.environ.get("BRIDLE_MODELS", ""))
    hosts: dict[tuple[str, int], str] = {}
    for vendor, row in tables.endpoints.items():
        if row.simulated or not any(os.environ.get(name, "").strip() for name in row.key_env):
            continue
        try:
            url = find_model(f"{vendor}:=x", environ=os.environ).endpoint.base_url
        except BridleError:
            continue  # its address needs a variable that is not set
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        hosts.setdefault((parts.hostname or "", port), vendor)
    if not hosts:
        return [
            CheckResult(name="reach", state="warn", detail="no endpoint has a key", remedy="set a key first")
        ]
    return [*await asyncio.gather(*(_reach_host(vendor, *host) for host, vendor in hosts.items()))]


async def _reach_host(vendor: str, host: str, port: int) -> CheckResult:
    name = f"reach {vendor}"
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except (OSError, TimeoutError) as error:
        why = (
            f"no answer in {REACH_SECONDS} s"
            if isinstance(error, TimeoutError)
            else error.strerror or str(error)
        )
        return CheckResult(
            name=name,
            state="fail",
            detail=f"{host}:{port}: {why}",
            remedy="check the network, proxy or base URL",
        )
    return CheckResult(name=name, state="ok", detail=f"{host}:{port}")


def _format_results(results: list[CheckResult]) -> list[str]:
    colour, lines = is_color_output(), []
    names = max(len(each.name) for each in results)
    room = screen_width() - names - 8
    for each in results:
        state = apply_style(pad_text(each.state, 4), STATE_STYLES[each.state], colour)
        first, *rest = wrap_text(each.detail, room, DETAIL_LINES_MAX)
        lines.append(f"{state}  {pad_text(each.name, names)}  {first}")
        if each.remedy:
            rest += wrap_text(f"→ {each.remedy}", room, DETAIL_LINES_MAX)
        lines.extend(f"{'':<{names + 8}}{line}" for line in rest)
    return lines
