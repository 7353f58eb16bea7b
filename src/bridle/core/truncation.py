"""Did the model read all of the prompt?  Some servers leave out its beginning and say nothing.

What gives them away is their own count: fewer tokens than the prompt has words.  No tokenizer
makes fewer tokens than words, so words are the most careful estimate there is; what is not words
(pictures, reasoning, what a template adds) is left out of it.  A suspicion, never a proof: some
servers do not count what they had cached.

Only endpoints of a kind that does this are suspected (`Abilities.cuts_prompts`), and only of
prompts long enough for the numbers to mean something.
"""

import re
from collections.abc import Iterator

from ..values.message import Message
from ..values.parts import Part, Text, ToolCall, ToolResult
from ..values.request import Request
from ..values.usage import Usage

WORD = re.compile(r"\w+")
WORDS_LEAST = 500
"""Below this no server cuts anything, and a template or a miscount weighs more than the words."""
COUNTED_SHARE = 0.8
"""Fewer tokens than this share of the words are too few."""


def suspicion(request: Request, usage: Usage) -> str:
    """What makes it likely that the prompt was not read to its beginning; empty when nothing does."""
    counted = usage.prompt
    # What is chained to an earlier reply is not sent again, and may not be counted again.
    if not request.model.abilities.cuts_prompts or request.chained_to or usage.incomplete or not counted:
        return ""
    words = sum(len(WORD.findall(text)) for text in _texts(request))
    if words < WORDS_LEAST or counted >= COUNTED_SHARE * words:
        return ""
    return (
        f"{request.model.name} counted {counted} tokens in a prompt of {words} words: it seems to have left"
        " out a part of it, as servers do whose context is set too small; raise it there, or send less"
    )


def _texts(request: Request) -> Iterator[str]:
    for text in request.system:
        yield text.text
    for spec in request.tools:
        yield f"{spec.name} {spec.description}"  # how a template writes out the schema is its own affair
    for message in request.messages:
        yield from _said(message)


def _said(message: Message) -> Iterator[str]:
    for part in message.parts:
        inner: tuple[Part, ...] = part.parts if isinstance(part, ToolResult) else (part,)
        for each in inner:
            if isinstance(each, Text):
                yield each.text
            elif isinstance(each, ToolCall):
                yield f"{each.name} {each.arguments}"
