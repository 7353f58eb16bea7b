"""Pictures and sounds in messages of Chat Completions."""

from collections.abc import Iterator

from bridle.sim.openai.error_style import rule
from bridle.sim.openai.rules_media import media_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import as_mapping

from .request import messages, parts

_NO_SOUND = "Invalid 'messages[{index}]'. Content blocks are expected to be either text or image_url type."


def _list_images(request: RawRequest) -> Iterator[tuple[str, str]]:
    for index, message in enumerate(messages(request)):
        for inner, part in enumerate(parts(message)):
            url = as_mapping(part.get("image_url")).get("url")
            if isinstance(url, str):
                yield f"messages[{index}].content[{inner}].image_url.url", url


def _check_audio_model(request: RawRequest) -> RuleFinding | None:
    if request.abilities is None or request.abilities.audio:
        return None
    for index, message in enumerate(messages(request)):
        if any(part.get("type") == "input_audio" for part in parts(message)):
            return {"index": index}
    return None


MEDIA_RULES = (
    rule(
        "audio-model",
        _check_audio_model,
        _NO_SOUND,
        param="messages[{index}]",
        code="invalid_value",
        evidence="S",
        models="that take no audio",
    ),
    *media_rules(
        _list_images,
        "Invalid image URL: '{at}'.",
    ),
)
