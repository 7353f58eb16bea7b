"""Lets a person name a session by the start of its id, or leave it out for the latest one.

A generated id is a date and a random part; the start of either is enough. An argument that names no session stays as
it is, so that the command reports it.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from bridle.cli.format.printing import print_line
from bridle.cli.log_access import belongs_to_tenant, has_log, use_log
from bridle.ports.store import Store
from bridle.run.archive.sessions import find_parent_session, list_sessions_of
from bridle.run.recovery.session_log import read_intact_records
from bridle.run.validate_input import check_session, is_generated_id
from bridle.values.errors import Corrupt, MisuseError
from bridle.values.text import escape_text

SESSION_HELP = "session id or the unique start of one, as listed by `bridle sessions`"
LATEST_HELP = f"{SESSION_HELP} (default: the latest session)"
SESSIONS_SEARCHED_MAX = 1_000_000
MATCHES_SHOWN = 8


def add_session_argument(
    parser: argparse.ArgumentParser, name: str = "session", *, help_: str = SESSION_HELP, **details: Any
) -> None:
    """Add an argument that names a session; `details` are those of `add_argument`."""
    parser.add_argument(name, help=help_, **details)
    mark_session_argument(parser, name.lstrip("-"))


def mark_session_argument(parser: argparse.ArgumentParser, name: str) -> None:
    """Let `complete_session_names` complete the value of an argument."""
    parser.set_defaults(session_arguments=(*(parser.get_default("session_arguments") or ()), name))


def add_latest_argument(parser: argparse.ArgumentParser) -> None:
    """Add an argument that names a session, the latest one if it is left out."""
    add_session_argument(parser, nargs="?", help_=LATEST_HELP)
    parser.set_defaults(uses_latest=True)


def complete_session_names(options: argparse.Namespace) -> None:
    """Replace the shortened names of sessions, and fill in the latest one where a command uses it.

    Raises `MisuseError` if a name fits several sessions, or if there is no session to use.
    """
    names: Sequence[str] = getattr(options, "session_arguments", ())
    uses_latest = getattr(options, "uses_latest", False) and not getattr(options, "all", False)
    takes_latest = uses_latest and not options.session
    if not takes_latest and not any(getattr(options, name) for name in names):
        return
    if not takes_latest and not has_log(options.store):
        return  # the command reports it
    asyncio.run(_complete_names(options, names, takes_latest=takes_latest))


async def _complete_names(options: argparse.Namespace, names: Sequence[str], *, takes_latest: bool) -> None:
    tenant = None if getattr(options, "across_tenants", False) else getattr(options, "tenant", None) or None
    async with use_log(options.store) as store:
        for name in names:
            if given := getattr(options, name):
                setattr(options, name, await find_session(store, given, tenant))
        if takes_latest:
            options.session = await _find_latest(store, tenant)
            print_line(f"latest session: {escape_text(options.session)}", file=sys.stderr)


async def find_session(store: Store, given: str, tenant: str | None = None) -> str:
    """The session with this id, or the only one whose id or random part starts so; else the argument itself.

    Raises `MisuseError` if several do.
    """
    try:
        check_session(given)
        if await store.read(given, 0, 1):
            return given
    except (Corrupt, MisuseError):
        return given  # the command reports it
    found = await list_sessions_of(store, SESSIONS_SEARCHED_MAX, tenant=tenant)
    matches = [info.id for info in found if _starts_with(info.id, given)]
    if len(matches) > 1:
        shown = ", ".join(escape_text(each) for each in matches[:MATCHES_SHOWN])
        more = f" and {len(matches) - MATCHES_SHOWN} more" if len(matches) > MATCHES_SHOWN else ""
        raise MisuseError(
            f"{given!r} is the start of {len(matches)} session ids: {shown}{more}; type more of the one you mean"
        )
    return matches[0] if matches else given


def _starts_with(session: str, given: str) -> bool:
    random_part = session.partition("-")[2] if is_generated_id(session) else ""
    return session.startswith(given) or random_part.startswith(given)


async def _find_latest(store: Store, tenant: str | None) -> str:
    """The session with the newest record, runs inside tools left out."""
    for info in await list_sessions_of(store, SESSIONS_SEARCHED_MAX):
        try:
            records = await read_intact_records(store, info.id)
        except Corrupt:
            return info.id  # the command reports the damage
        if not find_parent_session(records) and belongs_to_tenant(records, tenant):
            return info.id
    owner = f" of tenant {tenant!r}" if tenant is not None else ""
    raise MisuseError(f'no session{owner} yet; start one with: bridle run "What is 17 * 23 minus 100?"')
