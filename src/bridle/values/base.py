"""The root of everything Bridle keeps.

A value is immutable, keyword-only, compared by content, and written as tagged
JSON without its defaults.  Those four decisions are made here once, so that no
class below can forget one of them.

A value that is asked for the same thing at every step (`Model.seat`) has a `__dict__` (`dict=True`) and
computes it once; that is no field, so it is neither compared nor copied nor written.

New fields must have defaults, or logs written yesterday cannot be read today.
"""

from typing import Any, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class ValueMeta(msgspec.StructMeta):
    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "ValueMeta":
        settings = {"frozen": True, "kw_only": True, "omit_defaults": True, **options}
        made: ValueMeta = super().__new__(cls, name, bases, namespace, **settings)
        return made


class Value(msgspec.Struct, metaclass=ValueMeta):
    """Immutable, keyword-only, compared by content."""


# What every event answers to, so that whoever looks on needs no list of kinds.
#
# `once` names what must not be in a log twice; `refers`, what must be in the store before it.


class EventBase(Value):
    """An event that shows no words; everything a stream yields answers to `.text` and `.once`."""

    @property
    def text(self) -> str:
        return ""

    @property
    def unique_key(self) -> str | None:
        return None

    @property
    def required_blobs(self) -> tuple[str, ...]:
        """Hashes of what must be in the store before this is; see `Store.put_blob`."""
        return ()
