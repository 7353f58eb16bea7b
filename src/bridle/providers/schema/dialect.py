"""Differences between the JSON Schema dialects of the wires, as data.

Each difference is a field whose default is JSON Schema 2020-12 as published; the rows are in `dialects.toml`.
Code reads fields and never compares a row's name, so a new wire is a new row and no new branch.

A row with `keywords` is narrow: a schema is taken apart and written again with those keywords only. A row
without them accepts all of JSON Schema, and its schemas are changed only where they would be refused.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from bridle.values.base import Value
from bridle.values.errors import MisuseError

_TABLE = Path(__file__).with_name("dialects.toml")


class SchemaDialect(Value, kw_only=True):
    name: str
    about: str = ""
    """The providers and uses it applies to, for readers."""
    strict: bool = False
    """True if the provider enforces the schema on the model, and so refuses one it cannot compile."""
    fallback: str = ""
    """The row used for a schema that a strict one cannot express."""

    keywords: tuple[str, ...] = ()
    """The keywords it supports, the only ones ever written; empty: all of them."""
    tolerated: tuple[str, ...] = ()
    """Further keywords it accepts where a schema already has them."""
    extensions: bool = False
    """True if keywords that begin with x- are accepted."""

    root_object: bool = True
    """True if the root must be an object, as the arguments of a tool are."""
    root_refused: tuple[str, ...] = ()
    """Keywords that the root may not have."""
    root_names: str = ""
    """Pattern for the names of the root's fields; other names are sent under a changed name."""
    root_properties: bool = False
    """True if the root must have `properties`, even if there are none."""

    references: Literal["shared", "inline"] = "shared"
    """`inline`: definitions are written in place of each reference."""
    recursion: Literal["free", "optional", "none"] = "free"
    """`optional`: a schema may contain itself only through an optional field."""
    beside_reference: Literal["anything", "annotations", "nothing"] = "anything"
    """Keywords that may accompany a reference."""
    types: Literal["lower", "upper"] = "lower"
    """`upper`: type names in capitals, one per schema, with `nullable` for null."""
    const: bool = True
    """False if `const` has to be written as an enum of one value (dialects without `keywords`)."""
    enums: Literal["any", "scalars", "strings"] = "any"
    formats: tuple[str, ...] | None = None
    """The accepted `type:format` pairs; None for all."""
    patterns: Literal["any", "regular"] = "any"
    """`regular`: no lookaround, no backreferences, no word boundaries."""
    min_items_max: int | None = None
    """The highest `minItems` accepted."""

    typed: bool = False
    """True if every schema must name its type."""
    closed: bool = False
    """True if every object must refuse fields it does not name."""
    all_required: bool = False
    """True if every field must be required; null then means that it is omitted."""
    empty_properties: bool = True
    """True if `properties` may be empty."""
    tuples: Literal["widened", "unfit"] = "widened"
    """Treatment of arrays whose positions have schemas of their own, if the dialect lacks them.

    `widened`: every item may match any of the schemas. `unfit`: the schema does not fit the dialect.
    """
    array_items: bool = False
    """True if an array must have `items`."""

    depth_max: int | None = None
    properties_max: int | None = None
    enum_values_max: int | None = None
    characters_max: int | None = None
    """Total over all names and values."""
    long_enum_values: int | None = None
    long_enum_characters_max: int | None = None
    """Total length of the values of one enum with more than `long_enum_values` values."""

    optional_max: int | None = None
    unions_max: int | None = None

    @property
    def is_narrow(self) -> bool:
        return bool(self.keywords)

    def takes_name(self, name: str) -> bool:
        """Return True if a field of the root may have this name."""
        return not self.root_names or re.fullmatch(self.root_names, name) is not None

    def takes_format(self, kind: str, name: str) -> bool:
        return self.formats is None or f"{kind}:{name}" in self.formats

    def takes_pattern(self, pattern: str) -> bool:
        return self.patterns == "any" or _NON_REGULAR_PATTERN.search(pattern) is None

    def tolerates(self, keyword: str) -> bool:
        return (
            not self.keywords
            or keyword in self.keywords
            or keyword in self.tolerated
            or (self.extensions and keyword.startswith("x-"))
        )


def find_dialect(name: str) -> SchemaDialect:
    """Return the row of that name; raise `MisuseError` if there is none."""
    rows = _load_rows()[0]
    if name not in rows:
        raise MisuseError(f"no schema dialect {name!r}: there are {', '.join(rows)}")
    return rows[name]


def all_dialects() -> tuple[SchemaDialect, ...]:
    return tuple(_load_rows()[0].values())


def default_strict_dialect() -> SchemaDialect:
    """Return the dialect that "strict" means if no other is given."""
    rows, reference = _load_rows()
    return rows[reference]


# Lookaround, backreferences, named groups of a single regex flavour, word boundaries.
_NON_REGULAR_PATTERN = re.compile(r"\(\?(?!:)|\\[1-9bBkAzZGpPuxc]|(?:[*+?}]\+)")


@cache
def _load_rows() -> tuple[dict[str, SchemaDialect], str]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    rows: dict[str, SchemaDialect] = {}
    for name, row in table["dialects"].items():
        inherited = msgspec.structs.asdict(rows[row["like"]]) if "like" in row else {}
        fields = {**inherited, **row, "name": name}
        fields.pop("like", None)
        if unknown := fields.keys() - set(SchemaDialect.__struct_fields__):
            raise MisuseError(f"schema dialect {name!r} has {sorted(unknown)}, which no dialect has")
        rows[name] = msgspec.convert(fields, SchemaDialect)
    return rows, table["strict_reference"]
