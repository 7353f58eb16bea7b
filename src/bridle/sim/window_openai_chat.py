"""What Chat Completions says when prompt and answer together do not fit into the model's window.

The room that was asked for counts as used, even when the answer would be short.
"""

from msgspec.structs import replace

from ..values.model import Abilities
from .rules import Asked, Found, Rule

_ROOM = Abilities(context_tokens=200_000, output_tokens=64_000)
_SMALL = Asked(
    path="/v1/chat/completions",
    headers={"authorization": "Bearer key"},
    body={"model": "some-model", "messages": [{"role": "user", "content": "Hello"}]},
    abilities=_ROOM,
)
_ASKING = replace(_SMALL, body={**_SMALL.body, "max_completion_tokens": 4_096})


def _too_long(request: Asked) -> Found | None:
    abilities, prompt = request.abilities, request.prompt_tokens
    if abilities is None:
        return None
    names = ("max_completion_tokens", "max_tokens")
    room = next((room for name in names if isinstance(room := request.body.get(name), int)), 0)
    if prompt + room <= abilities.context_tokens:
        return None
    return {"most": abilities.context_tokens, "total": prompt + room, "prompt": prompt, "room": room}


RULES = (
    Rule(
        id="prompt-window",
        find=_too_long,
        wording=(
            "This model's maximum context length is {most} tokens. However, you requested {total} tokens"
            " ({prompt} in the messages, {room} in the completion)."
            " Please reduce the length of the messages or completion."
        ),
        evidence="S",
        passes=replace(_ASKING, prompt_tokens=195_904),
        offends=replace(_ASKING, prompt_tokens=195_905),
        says=(
            "This model's maximum context length is 200000 tokens. However, you requested 200001 tokens"
            " (195905 in the messages, 4096 in the completion)."
            " Please reduce the length of the messages or completion."
        ),
        type="context_length_exceeded",
        kind="context",
    ),
)
