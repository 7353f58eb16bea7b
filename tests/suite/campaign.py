"""How much of every campaign runs, and from which seed on.

    BRIDLE_CAMPAIGN   1 is a whole campaign (`make test-all`); unset, a tenth of it runs (`make test`); 50 is fifty of them
    BRIDLE_SEED       moves the seeds; unset, they are the same in every run
    BRIDLE_ONE_SEED   set: campaigns try their first seed only

A campaign takes its size from `scale`, its seeds from `list_seeds` and its generators from `new_random`. A check that fails
for a seed fails again with the same variables. `make campaign` uses new seeds and writes what fails as tests (`regressions.py`).
"""

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

SCALE_DEFAULT = 0.1
SCALE = float(os.environ.get("BRIDLE_CAMPAIGN", SCALE_DEFAULT))
IS_WHOLE = SCALE >= 1
"""Every kill point and every combination is tried, and not a selection."""
FIRST_SEED = int(os.environ.get("BRIDLE_SEED", "0"))
ONE_SEED = bool(os.environ.get("BRIDLE_ONE_SEED"))


def scale(count: int, least: int = 1) -> int:
    """The size of a campaign that has `count` cases when it is whole."""
    return max(least, round(count * SCALE))


class Seeds(Sequence):
    """Seeds of a campaign; the one that is being tried is known to the report of a failure."""

    current: int | None = None

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index):
        found = self._numbers[index]
        return Seeds(found) if isinstance(found, range) else found

    def __iter__(self) -> Iterator[int]:
        for number in self._numbers:
            Seeds.current = number
            yield number
        Seeds.current = None


def list_seeds(count: int, least: int = 1) -> Seeds:
    """The seeds of a campaign that has `count` of them when it is whole."""
    size = 1 if ONE_SEED else scale(count, least)
    return Seeds(range(FIRST_SEED, FIRST_SEED + size))


def new_random(name: Any) -> random.Random:
    """A generator that gives the same numbers for the same name and the same first seed."""
    return random.Random(f"{name} {FIRST_SEED}")


def choose_some(cases: list, share: float = 0.1) -> list:
    """All cases of a whole campaign, otherwise some of them, spread evenly."""
    return cases if IS_WHOLE else cases[:: max(1, round(1 / share))]
