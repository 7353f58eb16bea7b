"""Reads a raw generateContent request without trusting its shape.

The wire accepts two spellings of every name, `toolConfig` and `tool_config`; `member` reads both.
Nothing here may fail on a body of the wrong shape: a rule that does not find its field reports nothing, and
the rule about the shape of that field reports it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from urllib.parse import unquote

from msgspec.structs import replace

from bridle.sim.request_forms import ANY_OBJECT
from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import JsonObject, as_mapping, make_rule, tools
from bridle.values.base import Value
from bridle.values.message import Message

METHOD_PATH = re.compile(
    r"(?!.*/models/.*/models/).*/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+):(?P<method>\w+)"
)
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


rule = partial(make_rule, code="INVALID_ARGUMENT")
"""Makes a rule of this provider's usual kind."""


@lru_cache(maxsize=256)
def to_snake_case(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower()


def as_list(value: object) -> Sequence[object]:
    """Return a list; a single object in place of a list is a list of one."""
    if isinstance(value, dict):
        return (value,)
    return value if isinstance(value, list | tuple) else ()


def member(block: JsonObject, name: str) -> object:
    return block[name] if name in block else block.get(to_snake_case(name))


def field(request: RawRequest, name: str) -> object:
    return member(request.body, name)


def generation_setting(request: RawRequest, name: str) -> object:
    return member(as_mapping(field(request, "generationConfig")), name)


def thinking_setting(request: RawRequest, name: str) -> object:
    return member(as_mapping(generation_setting(request, "thinkingConfig")), name)


def tool_choice_setting(request: RawRequest, name: str) -> object:
    return member(as_mapping(member(as_mapping(field(request, "toolConfig")), "functionCallingConfig")), name)


def find_model_and_method(request: RawRequest) -> tuple[str, str]:
    """Return the model and the method named in the path."""
    found = METHOD_PATH.fullmatch(request.path.partition("?")[0])
    return (unquote(found["model"]), found["method"]) if found else ("", "")


def has_thinking_levels(request: RawRequest) -> bool:
    """True if the model has thinking levels; those models check what earlier ones did not."""
    return request.abilities is not None and bool(request.abilities.efforts)


def contents(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "contents"))]


def parts(content: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(content.get("parts"))]


def is_user_content(content: JsonObject) -> bool:
    """Return True for a content of the user that is more than responses to calls."""
    own = content.get("role") != "model"
    return own and any(member(part, "functionResponse") is None for part in parts(content))


class ContentTurn(Value, kw_only=True, gc=True):
    index: int
    """Index of its first content."""
    is_model: bool
    parts: list[JsonObject]

    def members_named(self, name: str) -> list[JsonObject]:
        found = (member(part, name) for part in self.parts)
        return [as_mapping(item) for item in found if isinstance(item, dict)]


def merge_turns(request: RawRequest) -> list[ContentTurn]:
    """Merge neighbouring contents of one side into turns."""
    turns: list[ContentTurn] = []
    for index, content in enumerate(contents(request)):
        model = content.get("role") == "model"
        if turns and turns[-1].is_model == model:
            turns[-1].parts.extend(parts(content))
        else:
            turns.append(ContentTurn(index=index, is_model=model, parts=parts(content)))
    return turns


def list_declarations(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    for index, tool in enumerate(tools(request)):
        for inner, item in enumerate(as_list(member(tool, "functionDeclarations"))):
            yield f"tools[{index}].function_declarations[{inner}]", as_mapping(item)


# `responseJsonSchema`, `responseSchema` with its types in capitals, and JSON without a schema.


def find_schema(body: Mapping[str, object]) -> object:
    config = as_mapping(member(body, "generationConfig"))
    if member(config, "responseMimeType") != "application/json":
        return None
    plain = member(config, "responseJsonSchema")
    return plain or _to_json_schema(member(config, "responseSchema")) or ANY_OBJECT


def _to_json_schema(schema: object) -> object:
    """Convert a schema of the OpenAPI subset to JSON Schema."""
    if isinstance(schema, list):
        return [_to_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {name: _to_json_schema(value) for name, value in schema.items() if name != "nullable"}
    kind = converted.get("type")
    if isinstance(kind, str):
        converted["type"] = [kind.lower(), "null"] if schema.get("nullable") is True else kind.lower()
    return converted


# Streamed replies on the generateContent wire: google-genai sends every chunk back by itself.


def join_model_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Join neighbouring messages of the model; the service reads them as one turn."""
    joined: list[Message] = []
    for message in messages:
        if joined and message.role == "assistant" and joined[-1].role == "assistant":
            joined[-1] = replace(joined[-1], parts=(*joined[-1].parts, *message.parts))
        else:
            joined.append(message)
    return tuple(joined)
