"""What Chat Completions says when prompt and answer together do not fit into the model's window.

The room that was asked for counts as used, even when the answer would be short.
"""

from msgspec.structs import replace

from ..values.model import Abilities
from .profiles import ALTERNATION, COMPATIBLE, LOCAL, SHORT_IDS, STRIP
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
    if prompt + room <= abilities.context_tokens and prompt <= abilities.prompt_tokens_max:
        return None
    output = f", {room} in the output" if room else ""
    return {
        "most": abilities.context_tokens,
        "total": prompt + room,
        "prompt": prompt,
        "room": room,
        "output": output,
    }


def _window(id: str, wording: str, says: str, code: str, evidence: str = "S") -> tuple[Rule, ...]:  # noqa: A002
    rule = Rule(
        id=id,
        find=_too_long,
        wording=wording,
        evidence=evidence,
        passes=replace(_ASKING, prompt_tokens=195_904),
        offends=replace(_ASKING, prompt_tokens=195_905),
        says=says,
        type=code,
        kind="context",
        param="messages",
    )
    return (rule,)


RULES = _window(
    "prompt-window",
    "This model's maximum context length is {most} tokens. However, you requested {total} tokens"
    " ({prompt} in the messages, {room} in the completion)."
    " Please reduce the length of the messages or completion.",
    "This model's maximum context length is 200000 tokens. However, you requested 200001 tokens"
    " (195905 in the messages, 4096 in the completion)."
    " Please reduce the length of the messages or completion.",
    "context_length_exceeded",
)
_OWN_MACHINE = _window(
    "local-window",
    "request ({total} tokens) exceeds the available context size ({most} tokens), try increasing it",
    "request (200001 tokens) exceeds the available context size (200000 tokens), try increasing it",
    "exceed_context_size_error",
)
BY_PROFILE = {
    LOCAL: _OWN_MACHINE,
    ALTERNATION: _OWN_MACHINE,
    STRIP: _window(
        "strip-window",
        "Please reduce the length of the messages or completion.",
        "Please reduce the length of the messages or completion.",
        "context_length_exceeded",
    ),
    SHORT_IDS: _window(
        "short-ids-window",
        "Prompt contains {total} tokens and 0 draft tokens, too large for model with {most} maximum context"
        " length",
        "Prompt contains 200001 tokens and 0 draft tokens, too large for model with 200000 maximum context"
        " length",
        "invalid_request_prompt",
        evidence="F",
    ),
    COMPATIBLE: _window(
        "compatible-window",
        "This endpoint's maximum context length is {most} tokens. However, you requested about {total} tokens"
        " ({prompt} of text input{output}). Please reduce the length of either one, or use the"
        " context-compression plugin to compress your prompt automatically.",
        "This endpoint's maximum context length is 200000 tokens. However, you requested about 200001 tokens"
        " (195905 of text input, 4096 in the output). Please reduce the length of either one, or use the"
        " context-compression plugin to compress your prompt automatically.",
        "context_length_exceeded",
    ),
}
"""Other servers say it in words of their own; whoever has to shorten a prompt must know them all."""
