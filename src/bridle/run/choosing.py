"""Which tool is to be called, in the words a user has for it."""

from collections.abc import Callable, Collection

from ..values.errors import MisuseError
from ..values.request import ToolChoice

ChoiceLike = str | ToolChoice
Choice = ChoiceLike | Callable[[int], ChoiceLike]
"""`auto`, `any`, `none`, the name of a tool, or a function of the step number that gives one of these."""
CHOICES = {"auto": ToolChoice(), "any": ToolChoice(mode="any"), "none": ToolChoice(mode="none")}
NAMED_MAX = 30


def chosen_of(wanted: ChoiceLike, tools: Collection[str]) -> ToolChoice:
    if isinstance(wanted, ToolChoice):
        choice = wanted
    else:
        choice = CHOICES.get(wanted) or ToolChoice(mode="tool", name=wanted)
    if choice.mode == "tool" and choice.name not in tools:
        known = ", ".join(list(tools)[:NAMED_MAX]) or "none are registered"
        more = f" and {len(tools) - NAMED_MAX} more" if len(tools) > NAMED_MAX else ""
        raise MisuseError(
            f"tool_choice names {choice.name!r}, which is not a tool of this agent ({known}{more})"
        )
    return choice
