"""Pictures and sounds in the input of the Responses wire, in messages and in outputs of calls."""

from collections.abc import Iterator

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_openai_media import media_rules
from ._rules_openai_responses_shape import asked, items, text, user
from ._rules_openai_shape import rule
from ._rules_reading import Block, listed, mapping, to
from .rules import Asked, Found

_NO_SOUND = "Invalid '{at}'. The model does not support audio input."


def _pieces(request: Asked) -> Iterator[tuple[str, Block]]:
    for index, item in enumerate(items(request)):
        for key in ("content", "output"):
            for inner, piece in enumerate(listed(item.get(key))):
                yield f"input[{index}].{key}[{inner}]", mapping(piece)


def _pictures(request: Asked) -> Iterator[tuple[str, str]]:
    for place, piece in _pieces(request):
        url = piece.get("image_url")
        if isinstance(url, str):
            yield f"{place}.image_url", url


def _unheard(request: Asked) -> Found | None:
    if request.abilities is None or request.abilities.audio:
        return None
    heard = (place for place, piece in _pieces(request) if piece.get("type") == "input_audio")
    return next(({"at": place} for place in heard), None)


_SOUND: Block = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
_UPLOADED: Block = {"type": "input_image", "file_id": "file-1", "detail": "auto"}
_DEAF = replace(Abilities(), audio=False)

MEDIA_RULES = (
    rule(
        "audio-model",
        _unheard,
        _NO_SOUND,
        param="{at}",
        code="invalid_value",
        evidence="K",
        models="that take no audio",
        passes=to(Abilities(), asked(input=[user(text(), _SOUND)])),
        offends=to(_DEAF, asked(input=[user(text(), _SOUND)])),
        says=_NO_SOUND.format(at="input[0].content[1]"),
        also=(
            (to(_DEAF, asked(input=[user(text(), _UPLOADED)])), ""),
            (to(None, asked(input=[user(_SOUND)])), ""),
        ),
    ),
    *media_rules(
        _pictures,
        "Invalid '{at}'.",
        lambda url: asked(input=[user(text(), {"type": "input_image", "image_url": url})]),
        "input[0].content[1].image_url",
    ),
)
