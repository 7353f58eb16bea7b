"""Reasoning on the Responses wire: sealed always, summarised only for a request that asks for a summary."""

from ..values.message import Reply
from ._rules_reading import field, mapping
from .reasoning import without_words
from .rules import Asked

ASKS = ("summary", "generate_summary")
"""Members of `reasoning` that ask for one; the second is the older name."""


def complete(asked: Asked, reply: Reply) -> Reply:
    return reply


def display(asked: Asked, reply: Reply) -> Reply:
    reasoning = mapping(field(asked, "reasoning"))
    return reply if any(reasoning.get(name) for name in ASKS) else without_words(reply)
