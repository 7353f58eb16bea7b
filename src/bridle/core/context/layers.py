"""What a prompt is made of, front to back, and how long each part of it stays as it is.

A provider keeps the beginning of a prompt, so what changes rarely stands before what changes often: one
byte that differs makes everything behind it new.  The stability of a layer is who shares it; nothing may
stand before a layer that is shared by more.  Nothing that is true only now (a time, an id) has a place
before the history.

This is the order that `assemble` (context.py) and the messages keep; a test holds every wire to it.
"""

from typing import Literal

from bridle.values.base import Value

Stability = Literal["agent", "tenant", "session", "turn"]
STABILITY_LEVELS: dict[Stability, str] = {
    "agent": "the same for all sessions of an agent",
    "tenant": "the same for all sessions of a tenant, until its notes are loaded again",
    "session": "grows at its end, and stays as it is before that",
    "turn": "new with every prompt, and history from then on",
}
"""From what most prompts share to what none does."""


class PromptLayer(Value):
    name: str
    stability: Stability
    content: str
    changed_by: str
    """What makes it differ from the request before."""
    has_breakpoint: bool = False
    """Whether a cache mark ends it, where a provider takes marks."""


PROMPT_LAYERS = (
    PromptLayer(
        name="tools",
        stability="agent",
        content="definitions, in the order they were given; those shown later behind them",
        changed_by="the agent's tools changed, or the model was shown more where the wire has them in front",
    ),
    PromptLayer(
        name="system",
        stability="agent",
        content="the agent's instructions",
        changed_by="the agent's instructions changed",
        has_breakpoint=True,
    ),
    PromptLayer(
        name="memory",
        stability="tenant",
        content="a tenant's notes, and behind them the session's own",
        changed_by="the notes were loaded at a chosen point, and had changed",
        has_breakpoint=True,
    ),
    PromptLayer(
        name="history",
        stability="session",
        content="everything said so far, with what was looked up for it",
        changed_by="a recorded change of the view",
        has_breakpoint=True,
    ),
    PromptLayer(
        name="chunks",
        stability="turn",
        content="what was retrieved for the prompt",
        changed_by="never: recorded once",
    ),
    PromptLayer(
        name="message",
        stability="turn",
        content="what the person says",
        changed_by="never: recorded once",
    ),
    PromptLayer(
        name="facts",
        stability="turn",
        content="what is true only now",
        changed_by="never: recorded once",
        has_breakpoint=True,
    ),
)
