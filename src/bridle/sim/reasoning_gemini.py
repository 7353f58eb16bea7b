"""Thoughts on the generateContent wire: parts of their own, sent only with `includeThoughts`."""

from msgspec.structs import replace

from ..values.message import Reply
from ..values.parts import Reasoning
from ._rules_gemini_shape import member
from ._rules_reading import mapping
from .rules import Asked


def complete(asked: Asked, reply: Reply) -> Reply:
    return reply


def display(asked: Asked, reply: Reply) -> Reply:
    config = mapping(member(mapping(member(asked.body, "generationConfig")), "thinkingConfig"))
    if member(config, "includeThoughts") is True:
        return reply
    return replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, Reasoning)))
