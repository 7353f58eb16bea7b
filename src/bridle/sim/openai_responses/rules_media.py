"""Pictures and sounds in the input of the Responses wire, in messages and in outputs of calls."""

from collections.abc import Iterator

from bridle.sim.openai.error_style import rule
from bridle.sim.openai.rules_media import media_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .request import items

_NO_SOUND = "Invalid '{at}'. The model does not support audio input."


def _list_pieces(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    for index, item in enumerate(items(request)):
        for key in ("content", "output"):
            for inner, piece in enumerate(as_list(item.get(key))):
                yield f"input[{index}].{key}[{inner}]", as_mapping(piece)


def _list_images(request: RawRequest) -> Iterator[tuple[str, str]]:
    for place, piece in _list_pieces(request):
        url = piece.get("image_url")
        if isinstance(url, str):
            yield f"{place}.image_url", url


def _check_audio_model(request: RawRequest) -> RuleFinding | None:
    if request.abilities is None or request.abilities.audio:
        return None
    heard = (place for place, piece in _list_pieces(request) if piece.get("type") == "input_audio")
    return next(({"at": place} for place in heard), None)


MEDIA_RULES = (
    rule(
        "audio-model",
        _check_audio_model,
        _NO_SOUND,
        param="{at}",
        code="invalid_value",
        evidence="K",
        models="that take no audio",
    ),
    *media_rules(
        _list_images,
        "Invalid '{at}'.",
    ),
)
