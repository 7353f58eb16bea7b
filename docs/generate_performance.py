"""The tables of docs/evidence.md, from the recording bench/speed.json and the targets in bench/targets.py."""

import json
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generate_reference import table

BENCH = Path(__file__).parent.parent / "bench"
TARGETS = runpy.run_path(str(BENCH / "targets.py"))
NOT_RECORDED = "Not in this recording.\n"
NAMES = {
    "floor": "lower bound: ready bytes on a bare socket",
    "raw-aiohttp": "raw aiohttp loop",
    "bridle": "**Bridle**",
    "bridle+uvloop": "Bridle on uvloop",
    "agno": "agno",
    "pydantic-ai": "Pydantic AI",
}


def _load() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads((BENCH / "speed.json").read_text())
    return recorded


def _suite_table(suite: str, columns: Sequence[tuple[str, str]]) -> str:
    """One row per contestant; columns are pairs of a heading and the recorded name."""
    found = _load()["suites"].get(suite)
    if not found:
        return NOT_RECORDED
    columns = [column for column in columns if any(column[1] in cells for cells in found.values())]
    rows = [
        [title, *(_figure(found[name].get(key)) for _, key in columns)]
        for name, title in NAMES.items()
        if name in found
    ]
    return table(["", *(heading for heading, _ in columns)], rows)


def _figure(value: float | None) -> str:
    return "-" if value is None else str(TARGETS["format_figure"](value))


def _by_wire(*figures: tuple[str, str]) -> list[tuple[str, str]]:
    """Columns of every wire: pairs of the words for a heading and the end of the recorded name."""
    return [
        (f"{name}, {words}" if words else name, f"{proto} {key}")
        for proto, name in TARGETS["PROTOS"].items()
        for words, key in figures
    ]


def measured_on() -> str:
    recorded = _load()
    peers = ", ".join(f"{NAMES[name]} {version}" for name, version in recorded["versions"].items() if version)
    return (
        f"Measured on {recorded['date']} with Python {recorded['python']} on {recorded['machine']}, with a load of"
        f" {recorded['load']} from other programs, in {recorded['rounds']} interleaved rounds. Peers: {peers}.\n"
    )


def speed_targets() -> str:
    judged = TARGETS["judge"](_load()["suites"])
    rows = [
        [
            target.what,
            target.describe_limit(),
            _figure(value),
            "yes" if target.is_met(value) else "**no**",
        ]
        for target, value in judged
    ]
    measured = {target for target, _ in judged}
    rows += [
        [target.what, target.describe_limit(), "not measured", "unknown"]
        for target in TARGETS["TARGETS"]
        if target not in measured
    ]
    missed = sum(not target.is_met(value) for target, value in judged)
    return (
        table(["what", "target", "measured", "met"], rows)
        + f"\n{missed} of {len(judged)} measured targets are not met.\n"
    )


def step_costs() -> str:
    return _suite_table("loop", _by_wire(("whole", "json"), ("streamed", "sse")))


def delta_costs() -> str:
    return _suite_table("text", _by_wire(("", "burst")))


def long_runs() -> str:
    return _suite_table(
        "grow", _by_wire(("step 10", "step 10"), ("step 100", "step 100"), ("400", "step 400"))
    )


def many_sessions() -> str:
    sizes = (("64, whole", "json x64"), ("64, streamed", "sse x64"), ("512, whole", "json x512"))
    return _suite_table("rate", _by_wire(*sizes))


def early_starts() -> str:
    return _suite_table("early", _by_wire(("", "first")))


def memory_use() -> str:
    columns = [("process, MB", "anthropic process"), ("open streaming session, kB", "anthropic session")]
    return _suite_table("memory", columns)


def step_calls() -> str:
    if "calls" not in _load()["suites"]:
        return NOT_RECORDED
    calls = _load()["suites"]["calls"]["bridle"]
    return table(["step", "function calls"], [[kind, _figure(count)] for kind, count in calls.items()])


def durable_steps() -> str:
    found = _load()["suites"].get("durable")
    if not found:
        return NOT_RECORDED
    sizes = sorted({key.split()[0] for key in found["memory"]}, key=int)
    rows = [
        [
            f"{size}, {words}",
            *(_figure(found[kind][f"{size} {clock}"]) for kind in ("memory", "sqlite")),
            f"{found['bridle'][f'{size} {clock}']:.0%}",
        ]
        for size in sizes
        for clock, words in (("cpu", "per CPU second"), ("wall", "per second of wall time"))
    ]
    return table(["sessions", "memory", "SQLite", "share"], rows)


def start_costs() -> str:
    if "start" not in _load()["suites"]:
        return NOT_RECORDED
    start = _load()["suites"]["start"]["bridle"]
    rows = [
        ["`import asyncio, msgspec`, CPU", _figure(start["asyncio and msgspec"])],
        ["`from bridle import Agent, Budget, tool`, CPU, with these two", _figure(start["first use"])],
        ["`bridle --help`, wall time", _figure(start["help"])],
    ]
    return table(["beyond a bare interpreter", "ms"], rows)
