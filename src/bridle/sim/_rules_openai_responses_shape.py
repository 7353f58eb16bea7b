"""Small legal requests of the Responses wire for examples, and what its rules ask of a request."""

from collections.abc import Iterator

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_openai_shape import shapes
from ._rules_reading import Block, field, listed, mapping, small
from .rules import Asked

PATH = "/v1/responses"
MODEL = "some-model"

# The models the examples speak to, by what they are examples of.
REASONS = Abilities(
    output_tokens=128_000,
    thinking=("standard", "pro"),
    efforts=("none", "low", "medium", "high"),
    sampling=False,
)
PLAIN = replace(REASONS, thinking=(), efforts=(), sampling=True)


def asked(**changes: object) -> Asked:
    """A small legal request to a model that reasons with these fields changed; None takes one away."""
    return small(PATH, {"model": MODEL, "input": "Hello", **changes}, REASONS)


def items(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "input"))]


def placed(request: Asked, type_: str) -> Iterator[tuple[int, Block]]:
    for index, item in enumerate(items(request)):
        if item.get("type") == type_:
            yield index, item


def tools(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "tools"))]


def effort(request: Asked) -> object:
    return mapping(field(request, "reasoning")).get("effort")


def reasons(request: Asked) -> bool:
    """Whether the model thinks before it answers this; told not to, it takes what plain models take."""
    return bool(request.abilities and request.abilities.thinking) and effort(request) != "none"


def user(*content: object) -> Block:
    """A message; one string is its whole content."""
    plain = len(content) == 1 and not isinstance(content[0], dict)
    return {"role": "user", "content": content[0] if plain else list(content)}


def text(words: str = "Hello", type_: str = "input_text", **more: object) -> Block:
    return {"type": type_, "text": words, **more}


def call(call_id: str | None = "call_1", **more: object) -> Block:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **more}


def output(call_id: str = "call_1", **more: object) -> Block:
    return {"type": "function_call_output", "call_id": call_id, "output": "seen", **more}


def thought(id_: str = "rs_1") -> Block:
    return {"type": "reasoning", "id": id_, "summary": [], "encrypted_content": "gAAAA"}


def tool(name: str = "look", **more: object) -> Block:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, **more}


def shaped(**format_: object) -> dict[str, object]:
    """The setting that asks for an answer in a shape."""
    return {
        "text": {"format": {"type": "json_schema", "name": "look", "schema": {"type": "object"}, **format_}}
    }


SHAPES = shapes(asked)
