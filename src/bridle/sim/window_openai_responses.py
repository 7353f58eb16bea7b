"""What the Responses API says when a prompt is longer than the model's window.

A request that lets the provider drop the oldest items is never too long.
"""

from msgspec.structs import replace

from ..values.model import Abilities
from .rules import Asked, Found, Rule

_WORDING = "Your input exceeds the context window of this model. Please adjust your input and try again."
_ROOM = Abilities(context_tokens=200_000)
_SMALL = Asked(
    path="/v1/responses",
    headers={"authorization": "Bearer key"},
    body={"model": "some-model", "input": "Hello"},
    abilities=_ROOM,
)


def _too_long(request: Asked) -> Found | None:
    abilities = request.abilities
    if abilities is None or request.body.get("truncation") == "auto":
        return None
    return {} if request.prompt_tokens > abilities.prompt_tokens_max else None


RULES = (
    Rule(
        id="prompt-window",
        find=_too_long,
        wording=_WORDING,
        evidence="S",
        passes=replace(_SMALL, prompt_tokens=200_001, body={**_SMALL.body, "truncation": "auto"}),
        offends=replace(_SMALL, prompt_tokens=200_001),
        says=_WORDING,
        type="context_length_exceeded",
        kind="context",
        param="input",
    ),
)
