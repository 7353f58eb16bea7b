"""Thoughts on the Converse wire, by the rules of the models' maker."""

from ..values.message import Reply
from ._rules_bedrock_converse_shape import loop_head, thinking
from .reasoning import with_thought, without_words
from .rules import Asked

OMITTED = "omitted"


def complete(asked: Asked, reply: Reply) -> Reply:
    begins = thinking(asked).get("type") == "enabled" and loop_head(asked) is None
    return with_thought(reply) if begins else reply


def display(asked: Asked, reply: Reply) -> Reply:
    usual = asked.abilities.display_default if asked.abilities else ""
    return without_words(reply) if (thinking(asked).get("display") or usual) == OMITTED else reply
