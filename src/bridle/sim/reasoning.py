"""Thoughts of a simulated reply, as its provider hands them out.

A provider that demands a thought back gives one, and shows of its thoughts what the request asked to see.
Both differ by family.  A family may have a file `reasoning_FAMILY` with two members:

    complete(asked, reply)   the reply with the thought that the next request must carry
    display(asked, reply)    the reply with what this request is to see of its thoughts

A family without such a file shows every thought and demands none.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from msgspec.structs import replace

from ..values.message import Reply
from ..values.parts import Reasoning
from .rules import Asked

Shaper = Callable[[Asked, Reply], Reply]
PREFIX = "reasoning_"


def complete_reasoning(family: str, asked: Asked, reply: Reply) -> Reply:
    """The reply with the thought in front that its provider demands back with the results."""
    found = _family(family)
    return found[0](asked, reply) if found else reply


def display_reasoning(family: str, asked: Asked, reply: Reply) -> Reply:
    """The reply with its thoughts as this request sees them; measure it before, hidden ones are paid for."""
    found = _family(family)
    return found[1](asked, reply) if found else reply


def with_thought(reply: Reply) -> Reply:
    """The reply opening with a thought about its calls; unchanged when it opens with one or calls nothing."""
    if not reply.calls or isinstance(reply.parts[0], Reasoning):
        return reply
    names = " and ".join(dict.fromkeys(call.name for call in reply.calls))
    return replace(reply, parts=(Reasoning(text=f"I need {names} for this."), *reply.parts))


def without_words(reply: Reply) -> Reply:
    """The reply with empty thoughts; their signatures are what is left to send back."""
    hidden = (replace(part, text="") if isinstance(part, Reasoning) else part for part in reply.parts)
    return replace(reply, parts=tuple(hidden))


@cache
def _family(family: str) -> tuple[Shaper, Shaper] | None:
    name = f"{__package__}.{PREFIX}{family}"
    if find_spec(name) is None:
        return None
    module = import_module(name)
    return module.complete, module.display
