"""Who said something: what was sealed for one model goes back to nobody who cannot open it.

Signatures, encrypted reasoning and the provider's own ids mean something where they were made and
nowhere else.  Where that is depends on the endpoint.  Most let any of their models see them (and pass
over what a model cannot read); some serve many makers, or check that the very model comes back, and
refuse the request otherwise.  Such an endpoint has a pattern in its dialect, `sealed_by`: what it finds
in the ids of two models has to be equal.  An id in which it finds nothing (an alias, a model of one's
own) is given the benefit of the doubt.
"""

import re

from bridle.values.errors import MisuseError
from bridle.values.model import Endpoint, Origin

RETURNABLE_ID = re.compile(r"[!-~]+")
"""Ids that go back unchanged to the endpoint that gave them: gateways keep state in ids of any length."""


def is_from_same_origin(
    origin: Origin | None, family: str, endpoint: Endpoint | None, *, sealed_by: str = "", model_id: str = ""
) -> bool:
    """Whether this was said on this wire, at this endpoint, by a model whose seals this model can open.

    Without an endpoint everything of the family is taken to have come from where it goes.
    """
    if origin is None or origin.family != family:
        return False
    if endpoint is not None and origin.endpoint != endpoint.endpoint_id:
        return False
    theirs, ours = match_model_id(sealed_by, origin.model), match_model_id(sealed_by, model_id)
    return not theirs or not ours or theirs == ours


def match_model_id(pattern: str, model_id: str) -> str:
    """What a pattern of the tables finds in a model's id, if anything.  Raises `MisuseError`."""
    try:
        found = re.search(pattern, model_id) if pattern else None
    except re.error as error:
        raise MisuseError(f"a dialect has {pattern!r}, which is no pattern ({error}): correct it") from None
    return found.group() if found else ""
