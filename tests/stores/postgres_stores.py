"""Servers of a test's own, and stores that are opened and closed around one function."""

import asyncio

import pytest

from bridle.stores import open_store
from bridle.stores.postgres.store import PostgresStore
from bridle.testing.conformance.sample_records import make_prompt, make_records
from tests.suite.postgres_server import PostgresServer, find_binaries


def make_server(**options):
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL server to run")
    return PostgresServer(binaries, **options)


def run_with(url, act, **options):
    async def main():
        store = PostgresStore(url, **options) if options else open_store(url)
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(main())


def line(*texts, prefix=()):
    return make_records(*map(make_prompt, texts), prefix=prefix)
