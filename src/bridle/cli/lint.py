"""Find what makes the beginning of prompts change: clocks, random ids, the environment, unordered sets.

Providers keep what a prompt begins with and compare it to the byte, so one volatile word in instructions,
tool descriptions or schemas makes every cached prompt worthless.  The code is read, and what flows there is
named with its line; then the agents are made again in fresh processes, with another hash seed, clock and
environment, and their prompts compared.  A folder stands for the Python files in it.

A line that may stay as it is says so:

  # bridle: stable   or   # bridle: stable[clock]

Exit codes: 0 nothing found · 1 something found · 2 the files cannot be read.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from ..values.errors import MisuseError
from ..values.text import escape_text
from .columns import in_colour, padded, screen_width, styled, wrapped
from .linting.library import Library
from .linting.reading import Finding, python_files, read
from .linting.rules import RULES, named
from .linting.trying import try_out
from .printing import say, say_json

FOUND = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", nargs="*", metavar="FILE.py|FOLDER|module", help="where agents and tools are made")
    add("--no-load", dest="load", action="store_false", help="only read the code; run none of it")
    add("--ignore", action="append", default=[], metavar="RULE", help="leave a rule out, by name or id")
    add("--rules", action="store_true", help="print the rules and do nothing else")
    add("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    if options.rules:
        _print_rules(as_json=options.json)
        return 0
    if not options.source:
        raise MisuseError("say what to look at: bridle lint app.py, or a folder; --rules lists what is found")
    ignored = {_rule_named(word) for word in options.ignore}
    files = [*_files(options.source)]
    library = Library()
    findings: list[Finding] = []
    notes: list[str] = []
    tried = 0
    for source, path in files:
        seen = read(path, library)
        findings.extend(seen.findings)
        notes.extend(seen.notes)
        if options.load and seen.loadable:
            outcome = try_out(source, os.environ, _progress, seen.allowed)
            findings.extend(outcome.findings)
            notes.extend(outcome.notes)
            tried += outcome.loads
    _progress("")
    kept = [finding for finding in dict.fromkeys(findings) if finding.rule not in ignored]
    if options.json:
        told = {"findings": kept, "notes": notes, "files": len(files), "loaded": tried}
        say_json(told)
    else:
        _tell(kept, notes, len(files), tried)
    return FOUND if kept else 0


def _rule_named(word: str) -> str:
    name = named(word)
    if not name:
        raise MisuseError(f"there is no rule {word!r}; `bridle lint --rules` lists them")
    return name


def _files(sources: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """What to load, and the file to read for it."""
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = [*python_files(path)]
            if not found:
                raise MisuseError(f"there are no Python files in {source}")
            yield from ((str(file), file) for file in found)
        elif path.is_file():
            yield source, path
        elif source.endswith(".py") or "/" in source:
            raise MisuseError(f"there is no file {source!r}")
        else:
            yield source, _file_of(source)


def _file_of(module: str) -> Path:
    """A module's file, found without loading the module itself."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise MisuseError(f"there is no file and no module {module!r}")
    return Path(spec.origin)


def _progress(words: str) -> None:
    """One line that is written over; nobody is told who is not watching."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{escape_text(words)[: screen_width() - 1]}")
        sys.stderr.flush()


def _tell(findings: Sequence[Finding], notes: Sequence[str], files: int, tried: int) -> None:
    width, colour = screen_width(), in_colour()
    explained: set[str] = set()
    for finding in findings:
        # Why, and what instead, is told once a rule.
        for line in _told(finding, width, colour=colour, wholly=finding.rule not in explained):
            say(line, styles=colour)
        explained.add(finding.rule)
    if findings:
        say()
    for note in notes:
        for line in wrapped(f"note: {note}", width, 4):
            say(styled(line, "dim", colour), styles=colour)
    loaded = f", loaded {tried} times" if tried else ""
    many = {0: "nothing found", 1: "1 finding"}.get(len(findings), f"{len(findings)} findings")
    where = "1 file" if files == 1 else f"{files} files"
    say(f"{many} in {where}{loaded}")


def _told(finding: Finding, width: int, *, colour: bool, wholly: bool) -> Iterator[str]:
    place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
    rule = styled(f"{finding.id} {finding.rule}", "yellow", colour)
    yield f"{styled(escape_text(place), 'bold', colour)}  {rule}"
    reaches = finding.reaches
    if finding.reaches_line:
        here = "" if finding.reaches_file == finding.file else f"{finding.reaches_file}, "
        reaches += f" ({here}line {finding.reaches_line})"
    if finding.through:
        reaches += f" through {', '.join(finding.through)}"
    verb = "reaches" if finding.line else "in"
    told = [f"{finding.what} {verb} {reaches}"]
    if wholly:
        told += [f"why: {finding.why}", f"instead: {finding.instead}"]
    for words in told:
        first, *rest = wrapped(words, width - 4, 6)
        yield f"  {first}"
        yield from (f"    {line}" for line in rest)


def _print_rules(*, as_json: bool) -> None:
    if as_json:
        say_json([rule._asdict() for rule in RULES])
        return
    width, colour = screen_width(), in_colour()
    for rule in RULES:
        name = styled(padded(rule.name, 12), "bold", colour)
        say(f"{padded(rule.id, 4)} {name} {rule.what}", styles=colour)
        for words in (rule.why, f"instead: {rule.instead}"):
            for line in wrapped(words, width - 18, 6):
                say(f"{'':18}{line}")
