"""The server's side of the scripted wire: our own values as JSON."""

from collections.abc import Iterator

from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.providers.scripted import FAMILY as NAME
from bridle.providers.scripted import LINES, ScriptedLine, encode_json
from bridle.providers.wire.reply_encoding import JSON_TYPE, make_reply, split_arguments, split_words
from bridle.values.errors import Failure
from bridle.values.message import Reasoning, Reply, Text, ToolCall
from bridle.values.result import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta

from .family import SimulatedFamily


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    if not stream:
        return make_reply(JSON_TYPE, (encode_json(reply),))
    lines = [*(ScriptedLine(delta=delta) for delta in _split_into_deltas(reply)), ScriptedLine(reply=reply)]
    return make_reply(LINES, (encode_json(line) + b"\n" for line in lines))


def encode_failure(failure: Failure) -> HttpReply:
    status = failure.status if failure.status is not None and failure.status >= 300 else 500
    frame = encode_json(replace(failure, status=status))
    return HttpReply(status=status, headers=(("content-type", JSON_TYPE),), frames=(frame,))


def _split_into_deltas(reply: Reply) -> Iterator[Delta]:
    called = 0
    for index, part in enumerate(reply.parts):
        match part:
            case Text(text=text):
                yield from (TextDelta(text=word) for word in split_words(text))
            case Reasoning(text=text):
                yield from (ReasoningDelta(reasoning=word) for word in split_words(text))
            case ToolCall(name=name, arguments=arguments):
                for piece in split_arguments(arguments):
                    yield ToolCallDelta(index=index, name=name, arguments=piece)
                yield CallReady(index=called, call=part)
                called += 1


FAMILY = SimulatedFamily(name=NAME, encode_reply=encode_reply, encode_failure=encode_failure)
