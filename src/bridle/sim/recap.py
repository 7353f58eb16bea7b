"""A conversation in few words, as the simulator tells it.

The words tell who said what, each thing by its beginning: all that people said, of the rest the oldest and
the newest.  What an earlier summary said comes first, and before it where the script is that is being played
(place.py).  The same conversation always gives the same words.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from ..values.message import Message
from ..values.parts import Opaque, Reasoning, Text, ToolCall, ToolResult
from ..values.request import Request
from .place import PLACE, place_of
from .scene import look

LEAD = "Summary of the conversation so far, by a simulated model."
WORDS_SHOWN = 100
"""Characters of each thing that was said."""
EARLIER_SHOWN = 1_000
SAID = "user: "
FIRST_SHOWN, LAST_SHOWN = 4, 12
ASKED = re.compile(
    r"""(?ix)
    (?: (?:^|[.!?:;\n])\s* | \b(?:please|then|now|and|you\s+(?:must|should|to)|task\s+is\s+to)\s+ )
    (?: summari[sz]e\b
      | (?:create|write|give|make|produce|provide|generate|draft|prepare)\b [^.!?\n]{0,60}? \bsummary\b )
    [^.!?\n]{0,80}? \b(?:conversation|session|chat|dialog(?:ue)?|discussion|transcript|another\s+llm)\b
    | \bconversation\b .* \banswer\s+with\s+the\s+summary\b
    """,
    re.DOTALL,
)
"""A request for the conversation in few words, as an order; that both words are said is none."""


def recap(request: Request) -> str:
    told = [line for message in request.messages for line in _lines(message)]
    middle = told[FIRST_SHOWN : max(FIRST_SHOWN, len(told) - LAST_SHOWN)]
    said = [line for line in middle if line.startswith(SAID)]
    more = [f"({len(middle) - len(said)} more)"] if len(middle) > len(said) else []
    last = told[max(FIRST_SHOWN, len(told) - LAST_SHOWN) :]
    return "\n".join((LEAD, *_place(request), *told[:FIRST_SHOWN], *said, *more, *last))


def recapped(request: Request) -> str:
    """The same, when the last message asks for it; empty when it asks for something else."""
    if not request.messages or not ASKED.search(look(request).prompt):
        return ""
    return recap(replace(request, messages=request.messages[:-1]))


def _place(request: Request) -> Iterator[str]:
    """Where the script that is being played is."""
    scene = look(request)
    place = place_of(scene.prompt, scene.replies, request.messages)
    yield from () if place is None else (str(place),)


def _lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                yield f"{message.role}: {_begun(PLACE.sub('', text))}"
            case ToolCall(name=name, arguments=arguments):
                yield f"called {name} {_begun(arguments)}"
            case ToolResult():
                yield f"brought: {_begun(part.text)}"
            case Opaque(text=text) if text:
                lines = PLACE.sub("", text.removeprefix(LEAD)).strip().splitlines()
                yield from (line for line in lines if line.startswith(SAID))
                rest = " ".join(line for line in lines if not line.startswith(SAID))
                yield from (f"earlier: {_begun(rest, EARLIER_SHOWN)}" for _ in rest[:1])
            case Text() | Reasoning() | Opaque():
                pass
            case _:
                yield f"{message.role}: (a file or picture)"


def _begun(text: str, length: int = WORDS_SHOWN) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
