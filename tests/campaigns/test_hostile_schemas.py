"""Every reader of schemas ends within a bounded amount of CPU for hostile schemas: it refuses them, or reads them.

`BRIDLE_CAMPAIGN=9 pytest -s tests/campaigns/test_hostile_schemas.py` tries 5,400 schemas; a failure names its seed.
"""

import json
import time

import pytest

from bridle.core.calls.argument_matching import fill_defaults, read_schema
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.providers.schema.compiler import all_dialects, compile_schema, find_dialect, restore_arguments
from bridle.sim.responder.sample_values import fill_schema
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.errors import BadTool
from bridle.values.request import ToolSpec
from bridle.values.schema_limits import check_schema_limits
from tests.campaigns.hostile_schemas import make_arguments, make_schema
from tests.suite.campaign import list_seeds
from tests.suite.growth import measure_slowness

SCHEMAS = list_seeds(600, least=60)
SECONDS_MAX = 2.0
"""CPU seconds of one reader for one schema, on the machine for which limits were chosen."""


def compile_for_wire(schema, arguments):
    dialects = all_dialects()
    return compile_schema(schema, dialects[len(schema) % len(dialects)])


def restore(schema, arguments):
    return restore_arguments(arguments, schema, find_dialect("openai_strict"))


def check(schema, arguments):
    found = check_arguments(ToolSpec(name="t", description="", parameters=schema), arguments)
    return not (isinstance(found, ArgumentProblem) and found.kind == "broken_tool")


def match(schema, arguments):
    check_schema_limits(json.loads(schema), len(schema))  # as the tool's schema was when it was made
    return fill_defaults(read_schema(schema), json.loads(arguments)) is not None


READERS = {
    "a tool is made": lambda schema, arguments: parse_parameters_schema(schema),
    "it is compiled for a wire": compile_for_wire,
    "arguments are restored": restore,
    "arguments are checked": check,
    "defaults are found": match,
    "the simulator fills it": lambda schema, arguments: fill_schema(schema),
}


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_hostile_schemas_end_in_bounded_time(reader):
    limit = SECONDS_MAX * measure_slowness()
    read, refused, slowest = 0, 0, (0.0, -1)
    for seed in SCHEMAS:
        schema, arguments = make_schema(seed), make_arguments(seed)
        began = time.process_time()
        try:
            done = READERS[reader](schema, arguments)
        except (ValueError, BadTool) as error:
            assert "\n" not in str(error), f"seed {seed}: {error}"
            done = False
        spent = time.process_time() - began
        slowest = max(slowest, (spent, seed))
        assert spent < limit, f"seed {seed}: {spent:.2f} s for {len(schema):,} characters"
        read, refused = read + bool(done), refused + (not done)
    print(f"{reader}: {read:,} read, {refused:,} refused, slowest {slowest[0]:.2f} s (seed {slowest[1]})")
    assert read > len(SCHEMAS) // 10, "almost all were refused: the generator or a limit is wrong"
