"""Tools that a request declares only because they were called before.

Where the provider wants every called tool declared (`Abilities.called_tools_declared`) and none is
offered, the codec declares each called tool by a stand-in.  Stand-ins are in front of the prompt, so the
first call of a tool that was not offered moves everything behind them.
"""

from collections.abc import Sequence

from ..values.message import Message
from ..values.model import Model
from ..values.parts import ToolCall


def names_called(messages: Sequence[Message], model: Model, *, offered: bool) -> tuple[str, ...]:
    """The tools that stand-ins declare, in the order of their first calls."""
    return tuple(first_calls(messages, model, offered=offered))


def first_calls(messages: Sequence[Message], model: Model, *, offered: bool) -> dict[str, int]:
    """The same, each with the place of the message that called it first."""
    if offered or not model.abilities.called_tools_declared:
        return {}
    places: dict[str, int] = {}
    for at, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                places.setdefault(part.name, at)
    return places
