"""Calls of a tool without an agent."""

import asyncio
import json

from bridle.ports.run_context import RunContext

CONTEXT = RunContext(context=None, session="s1", call_id="c1", idempotency_key="k1")


def run(made, **arguments):
    (part,) = asyncio.run(made.run(arguments, CONTEXT))
    return part.text


def schema(made):
    return json.loads(made.spec.parameters)
