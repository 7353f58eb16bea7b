"""Finding a tool for a purpose by its name, its description and its parameters."""

import re
from collections.abc import Mapping

import msgspec

from ...values.request import ToolSpec
from ...values.value import Value
from ..instance import filled
from ..scene import Call


class Parameter(Value):
    name: str
    schema: Mapping[str, object]
    required: bool

    @property
    def type(self) -> str:
        return str(self.schema.get("type", ""))

    @property
    def options(self) -> tuple[str, ...]:
        listed = self.schema.get("enum")
        return tuple(str(option) for option in listed) if isinstance(listed, list) else ()


def parameters(tool: ToolSpec) -> tuple[Parameter, ...]:
    schema = msgspec.json.decode(tool.parameters, type=dict[str, object])
    properties = schema.get("properties")
    required = schema.get("required")
    return tuple(
        Parameter(
            name=str(name),
            schema=inner if isinstance(inner, Mapping) else {},
            required=isinstance(required, list) and name in required,
        )
        for name, inner in (properties.items() if isinstance(properties, Mapping) else ())
    )


def smells(tool: ToolSpec, of: re.Pattern[str]) -> bool:
    return bool(of.search(tool.name.lower()) or of.search(tool.description.lower()))


def text_parameter(tool: ToolSpec, named: re.Pattern[str] | None = None) -> Parameter | None:
    """The parameter that takes the words: by its name, or because it is the only one that must be given."""
    texts = [item for item in parameters(tool) if item.type == "string"]
    fitting = [item for item in texts if named is not None and named.search(item.name.lower())]
    if fitting:
        return fitting[0]
    required = [item for item in parameters(tool) if item.required]
    if named is None and len(required) == 1 and required[0].type == "string":
        return required[0]
    return None


def call(tool: ToolSpec, arguments: Mapping[str, object], about: str = "") -> Call:
    """A call with these arguments; whatever else the tool requires is filled in."""
    rest = msgspec.json.decode(filled(tool.parameters, about), type=dict[str, object])
    return Call(name=tool.name, arguments={**rest, **arguments})
