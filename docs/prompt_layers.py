"""Layers of a prompt in order, and how often each changes.

A provider caches the beginning of a prompt, so stable content precedes changing content: one different byte
makes everything after it a cache miss. The stability of a layer is the scope that shares it; no layer may
precede one with a wider scope. Anything valid only now (a time, an id) stands after the history.

`assemble_request` and the messages follow this order; a test checks it on every wire.
"""

from typing import Literal

from bridle.values.base import Value

Stability = Literal["agent", "tenant", "session", "turn"]
STABILITY_LEVELS: dict[Stability, str] = {
    "agent": "the same for all sessions of an agent",
    "tenant": "the same for all sessions of a tenant, until its notes are loaded again",
    "session": "only appended to",
    "turn": "new with every prompt, then part of the history",
}
"""From widely shared to never shared."""


class PromptLayer(Value, kw_only=True):
    name: str
    stability: Stability
    content: str
    changed_by: str
    """Event that makes it differ from the previous request."""
    has_breakpoint: bool = False
    """True if a cache breakpoint ends it, for providers that take breakpoints."""


PROMPT_LAYERS = (
    PromptLayer(
        name="tools",
        stability="agent",
        content="definitions, in the order given, followed by those revealed later",
        changed_by="the agent's tools changed, or more were revealed on a wire that puts them first",
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
        content="a tenant's notes, followed by those of the caller and the session's own",
        changed_by="the notes were reloaded and had changed",
        has_breakpoint=True,
    ),
    PromptLayer(
        name="session",
        stability="session",
        content="instructions that functions of the agent wrote for the session",
        changed_by="the agent's functions changed",
        has_breakpoint=True,
    ),
    PromptLayer(
        name="history",
        stability="session",
        content="the conversation so far, with its retrieved context",
        changed_by="a recorded change of the view",
        has_breakpoint=True,
    ),
    PromptLayer(
        name="chunks",
        stability="turn",
        content="context retrieved for the prompt",
        changed_by="never: recorded once",
    ),
    PromptLayer(
        name="message",
        stability="turn",
        content="the user's message",
        changed_by="never: recorded once",
    ),
    PromptLayer(
        name="facts",
        stability="turn",
        content="facts that hold only now",
        changed_by="never: recorded once",
    ),
    PromptLayer(
        name="turn",
        stability="turn",
        content="instructions that functions of the agent wrote for the prompt",
        changed_by="never: recorded once",
        has_breakpoint=True,
    ),
)
