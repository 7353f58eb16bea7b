"""Conformance check for tools.

    async def test_my_tool():
        await check_tool(MyTool(), good=[{"city": "Tokyo"}], bad=[{"cty": "Tokyo"}, {"city": 3}])

The tool is run with the good arguments, so they must be safe to run. Bad arguments must be refused by the
schema; the tool is never run with them.
"""

import asyncio
import copy
import re
from collections.abc import Mapping, Sequence

import msgspec

from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json, Tool
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .sample_records import expect_true

Arguments = Mapping[str, Json] | str
"""A mapping, or JSON text as a model would send it."""


async def check_tool(tool: Tool, *, good: Sequence[Arguments] = (), bad: Sequence[Arguments] = ()) -> None:
    """Raise `AssertionError`, with what to change, if the tool breaks its contract."""
    spec = tool.spec
    _check_spec(spec)
    for number, arguments in enumerate(good, start=1):
        given = check_arguments(spec, _arguments_text(arguments))
        if isinstance(given, ArgumentProblem):
            raise AssertionError(f"good arguments {arguments!r} were refused: {given.text}")
        context = RunContext(
            context=None, session="check", call_id=f"c{number}", idempotency_key=f"check/c{number}"
        )
        await _check_run(tool, given, context)
    for arguments in bad:
        refused = check_arguments(spec, _arguments_text(arguments))
        expect_true(
            isinstance(refused, ArgumentProblem),
            f"bad arguments {arguments!r} were let through; tighten the schema",
        )
    expect_true(tool.spec == spec, "a spec must not change: it is part of every request")


def _check_spec(spec: ToolSpec) -> None:
    legal = re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spec.name)
    expect_true(legal is not None, f"{spec.name!r} is not a legal name on every wire")
    expect_true(
        _is_object_schema(spec.parameters), 'the schema must be JSON with "type": "object" at the top'
    )
    probe = check_arguments(spec, "{}")
    if isinstance(probe, ArgumentProblem) and probe.kind == "broken_tool":
        raise AssertionError(f"the schema is not a valid JSON Schema: {probe.text}")
    limit = spec.timeout_seconds
    expect_true(limit is None or limit > 0, f"a deadline of {limit} seconds is over before it starts")


def _is_object_schema(schema: str) -> bool:
    try:
        read = msgspec.json.decode(schema)
    except msgspec.DecodeError:
        return False
    return isinstance(read, dict) and read.get("type") == "object"


async def _check_run(tool: Tool, given: Mapping[str, Json], context: RunContext) -> None:
    before = copy.deepcopy(given)
    others = asyncio.all_tasks()
    parts = await tool.run(given, context)
    expect_true(given == before, "a tool must not change the arguments it is given")
    expect_true(asyncio.all_tasks() <= others, "a tool must not leave tasks behind")
    expect_true(
        isinstance(parts, Sequence), f"run must return a sequence of parts, not {type(parts).__name__}"
    )
    for part in parts:
        kind = type(part).__name__
        expect_true(isinstance(part, Text | Media), f"{kind} is no part a model can read; use Text or Media")
    try:
        msgspec.json.encode(parts)
    except UnicodeEncodeError as error:
        raise AssertionError(f"the result cannot be written to the log: {error}") from error


def _arguments_text(arguments: Arguments) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
