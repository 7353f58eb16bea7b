"""Compares the CPU time of the same work at two sizes, on a machine that is busy with other things as well.

Other programs add to a measured time, and the speed of the machine changes while the test runs.  So the sizes
take turns, and there are two estimates: the ratio of the minimums, and the median of the ratios of the rounds.
One short moment spoils at most one of them.  Without the collector of garbage, no size pays for the objects of
another.
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

ROUNDS_MIN, ROUNDS_MAX = 3, 10
"""One lucky or unlucky round decides nothing; what still grows too fast after the last round does so always."""
LINEAR_MAX = 20.0
"""Limit of the ratio at six times the size: linear work gives 6, quadratic work gives 36."""
PER_ITEM_MAX = 1.5
"""Limit of the cost of one item at the larger size, as a multiple of its cost at the smaller size."""

LOOP_SECONDS = 0.0025
"""CPU seconds that the loop of `measure_slowness` takes on the machine for which absolute limits were chosen."""

Work = Callable[[], Any]


def assert_growth(
    prepare: Callable[[int], Work],
    small: int,
    large: int,
    ratio_max: float,
    *,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Fail if the work at size `large` takes over `ratio_max` times the CPU seconds of size `small`.

    `prepare(size)` returns the function to measure; what it does before it returns is not measured.
    """
    prepare(small)()  # the first call fills caches
    bases: list[float] = []
    times: list[float] = []
    for number in range(1, ROUNDS_MAX + 1):
        bases.append(max(measure_seconds(prepare(small), clock), 1e-9))
        times.append(measure_seconds(prepare(large), clock))
        ratio_of_rounds = statistics.median(spent / base for spent, base in zip(times, bases, strict=True))
        ratio = min(min(times) / min(bases), ratio_of_rounds)
        if number >= ROUNDS_MIN and ratio <= ratio_max:
            return
    raise AssertionError(
        f"size {large:,} takes {ratio:.2f} times the CPU seconds of size {small:,}, more than {ratio_max:g}: "
        f"{times} beside {bases}"
    )


def assert_cost_per_item(
    prepare: Callable[[int], Work], few: int = 1_000, many: int = 16_000, *, ratio_max: float = PER_ITEM_MAX
) -> None:
    """Fail if one of `many` items costs more than `ratio_max` times one of `few`."""
    assert_growth(prepare, few, many, ratio_max * many / few)


def measure_seconds(work: Work, clock: Callable[[], float] = time.process_time) -> float:
    """Return the CPU seconds of one call, with the collector of garbage off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        begun = clock()
        work()
        return clock() - begun
    finally:
        if was_on:
            gc.enable()


def measure_slowness() -> float:
    """Return how many times as long as a quick machine this one takes for a plain loop, at the moment; at least 1."""

    def count():
        total = 0
        for number in range(100_000):
            total += number
        return total

    return max(1.0, min(measure_seconds(count) for _ in range(5)) / LOOP_SECONDS)
