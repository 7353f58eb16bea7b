"""Find code that makes prompts uncacheable: clocks, random ids, the environment, unordered sets.

Providers cache the start of a prompt and compare it byte by byte, so one volatile value in instructions, tool
descriptions or schemas makes every cached prompt useless. The command reads the code and reports each such
value with its line. Then it creates the agents in fresh processes, with another hash seed, clock and
environment, and compares their prompts. A folder stands for the Python files in it.

To accept a line as it is:

  # bridle: stable   or   # bridle: stable[clock]
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from bridle.cli.format.columns import apply_style, is_color_output, pad_text, screen_width, wrap_text
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.linting.load_findings import compare_loads
from bridle.cli.linting.module_index import ModuleIndex
from bridle.cli.linting.rules import LINT_RULES, find_rule_name
from bridle.cli.linting.static_findings import LintFinding, list_python_files, read_findings
from bridle.values.errors import MisuseError
from bridle.values.text import escape_text

EXIT_FOUND = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        nargs="*",
        metavar="FILE.py|FOLDER|module",
        help="files, folders or modules that create agents and tools",
    )
    add("--no-load", dest="load", action="store_false", help="only read the code, do not run it")
    add(
        "--ignore", action="append", default=[], metavar="RULE", help="skip a rule, by name or id; repeatable"
    )
    add("--rules", action="store_true", help="print the rules and exit")
    add("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    if options.rules:
        _print_rules(as_json=options.json)
        return 0
    if not options.source:
        raise MisuseError(
            "give a file or folder, as in: bridle check prompts app.py; --rules lists the rules"
        )
    ignored = {_parse_rule(word) for word in options.ignore}
    files = [*_list_files(options.source)]
    library = ModuleIndex()
    findings: list[LintFinding] = []
    notes: list[str] = []
    tried = 0
    for source, path in files:
        seen = read_findings(path, library)
        findings.extend(seen.findings)
        notes.extend(seen.notes)
        if options.load and seen.makes_agents:
            outcome = compare_loads(source, os.environ, _show_progress, seen.allowed)
            findings.extend(outcome.findings)
            notes.extend(outcome.notes)
            tried += outcome.loads
    _show_progress("")
    kept = [finding for finding in dict.fromkeys(findings) if finding.rule not in ignored]
    if options.json:
        told = {"findings": kept, "notes": notes, "files": len(files), "loaded": tried}
        print_json(told)
    else:
        _print_findings(kept, notes, len(files), tried)
    return EXIT_FOUND if kept else 0


def _parse_rule(word: str) -> str:
    name = find_rule_name(word)
    if not name:
        raise MisuseError(f"unknown rule {word!r}; `bridle check prompts --rules` lists them")
    return name


def _list_files(sources: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Modules to load, each with the file to read."""
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = [*list_python_files(path)]
            if not found:
                raise MisuseError(f"no Python files in {source}")
            yield from ((str(file), file) for file in found)
        elif path.is_file():
            yield source, path
        elif source.endswith(".py") or "/" in source:
            raise MisuseError(f"no file {source!r}")
        else:
            yield source, _module_file(source)


def _module_file(module: str) -> Path:
    """The file of a module, found without importing it."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise MisuseError(f"no file or module {module!r}")
    return Path(spec.origin)


def _show_progress(words: str) -> None:
    """Overwrite one progress line; nothing is written if standard error is not a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{escape_text(words)[: screen_width() - 1]}")
        sys.stderr.flush()


def _print_findings(findings: Sequence[LintFinding], notes: Sequence[str], files: int, tried: int) -> None:
    width, colour = screen_width(), is_color_output()
    explained: set[str] = set()
    for finding in findings:
        # Reason and remedy are printed once per rule.
        for line in _format_finding(finding, width, colour=colour, wholly=finding.rule not in explained):
            print_line(line, styles=colour)
        explained.add(finding.rule)
    if findings:
        print_line()
    for note in notes:
        for line in wrap_text(f"note: {note}", width, 4):
            print_line(apply_style(line, "dim", colour), styles=colour)
    loaded = f", loaded {tried} times" if tried else ""
    many = {0: "nothing found", 1: "1 finding"}.get(len(findings), f"{len(findings)} findings")
    where = "1 file" if files == 1 else f"{files} files"
    print_line(f"{many} in {where}{loaded}")


def _format_finding(finding: LintFinding, width: int, *, colour: bool, wholly: bool) -> Iterator[str]:
    place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
    rule = apply_style(f"{finding.id} {finding.rule}", "yellow", colour)
    yield f"{apply_style(escape_text(place), 'bold', colour)}  {rule}"
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
        first, *rest = wrap_text(words, width - 4, 6)
        yield f"  {first}"
        yield from (f"    {line}" for line in rest)


def _print_rules(*, as_json: bool) -> None:
    if as_json:
        print_json([rule._asdict() for rule in LINT_RULES])
        return
    width, colour = screen_width(), is_color_output()
    for rule in LINT_RULES:
        name = apply_style(pad_text(rule.name, 12), "bold", colour)
        print_line(f"{pad_text(rule.id, 4)} {name} {rule.what}", styles=colour)
        for words in (rule.why, f"instead: {rule.instead}"):
            for line in wrap_text(words, width - 18, 6):
                print_line(f"{'':18}{line}")
