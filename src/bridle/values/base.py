"""Base classes of every value and event.

A value is immutable, keyword-only, compared by content, and serialized as tagged JSON without its defaults.
The metaclass applies these options once, so that no subclass can forget one.

A value that derives the same result at every step (`Model.model_key`) sets `dict=True` and caches it in
`__dict__`. A cached property is not a field: it is not compared, copied or serialized.

Values of `values/` and `core/` without a `__dict__` are unknown to Python's garbage collector. An immutable value
made of values cannot be part of a cycle, and many sessions have hundreds of thousands of them, which each
collection would visit. A value that can hold an object or a function of the user sets `gc=True`; so does the
metaclass for all other modules and for subclasses of a value that the collector knows.

New fields must have defaults; otherwise existing logs can no longer be read.
"""

from typing import Any, dataclass_transform

import msgspec

UNTRACKED_MODULES = ("bridle.values.", "bridle.core.")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class ValueMeta(msgspec.StructMeta):
    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "ValueMeta":
        settings = {"frozen": True, "kw_only": True, "omit_defaults": True, **options}
        is_tracked = any(isinstance(base, ValueMeta) and base.__struct_config__.gc for base in bases)
        is_elsewhere = not namespace.get("__module__", "").startswith(UNTRACKED_MODULES)
        settings.setdefault("gc", is_tracked or is_elsewhere or bool(options.get("dict")))
        value_class: ValueMeta = super().__new__(cls, name, bases, namespace, **settings)
        return value_class


class Value(msgspec.Struct, metaclass=ValueMeta):
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
