"""Tests that are coroutines: each runs in an event loop of its own."""

import asyncio
import functools


def in_loop(test):
    @functools.wraps(test)
    def run(*given, **named):
        return asyncio.run(test(*given, **named))

    return run
