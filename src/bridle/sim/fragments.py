"""Replies that came back in pieces.

A client may send every chunk of a streamed reply back as a message of its own.  Where a family reads such
neighbours as one turn, the simulated model does too, so that it counts its replies as it gave them.  That
family has a file `fragments_FAMILY` with one member:

    join(messages)   the conversation with every reply in one message

A family without such a file takes each message for a reply.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from msgspec.structs import replace

from ..values.message import Message
from ..values.request import Request

Joiner = Callable[[Sequence[Message]], tuple[Message, ...]]
PREFIX = "fragments_"


def join_fragments(family: str, request: Request) -> Request:
    """Return the request with every reply of its conversation in one message."""
    joiner = _find_joiner(family)
    return replace(request, messages=joiner(request.messages)) if joiner else request


@cache
def _find_joiner(family: str) -> Joiner | None:
    name = f"{__package__}.{PREFIX}{family}"
    return import_module(name).join if find_spec(name) else None
