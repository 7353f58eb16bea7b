"""CPU instructions of one step, by callgrind: nearly the same on every run, which seconds are not.

    python bench/instructions.py [--tree PATH ...] [KIND ...]

Needs valgrind, its headers and a C compiler. Steps 10 to 50 of one session of `bench/steps.py` are counted, in
one process, without what starts and ends it. A tree is a checkout, whose own `bench/steps.py` is used; several
trees are compared with the last one. Two runs of one tree differ by up to 0.4 %.
"""

import argparse
import asyncio
import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST, LAST = 10, 50
HERE = Path(__file__).parents[1]
SWITCH = """
#include <valgrind/callgrind.h>
void start_counting(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_TOGGLE_COLLECT; }
void stop_counting(void) { CALLGRIND_TOGGLE_COLLECT; CALLGRIND_STOP_INSTRUMENTATION; }
"""


def run_counted(tree, switch, kind):
    """Run one session in this process; instructions are counted between two of its requests."""
    sys.path.insert(0, str(Path(tree, "bench")))
    import steps

    library, requests = ctypes.CDLL(switch), 0
    answer = steps.Replies.__call__

    async def count_request(replies, outgoing):
        nonlocal requests
        requests += 1
        if requests == FIRST:
            library.start_counting()
        elif requests == LAST:
            library.stop_counting()
        return await answer(replies, outgoing)

    gc.disable()
    for _ in range(2):
        asyncio.run(steps.session(kind, steps.WARM_STEPS)())
    steps.Replies.__call__ = count_request
    asyncio.run(steps.session(kind, LAST)())


def count_instructions(tree, kind, switch):
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(tree / "src")}
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"]
    program = [sys.executable, str(Path(__file__)), "--counted", str(tree), str(switch), kind]
    done = subprocess.run(
        [*command, "--callgrind-out-file=/dev/null", *program],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1)) // (LAST - FIRST)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--tree", type=Path, action="append", metavar="PATH")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counted:
        run_counted(*options.kinds)
        return
    sys.path.insert(0, str(HERE / "bench"))
    import steps

    trees = [tree.resolve() for tree in options.tree or [HERE]]
    with tempfile.TemporaryDirectory() as folder:
        source, switch = Path(folder, "switch.c"), Path(folder, "switch.so")
        source.write_text(SWITCH)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", switch], check=True)
        for kind in options.kinds or steps.KINDS:
            counts = [count_instructions(tree, kind, switch) for tree in trees]
            ratios = [f"{counts[-1] / count:.3f}" for count in counts[:-1]]
            print(f"{kind:<36}{'  '.join([*(f'{count:,}' for count in counts), *ratios])}", flush=True)


if __name__ == "__main__":
    main()
