"""Properties are tried on the same examples every time, so that a red build means a change, not a die.

BRIDLE_CAMPAIGN above 1 throws the dice anew: that is where surprises are looked for.

Whatever is sent to `sim:` is checked as a provider would check it.  A test in which something was
refused fails, unless it says that it means it (`@pytest.mark.refusals`).
"""

import os

import pytest
from hypothesis import settings

from bridle.run.breakers import SHARED
from bridle.sim.simulator import default

pytest_plugins = ["bridle.testing.pytest_plugin"]

settings.register_profile(
    "bridle", derandomize=os.environ.get("BRIDLE_CAMPAIGN", "1") == "1", deadline=None, database=None
)
settings.load_profile("bridle")


@pytest.fixture(autouse=True)
def nothing_refused_unasked(request):
    default.cache_clear()
    SHARED.clear()  # what one test broke is no other test's endpoint
    yield
    refusals = default().refusals if default.cache_info().currsize else []
    if refusals and request.node.get_closest_marker("refusals") is None:
        told = "; ".join(f"{each.family} {each.rule}: {each.message}" for each in refusals)
        pytest.fail(f"the simulated provider refused: {told}")
