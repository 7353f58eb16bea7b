"""The fixture `provider_sim`, for pytest.  Ask for it in your `conftest.py`:

    pytest_plugins = ["bridle.testing.pytest_plugin"]

Importing Bridle never imports this file, and so never pytest.
"""

from collections.abc import Iterator

import pytest

from .simulated_provider import ProviderSim


@pytest.fixture
def provider_sim(request: pytest.FixtureRequest) -> Iterator[ProviderSim]:
    """A strict simulated provider; what was refused unasked or left over fails the test at its end.

    A test that means to be refused says so with `@pytest.mark.refusals`.
    """
    expected = request.node.get_closest_marker("refusals") is not None
    with ProviderSim(refusals=expected) as provider:
        yield provider


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "refusals: this test means a simulated provider to refuse something")
