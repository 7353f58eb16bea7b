"""Pictures and sounds in messages of Chat Completions."""

from collections.abc import Iterator

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_openai_chat_shape import asked, image, messages, parts, text, user
from ._rules_openai_media import media_rules
from ._rules_openai_shape import rule
from ._rules_reading import Block, mapping, to
from .rules import Asked, Found

_NO_SOUND = "Invalid 'messages[{index}]'. Content blocks are expected to be either text or image_url type."


def _pictures(request: Asked) -> Iterator[tuple[str, str]]:
    for index, message in enumerate(messages(request)):
        for inner, part in enumerate(parts(message)):
            url = mapping(part.get("image_url")).get("url")
            if isinstance(url, str):
                yield f"messages[{index}].content[{inner}].image_url.url", url


def _unheard(request: Asked) -> Found | None:
    if request.abilities is None or request.abilities.audio:
        return None
    for index, message in enumerate(messages(request)):
        if any(part.get("type") == "input_audio" for part in parts(message)):
            return {"index": index}
    return None


_SOUND: Block = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
_DEAF = replace(Abilities(), audio=False)

MEDIA_RULES = (
    rule(
        "audio-model",
        _unheard,
        _NO_SOUND,
        param="messages[{index}]",
        code="invalid_value",
        evidence="S",
        models="that take no audio",
        passes=asked(messages=[user([text(), _SOUND])]),
        offends=to(_DEAF, asked(messages=[user("Hello"), user([text(), _SOUND])])),
        says=_NO_SOUND.format(index=1),
        also=(
            (to(_DEAF, asked(messages=[user([text()])])), ""),
            (to(None, asked(messages=[user([_SOUND])])), ""),
        ),
    ),
    *media_rules(
        _pictures,
        "Invalid image URL: '{at}'.",
        lambda url: asked(messages=[user([text(), image(url)])]),
        "messages[0].content[1].image_url.url",
    ),
)
