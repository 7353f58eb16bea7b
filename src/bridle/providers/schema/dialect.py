"""How one wire's JSON Schema differs from the next one's, as data.

Each difference is a field whose default is JSON Schema 2020-12 as published; the rows are in
`dialects.toml`.  Code asks for a field and never for a row's name, so that a wire nobody
has met yet is a new row and no new branch.

A row with `keywords` is narrow: a schema is taken apart and said again in those words only.  A row
without takes all of JSON Schema, and its schemas are touched only where it would refuse them.
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


class SchemaDialect(Value):
    name: str
    about: str = ""
    """Where it is spoken, for people."""
    strict: bool = False
    """Whether the provider holds the model to the schema, and so refuses what it cannot compile."""
    fallback: str = ""
    """The row that takes what a strict one cannot say."""

    keywords: tuple[str, ...] = ()
    """The words it understands, and the only ones ever written; none: all of them."""
    tolerated: tuple[str, ...] = ()
    """Words it lets pass where they already stand."""
    extensions: bool = False
    """Whether words that begin with x- are let pass."""

    root_object: bool = True
    """Whether the top must be an object, as the arguments of a tool are."""
    root_refused: tuple[str, ...] = ()
    """Words that may not stand at the top."""
    root_names: str = ""
    """What the names of the fields at the top must look like; others go out under a changed name."""
    root_properties: bool = False
    """Whether the top must have `properties`, be there any or not."""

    references: Literal["shared", "inline"] = "shared"
    """`inline`: what is referred to is written where it is meant."""
    recursion: Literal["free", "optional", "none"] = "free"
    """`optional`: a shape may contain itself only in a field that can be left out."""
    beside_reference: Literal["anything", "annotations", "nothing"] = "anything"
    """What may stand beside a reference."""
    types: Literal["lower", "upper"] = "lower"
    """`upper`: the names of types in capitals, one per shape, with `nullable` for null."""
    union_alone: bool = False
    """Whether `anyOf` may have nothing beside it."""
    const: bool = True
    """Whether `const` is understood where all words are; otherwise it is an enum of one."""
    enums: Literal["any", "scalars", "strings"] = "any"
    formats: tuple[str, ...] | None = None
    """`type:format` of those accepted; None for all."""
    patterns: Literal["any", "regular"] = "any"
    """`regular`: no looking around, no going back, no word boundaries."""
    min_items_max: int | None = None
    """The highest `minItems` accepted."""

    typed: bool = False
    """Whether every shape must name its type."""
    closed: bool = False
    """Whether every object must refuse fields it does not name."""
    all_required: bool = False
    """Whether every field must be required; null then stands for leaving it out."""
    empty_properties: bool = True
    """Whether `properties` may be empty."""
    tuples: Literal["widened", "unfit"] = "widened"
    """Arrays whose places have shapes of their own, where that cannot be said: any place may take any of the
    shapes, or the schema does not fit."""
    array_items: bool = False
    """Whether an array must have `items`."""

    depth_max: int | None = None
    properties_max: int | None = None
    enum_values_max: int | None = None
    characters_max: int | None = None
    """Of all names and values together."""
    long_enum_values: int | None = None
    long_enum_characters_max: int | None = None
    """How long the values of one enum may be together, once there are more than `long_enum_values`."""

    tools_max: int | None = None
    """This and the next two count over all strict schemas of one request."""
    optional_max: int | None = None
    unions_max: int | None = None

    @property
    def is_narrow(self) -> bool:
        return bool(self.keywords)

    def takes_name(self, name: str) -> bool:
        """Whether a field at the top may have this name."""
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
    """The row of that name; `MisuseError` when there is none."""
    rows = _load_rows()[0]
    if name not in rows:
        raise MisuseError(f"no schema dialect {name!r}: there are {', '.join(rows)}")
    return rows[name]


def all_dialects() -> tuple[SchemaDialect, ...]:
    return tuple(_load_rows()[0].values())


def default_strict_dialect() -> SchemaDialect:
    """What "strict" means when nobody says whose."""
    rows, reference = _load_rows()
    return rows[reference]


# Groups that look around, references back, named groups of one language only, word boundaries.
_NON_REGULAR_PATTERN = re.compile(r"\(\?(?!:)|\\[1-9bBkAzZGpPuxc]|(?:[*+?}]\+)")


@cache
def _load_rows() -> tuple[dict[str, SchemaDialect], str]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    rows: dict[str, SchemaDialect] = {}
    for name, row in table["dialects"].items():
        usual = msgspec.structs.asdict(rows[row["like"]]) if "like" in row else {}
        fields = {**usual, **row, "name": name}
        fields.pop("like", None)
        if unknown := fields.keys() - set(SchemaDialect.__struct_fields__):
            raise MisuseError(f"schema dialect {name!r} has {sorted(unknown)}, which no dialect has")
        rows[name] = msgspec.convert(fields, SchemaDialect)
    return rows, table["strict_reference"]
