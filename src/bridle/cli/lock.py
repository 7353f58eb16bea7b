"""Write down what agents put in front of every prompt, so that nobody changes it by accident.

`bridle lock app.py` takes every Agent at the top level of the file and writes its tools and instructions,
with a hash, to bridle.lock; keep that beside your code.  `bridle lock app.py --check` fails when they are
others now and shows the difference: cached prompts of every session would be read, and paid for, anew.
"""

import argparse
import difflib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import msgspec

from ..core.locking import digest, front
from ..run.agent import Agent
from ..values.errors import MisuseError
from .main import complain
from .toolfile import load_module

FILE_DEFAULT = "bridle.lock"
CHANGED = 1


class Locked(msgspec.Struct, frozen=True):
    hash: str
    lines: list[str]


class Lock(msgspec.Struct, frozen=True):
    agents: dict[str, Locked]
    version: int = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", nargs="+", metavar="FILE.py|module", help="where the agents are made")
    add("--check", action="store_true", help="write nothing; fail when anything differs from the file")
    add("--file", default=FILE_DEFAULT, metavar="PATH", help=f"the file (default: {FILE_DEFAULT})")


def execute(options: argparse.Namespace) -> int:
    found = _agents(options.source)
    path = Path(options.file)
    if options.check:
        return _check(_read(path), found, path)
    before = _read(path).agents if path.exists() else {}
    for name, locked in found.items():
        how = "unchanged" if before.get(name) == locked else "changed" if name in before else "new"
        print(f"{name}  {locked.hash}  {how}")
    _write(path, Lock(agents=dict(sorted(found.items()))))
    return 0


def _agents(sources: Sequence[str]) -> dict[str, Locked]:
    found: dict[str, Locked] = {}
    for source in sources:
        # What a file prints while it is loaded is not what was asked for.
        with redirect_stdout(sys.stderr):
            module = load_module(source)
        agents = {name: value for name, value in vars(module).items() if isinstance(value, Agent)}
        if not agents:
            raise MisuseError(f"{source} has no agents: make one at its top level, as in `agent = Agent(…)`")
        for name, agent in agents.items():
            lines = front(agent.settings)
            found[f"{source}:{name}"] = Locked(hash=digest(lines), lines=list(lines))
    return found


def _read(path: Path) -> Lock:
    try:
        lock = msgspec.json.decode(path.read_bytes(), type=Lock)
    except FileNotFoundError:
        raise MisuseError(f"there is no {path}; `bridle lock` without --check writes it") from None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise MisuseError(f"{path} cannot be read ({error}); write it anew with `bridle lock`") from None
    for name, locked in lock.agents.items():
        if digest(locked.lines) != locked.hash:
            raise MisuseError(f"{path}: {name} was edited by hand; write it anew with `bridle lock`")
    return lock


def _write(path: Path, lock: Lock) -> None:
    """Whole or not at all: half a lock would fail the next check for no reason."""
    text = json.dumps(msgspec.to_builtins(lock), indent=1, ensure_ascii=False) + "\n"
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _check(lock: Lock, found: Mapping[str, Locked], path: Path) -> int:
    names = sorted({*lock.agents, *found})
    changed = [name for name in names if lock.agents.get(name) != found.get(name)]
    for name in changed:
        for line in _difference(name, lock.agents.get(name), found.get(name)):
            print(line)
    if changed:
        complain(
            f"{', '.join(changed)}: not as in {path}, so cached prompts would be read anew;"
            " take the change back, or accept it with `bridle lock`"
        )
        return CHANGED
    print(f"{len(names)} agents are as in {path}")
    return 0


def _difference(name: str, before: Locked | None, now: Locked | None) -> Iterable[str]:
    was, is_ = (locked.lines if locked else [] for locked in (before, now))
    there = f"{name} (locked)", f"{name} (now)"
    return difflib.unified_diff(was, is_, *there, lineterm="")
