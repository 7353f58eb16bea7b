"""The findings of reading: what flows into the front of a prompt, unless somebody has said that it may."""

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
"""What each thing in the code is found as when the code is loaded again."""
SKIPPED_FOLDERS = ("site-packages", "node_modules", "__pycache__")


class LintFinding(Value):
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


class StaticFindings(Value):
    findings: tuple[LintFinding, ...]
    makes_agents: bool
    """Whether loading the file makes agents or tools."""
    notes: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    """What loading would find that the code says may stay."""


def read_findings(path: Path, library: ModuleIndex) -> StaticFindings:
    """Raises `MisuseError` when it is no Python."""
    module = library.open_module(path)
    flow = DataFlow(library)
    unique: dict[tuple[str, str, int, int], LintFinding] = {}
    allowed: set[str] = set()
    notes: list[str] = []
    for sink in list_sinks(flow, module):
        taints = flow.find_taints(sink.node, sink.scope)
        if flow.is_too_large:
            where = f"{_display_path(sink.scope.module.path)}, line {getattr(sink.node, 'lineno', 0)}"
            notes.append(f"{where}: too much flows into {sink.what} to be followed to its end")
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
    """Whether `# bridle: stable` stands where it is, where it goes, or anywhere on the way."""
    lines = [(taint.module, *_line_range(taint.node)), (sink.scope.module, *_line_range(sink.node))]
    lines += [(hop.module, hop.line, hop.line) for hop in taint.hops]
    return any(module.allows(taint.rule, first, last) for module, first, last in lines)


def _line_range(node: ast.AST) -> tuple[int, int]:
    first = getattr(node, "lineno", 0)
    return first, getattr(node, "end_lineno", None) or first


def list_python_files(folder: Path) -> Iterator[Path]:
    """In order, without what is hidden or somebody else's."""
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts
        if not any(part.startswith(".") or part in SKIPPED_FOLDERS for part in inside):
            yield path


def _display_path(path: Path) -> str:
    """As it is called from here, where it is below here."""
    here = Path.cwd()
    whole = path.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(path)
