"""Plants defects, and reports which of them `make test` notices and which only `make test-all` does (docs/lanes.md):

    python -m tests.campaigns.lanes.measure_lanes                          a sample of each kind
    python -m tests.campaigns.lanes.measure_lanes guards --size 355        guards only, all of them
    … --seed 1 --jobs 2 --results FILE                                     another sample; continue a measurement

    guards     the guards of docs/guard_table.py, disabled; the tests that the table names
    harness    the defects of harness_mutants.py; the test that runs the harness suite
    codecs     the defects of codec_mutants.py; the tests of codecs, wires and replies, and their campaigns

Each defect is planted in a copy of the source, and pytest runs there with the settings of a lane and nothing else: a test that
the lane leaves out notices nothing. The lane of `make test` comes first. What it notices is counted for both lanes, because
`make test-all` runs the same cases and more; for the others the tests run again with the settings of `make test-all`.
`--both` runs them again for all. Only the tests of the defect run, the same for both lanes, so each lane notices at
least what is reported.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from docs.guard_table import find_markers
from tests.campaigns import guard_mutants, harness_mutants
from tests.campaigns.guard_mutants import ROOT, copy_tree, write_source
from tests.campaigns.lanes import codec_mutants

SEED = 1
SHARE_MIN = 0.9
SECONDS_MAX = 900
"""Far more than the tests of a defect take; with some defects they never end."""
TEST, TEST_ALL = "make test", "make test-all"
LANES: Mapping[str, Mapping[str, str]] = {TEST: {}, TEST_ALL: {"BRIDLE_CAMPAIGN": "1"}}
SETTINGS = ("BRIDLE_CAMPAIGN", "BRIDLE_SEED", "BRIDLE_ONE_SEED", "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")
NO_TESTS = 5
"""The exit code of pytest if every test was left out."""
HARNESS = "tests/evals/test_harness_suite.py"
OF_CODECS = (
    "tests/providers/kit",
    "tests/providers/wire",
    "tests/wire/vendors",
    "tests/campaigns/test_mutated_replies.py",
    "tests/campaigns/test_fuzz.py",
    "tests/wire/test_recorded_traffic.py",
)
FAMILIES = ("anthropic", "bedrock", "gemini", "openai_chat", "openai_responses")
LONGER = ("-m", "campaign or full or sampled or hypothesis")
"""Tests that `make test-all` runs and `make test` does not, or runs with fewer cases."""


class Seeded(NamedTuple):
    """A file with a defect, and the tests that may notice it."""

    name: str
    path: Path
    change: Callable[[str], str]
    """Gives the text of the file with the defect."""
    first: tuple[str, ...]
    """Those that are likely to fail."""
    tests: tuple[str, ...]
    cases: tuple[str, ...] = ()
    """Options of pytest that leave out cases in both lanes."""
    longer: tuple[str, ...] = ()
    """Options of pytest that leave out of `tests` what is the same in both lanes."""


class Outcome(NamedTuple):
    name: str
    lanes: tuple[str, ...]
    """The lanes that noticed it."""


def list_guards() -> list[Seeded]:
    places = find_markers()
    found = []
    for marker, mutation in dict.fromkeys((each.marker, each.mutation) for each in guard_mutants.MUTANTS):
        mutants = [
            each for each in guard_mutants.MUTANTS if (each.marker, each.mutation) == (marker, mutation)
        ]
        (place,) = places[marker]
        tests = tuple(f"tests/{each.test}" for each in mutants)
        found.append(
            Seeded(
                f"{marker}: {mutation}",
                place.path.relative_to(ROOT),
                partial(guard_mutants.mutate_guard, place=place, mutation=mutation),
                tests[:1],
                tests,
            )
        )
    return found


def list_harness_defects() -> list[Seeded]:
    places = harness_mutants.find_markers(ROOT / harness_mutants.SOURCE)
    found = []
    for defect in harness_mutants.DEFECTS:
        (path,) = places[defect.marker]
        first = f"{HARNESS}::test_the_harness_passes_its_suite[{defect.area}]"
        found.append(
            Seeded(
                defect.marker,
                path.relative_to(ROOT),
                partial(harness_mutants.plant, defect),
                (first,),
                (HARNESS,),
            )
        )
    return found


def list_codec_defects() -> list[Seeded]:
    found = []
    for change in codec_mutants.list_changes():
        folder = change.path.parent.name
        own = f"tests/providers/{folder}"
        first = (own,) if (ROOT / own).is_dir() else ("tests/providers/kit",)
        tests = tuple(dict.fromkeys((*first, *OF_CODECS)))
        planted = partial(codec_mutants.apply_change, change)
        found.append(
            Seeded(
                change.name,
                change.path.relative_to(ROOT),
                planted,
                first,
                tests,
                cases=_leave_out_others(folder),
                longer=LONGER,
            )
        )
    return found


def _leave_out_others(folder: str) -> tuple[str, ...]:
    """Options of pytest that leave out the cases of other families, which never run this codec."""
    if folder not in FAMILIES:
        return ()
    others = {word for name in FAMILIES if name != folder for word in (name, name.replace("_", "-"))}
    return ("-k", f"{folder} or {folder.replace('_', '-')} or not ({' or '.join(sorted(others))})")


KINDS: Mapping[str, tuple[Callable[[], list[Seeded]], int]] = {
    "guards": (list_guards, 60),
    "harness": (list_harness_defects, 20),
    "codecs": (list_codec_defects, 34),
}
"""How defects of a kind are found, and how many of them are a sample."""


def run_tests(copy: Path, lane: str, tests: Sequence[str]) -> bool | None:
    """True if they pass, None if the lane has none of them."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment |= {**LANES[lane], "PYTHONPATH": os.pathsep.join((str(copy), str(copy / "src")))}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    try:
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return False
    return None if ended.returncode == NO_TESTS else ended.returncode == 0


