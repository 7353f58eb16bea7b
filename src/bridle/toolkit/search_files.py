"""Finds files of a workspace by name and by content.

Run as a program, it searches for the regular expression on its standard input:

    python -m bridle.toolkit.search_files ROOT IDENTITY PATH GLOB [i]

IDENTITY is that of the folder which the caller has open: the program refuses another one at the same path.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from .workspace import FILE_BYTES_MAX, PathRefused, Workspace

FOUND_MAX = 500
"""Files or lines in one result."""
# not from outside: our own text, shown to a person or a model
LINE_CHARACTERS_MAX = 300
SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache",
     ".pytest_cache", ".tox"}
)  # fmt: skip


def find_files(workspace: Workspace, pattern: str, path: str) -> list[str]:
    """Paths of the files below a folder that match a pattern, at most one more than `FOUND_MAX`."""
    return list(islice(_walk_matching(workspace, path, pattern), FOUND_MAX + 1))


def match_path(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """True if the components of a path match those of a pattern, in which `**` is any number of folders."""
    reached = _skip_folders({0}, pattern)
    for part in parts:
        reached = _skip_folders(
            {
                place if pattern[place] == "**" else place + 1
                for place in reached
                if place < len(pattern) and (pattern[place] == "**" or fnmatchcase(part, pattern[place]))
            },
            pattern,
        )
    return len(pattern) in reached


def _skip_folders(reached: set[int], pattern: Sequence[str]) -> set[int]:
    """The places of the pattern that are reached if `**` stands for no folder."""
    for place in range(len(pattern)):
        if place in reached and pattern[place] == "**":
            reached.add(place + 1)
    return reached


def search_files(workspace: Workspace, path: str, glob: str, expression: re.Pattern[str]) -> Iterator[str]:
    """Matching lines as path:line:text, then a line about files that were not searched."""
    skipped = count = 0
    for name in _list_candidates(workspace, path, glob):
        try:
            text = workspace.read_text(name).text
        except PathRefused:
            skipped += 1
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if expression.search(line):
                yield f"{name}:{number}:{line[:LINE_CHARACTERS_MAX]}"
                count += 1
                if count == FOUND_MAX:
                    yield f"[more than {FOUND_MAX} lines; use a narrower pattern or path]"
                    return
    if skipped:
        yield f"[{skipped:,} files not searched: binary, not readable, or above {FILE_BYTES_MAX:,} bytes]"


def _list_candidates(workspace: Workspace, path: str, glob: str) -> Iterator[str]:
    if workspace.is_folder(path):
        yield from _walk_matching(workspace, path, glob)
    else:
        yield path


def _walk_matching(workspace: Workspace, path: str, pattern: str) -> Iterator[str]:
    wanted = tuple(part for part in pattern.split("/") if part not in ("", "."))
    if ".." in wanted:
        raise PathRefused("a pattern cannot contain '..'; use `path` for the folder to search in")
    for folder, name in workspace.walk_files(path, SKIPPED_FOLDERS):
        if match_path(name.split("/"), wanted):
            yield f"{folder}/{name}" if folder else name


def main(words: Sequence[str]) -> int:
    root, identity, path, glob, flags = words
    expression = re.compile(sys.stdin.read(), re.IGNORECASE if "i" in flags else 0)
    try:
        workspace = Workspace(root)
        workspace.check_identity(identity)
        for line in search_files(workspace, path, glob, expression):
            sys.stdout.write(f"{line}\n")
    except (PathRefused, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
