"""The instructions of an agent: texts, and functions that write them.

    Agent("sim:", instructions="Be brief.")
    Agent("sim:", instructions=["Be brief.", describe_clinic])            called once per session
    Agent("sim:", instructions=["Be brief.", per_turn(opening_hours)])    called once per prompt

A function takes a `RunContext` or nothing, may be async, and returns a text.  What it wrote is recorded before
it is sent, so it is not called again when the run is resumed or replayed.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from bridle.core.effects import WriteInstruction
from bridle.ports.run_context import RunContext
from bridle.run.validate_input import list_templates
from bridle.tools.function.context_parameter import find_context_parameter
from bridle.tools.function.signature import unwrap_partial
from bridle.values.errors import MisuseError
from bridle.values.memory import (
    INSTRUCTION_SECONDS_MAX,
    InstructionFunction,
    InstructionScope,
    InstructionWritten,
    TemplateVersion,
)
from bridle.values.text import repair_surrogates

from .run_context import ContextNeed
from .user_functions import FunctionError, call_user_function, call_with_deadline, shorter_time

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    C_contra = TypeVar("C_contra", contravariant=True, default=object)
else:
    from typing import TypeVar

    C_contra = TypeVar("C_contra", contravariant=True)

InstructionWriter = (
    Callable[[RunContext[C_contra]], str]
    | Callable[[RunContext[C_contra]], Awaitable[str]]
    | Callable[[], str]
    | Callable[[], Awaitable[str]]
)


@dataclass(frozen=True)
class TurnInstruction(Generic[C_contra]):
    """A function that writes instructions for every prompt.  Make one with `per_turn`."""

    function: InstructionWriter[C_contra]


def per_turn(function: InstructionWriter[C_contra]) -> TurnInstruction[C_contra]:
    """Call the function once for every prompt; its text ends the prompt's message."""
    return TurnInstruction(function)


InstructionPart = str | InstructionWriter[C_contra] | TurnInstruction[C_contra]
Instructions = InstructionPart[C_contra] | Sequence[InstructionPart[C_contra]]
BAD_INSTRUCTIONS = "`instructions` must be a string, a function returning one, or a list of these, not `{}`"


class _Writer:
    """One function that writes instructions."""

    def __init__(self, call: Callable[..., object], scope: InstructionScope) -> None:
        inner = unwrap_partial(call)
        name = str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")
        self._call, self._takes_context = call, _takes_context(call, name)
        self.function = InstructionFunction(name=name, scope=scope)
        context = find_context_parameter(call)
        self.context_type = context.type if context is not None else None

    async def write(self, context: RunContext) -> str:
        given = (context,) if self._takes_context else ()
        text = await call_user_function(lambda: self._call(*given), self._call)
        if not isinstance(text, str):
            raise TypeError(f"it returned {type(text).__name__}, not str")
        return text


@dataclass(frozen=True)
class AgentInstructions:
    """The instructions of one agent, parsed."""

    text: str
    templates: tuple[TemplateVersion, ...]
    writers: tuple[_Writer, ...]

    @property
    def functions(self) -> tuple[InstructionFunction, ...]:
        return tuple(writer.function for writer in self.writers)

    @property
    def context_needs(self) -> tuple[ContextNeed, ...]:
        return tuple(
            ContextNeed(f"instruction `{writer.function.name}`", writer.context_type, writer.function)
            for writer in self.writers
            if writer.context_type is not None
        )

    async def write(
        self, effect: WriteInstruction, context: RunContext, left_seconds: float | None
    ) -> InstructionWritten:
        function = effect.function
        writer = next(writer for writer in self.writers if writer.function == function)
        seconds = shorter_time(INSTRUCTION_SECONDS_MAX, left_seconds)
        text = await call_with_deadline(f"instruction `{function.name}`", writer.write(context), seconds)
        if isinstance(text, FunctionError):
            return InstructionWritten(name=function.name, scope=function.scope, write_error=str(text))
        return InstructionWritten(
            name=function.name,
            scope=function.scope,
            instructions=repair_surrogates(text).strip(),
            templates=list_templates(text),
            owner=effect.owner,
        )


def parse_instructions(given: object) -> AgentInstructions:
    """The texts and functions of `Agent(instructions=…)`; raises `MisuseError` for anything else."""
    parts = given if isinstance(given, list | tuple) else () if given is None else (given,)
    texts: list[str] = []
    writers: list[_Writer] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, TurnInstruction):
            writers.append(_Writer(part.function, "turn"))
        elif callable(part) and not isinstance(part, type):
            writers.append(_Writer(part, "session"))
        else:
            raise MisuseError(BAD_INSTRUCTIONS.format(type(part).__name__))
    names = [writer.function.name for writer in writers]
    for name in names:
        if names.count(name) > 1:
            raise MisuseError(f"two instruction functions are named {name!r}; the log needs distinct names")
    stripped = (repair_surrogates(text).strip() for text in texts)
    return AgentInstructions("\n\n".join(filter(None, stripped)), list_templates(texts), tuple(writers))


def _takes_context(call: Any, name: str) -> bool:
    if not callable(call):
        raise MisuseError(BAD_INSTRUCTIONS.format(type(call).__name__))
    required = [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        raise MisuseError(f"instruction `{name}` must take a RunContext or nothing")
    return bool(required) or find_context_parameter(call) is not None
