"""Summarizes a conversation as text, deterministically.

The summary lists the start of each message: all user messages, and the oldest and newest of the others. An
earlier summary comes first, preceded by the position of the script being played (`script_position.py`). The
same conversation always gives the same text.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from bridle.values.message import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from bridle.values.request import Request

from .conversation import read_conversation
from .script_position import POSITION, find_position

LEAD = "Summary of the conversation so far, by a simulated model."
SHOWN_CHARACTERS = 100
"""Characters shown of each message."""
EARLIER_SHOWN = 1_000
USER_PREFIX = "user: "
FIRST_SHOWN, LAST_SHOWN = 4, 12
SUMMARY_REQUEST = re.compile(
    r"""(?ix)
    (?: (?:^|[.!?:;\n])\s* | \b(?:please|then|now|and|you\s+(?:must|should|to)|task\s+is\s+to)\s+ )
    (?: summari[sz]e\b
      | (?:create|write|give|make|produce|provide|generate|draft|prepare)\b [^.!?\n]{0,60}? \bsummary\b )
    [^.!?\n]{0,80}? \b(?:conversation|session|chat|dialog(?:ue)?|discussion|transcript|another\s+llm)\b
    | \bconversation\b .* \banswer\s+with\s+the\s+summary\b
    """,
    re.DOTALL,
)
"""Matches an instruction to summarize the conversation, not a mere mention of both words."""


def summarize_conversation(request: Request) -> str:
    lines = [line for message in request.messages for line in _summary_lines(message)]
    middle = lines[FIRST_SHOWN : max(FIRST_SHOWN, len(lines) - LAST_SHOWN)]
    user_lines = [line for line in middle if line.startswith(USER_PREFIX)]
    more = [f"({len(middle) - len(user_lines)} more)"] if len(middle) > len(user_lines) else []
    last = lines[max(FIRST_SHOWN, len(lines) - LAST_SHOWN) :]
    return "\n".join((LEAD, *_position_line(request), *lines[:FIRST_SHOWN], *user_lines, *more, *last))


def summarize_if_asked(request: Request) -> str:
    """Return a summary if the last message asks for one, otherwise ""."""
    if not request.messages or not SUMMARY_REQUEST.search(read_conversation(request).prompt):
        return ""
    return summarize_conversation(replace(request, messages=request.messages[:-1]))


def _position_line(request: Request) -> Iterator[str]:
    """Yield the position of the script being played, if any."""
    facts = read_conversation(request)
    position = find_position(facts.prompt, facts.reply_count, request.messages)
    yield from () if position is None else (str(position),)


def _summary_lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                yield f"{message.role}: {_shorten_line(POSITION.sub('', text))}"
            case ToolCall(name=name, arguments=arguments):
                yield f"called {name} {_shorten_line(arguments)}"
            case ToolResult():
                yield f"brought: {_shorten_line(part.text)}"
            case Opaque(text=text) if text:
                lines = POSITION.sub("", text.removeprefix(LEAD)).strip().splitlines()
                yield from (line for line in lines if line.startswith(USER_PREFIX))
                rest = " ".join(line for line in lines if not line.startswith(USER_PREFIX))
                yield from (f"earlier: {_shorten_line(rest, EARLIER_SHOWN)}" for _ in rest[:1])
            case Text() | Reasoning() | Opaque():
                pass
            case _:
                yield f"{message.role}: (a file or picture)"


def _shorten_line(text: str, length: int = SHOWN_CHARACTERS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
