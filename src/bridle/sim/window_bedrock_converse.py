"""What Converse says when a prompt is longer than the model's window."""

from msgspec.structs import replace

from ..values.model import Abilities
from .rules import Asked, Found, Rule

_SMALL = Asked(
    path="/model/some-model/converse",
    headers={"authorization": "Bearer key"},
    body={"messages": [{"role": "user", "content": [{"text": "Hello"}]}]},
    abilities=Abilities(context_tokens=200_000),
)


def _too_long(request: Asked) -> Found | None:
    abilities = request.abilities
    return {} if abilities is not None and request.prompt_tokens > abilities.context_tokens else None


RULES = (
    Rule(
        id="prompt-window",
        find=_too_long,
        wording="Input is too long for requested model.",
        evidence="S",
        passes=replace(_SMALL, prompt_tokens=200_000),
        offends=replace(_SMALL, prompt_tokens=200_001),
        says="Input is too long for requested model.",
        type="ValidationException",
        kind="context",
    ),
)
