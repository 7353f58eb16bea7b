"""What the Messages API says when a prompt is longer than the model's window.

Room asked for that no longer fits beside the prompt is not refused by the models in the
tables: their answer is cut where the window ends, and says so.
"""

from msgspec.structs import replace

from ._rules_anthropic_shape import asked, rule
from .rules import Asked, Found


def _too_long(request: Asked) -> Found | None:
    abilities, tokens = request.abilities, request.prompt_tokens
    if abilities is None or tokens <= abilities.context_tokens:
        return None
    return {"tokens": tokens, "most": abilities.context_tokens}


RULES = (
    replace(
        rule(
            "prompt-window",
            _too_long,
            "prompt is too long: {tokens} tokens > {most} maximum",
            evidence="S",
            passes=replace(asked(), prompt_tokens=200_000),
            offends=replace(asked(), prompt_tokens=200_001),
            says="prompt is too long: 200001 tokens > 200000 maximum",
        ),
        kind="context",
    ),
)
