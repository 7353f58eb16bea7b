"""Disables each guard of docs/guard_table.py, one at a time, and reports if its tests fail:

    python -m tests.campaigns.guard_mutants                   all guards
    python -m tests.campaigns.guard_mutants NAME…             guards whose marker, or whose test, contains a NAME
    python -m tests.campaigns.guard_mutants --since REV       guards whose row, source or test changed since a commit
    python -m tests.campaigns.guard_mutants --sample 60 1     guards chosen at random, with a seed
    … --jobs 2                                                several at a time

A test that passes without its guard proves nothing. The source is copied and changed in the copy; the working tree
stays as it is. Campaigns run as a whole, because a tenth may miss a guard; BRIDLE_CAMPAIGN=0.1 shows what `make test`
notices. All guards take some tens of minutes.
test_guard_mutants.py checks on every run that each marker has a row, each row its marker, and that each mutation fits.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from docs.guard_table import BOUNDARIES, Boundary, Place, find_markers
from tests.campaigns.guard_mutations import mutate

ROOT = Path(__file__).parents[2]
TABLE = "docs/guard_table.py"
COPIED = (
    "src",
    "tests",
    "examples",
    "docs",
    "bench",
    "pyproject.toml",
    "SECURITY.md",
    "README.md",
    "ARCHITECTURE.md",
)
SECONDS_MAX = 300
"""Far more than any of the tests takes; without its guard, some wait for ever."""
Places = Mapping[str, Sequence[Place]]
NOTICED, UNNOTICED, SKIPPED = "noticed", "NOT NOTICED", "skipped"


class Mutant(NamedTuple):
    """A guard that is disabled, and one test that must fail then."""

    marker: str
    mutation: str
    test: str


def list_mutants(boundaries: Iterable[Boundary]) -> tuple[Mutant, ...]:
    """Each mutant of a table once."""
    mutants = (
        Mutant(guard.marker, guard.mutation, test)
        for boundary in boundaries
        for guard in boundary.guards
        for test in guard.tests
    )
    return tuple(dict.fromkeys(mutants))


MUTANTS = list_mutants(BOUNDARIES)


def apply_mutant(mutant: Mutant, place: Place, root: Path = ROOT) -> str:
    """The text of the file of a guard, with the guard disabled."""
    text = (root / place.path.relative_to(ROOT)).read_text(encoding="utf-8")
    return mutate_guard(text, place, mutant.mutation)


def mutate_guard(text: str, place: Place, mutation: str) -> str:
    """The text of a file with the guard at a place of it disabled."""
    return mutate(text, place.line, mutation, is_python=place.path.suffix == ".py")


@contextmanager
def copy_tree(*more: str) -> Iterator[Path]:
    """A copy of the tree and of more of its folders, beside the repository: the recordings of the tests are found there."""
    with tempfile.TemporaryDirectory(dir=ROOT.parent) as folder:
        ignored = shutil.ignore_patterns("__pycache__", ".git", ".work")
        for name in (*COPIED, *more):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(folder, name), ignore=ignored)
            else:
                shutil.copy(ROOT / name, Path(folder, name))
        yield Path(folder)


def run_tests(copy: Path, *tests: str) -> tuple[str, str]:
    """`passed`, `failed`, `skipped`, `unfinished` or `error`, and the end of what was printed."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-rs", "-o", "addopts=", "-p", "no:cacheprovider", *tests],
            cwd=copy / "tests",
            env={
                "BRIDLE_CAMPAIGN": "1",
                **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
                "PYTHONPATH": os.pathsep.join((str(copy), str(copy / "src"))),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX * len(tests),
        )
    except subprocess.TimeoutExpired:
        return "unfinished", f"not finished after {SECONDS_MAX} s"
    if ended.returncode == 0:
        return ("passed" if " passed" in ended.stdout else "skipped"), ended.stdout[-300:]
    return ("failed" if ended.returncode == 1 else "error"), (ended.stdout + ended.stderr)[-1000:]


_times = count(int(time.time()))


def write_source(path: Path, text: str) -> None:
    """Write a file with a time of its own, by which Python knows that its compiled file is an old one."""
    path.write_text(text, encoding="utf-8")
    moment = next(_times)
    os.utime(path, (moment, moment))


