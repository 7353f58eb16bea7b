"""Decodes a complete reply of the usual form with one typed parse.

The usual form is text, reasoning and calls without unknown members, a stop reason without details, and plain
counts. A body of any other form is refused here and read by the tolerant decoder (decode.py), which gives the
same reply for the usual form.
"""

from typing import Literal

import msgspec

from bridle.providers.wire.call_arguments import decode_arguments
from bridle.providers.wire.json import dumps, loads
from bridle.values.message import Part, Reasoning, Reply, Text, ToolCall
from bridle.values.model import Model, make_origin

from .usage import STOPS, UsualCounts, count_usual_usage

NO_MEMBER = msgspec.Raw(b"")


class _UsualBlock(msgspec.Struct, tag_field="type", gc=False, forbid_unknown_fields=True):
    pass


class _UsualText(_UsualBlock, tag="text"):
    text: str
    citations: None = None


class _UsualThinking(_UsualBlock, tag="thinking"):
    thinking: str
    signature: str = ""


class _UsualCall(_UsualBlock, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw
    caller: msgspec.Raw = NO_MEMBER


class _UsualMessage(msgspec.Struct, gc=False):
    """Members that decide about the reply; a value of another type is not usual."""

    id: str
    model: str
    content: list[_UsualText | _UsualThinking | _UsualCall]
    stop_reason: Literal["end_turn", "tool_use"]
    usage: UsualCounts
    type: Literal["message"] = "message"
    error: None = None
    stop_details: None = None
    diagnostics: None = None
    input_transformations: None = None


_decode_message = msgspec.json.Decoder(_UsualMessage).decode


def decode_usual_reply(body: bytes, model: Model) -> Reply | None:
    """The reply in a body of the usual form; None for any other body."""
    try:
        message = _decode_message(body)
    except (ValueError, RecursionError):
        return None
    parts: list[Part] = []
    for block in message.content:
        if type(block) is _UsualText:
            parts.append(Text(text=block.text))
        elif type(block) is _UsualThinking:
            parts.append(Reasoning(text=block.thinking, signature=block.signature))
        elif type(block) is _UsualCall:
            arguments = bytes(block.input).decode("utf-8", "replace")
            if arguments != "{}" and not arguments.startswith('{"'):
                return None  # null, a list, blanks
            caller = None if block.caller is NO_MEMBER else loads(bytes(block.caller))
            parts.append(
                ToolCall(
                    id="",
                    name=block.name,
                    arguments=decode_arguments(arguments),
                    wire_id=block.id,
                    native=None if caller is None else dumps({"caller": caller}).decode(),
                )
            )
    return Reply(
        parts=tuple(parts),
        stop=STOPS[message.stop_reason],
        origin=make_origin(model, message.model),
        usage=count_usual_usage(message.usage),
        id=message.id,
        stop_detail=message.stop_reason,
    )
