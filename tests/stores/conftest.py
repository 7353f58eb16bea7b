import pytest

from tests.stores.postgres_stores import make_server


@pytest.fixture
def own_server():
    """A server that the test may stop and set up as it likes."""
    server = make_server()
    yield server
    server.remove()
