"""The shape of an answer: what a user asks for, and how this model is asked for it."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from ..ports.tool import Json
from ..providers import load
from ..tools.output import OutputType, output_type
from ..values.errors import MisuseError
from ..values.model import Model
from ..values.request import OutputSpec, ToolChoice

T = TypeVar("T")


def shape_of(output: type[T] | OutputType[T] | Mapping[str, Json] | None) -> OutputType[T] | None:
    if output is None or isinstance(output, OutputType):
        return output
    # A schema gives plain data; who passes one has no type to be held to.
    return cast("OutputType[T]", output_type(output))


def output_spec(
    shape: OutputType[T] | None, models: Sequence[Model], tools: Collection[str], choice: ToolChoice
) -> OutputSpec | None:
    """How the first of the models is asked; all of them are looked at, since any may be asked later."""
    if shape is None:
        return None
    spec = OutputSpec(name=shape.name, parameters=shape.schema, description=shape.description)
    native = [model for model in models if model.abilities.structured_output == "native"]
    reasons = [(model.seat, load(model.endpoint.family).reason_unfit(spec, model)) for model in native]
    spec = replace(spec, unfit=tuple((seat, why) for seat, why in reasons if why))
    calling = [model.name for model in models if spec.mode_for(model) == "tool"]
    if calling and shape.name in tools:
        raise MisuseError(f"the answer's type and a tool are both called {shape.name!r}; rename one")
    if calling and choice.mode == "none":
        raise MisuseError(f"{calling[0]} answers in a shape by calling, and tool_choice='none' forbids calls")
    return replace(spec, mode=spec.mode_for(models[0]))
