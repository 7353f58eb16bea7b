"""Base classes of every value and event.

A value is immutable, keyword-only, compared by content, and serialized as tagged JSON without its defaults.
A class inherits these options, except one: a class with fields repeats `kw_only=True`. tests/tidy/test_values.py
finds a class that forgot it.

A value that derives the same result at every step (`Model.model_key`) sets `dict=True, gc=True` and caches it in
`__dict__`. A cached property is not a field: it is not compared, copied or serialized.

Values are unknown to Python's garbage collector. An immutable value made of values cannot be part of a cycle, and
many sessions have hundreds of thousands of them, which each collection would visit. A value that can hold an object
or a function of the user sets `gc=True`, which its subclasses inherit. So does a class outside of this package.

New fields must have defaults; otherwise existing logs can no longer be read.
"""

from typing import TYPE_CHECKING, dataclass_transform

import msgspec

if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
    class ValueMeta(msgspec.StructMeta):
        """Tells a type checker the options of values."""

else:
    # Not a subclass: before Python 3.12, the constructor of its classes would take keywords through a dictionary.
    ValueMeta = msgspec.StructMeta


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, metaclass=ValueMeta):
    """An immutable value, compared by content."""


class EventBase(Value):
    """Base of all events: a value with the properties that every item of a stream has.

    text            text to show to a viewer; empty unless the event carries some
    unique_key      a log may contain only one event with this key; None for no restriction
    required_blobs  hashes of the blobs that must be in the store before this event
    """

    @property
    def text(self) -> str:
        return ""

    @property
    def unique_key(self) -> str | None:
        return None

    @property
    def required_blobs(self) -> tuple[str, ...]:
        """Hashes of blobs that must be stored before this event; see `Store.put_blob`."""
        return ()