def run_mutant(mutant: Mutant, place: Place, copy: Path) -> tuple[str, str]:
    """Whether the test noticed that the guard is disabled, and what it printed if it did not."""
    changed = copy / place.path.relative_to(ROOT)
    original = changed.read_text(encoding="utf-8")
    write_source(changed, apply_mutant(mutant, place, copy))
    try:
        outcome, printed = run_tests(copy, mutant.test)
    finally:
        write_source(changed, original)
    if outcome == "unfinished" and run_tests(copy, mutant.test)[0] == "passed":
        outcome = "failed"  # it ends in time with its guard, and waits for ever without
    return {"failed": NOTICED, "skipped": SKIPPED}.get(outcome, UNNOTICED), printed


def read_table(text: str) -> tuple[Mutant, ...]:
    """The mutants of the table as it was in an earlier commit."""
    table = {"__name__": "earlier_table", "__file__": str(ROOT / TABLE)}
    exec(compile(text, TABLE, "exec"), table)
    return list_mutants(table["BOUNDARIES"])  # type: ignore[arg-type]


def choose_changed(files: Collection[str], earlier: Collection[Mutant], places: Places) -> list[Mutant]:
    """The mutants whose row is new, or whose guard or test is in one of the files."""
    return [
        mutant
        for mutant in MUTANTS
        if mutant not in earlier
        or any(place.path.relative_to(ROOT).as_posix() in files for place in places[mutant.marker])
        or f"tests/{mutant.test.partition('::')[0]}" in files
    ]


def choose_since(rev: str, places: Places) -> list[Mutant]:
    """The mutants that changed between a commit and the working tree."""

    def run_git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    changed = run_git("diff", "--name-only", rev).splitlines()
    added = run_git("ls-files", "--others", "--exclude-standard").splitlines()
    has_table = bool(run_git("ls-tree", "--name-only", rev, TABLE))
    earlier = read_table(run_git("show", f"{rev}:{TABLE}")) if has_table else ()
    return choose_changed({*changed, *added}, earlier, places)


def choose_mutants(options: argparse.Namespace, places: Places) -> Sequence[Mutant]:
    chosen = list(MUTANTS)
    if options.since:
        chosen = choose_since(options.since, places)
    if options.names:
        exact = [mutant for mutant in chosen if mutant.marker in options.names]
        chosen = exact or [
            mutant
            for mutant in chosen
            if any(name in f"{mutant.marker} {mutant.test}" for name in options.names)
        ]
    if options.sample:
        size, seed = options.sample
        chosen = random.Random(seed).sample(chosen, min(size, len(chosen)))
    return chosen


def check_tests(chosen: Sequence[Mutant], jobs: int) -> None:
    """Exit if a test fails although every guard is in place."""
    with copy_tree() as copy:
        tests = {mutant.test: None for mutant in chosen}
        print(f"running {len(tests)} tests with every guard in place", flush=True)
        outcome, printed = run_tests(copy, "-n", str(jobs), *tests)
    if outcome not in ("passed", "skipped"):
        sys.exit(f"{printed}\na test fails with every guard in place; correct it first")


def run_chosen(chosen: Sequence[Mutant], places: Places, jobs: int) -> Counter[str]:
    """Run the chosen mutants, print each outcome, and count them."""
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(jobs):
            copies.put(stack.enter_context(copy_tree()))

        def run_one(mutant: Mutant) -> tuple[str, str, float]:
            copy, started = copies.get(), time.monotonic()
            try:
                outcome, printed = run_mutant(mutant, places[mutant.marker][0], copy)
                return outcome, printed, time.monotonic() - started
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as threads:
            running = {threads.submit(run_one, mutant): mutant for mutant in chosen}
            for number, done in enumerate(as_completed(running), 1):
                mutant, (outcome, printed, seconds) = running[done], done.result()
                counts[outcome] += 1
                row = f"{mutant.marker}: {mutant.mutation[:40]}"
                print(
                    f"{number}/{len(chosen)} {outcome:11} {seconds:4.0f} s  {row}  {mutant.test}", flush=True
                )
                if outcome != NOTICED:
                    print("    " + printed.strip().replace("\n", "\n    "), flush=True)
    return counts


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Disable guards one at a time; the tests of each must fail.")
    parser.add_argument("names", nargs="*", help="markers, or parts of markers and tests")
    parser.add_argument(
        "--since", metavar="REV", help="only rows whose guard or test changed since this commit"
    )
    parser.add_argument(
        "--sample", nargs=2, type=int, metavar=("SIZE", "SEED"), help="that many, chosen at random"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(words)
    places = find_markers()
    chosen = choose_mutants(options, places)
    check_tests(chosen, options.jobs)
    counts = run_chosen(chosen, places, options.jobs)
    print(
        f"{len(chosen)} guards disabled: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}"
    )
    return int(any(name not in (NOTICED, SKIPPED) for name in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
