"""Findings of reading the source: volatile values that reach the start of a prompt and are not allowed there."""

import ast
from collections.abc import Iterator
from pathlib import Path

from bridle.values.base import Value

from .data_flow import DataFlow, Taint
from .module_index import ModuleIndex
from .rules import get_rule
from .sinks import PromptSink, list_sinks, makes_agents

LOAD_RULES_OF = {
    "clock": ("each-time", "other-day"),
    "random": ("each-time",),
    "identity": ("each-time", "hash-seed"),
    "environment": ("elsewhere",),
    "unordered": ("hash-seed",),
    "outside": ("each-time",),
}
"""Rules of loading that report the same value as a rule of reading."""
SKIPPED_FOLDERS = ("site-packages", "node_modules", "__pycache__")


class LintFinding(Value, kw_only=True):
    rule: str
    id: str
    file: str
    line: int
    column: int
    what: str
    """The expression in the code, or the two differing texts."""
    reaches: str
    reaches_file: str = ""
    reaches_line: int = 0
    through: tuple[str, ...] = ()
    why: str = ""
    instead: str = ""


class StaticFindings(Value, kw_only=True):
    findings: tuple[LintFinding, ...]
    makes_agents: bool
    """True if loading the file creates agents or tools."""
    notes: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    """Rules of loading that a `# bridle: stable` comment allows."""


def read_findings(path: Path, library: ModuleIndex) -> StaticFindings:
    """Read one file; raises `MisuseError` if it is not valid Python."""
    module = library.open_module(path)
    flow = DataFlow(library)
    unique: dict[tuple[str, str, int, int], LintFinding] = {}
    allowed: set[str] = set()
    notes: list[str] = []
    for sink in list_sinks(flow, module):
        taints = flow.find_taints(sink.node, sink.scope)
        if flow.is_too_large:
            where = f"{_display_path(sink.scope.module.path)}, line {getattr(sink.node, 'lineno', 0)}"
            notes.append(f"{where}: {sink.what}: the code is too complex to be checked completely")
        for taint in taints:
            if sink.rules and taint.rule not in sink.rules:
                continue
            if _is_allowed(taint, sink):
                allowed.update(LOAD_RULES_OF[taint.rule])
                continue
            finding = _make_finding(taint, sink)
            unique.setdefault((finding.rule, finding.file, finding.line, finding.column), finding)
    found = sorted(unique.values(), key=lambda finding: (finding.file, finding.line, finding.column))
    return StaticFindings(
        findings=tuple(found),
        makes_agents=makes_agents(flow, module),
        notes=tuple(notes),
        allowed=frozenset(allowed),
    )


def _make_finding(taint: Taint, sink: PromptSink) -> LintFinding:
    about = get_rule(taint.rule)
    through = dict.fromkeys(hop.name for hop in taint.hops)
    return LintFinding(
        rule=about.name,
        id=about.id,
        file=_display_path(taint.module.path),
        line=taint.line,
        column=taint.node.col_offset + 1,
        what=taint.what,
        reaches=sink.what,
        reaches_file=_display_path(sink.scope.module.path),
        reaches_line=getattr(sink.node, "lineno", 0),
        through=tuple(through),
        why=about.why,
        instead=about.instead,
    )


def _is_allowed(taint: Taint, sink: PromptSink) -> bool:
    """True if a `# bridle: stable` comment is at the value, at its destination, or at a step between them."""
    lines = [(taint.module, *_line_range(taint.node)), (sink.scope.module, *_line_range(sink.node))]
    lines += [(hop.module, hop.line, hop.line) for hop in taint.hops]
    return any(module.allows(taint.rule, first, last) for module, first, last in lines)


def _line_range(node: ast.AST) -> tuple[int, int]:
    first = getattr(node, "lineno", 0)
    return first, getattr(node, "end_lineno", None) or first


def list_python_files(folder: Path) -> Iterator[Path]:
    """The Python files of a folder in sorted order, without hidden and third-party folders."""
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts
        if not any(part.startswith(".") or part in SKIPPED_FOLDERS for part in inside):
            yield path


def _display_path(path: Path) -> str:
    """The path relative to the working directory, if it is inside it."""
    here = Path.cwd()
    whole = path.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(path)
