"""Parts of messages and replies that only some programs need; the usual ones are in `bridle`.

A name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.values.message import Opaque, RawCall, Stop
    from bridle.values.text import escape_text

_HOMES = {
    "escape_text": "bridle.values.text",
    "Opaque": "bridle.values.message",
    "RawCall": "bridle.values.message",
    "Stop": "bridle.values.message",
}

__all__ = [
    "Opaque",
    "RawCall",
    "Stop",
    "escape_text",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__]
