"""Print the words that a completion script offers: session ids, newest first, or model names.

The scripts of `bridle completion` call this command when Tab is pressed; it is not listed in the help.
"""

import argparse
import asyncio
import os
import re
from collections.abc import Iterable

from bridle.cli.format.printing import write_raw
from bridle.cli.log_access import add_store_option, use_log
from bridle.providers.catalogue import known_models
from bridle.run.archive.sessions import list_sessions

SESSIONS_OFFERED_MAX = 200
PLAIN_WORD = re.compile(r"\w[\w.:@/+-]*", re.ASCII)
"""A word that no shell expands. Session ids may come from outside, so other words are not offered."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("sessions", "models"))
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_list_ids(options.store)) if options.kind == "sessions" else _list_models()
    write_raw("".join(f"{word}\n" for word in found if PLAIN_WORD.fullmatch(word)))
    return 0


async def _list_ids(given: str | None) -> list[str]:
    async with use_log(given) as store:
        return [info.id for info in await list_sessions(store, SESSIONS_OFFERED_MAX)]


def _list_models() -> Iterable[str]:
    return (model.name for model in known_models(os.environ))
