"""The findings of reading: what flows into the front of a prompt, unless somebody has said that it may."""

import ast
from collections.abc import Iterator
from pathlib import Path

from ...values.value import Value
from .flowing import Flow, Taint
from .library import Library
from .rules import rule
from .sinks import Sink, has_agents, sinks

SHOWS_AS = {
    "clock": ("each-time", "other-day"),
    "random": ("each-time",),
    "identity": ("each-time", "hash-seed"),
    "environment": ("elsewhere",),
    "unordered": ("hash-seed",),
    "outside": ("each-time",),
}
"""What each thing in the code is found as when the code is loaded again."""
FOREIGN = ("site-packages", "node_modules", "__pycache__")


class Finding(Value):
    rule: str
    id: str
    file: str
    line: int
    column: int
    what: str
    """The words of the code, or of the two prompts."""
    reaches: str
    reaches_file: str = ""
    reaches_line: int = 0
    through: tuple[str, ...] = ()
    why: str = ""
    instead: str = ""


class Read(Value):
    findings: tuple[Finding, ...]
    loadable: bool
    """Whether loading the file makes agents or tools."""
    notes: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    """What loading would find that the code says may stay."""


def read(path: Path, library: Library) -> Read:
    """Raises `MisuseError` when it is no Python."""
    module = library.open(path)
    flow = Flow(library)
    unique: dict[tuple[str, str, int, int], Finding] = {}
    allowed: set[str] = set()
    notes: list[str] = []
    for sink in sinks(flow, module):
        taints = flow.into(sink.node, sink.scope)
        if flow.gave_up:
            where = f"{_shown(sink.scope.module.path)}, line {getattr(sink.node, 'lineno', 0)}"
            notes.append(f"{where}: too much flows into {sink.what} to be followed to its end")
        for taint in taints:
            if sink.rules and taint.rule not in sink.rules:
                continue
            if _allowed(taint, sink):
                allowed.update(SHOWS_AS[taint.rule])
                continue
            finding = _finding(taint, sink)
            unique.setdefault((finding.rule, finding.file, finding.line, finding.column), finding)
    found = sorted(unique.values(), key=lambda finding: (finding.file, finding.line, finding.column))
    return Read(
        findings=tuple(found),
        loadable=has_agents(flow, module),
        notes=tuple(notes),
        allowed=frozenset(allowed),
    )


def _finding(taint: Taint, sink: Sink) -> Finding:
    about = rule(taint.rule)
    through = dict.fromkeys(hop.name for hop in taint.hops)
    return Finding(
        rule=about.name,
        id=about.id,
        file=_shown(taint.module.path),
        line=taint.line,
        column=taint.node.col_offset + 1,
        what=taint.what,
        reaches=sink.what,
        reaches_file=_shown(sink.scope.module.path),
        reaches_line=getattr(sink.node, "lineno", 0),
        through=tuple(through),
        why=about.why,
        instead=about.instead,
    )


def _allowed(taint: Taint, sink: Sink) -> bool:
    """Whether `# bridle: stable` stands where it is, where it goes, or anywhere on the way."""
    lines = [(taint.module, *_lines(taint.node)), (sink.scope.module, *_lines(sink.node))]
    lines += [(hop.module, hop.line, hop.line) for hop in taint.hops]
    return any(module.allows(taint.rule, first, last) for module, first, last in lines)


def _lines(node: ast.AST) -> tuple[int, int]:
    first = getattr(node, "lineno", 0)
    return first, getattr(node, "end_lineno", None) or first


def python_files(folder: Path) -> Iterator[Path]:
    """In order, without what is hidden or somebody else's."""
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts
        if not any(part.startswith(".") or part in FOREIGN for part in inside):
            yield path


def _shown(path: Path) -> str:
    """As it is called from here, where it is below here."""
    here = Path.cwd()
    whole = path.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(path)
