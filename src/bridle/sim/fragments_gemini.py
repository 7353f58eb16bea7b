"""Streamed replies on the generateContent wire: google-genai sends every chunk back by itself."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..values.message import Message


def join(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Join neighbouring messages of the model; the service reads them as one turn."""
    joined: list[Message] = []
    for message in messages:
        if joined and message.role == "assistant" and joined[-1].role == "assistant":
            joined[-1] = replace(joined[-1], parts=(*joined[-1].parts, *message.parts))
        else:
            joined.append(message)
    return tuple(joined)
