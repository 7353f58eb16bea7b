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
class ValueType(msgspec.StructMeta):
    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "ValueType":
        settings = {"frozen": True, "kw_only": True, "omit_defaults": True, **options}
        made: ValueType = super().__new__(cls, name, bases, namespace, **settings)
        return made


class Value(msgspec.Struct, metaclass=ValueType):
    """Immutable, keyword-only, compared by content."""
