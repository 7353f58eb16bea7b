"""Compare the tools and instructions of agents with a lock file, or write them to it.

`bridle check lock app.py --write` takes every Agent at the top level of the file and writes its tools and instructions,
with a hash, to bridle.lock; commit that file. Entries of other files do not change. `bridle check lock app.py` fails
if the agents differ from their entries and shows the difference: a change of tools or instructions invalidates the
cached prompts of all sessions.
"""

import argparse
import difflib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import msgspec

from bridle.cli.format.printing import print_error, print_line
from bridle.config.tool_loader import load_module
from bridle.core.context.assemble import digest_lines, prompt_head_lines
from bridle.run.agent import Agent
from bridle.values.errors import MisuseError
from bridle.values.media import read_at_most
from bridle.watchers.console import format_count

LOCK_FILE_DEFAULT = "bridle.lock"
LOCK_FILE_VERSION = 1
EXIT_CHANGED = 1
LOCK_BYTES_MAX = 64 * 1024 * 1024


class LockedAgent(msgspec.Struct, frozen=True):
    hash: str
    lines: list[str]


class LockFile(msgspec.Struct, frozen=True):
    agents: dict[str, LockedAgent]
    version: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", nargs="+", metavar="FILE.py|module", help="file or module that creates the agents")
    add("--write", action="store_true", help="write the lock file instead of comparing with it")
    add("--file", default=LOCK_FILE_DEFAULT, metavar="PATH", help=f"lock file (default: {LOCK_FILE_DEFAULT})")


def execute(options: argparse.Namespace) -> int:
    found = _load_agents(options.source)
    path = Path(options.file)
    if not options.write:
        return _check_lock(_select_entries(_read_lock(path).agents, options.source), found, path)
    before = _read_lock(path).agents if path.exists() else {}
    replaced = _select_entries(before, options.source)
    for name in sorted({*replaced, *found}):
        locked = found.get(name)
        if locked is None:
            print_line(f"{name}  removed")
        else:
            how = "unchanged" if before.get(name) == locked else "changed" if name in before else "new"
            print_line(f"{name}  {locked.hash}  {how}")
    kept = {name: locked for name, locked in before.items() if name not in replaced}
    _write_lock(path, LockFile(agents=dict(sorted({**kept, **found}.items())), version=LOCK_FILE_VERSION))
    return 0


def _source_key(source: str) -> str:
    """One spelling per file, so that `./app.py` and `app.py` are the same entry."""
    return os.path.normpath(source) if source.endswith(".py") else source


def _select_entries(agents: Mapping[str, LockedAgent], sources: Sequence[str]) -> dict[str, LockedAgent]:
    """The entries that belong to these files; others are neither checked nor replaced."""
    keys = {_source_key(source) for source in sources}
    return {name: locked for name, locked in agents.items() if name.rpartition(":")[0] in keys}


def _load_agents(sources: Sequence[str]) -> dict[str, LockedAgent]:
    found: dict[str, LockedAgent] = {}
    for source in sources:
        # Output of the file while it is loaded must not mix with ours.
        with redirect_stdout(sys.stderr):
            module = load_module(source)
        agents = {name: value for name, value in vars(module).items() if isinstance(value, Agent)}
        if not agents:
            raise MisuseError(
                f"{source} has no agents; create one at the top level, as in `agent = Agent(…)`"
            )
        for name, agent in agents.items():
            lines = prompt_head_lines(agent.settings)
            found[f"{_source_key(source)}:{name}"] = LockedAgent(hash=digest_lines(lines), lines=list(lines))
    return found


def _read_lock(path: Path) -> LockFile:
    try:
        lock = msgspec.json.decode(read_at_most(path, LOCK_BYTES_MAX), type=LockFile)
    except FileNotFoundError:
        raise MisuseError(f"there is no {path}; `bridle check lock FILE --write` writes it") from None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise MisuseError(
            f"{path} cannot be read ({error}); write it again with `bridle check lock FILE --write`"
        ) from None
    if lock.version != LOCK_FILE_VERSION:
        raise MisuseError(
            f"{path} has version {lock.version}, this Bridle reads version {LOCK_FILE_VERSION}; upgrade Bridle, or"
            " remove the file and write it again with `bridle check lock FILE --write`"
        )
    for name, locked in lock.agents.items():
        if digest_lines(locked.lines) != locked.hash:
            raise MisuseError(
                f"{path}: {name} was edited by hand; run `bridle check lock FILE --write` again"
            )
    return lock


def _write_lock(path: Path, lock: LockFile) -> None:
    """Write atomically: a partial file would fail the next check."""
    text = json.dumps(msgspec.to_builtins(lock), indent=1, ensure_ascii=False) + "\n"
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _check_lock(agents: Mapping[str, LockedAgent], found: Mapping[str, LockedAgent], path: Path) -> int:
    names = sorted({*agents, *found})
    changed = [name for name in names if agents.get(name) != found.get(name)]
    for name in changed:
        for line in _diff_entry(name, agents.get(name), found.get(name)):
            print_line(line)
    if changed:
        print_error(
            f"{', '.join(changed)}: different from {path}, which invalidates cached prompts;"
            " revert the change, or accept it with `bridle check lock FILE --write`"
        )
        return EXIT_CHANGED
    print_line(f"{format_count(len(names), 'agent')} unchanged since {path} was written")
    return 0


def _diff_entry(name: str, before: LockedAgent | None, now: LockedAgent | None) -> Iterable[str]:
    was, is_ = (locked.lines if locked else [] for locked in (before, now))
    there = f"{name} (locked)", f"{name} (now)"
    return difflib.unified_diff(was, is_, *there, lineterm="")
