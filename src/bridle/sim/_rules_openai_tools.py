"""Rows that both of these wires have about tools, the choice among them, and the shape of an answer.

They say the same of fields that stand in different places.
"""

from collections.abc import Callable

from ._rules_reading import Block
from ._rules_shapes import Row, Shapes
from .rules import Asked, Rule

NAME = "^[a-zA-Z0-9_-]+$"
CHOICES = ("none", "auto", "required")
FORMATS = ("json_object", "json_schema", "text")
_ANY = "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'."
_JSON = "Invalid value: 'json'. Supported values are: 'json_object', 'json_schema', and 'text'."

Tool = Callable[..., Block]


def offered(shapes: Shapes, tool: Tool, expected: str, evidence: str) -> tuple[Rule, ...]:
    """What a list of tools has to be."""
    most = Row(
        id="tools-most",
        evidence="S",
        says="Invalid 'tools': array too long. Expected an array with maximum length 128,"
        " but got an array with length 129 instead.",
    )
    many = [tool(f"t{n}") for n in range(129)]
    return (
        shapes.typed("tools", "array|null", [tool()], "look", Row(evidence=evidence), expected=expected),
        shapes.fewer("tools", 128, many[:128], many, most),
    )


def named(shapes: Shapes, path: str, tool: Tool) -> Rule:
    """The letters of a tool's name; how many there may be differs."""
    asked = shapes.voice.asked
    place = path.replace("[]", "[0]")
    return shapes.matching(
        path,
        NAME,
        asked(tools=[tool("look-up_2")]),
        asked(tools=[tool("look.up")]),
        Row(
            id="tool-name",
            evidence="S",
            says=f"Invalid '{place}': string does not match pattern. Expected a string that matches the"
            " pattern '^[a-zA-Z0-9_-]+$'.",
        ),
    )


def chosen(shapes: Shapes, tool: Tool) -> Rule:
    row = Row(id="choice-word", evidence="S", beside={"tools": [tool()]}, says=_ANY)
    return shapes.one_of("tool_choice", CHOICES, "required", "any", row)


def formatted(shapes: Shapes, path: str) -> Rule:
    row = Row(id="format-type", evidence="S", says=_JSON)
    return shapes.one_of(f"{path}.type", FORMATS, "text", "json", row)


def wanted(shapes: Shapes, path: str, id_: str, passes: Asked, offends: Asked) -> Rule:
    """What an answer of a given shape has to have."""
    row = Row(id=id_, only=_of_shape, evidence="S", says=f"Missing required parameter: '{path}'.")
    return shapes.required(path, passes, row, refuses=offends)


def _of_shape(format_: Block) -> bool:
    return format_.get("type") in (None, "json_schema")
