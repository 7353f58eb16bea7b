"""Reads the dialect of an endpoint: its differences from the family's wire.

The endpoint tables hold dialects as JSON that only the family's codec can validate. So mistakes in them are
found here, when the endpoint is first used, and reported. Each text is parsed once and cached.

Signatures, encrypted reasoning and a provider's ids are valid only where they were issued. Their scope
depends on the endpoint. Most endpoints accept them for all their models (and ignore what a model cannot
read); some serve models of many makers, or check that the same model receives them, and refuse the request
otherwise. The dialect of such an endpoint has a pattern, `sealed_by`: its matches in the ids of the two
models have to be equal. An id without a match (an alias, a custom model) is accepted.
"""

import re
from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.model import Endpoint, Origin

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


RETURNABLE_ID = re.compile(r"[!-~]+")
"""Ids returned unchanged to the endpoint that issued them: gateways keep state in ids of any length."""


def is_from_same_origin(
    origin: Origin | None, family: str, endpoint: Endpoint | None, *, sealed_by: str = "", model_id: str = ""
) -> bool:
    """Return True if a part comes from this wire, this endpoint and a compatible model.

    Without an endpoint, everything of the family counts as coming from the endpoint it is sent to.
    """
    if origin is None or origin.family != family:
        return False
    if endpoint is not None and origin.endpoint != endpoint.endpoint_id:
        return False
    theirs, ours = match_model_id(sealed_by, origin.model), match_model_id(sealed_by, model_id)
    return not theirs or not ours or theirs == ours


def match_model_id(pattern: str, model_id: str) -> str:
    """Return the match of a table's pattern in a model id, or ""; raise `MisuseError` for an invalid pattern."""
    try:
        found = re.search(pattern, model_id) if pattern else None
    except re.error as error:
        raise MisuseError(
            f"a dialect has {pattern!r}, which is not a regular expression ({error}): correct it"
        ) from None
    return found.group() if found else ""
