"""Assemble the next request.

The order is fixed: tools, system, history, current message.  Each request extends
the one before it byte for byte, because a moved prefix is a missed cache and a missed
cache is money.  So nothing here may depend on the time, the step or the weather; what
changes from step to step (tool choice, room for output) is outside the prefix.

What a model would refuse is settled before it is sent (settling.py), and noted once a run.
"""

from ..values.parts import Text
from ..values.request import Mark, OutputSpec, Request, ToolChoice, ToolSpec
from .budget import room
from .settling import settle
from .state import State


def assemble(state: State, choice: ToolChoice | None = None) -> tuple[Request, tuple[str, ...]]:
    """The request and what had to be changed to make it acceptable."""
    settings = state.settings
    tools = shown_tools(settings.tools, settings.output)
    wish = settle(settings, choice or settings.tool_choice)
    request = Request(
        model=settings.model,
        system=(Text(text=settings.instructions),) if settings.instructions else (),
        tools=tools,
        messages=state.view,
        tool_choice=wish.choice,
        max_tokens=room(state),
        output=settings.output if settings.output and settings.output.mode == "native" else None,
        thinking=wish.thinking,
        sampling=wish.sampling,
        marks=_marks(state, tools),
        extras=settings.extras,
    )
    return request, wish.notes if state.run.spent.steps == 0 else ()


def shown_tools(tools: tuple[ToolSpec, ...], output: OutputSpec | None) -> tuple[ToolSpec, ...]:
    if output is None or output.mode != "tool":
        return tools
    description = output.description or "Give your final answer by calling this."
    return (*tools, ToolSpec(name=output.name, description=description, parameters=output.parameters))


def _marks(state: State, tools: tuple[ToolSpec, ...]) -> tuple[Mark, ...]:
    """One mark after what never changes, one that follows the end by itself."""
    abilities = state.settings.model.abilities
    if abilities.cache_marks == 0:
        return ()
    fixed: tuple[Mark, ...] = ()
    if state.settings.instructions:
        fixed = (Mark(place="system"),)
    elif tools:
        fixed = (Mark(place="tools"),)
    return (*fixed, Mark(place="end")) if abilities.automatic_cache else fixed
