"""Notes and retrieval: what a prompt gets besides the conversation.

A name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.run.memory.notes import Notes
    from bridle.values.memory import Chunk, Note, Query

_HOMES = {
    "Chunk": "bridle.values.memory",
    "Note": "bridle.values.memory",
    "Notes": "bridle.run.memory.notes",
    "Query": "bridle.values.memory",
}

__all__ = [
    "Chunk",
    "Note",
    "Notes",
    "Query",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__]
