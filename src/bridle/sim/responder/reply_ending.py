"""How a scripted reply ends: the provider's own word for a stop, or ours, and what is cut off.

Which stop a provider's word stands for is asked of its codec, by speaking the word and
hearing what is made of it; so no table of words is kept twice, and a word that nobody
knows yet can be spoken too.
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
    """The reply with this word for its end."""
    if word in OWN_STOPS:
        return replace(reply, stop=OWN_STOPS[word], stop_detail="")
    for candidate in _candidate_replies(reply, word):
        if word in _decode_stop_detail(codec, request, candidate).replace(":", " ").split():
            return candidate
    return replace(reply, stop=Stop.OTHER, stop_detail=word)


def halve_last_part(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The last call with half of its arguments; without a call, half of the last words."""
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
    # A word that nobody knows means nothing known; and a refusal turns words into something else.
    order = sorted(Stop, key=lambda stop: (stop is not Stop.OTHER, stop is Stop.REFUSED))
    for detail in (word, f"incomplete: {word}"):
        for stop in order:
            yield replace(reply, stop=stop, stop_detail=detail)


def _decode_stop_detail(codec: Codec, request: Request, reply: Reply) -> str:
    spoken = find_family(codec.family).encode_reply(reply, stream=False)
    decoder = codec.new_decoder(request, spoken.status, dict(spoken.headers))
    try:
        for frame in spoken.frames:
            decoder.feed(frame)
        return decoder.close().stop_detail
    except ProviderError:
        return ""  # a word under which this reply is none at all on this wire
