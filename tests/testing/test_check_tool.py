"""The conformance check for tools passes good ones and finds every kind of defect."""

import asyncio

import pytest

from bridle.testing.conformance.tool import check_tool
from bridle.tools import RawTool, TypedTool, tool
from bridle.values.message import Text
from bridle.values.request import ToolSpec

SCHEMA = (
    '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
)


class Made:
    """A tool that does what its test wants."""

    def __init__(self, do, **spec):
        self.spec = ToolSpec(**({"name": "made", "parameters": SCHEMA} | spec))
        self._do = do

    async def run(self, arguments, context):
        return self._do(self, arguments)


def return_fine(made, arguments):
    return (Text(text="fine"),)


def test_tools_of_every_kind_pass():
    @tool
    def add(a: int, b: int = 1) -> int:
        return a + b

    @tool
    async def wait(n: int) -> str:
        return "waited"

    made = [
        (add, {"a": 1}, {"a": "1"}),
        (wait, {"n": 1}, {"m": 1}),
        (RawTool("raw", "", SCHEMA, lambda arguments: arguments), {"n": 1}, {"n": 1.5}),
        (TypedTool(dict[str, int], lambda counts: len(counts), name="count"), {"x": 1}, {"x": "1"}),
        (Made(return_fine), {"n": 1}, {"n": 1, "m": 2}),
    ]
    for each, good, bad in made:
        asyncio.run(check_tool(each, good=[good], bad=[bad, "{", "[]"]))  # type: ignore[arg-type, list-item]


def left_behind(made, arguments):
    made.task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    return return_fine(made, arguments)


def change_arguments(made, arguments):
    arguments["n"] = 0
    return return_fine(made, arguments)


def another_spec(made, arguments):
    made.spec = ToolSpec(name="other", parameters=SCHEMA)
    return return_fine(made, arguments)


@pytest.mark.parametrize(("made", "said"), [
    (Made(return_fine, name="a b"), "not a legal name"),
    (Made(return_fine, parameters="{"), 'must be JSON with "type": "object"'),
    (Made(return_fine, parameters='{"type":"array"}'), 'must be JSON with "type": "object"'),
    (Made(return_fine, parameters='{"type":"object","required":3}'), "is not a valid JSON Schema"),
    (Made(return_fine, timeout_seconds=-1.0), "over before it starts"),
    (Made(return_fine, parameters='{"type":"object"}'), "bad arguments {'n': 'x'} were let through"),
    (Made(return_fine, parameters=SCHEMA.replace("integer", "null")), "good arguments {'n': 1} were refused"),
    (Made(change_arguments), "must not change the arguments"),
    (Made(left_behind), "must not leave tasks behind"),
    (Made(another_spec), "a spec must not change"),
    (Made(lambda *_: 3), "must return a sequence of parts, not int"),
    (Made(lambda *_: ["words"]), "str is no part a model can read"),
    (Made(lambda *_: [Text(text="\ud800")]), "cannot be written to the log"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_what_does_not_fit_is_caught(made, said):
    with pytest.raises(AssertionError) as caught:
        asyncio.run(check_tool(made, good=[{"n": 1}], bad=[{"n": "x"}]))
    assert said in str(caught.value)
