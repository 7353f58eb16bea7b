"""Ends a scripted reply with a stop reason, and cuts off its last part.

A stop reason may be one of ours or the provider's own word. The codec shows which stop a provider's word
means: each candidate reply is encoded and decoded. So no table of words exists twice, and unknown words can
be used too.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from bridle.ports.codec import Codec
from bridle.sim.families import find_family
from bridle.values.errors import ProviderError
from bridle.values.message import Part, Reply, Stop, Text, ToolCall
from bridle.values.request import Request

OWN_STOPS = {stop.value: stop for stop in Stop}


def end_reply_with(codec: Codec, request: Request, reply: Reply, word: str) -> Reply:
    """Return the reply with this stop reason."""
    if word in OWN_STOPS:
        return replace(reply, stop=OWN_STOPS[word], stop_detail="")
    for candidate in _candidate_replies(reply, word):
        if word in _decode_stop_detail(codec, request, candidate).replace(":", " ").split():
            return candidate
    return replace(reply, stop=Stop.OTHER, stop_detail=word)


def halve_last_part(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Cut the arguments of the last call in half, or the last text if there is no call."""
    for kind in (ToolCall, Text):
        for at in range(len(parts) - 1, -1, -1):
            part = parts[at]
            if not isinstance(part, kind):
                continue
            if isinstance(part, ToolCall):
                cut: Part = replace(part, arguments=part.arguments[: len(part.arguments) // 2])
            else:
                assert isinstance(part, Text)
                cut = replace(part, text=part.text[: len(part.text) // 2])
            return (*parts[:at], cut, *parts[at + 1 :])
    return parts


def _candidate_replies(reply: Reply, word: str) -> Iterator[Reply]:
    # OTHER comes first because an unknown word decodes to it; REFUSED last because it changes the text.
    order = sorted(Stop, key=lambda stop: (stop is not Stop.OTHER, stop is Stop.REFUSED))
    for detail in (word, f"incomplete: {word}"):
        for stop in order:
            yield replace(reply, stop=stop, stop_detail=detail)


def _decode_stop_detail(codec: Codec, request: Request, reply: Reply) -> str:
    encoded = find_family(codec.family).encode_reply(reply, stream=False)
    decoder = codec.new_decoder(request, encoded.status, dict(encoded.headers))
    try:
        for frame in encoded.frames:
            decoder.feed(frame)
        return decoder.close().stop_detail
    except ProviderError:
        return ""  # the wire does not allow this reply to end with that word
