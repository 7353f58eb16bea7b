"""The pytest fixture `provider_sim`.

Enable it in your `conftest.py`:

    pytest_plugins = ["bridle.testing.pytest_plugin"]

Importing Bridle never imports this file, so pytest is optional.
"""

from collections.abc import Iterator

import pytest

from .simulated_provider import ProviderSim


@pytest.fixture
def provider_sim(request: pytest.FixtureRequest) -> Iterator[ProviderSim]:
    """A strict simulated provider. Unexpected refusals and unused replies or faults fail the test.

    A test that expects refusals is marked with `@pytest.mark.refusals`.
    """
    expected = request.node.get_closest_marker("refusals") is not None
    with ProviderSim(refusals=expected) as provider:
        yield provider


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "refusals: this test expects refusals from the simulated provider")
