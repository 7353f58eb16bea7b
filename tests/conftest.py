"""Settings of the whole suite.

Property tests use the same examples in every run, so that a failure is caused by a change. With BRIDLE_CAMPAIGN above 1
the examples are random.

In every test, each request to a model is checked as a provider would check it (`guard.py`).
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from paths import add_helper_folders

from bridle.run.recovery.breakers import PROCESS_BREAKERS
from bridle.sim.simulator import default_simulator

add_helper_folders()  # for processes that tests start
pytest_plugins = ["bridle.testing.pytest_plugin", "guard"]

settings.register_profile(
    "bridle",
    derandomize=os.environ.get("BRIDLE_CAMPAIGN", "1") == "1",
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no reason to fail
)
settings.load_profile("bridle")


@pytest.fixture(scope="session", autouse=True)
def key_of_approvals(tmp_path_factory):
    """Keep the approval key out of the settings of the person who runs the tests."""
    os.environ["BRIDLE_APPROVAL_KEY_FILE"] = str(tmp_path_factory.mktemp("settings") / "approval.key")


@pytest.fixture(autouse=True)
def nothing_shared():
    """Give every test a new simulator and new circuit breakers."""
    default_simulator.cache_clear()
    PROCESS_BREAKERS.clear()
