"""Fixtures of the tests of engines."""

import pytest

from tests.suite.postgres_server import shared_server


@pytest.fixture(autouse=True)
def cut_connections(request):
    """Cut the connections of stores that a test left open: the server has a limited number of them."""
    yield
    if "postgres" in request.fixturenames and (server := shared_server()) is not None:
        server.cut_connections()
