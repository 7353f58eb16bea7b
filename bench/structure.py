"""Prints how readable the source is, in figures: folders, names, prose, coupling.

    python bench/structure.py            the table
    python bench/structure.py --json     the figures as JSON
    python bench/structure.py --list X   what a figure counts, such as `participles` or `fragments`

tests/tidy/test_ratchets.py compares the figures with recorded limits, which only go down.
"""

import ast
import asyncio
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "bridle"
OPENINGS = re.compile(r"(What|Whether|Who|How)\b")
PERSONS = re.compile(r"\b(whoever|nobody|somebody|anybody|everybody|whom)\b", re.IGNORECASE)
PARTICIPLE = re.compile(r"_*[a-z]+(ed|ing|en|wn|ght|ept|old|aid|ade|orn|ost|eft|ound)")
NOT_PARTICIPLES = frozenset(
    {"open", "listen", "heading", "string", "setting", "warning", "reading", "need", "feed", "embed", "token"}
)
"""Words that only look like participles."""
BUDGET_KINDS = ("usd", "tokens", "steps", "seconds", "tool_calls")
FRAGMENT_LINES = 60
SIMULATOR_SIDE = (".decode_request", ".encode_reply", ".reply_encoding", ".request_reader")
"""Modules of a wire family that a provider needs and a run does not."""
KEPT_FRAGMENTS = {
    "bridle.core.budget.hosted": "the worst case of one kind of cost, apart from the limits",
    "bridle.cli.commands.evals.progress": "the screen of a command, apart from its arguments",
    "bridle.hosted": "users import it",
    "bridle.mcp": "users import it",
    "bridle.sandbox.docker": "one mechanism per file",
    "bridle.toolkit.plan_tool": "one file per tool of the toolkit",
    "bridle.config.key_check": "a guard of its own that SECURITY.md names",
    "bridle.core.cache.report": "users import it (docs/caching.md)",
    "bridle.core.compaction.handover": "a pure decision; its importer is another layer",
    "bridle.providers.families": "the list of the wire families",
    "bridle.providers.gemini.stored_prompts": "a provider object of its own: its requests beside their replies",
    "bridle.providers.openai_responses.conversations": "a provider object of its own: its requests beside their replies",
    "bridle.providers.ownership": "reads ownership.toml; its importer is another layer",
    "bridle.run.replay.raw_recorder": "loaded only if an agent keeps bytes",
    "bridle.serve.health": "one mount of a server per file",
    "bridle.sim.bedrock.endpoints": "every simulated family has a file of this name",
    "bridle.sim.openai_chat.cache_report": "families that report cache use have a file of this name",
    "bridle.sim.openai_chat.prompt": "every simulated family has a file of this name",
    "bridle.sim.openai_responses.cache_report": "families that report cache use have a file of this name",
    "bridle.sim.responder.skills.named_tool": "one skill per file",
    "bridle.testing.fake_clock": "users import it",
    "bridle.testing.wire.reference_replies": "the list of the families' reference decoders",
    "bridle.watchers.jsonl": "one watcher per file",
}
"""Small modules with one importer that stay, each with the reason."""
BEFORE = {
    "folder": 137, "openings": 24.1, "persons": 4.28, "participles": 18.6, "classes": 45, "touched": 127,
    "closure": 93, "fields": 46, "budget": 5, "fragments": 33, "lines": 75_401,
}  # fmt: skip
"""The same figures, counted by this program, before the packages were introduced."""
LABELS = {
    "folder": "files in the largest folder",
    "openings": "docstrings opening What / Whether / Who / How, per cent",
    "persons": "whoever / nobody / somebody … per 1,000 docstring words",
    "participles": "top-level functions that are one bare participle, per cent",
    "classes": "class names defined more than once",
    "touched": "modules touched by a streamed run with two tool calls",
    "closure": "modules that core.loop needs, transitively",
    "fields": "most fields in one class of the session state",
    "budget": "files that spell out all kinds of a budget",
    "fragments": "modules with one importer, at most 60 lines and no recorded reason",
    "lines": "source lines",
}


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    def list_docstrings(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text

    def list_imports(self, known: set[str]) -> Iterator[str]:
        """Modules of the package that this file imports."""
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *([base] if base else [])])
                for alias in node.names:
                    target = f"{base}.{alias.name}"
                    yield from (each for each in (target, base) if each in known)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in known)


