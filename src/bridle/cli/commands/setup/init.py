"""Write a starter project: an agent file, tools, a policy, settings and tests that run offline.

Existing files are never changed; if one is in the way, nothing is written. Lines are added to .gitignore.
"""

import argparse
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from bridle.cli.format.printing import print_json, print_line
from bridle.config.toml_file import show_path
from bridle.values.errors import MisuseError

STARTER_FILES = {
    "agent.toml": "the agent: model, instructions, budget",
    "tools.py": "its tools",
    "policy.toml": "which calls are allowed, asked about or denied",
    "bridle.toml": "settings of the bridle command here",
    "tests/test_agent.py": "tests that run offline",
}
IGNORE_FILE, IGNORE_SOURCE = ".gitignore", "gitignore.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="folder (default: this one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    try:
        added = _write_project(folder)
    except OSError as error:
        raise MisuseError(f"cannot write {error.filename or folder}: {error.strerror or error}") from None
    if options.json:
        print_json({"folder": str(folder.resolve()), "files": [*STARTER_FILES], "ignored": added})
        return 0
    width = max(map(len, STARTER_FILES))
    is_here = folder.resolve() == Path.cwd()
    print_line("written:" if is_here else f"written to {show_path(folder)}:")
    for name, meaning in STARTER_FILES.items():
        print_line(f"  {name:<{width}}  {meaning}")
    if added:
        print_line(f"  {IGNORE_FILE:<{width}}  {', '.join(added)}")
    print_line()
    print_line("to try it:")
    if not is_here:
        print_line(f"  cd {show_path(folder)}")
    print_line('  bridle run "Use find_order: where is order 4411?"   # the simulator answers')
    print_line("  python -m pytest                                    # offline")
    return 0


def _write_project(folder: Path) -> list[str]:
    """Write all files, or none if one exists; return the lines added to .gitignore."""
    source = files("bridle.cli") / "starter"
    if folder.exists() and not folder.is_dir():
        raise MisuseError(f"{folder} is a file; name a folder")
    existing = [name for name in STARTER_FILES if (folder / name).exists()]
    if existing:
        raise MisuseError(
            f"{', '.join(existing)} already in {folder}; nothing was written: choose another folder"
        )
    for name in STARTER_FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # fails if it appeared meanwhile
            file.write(_read_source(source, name))
    return _extend_ignore_file(folder / IGNORE_FILE, _read_source(source, IGNORE_SOURCE).split())


def _read_source(source: Traversable, name: str) -> str:
    """Text of a file of the starter project. Python files end in .txt there: they are no part of this package."""
    stored = name.rpartition("/")[2]
    return (source / (f"{stored}.txt" if stored.endswith(".py") else stored)).read_text(encoding="utf-8")


def _extend_ignore_file(path: Path, wanted: list[str]) -> list[str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    added = [line for line in wanted if line not in text.splitlines()]
    if added:
        separator = "" if not text or text.endswith("\n") else "\n"
        path.write_text(text + separator + "\n".join(added) + "\n", encoding="utf-8")
    return added