@contextmanager
def plant(defect: Seeded, copy: Path) -> Iterator[None]:
    original = (copy / defect.path).read_text(encoding="utf-8")
    write_source(copy / defect.path, defect.change(original))
    try:
        yield
    finally:
        write_source(copy / defect.path, original)


def try_defect(defect: Seeded, copy: Path, *, both: bool) -> Outcome:
    """Find the lanes that notice a defect; a failure that the tests have without it too ends the measurement."""
    with plant(defect, copy):
        others = tuple(test for test in defect.tests if test not in defect.first)
        selections = [each for each in (defect.first, others) if each]
        is_noticed = any(run_tests(copy, TEST, (*tests, *defect.cases)) is False for tests in selections)
        if is_noticed and not both:
            return Outcome(defect.name, (TEST, TEST_ALL))
        again = (*defect.tests, *defect.cases, *(() if both else defect.longer))
        is_noticed_by_all = run_tests(copy, TEST_ALL, again) is False
    if is_noticed_by_all and not is_noticed and run_tests(copy, TEST_ALL, again) is False:
        raise RuntimeError(f"{' '.join(again)} fail with {TEST_ALL} without a defect; correct them first")
    noticed = {TEST: is_noticed, TEST_ALL: is_noticed_by_all}
    return Outcome(defect.name, tuple(lane for lane in LANES if noticed[lane]))


def check_tests(chosen: Sequence[Seeded], copy: Path) -> None:
    """Exit if a test fails without a defect."""
    tests = tuple(dict.fromkeys(test for defect in chosen for test in (*defect.first, *defect.tests)))
    print(f"running the tests of {len(chosen)} defects without a defect", flush=True)
    if run_tests(copy, TEST, tests) is False:
        sys.exit("a test fails without a defect; correct it first")


def choose(found: Sequence[Seeded], size: int, seed: int) -> list[Seeded]:
    return random.Random(seed).sample(found, min(size, len(found)))


def read_results(path: Path) -> dict[str, Outcome]:
    """The outcomes of a measurement that was interrupted, by the name of the defect."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["name"]: Outcome(row["name"], tuple(row["lanes"])) for row in rows}


def measure(chosen: Sequence[Seeded], results: Path, jobs: int, *, both: bool) -> list[Outcome]:
    """Try every defect that has no outcome yet, and print each as it is known."""
    known = read_results(results)
    left = [defect for defect in chosen if defect.name not in known]
    results.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(jobs if left else 0):
            copies.put(stack.enter_context(copy_tree("evals")))
        if left and not known:
            copy = copies.get()
            check_tests(left, copy)
            copies.put(copy)

        def try_one(defect: Seeded) -> Outcome:
            copy = copies.get()
            try:
                return try_defect(defect, copy, both=both)
            finally:
                copies.put(copy)

        file = stack.enter_context(results.open("a"))
        threads = stack.enter_context(ThreadPoolExecutor(jobs))
        for number, done in enumerate(as_completed([threads.submit(try_one, each) for each in left]), 1):
            outcome = done.result()
            known[outcome.name] = outcome
            print(json.dumps(outcome._asdict()), file=file, flush=True)
            print(
                f"{number}/{len(left)} {' and '.join(outcome.lanes) or 'nobody':28} {outcome.name}",
                flush=True,
            )
    return [known[defect.name] for defect in chosen]


def format_row(kind: str, count: int, outcomes: Sequence[Outcome]) -> str:
    """A row of the table: how many defects there are, how many were planted, and how many each lane noticed."""
    noticed = Counter(lane for outcome in outcomes for lane in outcome.lanes)
    return (
        f"| {kind} | {count:,} | {len(outcomes)} | {noticed[TEST]} | {noticed[TEST_ALL]}"
        f" | {100 * find_share(outcomes):.0f} % |"
    )


def find_share(outcomes: Sequence[Outcome]) -> float:
    """Of what `make test-all` notices, the share that `make test` notices."""
    by_all = [outcome for outcome in outcomes if TEST_ALL in outcome.lanes]
    return sum(TEST in outcome.lanes for outcome in by_all) / len(by_all) if by_all else 1.0


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Plant defects; report which lane of the tests notices each."
    )
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all if none is given"
    )
    parser.add_argument("--size", type=int, help="how many of each kind; all if there are fewer")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument(
        "--both", action="store_true", help="run both lanes for each, and not the first that fails"
    )
    parser.add_argument(
        "--results", type=Path, help="a folder: outcomes are added, and what is there is not repeated"
    )
    options = parser.parse_args(words)
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; choose from {', '.join(KINDS)}")
    folder = options.results or ROOT / "build" / "lanes" / str(int(time.time()))
    shares, rows = [], []
    for kind in options.kinds or KINDS:
        list_all, size = KINDS[kind]
        found = list_all()
        chosen = choose(found, size if options.size is None else options.size, options.seed)
        outcomes = measure(chosen, folder / f"{kind}.jsonl", options.jobs, both=options.both)
        rows.append(format_row(kind, len(found), outcomes))
        shares.append(find_share(outcomes))
    head = (
        f"| defects | all | planted | noticed by `{TEST}` | by `{TEST_ALL}` | share |",
        "|---|---|---|---|---|---|",
    )
    print("\n".join((*head, *rows)))
    return int(min(shares) < SHARE_MIN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
