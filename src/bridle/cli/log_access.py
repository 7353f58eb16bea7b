"""Opens the log that a command uses (--store, $BRIDLE_STORE or the user's data folder) and reads sessions from it."""

import argparse
import os
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from bridle.cli.configured_options import add_config_options
from bridle.core.recovery import log_repair
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.run.archive.sessions import find_parent_session, find_people
from bridle.run.recovery.session_log import read_intact_records
from bridle.run.validate_input import check_session, check_tenant
from bridle.stores import open_store
from bridle.values.errors import MisuseError, SessionNotFound
from bridle.values.lineage import CrossTenant
from bridle.values.record import Record


def add_store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="PATH",
        help="log file or postgresql:// URL (default: $BRIDLE_STORE, else your data folder)",
    )
    add_config_options(parser)


def add_tenant_option(parser: argparse.ArgumentParser, help_: str = "") -> None:
    parser.add_argument(
        "--tenant", metavar="T", help=help_ or "fail unless the session belongs to this tenant"
    )


def add_caller_option(parser: argparse.ArgumentParser, help_: str = "") -> None:
    parser.add_argument(
        "--caller", metavar="X", help=help_ or "fail unless this caller prompted in the session"
    )


def add_across_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets a command use a session of another tenant."""
    parser.add_argument("--across-tenants", action="store_true", help="allow a session of another tenant")


def add_log_options(parser: argparse.ArgumentParser, tenant_help: str = "") -> None:
    """Add the options of a command that reads sessions: their tenant, and the log."""
    add_tenant_option(parser, tenant_help)
    add_across_option(parser)
    add_store_option(parser)


def tenant_of(options: argparse.Namespace) -> str | None:
    """The tenant given; a `CrossTenant` if --across-tenants is given too."""
    tenant: str | None = options.tenant
    return CrossTenant(tenant) if tenant is not None and options.across_tenants else tenant


def store_path(given: str | None) -> str:
    if given or os.environ.get("BRIDLE_STORE"):
        return given or os.environ["BRIDLE_STORE"]
    return str(data_folder() / "log.db")


def data_folder() -> Path:
    """The folder of the user's data."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "bridle"


REPEATED_OPTIONS = (
    "agent", "tools", "mcp", "toolkit", "workspace", "allow_host", "no_sandbox", "skills", "code_mode", "policy",
    "tenant", "store", "config", "no_config",
)  # fmt: skip
"""Options that the next command for the same session needs too."""


def format_resume(options: argparse.Namespace, session: str, *more: str) -> str:
    """The command that continues a session, with the options that were given to this one; settings are left out."""
    words = ["bridle", "resume", session]
    for name in REPEATED_OPTIONS:
        value, setting = getattr(options, name, None), options.configuration.get(name)
        if not value or value == (list(setting) if isinstance(setting, tuple) else setting):
            continue
        flag = f"--{name.replace('_', '-')}"
        if name == "store" and "://" in value:
            words += [flag, "URL"]  # it may hold a password
        else:
            words += (
                [flag]
                if value is True
                else [
                    word
                    for each in (value if isinstance(value, list) else [value])
                    for word in (flag, str(each))
                ]
            )
    return shlex.join([*words, *more])


def has_log(given: str | None) -> bool:
    """False if the file of the log does not exist; the log of a server is looked for when it is opened."""
    path = store_path(given)
    return "://" in path or Path(path).exists()


def open_log(given: str | None, *, to_read: bool = False) -> Store:
    """Open the log; with `to_read`, a missing one is an error instead of being created."""
    path = store_path(given)
    if to_read and not has_log(given):
        raise MisuseError(f"no log at {path}; `bridle run` creates one, or choose another with --store")
    return open_store(path)


@asynccontextmanager
async def use_log(given: str | None, *, to_read: bool = True) -> AsyncIterator[Store]:
    """Open the log for the block, and close it at the end."""
    store = open_log(given, to_read=to_read)
    try:
        yield store
    finally:
        await store.close()


async def read_session(
    store: Store, session: str, tenant: str | None = None, *, caller: str | None = None
) -> Sequence[Record]:
    """Records of a session; the intact ones if its end is torn off.

    Fails if it belongs to another tenant, and if it has no prompt of the caller.
    """
    check_session(session)
    records = await read_intact_records(store, session)
    if not records:
        raise SessionNotFound(f"no session {session!r} in this log; `bridle sessions` lists them")
    if tenant is not None:
        check_tenant(session, fold_state(records), tenant)
    if not find_people(records).is_of(None, caller):
        hint = "`bridle sessions --caller` lists those of a caller"
        raise MisuseError(f"caller {caller!r} has not prompted in session {session!r}; {hint}")
    return records


def belongs_to_tenant(records: Sequence[Record], tenant: str | None) -> bool:
    """True if the session belongs to the tenant; a session without a prompt belongs to none."""
    return tenant is None or fold_state(records).identity.owner == tenant


def fold_state(records: Sequence[Record]) -> State:
    return log_repair.fold_log(records).state


async def find_outer_session(store: Store, session: str) -> str | None:
    """The session to resume in place of a program's: that of the outermost run. None if it is no program's."""
    records = await read_session(store, session)
    if not fold_state(records).settings.model.endpoint.is_program:
        return None
    seen = {session}
    while (parent := find_parent_session(records)) and parent not in seen:
        session, records = parent, await store.read(parent)
        seen.add(parent)
    return session


def format_local_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
