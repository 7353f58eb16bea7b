"""What a simulated provider makes of a conversation that it is to shorten.

No brain is asked: what is short enough and true is enough, and a script must not lose a step to it.  The
words tell who said what, each thing by its beginning, the oldest and the newest of them; what an earlier
summary said comes first.  The same conversation always gives the same words.

In which form they are handed out, and to what they are bound, is the family's (`seals.py`).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from ..values.message import Message, Reply, Stop
from ..values.parts import Opaque, Reasoning, Text, ToolCall, ToolResult
from ..values.request import Request
from ..values.usage import Usage
from .brain import composed
from .rules import Asked
from .seals import shortened
from .tokens import count

LEAD = "Summary of the conversation so far, by a simulated model."
WORDS_SHOWN = 100
"""Characters of each thing that was said."""
EARLIER_SHOWN = 1_000
FIRST_SHOWN, LAST_SHOWN = 4, 12
DETAIL = "compaction"
"""What every wire that has such a thing calls it."""


def compacted(family: str, asked: Asked, request: Request) -> Reply:
    """The answer to a request for a summary."""
    words = summary(request)
    parts = shortened(family, asked, words)
    made = composed(request, list(parts))
    return replace(made, stop=Stop.PAUSED, stop_detail=DETAIL, usage=Usage(output=count(words)))


def summary(request: Request) -> str:
    told = [line for message in request.messages for line in _lines(message)]
    left_out = len(told) - FIRST_SHOWN - LAST_SHOWN
    if left_out > 0:
        told = [*told[:FIRST_SHOWN], f"({left_out} more)", *told[-LAST_SHOWN:]]
    return "\n".join((LEAD, *told))


def _lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                yield f"{message.role}: {_begun(text)}"
            case ToolCall(name=name, arguments=arguments):
                yield f"called {name} {_begun(arguments)}"
            case ToolResult():
                yield f"brought: {_begun(part.text)}"
            case Opaque(text=text) if text:
                yield f"earlier: {_begun(text.removeprefix(LEAD), EARLIER_SHOWN)}"
            case Reasoning() | Opaque():
                pass
            case _:
                yield f"{message.role}: (a file or picture)"


def _begun(text: str, length: int = WORDS_SHOWN) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
