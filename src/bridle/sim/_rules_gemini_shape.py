"""Reading a raw generateContent body without trusting it, and writing small ones for examples.

The wire takes every name in two spellings, `toolConfig` and `tool_config`; `member` reads both.
Nothing here may fail on a body of the wrong shape: a rule that cannot find its field
finds nothing, and the rule about that field's shape speaks instead.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from urllib.parse import unquote

from msgspec.structs import replace

from ..values.model import Abilities
from ..values.value import Value
from ._rules_reading import Block, mapping, small, written
from .rules import Asked

MODEL = "some-model"
PLACE = re.compile(r".*/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+):(?P<method>\w+)")
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")

# The models the examples speak to, by what they are examples of.
NEWEST = Abilities(
    output_tokens=65_536,
    output_limited=True,
    thinking=("adaptive",),
    efforts=("low", "medium", "high"),
    structured_output="native",
)
BUDGETS = replace(
    NEWEST,
    thinking=("adaptive", "enabled"),
    allowance_mode="enabled",
    efforts=(),
    structured_output="tool",
)

rule = partial(written, code="INVALID_ARGUMENT")
"""A rule of this provider's usual kind."""


@lru_cache(maxsize=256)
def snake(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower()


def listed(value: object) -> Sequence[object]:
    """A list; one object where a list belongs is a list of one."""
    if isinstance(value, dict):
        return (value,)
    return value if isinstance(value, list | tuple) else ()


def member(block: Block, name: str) -> object:
    return block[name] if name in block else block.get(snake(name))


def field(request: Asked, name: str) -> object:
    return member(request.body, name)


def config(request: Asked, name: str) -> object:
    return member(mapping(field(request, "generationConfig")), name)


def thinking(request: Asked, name: str) -> object:
    return member(mapping(config(request, "thinkingConfig")), name)


def choice(request: Asked, name: str) -> object:
    return member(mapping(member(mapping(field(request, "toolConfig")), "functionCallingConfig")), name)


def asked_of(request: Asked) -> tuple[str, str]:
    """The model and the method, as the path names them."""
    found = PLACE.fullmatch(request.path.partition("?")[0])
    return (unquote(found["model"]), found["method"]) if found else ("", "")


def leveled(request: Asked) -> bool:
    """Whether the model thinks at levels; those that do check what earlier ones did not."""
    return request.abilities is not None and bool(request.abilities.efforts)


def contents(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "contents"))]


def parts(content: Block) -> list[Block]:
    return [mapping(item) for item in listed(content.get("parts"))]


def placed_parts(request: Asked) -> Iterator[tuple[str, Block]]:
    """Every part of every content with its place."""
    for index, content in enumerate(contents(request)):
        for inner, part in enumerate(parts(content)):
            yield f"contents[{index}].parts[{inner}]", part


class Turn(Value):
    index: int
    """The place of its first content."""
    model: bool
    parts: list[Block]

    def inside(self, name: str) -> list[Block]:
        found = (member(part, name) for part in self.parts)
        return [mapping(item) for item in found if isinstance(item, dict)]


def turns(request: Asked) -> list[Turn]:
    """What was said turn by turn: neighbours of one side are read as one."""
    said: list[Turn] = []
    for index, content in enumerate(contents(request)):
        model = content.get("role") == "model"
        if said and said[-1].model == model:
            said[-1].parts.extend(parts(content))
        else:
            said.append(Turn(index=index, model=model, parts=parts(content)))
    return said


def tools(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "tools"))]


def declarations(request: Asked) -> Iterator[tuple[str, Block]]:
    for index, tool in enumerate(tools(request)):
        for inner, item in enumerate(listed(member(tool, "functionDeclarations"))):
            yield f"tools[{index}].function_declarations[{inner}]", mapping(item)


def asked(**changes: object) -> Asked:
    """A small legal request to the newest model with these fields changed; None takes one away."""
    path = f"/v1beta/models/{MODEL}:generateContent"
    return small(path, {"contents": [user("Hello")], **changes}, NEWEST)


def at(place: str, request: Asked) -> Asked:
    """The request at another address: `MODEL:METHOD`."""
    return replace(request, path=f"/v1beta/models/{place}")


def configured(**fields: object) -> Asked:
    return asked(generationConfig=fields)


def chosen(**fields: object) -> dict[str, object]:
    return {"toolConfig": {"functionCallingConfig": fields}}


def user(*said: object) -> Block:
    return {"role": "user", "parts": [text(item) if isinstance(item, str) else item for item in said]}


def model(*said: object) -> Block:
    return {"role": "model", "parts": [text(item) if isinstance(item, str) else item for item in said]}


def text(words: str) -> Block:
    return {"text": words}


def call(name: str = "look", signature: str = "skip_thought_signature_validator", **args: object) -> Block:
    made: Block = {"functionCall": {"name": name, "args": args}}
    return {**made, "thoughtSignature": signature} if signature else made


def response(name: str = "look", **more: object) -> Block:
    return {"functionResponse": {"name": name, "response": {"output": "seen"}, **more}}


def tool(name: str = "look", **more: object) -> Block:
    return {"functionDeclarations": [{"name": name, **more}]}


def taking(**properties: object) -> Block:
    return tool(parameters={"type": "OBJECT", "properties": properties})
