"""What a prompt is made of, front to back, and how long each part of it stays as it is.

A provider keeps the beginning of a prompt, so what changes rarely stands before what changes often: one
byte that differs makes everything behind it new.  The stability of a layer is who shares it; nothing may
stand before a layer that is shared by more.  Nothing that is true only now (a time, an id) has a place
before the history.

This is the order that `assemble` (context.py) and the messages keep; a test holds every wire to it.
"""

from typing import Literal

from ..values.value import Value

Stability = Literal["agent", "tenant", "session", "turn"]
STABILITIES: dict[Stability, str] = {
    "agent": "the same for all sessions of an agent",
    "tenant": "the same for all sessions of a tenant, until its notes are loaded again",
    "session": "grows at its end, and stays as it is before that",
    "turn": "new with every prompt, and history from then on",
}
"""From what most prompts share to what none does."""


class LayerRow(Value):
    name: str
    stability: Stability
    holds: str
    moves: str
    """What makes it differ from the request before."""
    marked: bool = False
    """Whether a cache mark ends it, where a provider takes marks."""


LAYERS = (
    LayerRow(
        name="tools",
        stability="agent",
        holds="definitions, in the order they were given; those shown later behind them",
        moves="the agent's tools changed, or the model was shown more where the wire has them in front",
    ),
    LayerRow(
        name="system",
        stability="agent",
        holds="the agent's instructions",
        moves="the agent's instructions changed",
        marked=True,
    ),
    LayerRow(
        name="memory",
        stability="tenant",
        holds="a tenant's notes, and behind them the session's own",
        moves="the notes were loaded at a chosen point, and had changed",
        marked=True,
    ),
    LayerRow(
        name="history",
        stability="session",
        holds="everything said so far, with what was looked up for it",
        moves="a recorded change of the view",
        marked=True,
    ),
    LayerRow(
        name="chunks",
        stability="turn",
        holds="what was retrieved for the prompt",
        moves="never: recorded once",
    ),
    LayerRow(
        name="message",
        stability="turn",
        holds="what the person says",
        moves="never: recorded once",
    ),
    LayerRow(
        name="facts",
        stability="turn",
        holds="what is true only now",
        moves="never: recorded once",
        marked=True,
    ),
)
