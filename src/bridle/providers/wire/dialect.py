"""Reads the dialect of an endpoint: its differences from the family's wire.

The endpoint tables hold dialects as JSON that only the family's codec can validate. So mistakes in them are
found here, when the endpoint is first used, and reported. Each text is parsed once and cached.
"""

from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.model import Endpoint

DIALECT_CACHE_SIZE = 256

T = TypeVar("T", bound=Value)


def read_dialect(endpoint: Endpoint | None, otherwise: T) -> T:
    """Return the dialect of an endpoint, or `otherwise` if it has none; raise `MisuseError` for a bad one."""
    if endpoint is None or not endpoint.dialect:
        return otherwise
    return cast("T", _parse_dialect(type(otherwise), endpoint.dialect, endpoint.name))


@lru_cache(maxsize=DIALECT_CACHE_SIZE)
def _parse_dialect(kind: type[Value], text: str, name: str) -> Value:
    known = kind.__struct_fields__
    try:
        given = msgspec.json.decode(text, type=dict[str, object])
        unknown = [field for field in given if field not in known]
        if not unknown:
            return msgspec.convert(given, kind)
        problem = f"{unknown[0]!r} is not known"
    except msgspec.DecodeError as error:
        problem = str(error)
    raise MisuseError(f"endpoints.{name}.dialect: {problem}; its wire accepts {', '.join(known)}")
