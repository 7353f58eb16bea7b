"""What generateContent says when a prompt fills the model's window: one token must stay free."""

from msgspec.structs import replace

from ..values.model import Abilities
from .rules import Asked, Found, Rule

_SMALL = Asked(
    path="/v1beta/models/some-model:generateContent",
    headers={"x-goog-api-key": "key"},
    body={"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
    abilities=Abilities(context_tokens=1_048_576, output_tokens=65_536),
)


def _too_long(request: Asked) -> Found | None:
    abilities, tokens = request.abilities, request.prompt_tokens
    if abilities is None or tokens < abilities.context_tokens:
        return None
    return {"tokens": tokens, "most": abilities.context_tokens - 1}


RULES = (
    Rule(
        id="prompt-window",
        find=_too_long,
        wording="The input token count ({tokens}) exceeds the maximum number of tokens allowed ({most}).",
        evidence="S",
        passes=replace(_SMALL, prompt_tokens=1_048_575),
        offends=replace(_SMALL, prompt_tokens=1_048_576),
        says="The input token count (1048576) exceeds the maximum number of tokens allowed (1048575).",
        type="INVALID_ARGUMENT",
        kind="context",
    ),
)
