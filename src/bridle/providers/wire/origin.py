"""Decides if a part may be returned with its provider's signatures and ids.

Signatures, encrypted reasoning and a provider's ids are valid only where they were issued. Their scope
depends on the endpoint. Most endpoints accept them for all their models (and ignore what a model cannot
read); some serve models of many makers, or check that the same model receives them, and refuse the request
otherwise. The dialect of such an endpoint has a pattern, `sealed_by`: its matches in the ids of the two
models have to be equal. An id without a match (an alias, a custom model) is accepted.
"""

import re

from bridle.values.errors import MisuseError
from bridle.values.model import Endpoint, Origin

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
