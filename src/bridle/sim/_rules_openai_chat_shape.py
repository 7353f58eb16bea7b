"""Small legal requests of the Chat Completions wire for examples, and what its rules ask of a request."""

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_openai_shape import shapes
from ._rules_reading import Block, field, listed, mapping, small
from .rules import Asked

PATH = "/v1/chat/completions"
MODEL = "some-model"
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where servers of this wire put what a model thought."""

# The models the examples speak to, by what they are examples of.
PLAIN = Abilities(output_tokens=16_384, output_limited=True, structured_output="native")
REASONS = Abilities(
    output_tokens=128_000,
    output_limited=True,
    thinking=("standard", "pro"),
    efforts=("none", "low", "medium", "high"),
    effort_with_tools=False,
    sampling=False,
)
BLIND = replace(PLAIN, images=False)


def asked(**changes: object) -> Asked:
    """A small legal request to a plain model with these fields changed; None takes one away."""
    return small(PATH, {"model": MODEL, "messages": [user("Hello")], **changes}, PLAIN)


def messages(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "messages"))]


def tools(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "tools"))]


def calls(message: Block) -> list[Block]:
    return [mapping(item) for item in listed(message.get("tool_calls"))]


def parts(message: Block) -> list[Block]:
    return [mapping(item) for item in listed(message.get("content"))]


def reasons(request: Asked) -> bool:
    """Whether the model thinks before it answers this; told not to, it takes what plain models take."""
    able = request.abilities
    return bool(able and able.thinking) and field(request, "reasoning_effort") != "none"


def user(content: object) -> Block:
    return {"role": "user", "content": content}


def assistant(content: object = None, **more: object) -> Block:
    return {"role": "assistant", "content": content, **more}


def calling(*ids: str, **more: object) -> Block:
    return assistant(tool_calls=[call(id_) for id_ in ids or ("call_1",)], **more)


def call(id_: object = "call_1", name: object = "look", arguments: object = "{}") -> Block:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id_: str = "call_1", content: object = "seen") -> Block:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def text(words: str = "Hello") -> Block:
    return {"type": "text", "text": words}


def image(url: object = "data:image/png;base64,AA==") -> Block:
    return {"type": "image_url", "image_url": {"url": url}}


def tool(name: object = "look", **more: object) -> Block:
    function = {"name": name, "parameters": {"type": "object", "properties": {}}, **more}
    return {"type": "function", "function": function}


def shaped(**json_schema: object) -> dict[str, object]:
    """The setting that asks for an answer in a shape."""
    shape = {"name": "look", "schema": {"type": "object"}, **json_schema}
    return {"response_format": {"type": "json_schema", "json_schema": shape}}


SHAPES = shapes(asked)
