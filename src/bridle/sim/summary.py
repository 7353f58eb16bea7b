"""What a simulated provider makes of a conversation that it shortens: asked to, or because it is long.

No brain is asked for it: what is short and true is enough (recap.py), and a script must not lose a step.

Each family that does such a thing has a file of its own, `summary_FAMILY`, with these members:

    shortened(asked, words)   what it hands out for a whole conversation when it is asked to
    due(asked)                whether a request lets it do that before it answers, and it is time
    instead(asked, words)     what it then hands out, in front of the answer
    told(item)                the words of what it handed out, which its models can read
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TypeGuard

from msgspec.structs import replace

from ..values.message import Message, Reply, Stop
from ..values.parts import Opaque, Part
from ..values.request import Request
from ..values.usage import Usage
from ..values.value import Value
from .brain import composed
from .prompt import Prompt
from .recap import recap
from .rules import Asked
from .tokens import PER_MESSAGE, PER_REQUEST, count, measured

PREFIX = "summary_"
DETAIL = "compaction"
"""What every wire that has such a thing calls it."""


class Due(Value):
    """It is time to shorten the conversation."""

    pauses: bool = False
    """Nothing is answered after it."""


def compacted(family: str, asked: Asked, request: Request) -> Reply:
    """The answer to a request for a summary."""
    module = _family(family)
    assert module is not None, "only a family that shortens conversations reads a request for it"
    words = recap(request)
    return _alone(request, module.shortened(asked, words), words)


def as_read(family: str, request: Request) -> Request:
    """The request as the provider's own models read it: what was sealed for them is open to them."""
    module = _family(family)
    sealed = module is not None and any(_is_sealed(part) for each in request.messages for part in each.parts)
    if module is None or not sealed:
        return request

    def opened(message: Message) -> Message:
        parts = (
            replace(part, text=module.told(part)) if _is_sealed(part) else part for part in message.parts
        )
        return replace(message, parts=tuple(parts))

    return replace(request, messages=tuple(map(opened, request.messages)))


def weighed(
    family: str, asked: Asked, request: Request, reply: Reply, usage: Usage | None, prompt: Prompt | None
) -> tuple[Reply, Usage | None]:
    """The reply with its counts, behind a summary where one is due; and what that took, if anything."""
    module = _family(family)
    due: Due | None = module.due(asked) if module is not None and not request.compacts else None
    if module is None or due is None or usage is None or prompt is None:
        return measured(request, reply, usage), None
    words = recap(request)
    parts: tuple[Opaque, ...] = module.instead(asked, words)
    made = replace(usage, output=count(words))
    if due.pauses:
        return replace(_alone(request, parts, words), usage=made), made
    head = sum(block.tokens for block in prompt.blocks if block.section != "messages")
    short = Usage(input=PER_REQUEST + head + PER_MESSAGE + count(words))
    answer = measured(request, reply, short)
    return replace(answer, parts=(*parts, *answer.parts), usage=made + answer.usage), made


def _is_sealed(part: Part) -> TypeGuard[Opaque]:
    return isinstance(part, Opaque) and part.kind == DETAIL and not part.text


def _alone(request: Request, parts: tuple[Opaque, ...], words: str) -> Reply:
    made = composed(request, list(parts))
    return replace(made, stop=Stop.PAUSED, stop_detail=DETAIL, usage=Usage(output=count(words)))


@cache
def _family(family: str) -> ModuleType | None:
    name = f"{__package__}.{PREFIX}{family}"
    return import_module(name) if find_spec(name) else None