class Structure:
    """Measures one source tree."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(name, path, path.read_text())

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        known = set(self.modules)
        return {name: {*module.list_imports(known)} - {name} for name, module in self.modules.items()}

    def list_folder(self) -> list[str]:
        folders = Counter(module.path.parent for module in self.modules.values())
        return [f"{count} {folder}" for folder, count in folders.most_common(10)]

    def list_openings(self) -> list[str]:
        return [text.splitlines()[0] for text in self._docstrings if OPENINGS.match(text)]

    def list_persons(self) -> list[str]:
        return [text.splitlines()[0] for text in self._docstrings if PERSONS.search(text)]

    @cached_property
    def _docstrings(self) -> list[str]:
        return [text for module in self.modules.values() for text in module.list_docstrings()]

    @cached_property
    def _functions(self) -> list[str]:
        return [
            f"{module.name}:{node.name}"
            for module in self.modules.values()
            for node in module.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def list_participles(self) -> list[str]:
        names = ((name, name.rpartition(":")[2]) for name in self._functions)
        return [
            name
            for name, short in names
            if PARTICIPLE.fullmatch(short) and short.strip("_") not in NOT_PARTICIPLES
        ]

    def list_classes(self) -> list[str]:
        found = defaultdict(list)
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(module.name)
        return [f"{name}: {', '.join(places)}" for name, places in found.items() if len(places) > 1]

    def list_closure(self) -> list[str]:
        reached, waiting = set(), ["bridle.core.loop"]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting.extend(self.imports[name])
        packages = {name for name in reached if self.modules[name].path.name == "__init__.py"}
        return sorted(reached - packages - {"bridle.core.loop"})

    def list_fields(self) -> list[str]:
        counts = {
            node.name: sum(isinstance(each, ast.AnnAssign) for each in node.body)
            for node in self.modules["bridle.core.state"].tree.body
            if isinstance(node, ast.ClassDef)
        }
        return [f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])]

    def list_budget(self) -> list[str]:
        return [
            module.name
            for module in self.modules.values()
            if all(re.search(rf"\b{kind}\b", module.text) for kind in BUDGET_KINDS)
        ]

    def list_fragments(self) -> list[str]:
        importers: Counter[str] = Counter(target for targets in self.imports.values() for target in targets)
        return [
            name
            for name, module in self.modules.items()
            if importers[name] == 1 and module.lines <= FRAGMENT_LINES and module.path.name != "__init__.py"
            if name not in KEPT_FRAGMENTS
        ]

    def list_touched(self) -> list[str]:
        return trace_standard_run()

    def list_lines(self) -> list[str]:
        return [f"{module.lines} {name}" for name, module in self.modules.items()]

    def measure(self) -> dict[str, float]:
        words = sum(len(text.split()) for text in self._docstrings)
        persons = sum(len(PERSONS.findall(text)) for text in self._docstrings)
        return {
            "folder": int(self.list_folder()[0].split()[0]),
            "openings": round(100 * len(self.list_openings()) / len(self._docstrings), 1),
            "persons": round(1000 * persons / words, 2),
            "participles": round(100 * len(self.list_participles()) / len(self._functions), 1),
            "classes": len(self.list_classes()),
            "touched": len(self.list_touched()),
            "closure": len(self.list_closure()),
            "fields": int(self.list_fields()[0].split()[0]),
            "budget": len(self.list_budget()),
            "fragments": len(self.list_fragments()),
            "lines": sum(module.lines for module in self.modules.values()),
        }


def trace_standard_run() -> list[str]:
    """Modules of the runtime in which a function runs during one streamed run with two tool calls."""
    from bridle import Agent, tool

    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return f"{at} is fine"

    agent = Agent("sim:openai-chat/gpt-6.1-sol", tools=[look])
    seen: Counter[str] = Counter()

    def profile(frame: object, event: str, _: object) -> None:
        if event == "call":
            seen[frame.f_globals.get("__name__", "")] += 1

    async def run() -> None:
        script = '!call look {"at": "a"}\n!call look {"at": "b"}\n!then\n!say done'
        async for _ in agent.stream(script):
            pass

    asyncio.run(run())  # imports and caches
    sys.setprofile(profile)
    try:
        asyncio.run(run())
    finally:
        sys.setprofile(None)
    own = (name for name in seen if name.startswith("bridle.") and not name.startswith("bridle.sim"))
    return sorted(name for name in own if not name.endswith(SIMULATOR_SIDE))


def main(arguments: list[str]) -> None:
    structure = Structure()
    if "--list" in arguments:
        for line in getattr(structure, f"list_{arguments[arguments.index('--list') + 1]}")():
            print(line)
        return
    figures = structure.measure()
    if "--json" in arguments:
        print(json.dumps(figures))
        return
    print(f"{'':<62}{'before':>14}{'now':>10}")
    for name, label in LABELS.items():
        print(f"{label:<62}{BEFORE[name]:>14,}{figures[name]:>10,}")


if __name__ == "__main__":
    main(sys.argv[1:])
