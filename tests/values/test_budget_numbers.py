"""Numbers that no arithmetic survives are refused when a limit is made."""

import pytest

from bridle import Budget, RateLimit
from bridle.values.errors import MisuseError
from bridle.values.usage import LIMIT_KINDS, Limits

HOSTILE = [
    "1e999999999",
    "1e-999999999",
    "1e19",
    "NaN",
    "Infinity",
    "-1",
    "9" * 5000,
    10**5000,
    float("nan"),
    float("inf"),
    -1,
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("kind", LIMIT_KINDS)
@pytest.mark.parametrize("make", [Budget, Limits])
def test_a_limit_is_a_number_that_can_be_added(make, kind, value):
    with pytest.raises(MisuseError) as raised:
        make(**{kind: value})
    assert len(str(raised.value)) < 200 and "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [10**5000, float("inf"), float("nan"), 0, -1, 10**16], ids=range(6))
@pytest.mark.parametrize("field", ["requests", "tokens", "seconds"])
def test_a_rate_limit_is_a_number_that_can_be_added(field, value):
    with pytest.raises(MisuseError):
        RateLimit(**{"requests": 1, field: value})


def test_ordinary_limits_are_kept():
    assert Budget(usd="0.000001", tokens=10**12, seconds=0.5).tokens == 10**12
    assert Budget(usd=0).usd == 0
