"""Small legal requests of the Chat Completions wire for examples, and what its rules ask of a request."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from bridle.sim.openai.error_style import make_field_rules
from bridle.sim.request_forms import ANY_OBJECT, FREE_TEXT_PARAMETERS, ClientTool
from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, build_example, field
from bridle.values.model import Abilities
from bridle.values.request import Request

PATH = "/v1/chat/completions"
MODEL = "some-model"
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where servers of this wire put what a model thought."""

# The models the examples speak to, by what they are examples of.
PLAIN_MODEL = Abilities(output_tokens=16_384, output_limited=True, structured_output="native")
REASONING_MODEL = Abilities(
    output_tokens=128_000,
    output_limited=True,
    thinking=("standard", "pro"),
    efforts=("none", "low", "medium", "high"),
    effort_with_tools=False,
    sampling=False,
)
TEXT_MODEL = replace(PLAIN_MODEL, images=False)


def example(**changes: object) -> RawRequest:
    """A small legal request to a plain model with these fields changed; None takes one away."""
    return build_example(PATH, {"model": MODEL, "messages": [user("Hello")], **changes}, PLAIN_MODEL)


def messages(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "messages"))]


def tools(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "tools"))]


def calls(message: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(message.get("tool_calls"))]


def parts(message: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(message.get("content"))]


def is_reasoning(request: RawRequest) -> bool:
    """Whether the model thinks before it answers this; told not to, it takes what plain models take."""
    able = request.abilities
    return bool(able and able.thinking) and field(request, "reasoning_effort") != "none"


def user(content: object) -> JsonObject:
    return {"role": "user", "content": content}


def assistant(content: object = None, **more: object) -> JsonObject:
    return {"role": "assistant", "content": content, **more}


def calling_message(*ids: str, **more: object) -> JsonObject:
    return assistant(tool_calls=[call(id_) for id_ in ids or ("call_1",)], **more)


def call(id_: object = "call_1", name: object = "look", arguments: object = "{}") -> JsonObject:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id_: str = "call_1", content: object = "seen") -> JsonObject:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def text(words: str = "Hello") -> JsonObject:
    return {"type": "text", "text": words}


def image(url: object = "data:image/png;base64,AA==") -> JsonObject:
    return {"type": "image_url", "image_url": {"url": url}}


def tool(name: object = "look", **more: object) -> JsonObject:
    function = {"name": name, "parameters": {"type": "object", "properties": {}}, **more}
    return {"type": "function", "function": function}


def answer_format(**json_schema: object) -> dict[str, object]:
    """The setting that asks for an answer in a shape."""
    shape = {"name": "look", "schema": {"type": "object"}, **json_schema}
    return {"response_format": {"type": "json_schema", "json_schema": shape}}


FIELD_CHECKS = make_field_rules(example)


# `response_format`: a schema, or any JSON object.


def find_schema(body: Mapping[str, object]) -> object:
    wanted = as_mapping(body.get("response_format"))
    if wanted.get("type") == "json_object":
        return as_mapping(wanted.get("schema")) or ANY_OBJECT
    return as_mapping(wanted.get("json_schema")).get("schema")


# Custom tools of the Chat Completions wire.


CUSTOM = "custom"
NATIVE = msgspec.json.encode({"call": {"type": CUSTOM}}).decode()


def list_client_tools(request: Request) -> Iterator[ClientTool]:
    for spec in request.tools:
        native = msgspec.json.decode(spec.native, type=dict[str, object]) if spec.native else {}
        if native.get("type") == CUSTOM:
            yield ClientTool(
                spec=replace(spec, parameters=FREE_TEXT_PARAMETERS, native=None), call_native=NATIVE
            )
        else:
            yield ClientTool(spec=spec)
