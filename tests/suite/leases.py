"""Holds leases in tests that have no event loop of their own."""

import asyncio
from contextlib import contextmanager


@contextmanager
def hold(store, session, *, take_over=False):
    lease = store.lease(session, take_over=take_over)
    with asyncio.Runner() as runner:
        held = runner.run(lease.__aenter__())
        try:
            yield held
        finally:
            runner.run(lease.__aexit__(None, None, None))
