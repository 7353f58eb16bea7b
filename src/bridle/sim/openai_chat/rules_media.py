"""Pictures and sounds in messages of Chat Completions."""

from collections.abc import Iterator

from msgspec.structs import replace

from bridle.sim.openai.error_style import rule
from bridle.sim.openai.rules_media import media_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping, for_model
from bridle.values.model import Abilities

from .request import example, image, messages, parts, text, user

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


_SOUND: JsonObject = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
_DEAF = replace(Abilities(), audio=False)

MEDIA_RULES = (
    rule(
        "audio-model",
        _check_audio_model,
        _NO_SOUND,
        param="messages[{index}]",
        code="invalid_value",
        evidence="S",
        models="that take no audio",
        passes=example(messages=[user([text(), _SOUND])]),
        offends=for_model(_DEAF, example(messages=[user("Hello"), user([text(), _SOUND])])),
        says=_NO_SOUND.format(index=1),
        also=(
            (for_model(_DEAF, example(messages=[user([text()])])), ""),
            (for_model(None, example(messages=[user([_SOUND])])), ""),
        ),
    ),
    *media_rules(
        _list_images,
        "Invalid image URL: '{at}'.",
        lambda url: example(messages=[user([text(), image(url)])]),
        "messages[0].content[1].image_url.url",
    ),
)
