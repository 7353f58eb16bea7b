"""Finds a tool for a purpose by its name, description and parameters."""

import re
from collections.abc import Mapping

import msgspec

from bridle.sim.responder.conversation import CallMove
from bridle.sim.responder.sample_values import fill_schema
from bridle.values.base import Value
from bridle.values.request import ToolSpec


class ToolParameterSpec(Value, kw_only=True, gc=True):
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


def list_parameters(tool: ToolSpec) -> tuple[ToolParameterSpec, ...]:
    schema = msgspec.json.decode(tool.parameters, type=dict[str, object])
    properties = schema.get("properties")
    required = schema.get("required")
    return tuple(
        ToolParameterSpec(
            name=str(name),
            schema=inner if isinstance(inner, Mapping) else {},
            required=isinstance(required, list) and name in required,
        )
        for name, inner in (properties.items() if isinstance(properties, Mapping) else ())
    )


def matches_purpose(tool: ToolSpec, purpose: re.Pattern[str]) -> bool:
    return bool(purpose.search(tool.name.lower()) or purpose.search(tool.description.lower()))


def find_text_parameter(tool: ToolSpec, named: re.Pattern[str] | None = None) -> ToolParameterSpec | None:
    """Find the parameter for text by its name, or because it is the only required one."""
    texts = [item for item in list_parameters(tool) if item.type == "string"]
    fitting = [item for item in texts if named is not None and named.search(item.name.lower())]
    if fitting:
        return fitting[0]
    required = [item for item in list_parameters(tool) if item.required]
    if named is None and len(required) == 1 and required[0].type == "string":
        return required[0]
    return None


def make_call(tool: ToolSpec, arguments: Mapping[str, object], about: str = "") -> CallMove:
    """Make a call with these arguments; other required ones are filled in."""
    rest = msgspec.json.decode(fill_schema(tool.parameters, about), type=dict[str, object])
    return CallMove(name=tool.name, arguments={**rest, **arguments})
