"""Prints how far the parts of the runtime are from being independent, each figure beside its target. Nothing fails.

    python bench/structure.py              the table
    python bench/structure.py --list NAME  what a figure counts: touched, before_decision, knots
    python bench/structure.py --json       the figures

A run is one streamed run with one tool, answered by the simulator, whose own modules are not counted. A concept is a
package or a module directly below `core` or `run`; a knot is a group of concepts that all reach one another by imports.
"""

import argparse
import ast
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src" / "bridle"
LAYERS = ("core", "run")
DECISION = ("bridle.core.loop", "next_effects")
"""The function that takes a decision."""
PROVIDER_SIDE = (".decode_request", ".encode_reply", ".reply_encoding", ".request_reader")
"""Modules of a wire family that only the simulated provider runs."""


class Figure(NamedTuple):
    label: str
    target: int
    found: list[str]


def measure() -> dict[str, Figure]:
    called = trace_run()
    first = next(at for at, call in enumerate(called) if call == DECISION)
    figures = {
        "touched": Figure(
            "modules touched by one streamed run with one tool", 60, sorted({module for module, _ in called})
        ),
        "before_decision": Figure(
            "calls before the first decision of a run", 60, [".".join(call) for call in called[:first]]
        ),
    }
    for layer in LAYERS:
        graph = read_concepts(SOURCE / layer)
        found = [name for knot in find_knots(graph) for name in knot]
        label = f"concepts of `{layer}` in a knot, of {len(graph)}"
        figures[f"knots_{layer}"] = Figure(label, 0, found)
    return figures


def trace_run() -> list[tuple[str, str]]:
    """The module and name of each function of ours that the run calls, in order; imports and caches are warm."""
    from bridle import Agent, tool

    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return f"{at} is fine"

    agent = Agent("sim:", tools=[look])
    frames: dict[FrameType, None] = {}  # a coroutine that goes on has its old frame

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            frames[frame] = None

    async def run() -> None:
        async for _ in agent.stream('!call look {"at": "a"}\n!then\n!say done'):
            pass

    asyncio.run(run())
    profile = sys.getprofile()
    sys.setprofile(note)
    try:
        asyncio.run(run())
    finally:
        sys.setprofile(profile)
    called = [(str(frame.f_globals.get("__name__", "")), frame.f_code.co_name) for frame in frames]
    return [
        (module, name)
        for module, name in called
        if module.startswith("bridle.") and not module.startswith("bridle.sim")
        if not module.endswith(PROVIDER_SIDE) and not name.startswith("<")  # comprehensions are no calls
    ]


def read_concepts(folder: Path) -> dict[str, set[str]]:
    """The concepts of a layer, each with those that it imports."""
    files = [path for path in folder.rglob("*.py") if path != folder / "__init__.py"]
    graph: dict[str, set[str]] = {path.relative_to(folder).with_suffix("").parts[0]: set() for path in files}
    for path in files:
        own = path.relative_to(folder).with_suffix("").parts[0]
        targets = {parts[0] for parts in list_imports(path, folder) if parts}
        graph[own] |= (targets & graph.keys()) - {own}
    return graph


def list_imports(path: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """The modules below a folder of the package that a file imports, as parts of their path in it."""
    here, inside = ("bridle", *path.relative_to(SOURCE).parent.parts), ("bridle", folder.name)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            target = (*above, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                full = (*target, alias.name)
                if full[: len(inside)] == inside:
                    yield full[len(inside) :]


def find_knots(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of two or more nodes that all reach one another, the largest first."""
    reached = {name: reach(graph, name) for name in graph}
    knots = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted((sorted(knot) for knot in knots if len(knot) > 1), key=len, reverse=True)


def reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Nodes that a path of at least one edge leads to."""
    reached, waiting = set[str](), [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(graph[name])
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", metavar="NAME")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure()
    if options.list:
        wanted = [figure for name, figure in figures.items() if name.startswith(options.list)]
        print("\n".join(line for figure in wanted for line in figure.found))
    elif options.json:
        print(json.dumps({name: len(figure.found) for name, figure in figures.items()}))
    else:
        print(f"{'':<52}{'now':>6}{'target':>8}")
        for figure in figures.values():
            print(f"{figure.label:<52}{len(figure.found):>6}{figure.target:>8}")


if __name__ == "__main__":
    main()
