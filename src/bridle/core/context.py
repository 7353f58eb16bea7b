"""Assemble the next request.

The order is fixed: tools, system, history, current message.  Each request extends
the one before it byte for byte, because a moved prefix is a missed cache and a missed
cache is money.  So nothing here may depend on the time, the step or the weather; what
changes from step to step (tool choice, room for output) is outside the prefix.

What a model would refuse is settled here, before it is sent, and noted.
"""

from ..values.parts import Text
from ..values.request import Mark, OutputSpec, Request, ToolChoice, ToolSpec
from .budget import room
from .state import State


def assemble(state: State, choice: ToolChoice | None = None) -> tuple[Request, tuple[str, ...]]:
    """The request and what had to be changed to make it acceptable."""
    settings = state.settings
    tools = shown_tools(settings.tools, settings.output)
    wanted = choice or settings.tool_choice
    settled, notes = settle_choice(wanted, state)
    request = Request(
        model=settings.model,
        system=(Text(text=settings.instructions),) if settings.instructions else (),
        tools=tools,
        messages=state.view,
        tool_choice=settled,
        max_tokens=room(state),
        output=settings.output if settings.output and settings.output.mode == "native" else None,
        thinking=settings.thinking,
        sampling=settings.sampling,
        marks=_marks(state, tools),
        extras=settings.extras,
    )
    return request, notes


def shown_tools(tools: tuple[ToolSpec, ...], output: OutputSpec | None) -> tuple[ToolSpec, ...]:
    if output is None or output.mode != "tool":
        return tools
    description = output.description or "Give your final answer by calling this."
    return (*tools, ToolSpec(name=output.name, description=description, parameters=output.parameters))


def settle_choice(wanted: ToolChoice, state: State) -> tuple[ToolChoice, tuple[str, ...]]:
    """A choice this model accepts, as close to the wanted one as it gets."""
    settings = state.settings
    by_tool = settings.output is not None and settings.output.mode == "tool"
    if by_tool and settings.output and wanted.mode == "auto":
        # The answer has to come as a call, so some call has to come.
        only = not settings.tools
        wanted = ToolChoice(
            mode="tool" if only else "any",
            name=settings.output.name if only else "",
            parallel=wanted.parallel,
        )
    if not settings.tools and not by_tool:
        return ToolChoice(), ()
    if wanted.mode in ("any", "tool") and not settings.model.abilities.forced_tools:
        note = (
            f"tool choice {wanted.name or wanted.mode!r} became 'auto': {settings.model.id} cannot be forced"
        )
        return ToolChoice(parallel=wanted.parallel), () if by_tool else (note,)
    return wanted, ()


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
