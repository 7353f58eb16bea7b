"""How an endpoint's wire differs from its family's: JSON in the endpoint, a value in the codec.

The tables hold the differences as data that nobody but the family's codec can judge.  So this is
where a mistake in them is found, when the endpoint is first spoken to, and told to whoever wrote it.
Each text is read once; asking again costs a lookup.
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
    """The dialect of an endpoint; `otherwise` when it has none of its own.  Raises `MisuseError`."""
    if endpoint is None or not endpoint.dialect:
        return otherwise
    return cast("T", _parse_dialect(type(otherwise), endpoint.dialect, endpoint.name))


@lru_cache(maxsize=DIALECT_CACHE_SIZE)
def _parse_dialect(kind: type[Value], text: str, name: str) -> Value:
    known = kind.__struct_fields__
    try:
        given = msgspec.json.decode(text, type=dict[str, object])
        strange = [field for field in given if field not in known]
        if not strange:
            return msgspec.convert(given, kind)
        trouble = f"{strange[0]!r} is not known"
    except msgspec.DecodeError as error:
        trouble = str(error)
    raise MisuseError(f"endpoints.{name}.dialect: {trouble}; its wire knows {', '.join(known)}")
