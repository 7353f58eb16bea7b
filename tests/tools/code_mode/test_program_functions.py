"""Functions for programs: names, signatures and types made from schemas, the same text in every process."""

import ast
import os
import subprocess
import sys
from typing import Any

import pytest

from bridle import tool
from bridle.tools import RawTool
from bridle.tools.code_mode.functions import make_functions, render_type
from tests.tools.code_mode.function_samples import Spec, send


def test_a_signature_has_names_types_and_docs():
    (made,) = make_functions([send])
    assert made.stub.splitlines() == [
        (
            "def send(to: {'street': str, 'number?': int}, kind: Literal['letter', 'parcel'],"
            " tags: list[str] | None = ...) -> dict:"
        ),
        '    """Send something.',
        '    kind: What it is."""',
    ]


def test_names_that_python_does_not_allow_are_mapped_exactly():
    tools = [
        Spec(name) for name in ("a-b", "a_b", "print", "class", "2nd", "parallel", "mcp__x__list-all", "a-b-")
    ]
    made = make_functions(tools)  # type: ignore[arg-type]
    assert [each.name for each in made] == [
        "a_b", "a_b_", "print_", "class_", "_2nd", "parallel_", "mcp__x__list_all", "a_b__",
    ]  # fmt: skip
    assert [each.tool for each in made] == [each.spec.name for each in tools]
    assert len({each.name for each in made}) == len(tools)


PARAMETER_NAMES = (
    "from", "content-type", "a b", "", 'x"): evil(', "1\n2", "self", "é", "__debug__", "call_tool", "more", "f",
)  # fmt: skip


@pytest.mark.parametrize("name", PARAMETER_NAMES)
def test_names_of_parameters_are_mapped_exactly(name):
    (made,) = make_functions([Spec("f", {name: {"type": "string"}})])  # type: ignore[list-item]
    sent = []
    names = {"call_tool": lambda tool, arguments, parse: sent.append(arguments)}
    exec(compile(made.source, "<tools>", "exec"), names)
    names["f"]("value")  # type: ignore[call-arg]
    assert sent == [{name: "value"}]


@pytest.mark.parametrize("name", ["_make", "annotations", "__builtins__", "__debug__", "call_tool"])
def test_a_tool_cannot_take_a_name_that_the_definitions_need(name):
    made: Any = make_functions([Spec(name), Spec("other")])  # type: ignore[list-item]
    called = []
    names = {"call_tool": lambda tool, arguments, parse: called.append(tool)}
    for each in made:
        exec(compile(each.source, "<tools>", "exec"), names)
    for each in made:
        names[each.name]()  # type: ignore[call-arg]
    assert called == [name, "other"]


@pytest.mark.parametrize("text", ['"""', "\\", "\\N{", 'end"', "a\nb\tc", "\x00", "'''\"\"\"", "{x}%s"])
def test_a_description_cannot_change_the_source(text):
    (made,) = make_functions([Spec("f", {"x": {"type": "string", "description": text}}, text)])  # type: ignore[list-item]
    tree = ast.parse(made.source)
    assert [type(node).__name__ for node in tree.body] == ["ImportFrom", "FunctionDef", "Assign", "Delete"]


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({}, "Any"),
        (True, "Any"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "integer"}]}, "int | float"),
        ({"type": "array"}, "list"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}, "list[list[bool]]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"const": 3}, "Literal[3]"),
        ({"enum": ["a'b", 1, None]}, 'Literal["a\'b", 1, None]'),
        ({"type": "string", "enum": [str(n) for n in range(50)]}, "str"),
        ({"$ref": "#/$defs/Missing"}, "Any"),
        ({"$ref": "#/$defs/Tree"}, "{'left?': {'left?': Any}}"),
        ({"type": "unknown"}, "Any"),
    ],
)
def test_types_of_schemas(schema, wanted):
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}
    assert render_type(schema, {"$defs": {"Tree": tree}}) == wanted


def test_results_are_text_only_where_the_tool_returns_text():
    @tool
    def plain(x: int) -> str:
        """Text."""
        return ""

    @tool
    def number(x: int) -> float:
        """A number."""
        return 0.5

    @tool
    def unknown(x: int):
        """Anything."""

    raw = RawTool("raw", "Anything.", {"type": "object", "properties": {}}, lambda arguments: "x")
    ends = [
        each.stub.splitlines()[0].rpartition(" -> ")[2]
        for each in make_functions([plain, number, unknown, raw])
    ]
    assert ends == ["str:", "float:", "Any:", "Any:"]


def test_the_text_is_the_same_in_every_process():
    program = (
        "from tests.tools.code_mode.function_samples import send, Spec\n"
        "from bridle.tools.code_mode.functions import make_functions\n"
        "print(make_functions([send, Spec('a-b', {'x': {'enum': ['b', 'a']}})]))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1
