"""Statistics of pass rates, without dependencies: intervals and tests.

- `wilson_interval`: 95 % Wilson score interval of a pass rate.
- `fisher_test`: one-sided exact test that a rate fell, for one task with its trials.
- `total_fall_chance`: highest probability, over all rates, that all trials pass and then none does.
- `sign_flip_test`: one-sided paired permutation test over tasks. The difference of a task's rates keeps its size and
  gets a random sign under the null hypothesis. All sign patterns are counted for up to 16 changed tasks; for more,
  20,000 patterns are drawn from a fixed seed. With one trial per task this is the exact sign test (McNemar).
- `adjust_holm`: Holm's correction for several tests.
"""

import math
import random
from collections.abc import Sequence
from itertools import product

Z_95 = 1.959963984540054
EXACT_MAX = 16
DRAWS = 20_000
SEED = 20_261_117
ROUNDING = 1e-9


def wilson_interval(passed: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Interval of a pass rate; (0, 1) without trials."""
    if not trials:
        return 0.0, 1.0
    rate, square = passed / trials, z * z
    middle = (rate + square / (2 * trials)) / (1 + square / trials)
    half = z / (1 + square / trials) * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    # The ends are exact, whatever the arithmetic rounds to.
    return 0.0 if not passed else middle - half, 1.0 if passed == trials else middle + half


def fisher_test(passed: int, trials: int, base_passed: int, base_trials: int) -> float:
    """Probability of as few passes now, or fewer, if both rates are equal: a hypergeometric tail."""
    total, passes = trials + base_trials, passed + base_passed
    ways = math.comb(total, trials)
    fewest = max(0, passes - base_trials)
    tail = sum(
        math.comb(passes, count) * math.comb(total - passes, trials - count)
        for count in range(fewest, passed + 1)
    )
    return tail / ways


def total_fall_chance(trials: int, base_trials: int) -> float:
    """Probability of the fall from all passes to none if both rates are equal, for the rate where it is highest."""
    rate = base_trials / (trials + base_trials)
    return float(rate**base_trials * (1 - rate) ** trials)


def sign_flip_test(differences: Sequence[float]) -> float:
    """Probability of a mean difference as low as this one, or lower, if there is no difference."""
    changed = [abs(each) for each in differences if abs(each) > ROUNDING]
    if not changed:
        return 1.0
    observed = sum(differences) + ROUNDING
    if len(changed) <= EXACT_MAX:
        patterns = product((1, -1), repeat=len(changed))
        hits = sum(sum(s * d for s, d in zip(signs, changed, strict=True)) <= observed for signs in patterns)
        return float(hits / 2 ** len(changed))
    source = random.Random(SEED)
    hits = sum(sum(d if source.random() < 0.5 else -d for d in changed) <= observed for _ in range(DRAWS))
    return (hits + 1) / (DRAWS + 1)


def adjust_holm(values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, values[at] * (len(values) - rank)))
        adjusted[at] = highest
    return adjusted
