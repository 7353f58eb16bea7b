"""Where the command keeps its log: --store, else $BRIDLE_STORE, else the user's data folder."""

import argparse
import os
from pathlib import Path

from ..ports.store import Store
from ..stores import open_store
from ..values.errors import MisuseError
from ..values.tenancy import Across


def add_store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="PATH", help="the log to use (default: $BRIDLE_STORE or your data folder)"
    )


def add_tenant_option(parser: argparse.ArgumentParser, help_: str = "") -> None:
    parser.add_argument(
        "--tenant", metavar="T", help=help_ or "refuse it unless the session is this tenant's"
    )


def add_across_option(parser: argparse.ArgumentParser) -> None:
    """The option beside --tenant with which a command about one session takes another tenant's."""
    parser.add_argument(
        "--across-tenants", action="store_true", help="take the session although it is another tenant's"
    )


def tenant_of(options: argparse.Namespace) -> str | None:
    """The tenant that is asked for; as `Across` where the caller says that crossing is meant."""
    tenant: str | None = options.tenant
    return Across(tenant) if tenant is not None and options.across_tenants else tenant


def store_path(given: str | None) -> str:
    if given or os.environ.get("BRIDLE_STORE"):
        return given or os.environ["BRIDLE_STORE"]
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(data) / "bridle" / "log.db")


def open_log(given: str | None, *, to_read: bool = False) -> Store:
    """The log; one that is only to be read is not made when it is missing."""
    path = store_path(given)
    if to_read and "://" not in path and not Path(path).exists():
        raise MisuseError(f"there is no log at {path}; `bridle run` makes one, or name another with --store")
    return open_store(path)
