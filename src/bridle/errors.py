"""Exceptions that only some programs catch by name; the usual ones are in `bridle`.

A name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.values.errors import (
        BadTool,
        Conflict,
        Corrupt,
        Failure,
        MissingKey,
        SessionNotFound,
        UnknownModel,
        Unusable,
    )

_HOMES = {
    "BadTool": "bridle.values.errors",
    "Conflict": "bridle.values.errors",
    "Corrupt": "bridle.values.errors",
    "Failure": "bridle.values.errors",
    "MissingKey": "bridle.values.errors",
    "SessionNotFound": "bridle.values.errors",
    "UnknownModel": "bridle.values.errors",
    "Unusable": "bridle.values.errors",
}

__all__ = [
    "BadTool",
    "Conflict",
    "Corrupt",
    "Failure",
    "MissingKey",
    "SessionNotFound",
    "UnknownModel",
    "Unusable",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__]
