"""Thoughts on the Messages wire: one at the head of a tool loop, shown unless `display` says otherwise."""

from ..values.message import Reply
from ._rules_anthropic_shape import loop_head, thinking_type
from ._rules_reading import field, mapping
from .reasoning import with_thought, without_words
from .rules import Asked

OMITTED = "omitted"


def complete(asked: Asked, reply: Reply) -> Reply:
    """With an allowance, the first reply of a loop thinks, because its results must come with the thought."""
    begins = thinking_type(asked) == "enabled" and loop_head(asked) is None
    return with_thought(reply) if begins else reply


def display(asked: Asked, reply: Reply) -> Reply:
    usual = asked.abilities.display_default if asked.abilities else ""
    chosen = mapping(field(asked, "thinking")).get("display") or usual
    return without_words(reply) if chosen == OMITTED else reply
