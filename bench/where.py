"""Shows where a tool step goes: function calls and CPU time of each layer, per step.

    python bench/where.py                      every layer, Anthropic, whole replies
    python bench/where.py anthropic/streamed --functions 30 --json

The sessions are those of `bench/steps.py`, answered in the process, so the network is left out. Calls are exact and the
same on every run. Times are those of the profiler, which makes small functions look more expensive than they are:
compare the shares. A built-in function counts for the layer that calls it.
"""

import argparse
import asyncio
import cProfile
import gc
import json
from collections import defaultdict

from steps import KINDS, PACKAGE, WARM_STEPS, session

ROUNDS = 7
LAYERS = (
    ("transport", ("transports/",)),
    (
        "encode",
        ("providers/wire/encoded_history", "providers/wire/breakpoints", "encode.py", "run/private_extras"),
    ),
    ("decode", ("providers/",)),
    ("context", ("core/context/", "core/compaction/")),
    ("cache", ("core/cache/", "run/cache.py")),
    ("calls", ("core/calls/",)),
    ("budget", ("core/budget/", "run/budget/", "values/usage", "values/budget")),
    ("other decisions", ("core/",)),
    ("model call", ("run/model_call", "run/model_connection", "run/recovery/")),
    ("tool", ("run/calls/", "tools/")),
    ("record", ("values/record", "stores/", "run/recovery/session_log")),
    ("watch", ("watchers/", "run/stream")),
    ("drive", ("run/",)),
    ("values", ("values/",)),
    ("sim and bench", ("sim/",)),
)
"""Layers with the beginnings or parts of their paths; the first that matches counts."""


def find_layer(path):
    if not path.startswith(PACKAGE):
        return "asyncio" if "asyncio" in path else "bench" if "bench" in path else "standard library"
    inner = path[len(PACKAGE) :].lstrip("/")
    return next((name for name, parts in LAYERS if any(part in inner for part in parts)), "other")


def name_function(code):
    return (
        code
        if isinstance(code, str)
        else f"{code.co_filename.removeprefix(PACKAGE).lstrip('/')}:{code.co_qualname}"
    )


def profile_session(kind, steps):
    """Calls and seconds by (layer, function); built-in functions belong to the layer of their callers."""

    async def profiled():
        run, profile = session(kind, steps), cProfile.Profile()
        profile.enable()
        await run()
        profile.disable()
        return profile.getstats()

    gc.disable()
    try:
        entries = asyncio.run(profiled())
    finally:
        gc.enable()
    found = defaultdict(lambda: [0, 0.0])
    for entry in entries:
        if isinstance(entry.code, str):
            continue
        layer = find_layer(entry.code.co_filename)
        _add(found[layer, name_function(entry.code)], entry.callcount, entry.inlinetime)
        for inner in entry.calls or ():
            if isinstance(inner.code, str):
                _add(found[layer, inner.code], inner.callcount, inner.inlinetime)
    return found


def _add(figures, calls, seconds):
    figures[0] += calls
    figures[1] += seconds


def measure_step(kind, steps):
    """Calls and microseconds of one step, by (layer, function).

    Calls are the difference of two sessions. Times are of one session, the least of several rounds for each function,
    because other programs of the machine interrupt some of them.
    """
    profile_session(kind, WARM_STEPS)
    short, rounds = profile_session(kind, steps // 2), [profile_session(kind, steps) for _ in range(ROUNDS)]
    return {
        key: (
            (rounds[0][key][0] - short[key][0]) / (steps - steps // 2),
            min(found[key][1] for found in rounds) / steps * 1e6,
        )
        for key in rounds[0]
    }


def sum_layers(figures):
    layers = defaultdict(lambda: [0, 0.0])
    for (layer, _), (calls, micros) in figures.items():
        _add(layers[layer], calls, micros)
    return sorted(layers.items(), key=lambda item: -item[1][0])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="?", default="anthropic/whole", choices=list(KINDS), metavar="KIND")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--functions", type=int, default=0, help="also the functions with the most calls")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure_step(options.kind, options.steps)
    layers = sum_layers(figures)
    if options.json:
        print(
            json.dumps(
                {layer: {"calls": round(c), "microseconds": round(us, 1)} for layer, (c, us) in layers}
            )
        )
        return
    total, time = sum(c for _, (c, _) in layers), sum(us for _, (_, us) in layers)
    for layer, (calls, micros) in [*layers, ("all", (total, time))]:
        print(f"{layer:18} {calls:7,.0f} calls {micros:8.0f} µs {micros / time:5.0%}")
    most = sorted(figures.items(), key=lambda item: -item[1][0])[: options.functions]
    for (layer, name), (calls, micros) in most:
        print(f"  {calls:6.1f} {micros:7.1f} µs  {layer:16} {name}")


if __name__ == "__main__":
    main()
