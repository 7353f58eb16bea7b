"""How many tokens a text is, by estimate.

No tokenizer is shipped: they are large, they differ from model to model, and some
are secret.  A text is cut into pieces the way tokenizers tend to (word stems, short
runs of digits, single signs) and the pieces are counted.  The same text always
counts the same.

Error, measured on recorded traffic: replies in plain words come out within 7 % of
the provider's count half of the time and within 25 % nine times out of ten; calls
within 17 % and 50 %.  Prompts come out too small, because providers add hidden
words of their own: a few dozen tokens, several hundred once there are tools.  Good
enough for budgets and limits, never for an invoice.

Cached tokens stay nought: nothing is cached here yet.
"""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from ..values.message import Message, Reply, Stop
from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.request import Request, ToolSpec
from ..values.usage import Usage

PIECE = re.compile(
    r"[A-Za-z]{1,7}"
    r"|[぀-ヿ㐀-鿿가-힯]"
    r"|[^\W\d_]{1,3}"
    r"|\d{1,3}"
    r"|[^\S ]+| {2,}"
    r"|[^\w\s]|_"
)
PER_REQUEST = 4
PER_MESSAGE = 4
PER_TOOL = 8
PER_CALL = 30
PER_IMAGE = 1_500
PER_FILE = 3_000


def count(text: str) -> int:
    return len(PIECE.findall(text))


def measured(request: Request, reply: Reply) -> Reply:
    """The reply as it would come: cut where the allowance ends, with its usage on it."""
    parts, stop = reply.parts, reply.stop
    if request.max_tokens is not None and _total(parts) > request.max_tokens:
        parts, stop = _shortened(parts, request.max_tokens), Stop.LENGTH
    reasoning = _total(part for part in parts if isinstance(part, Reasoning))
    usage = Usage(input=prompt_tokens(request), output=_total(parts), reasoning=reasoning)
    return replace(reply, parts=parts, stop=stop, usage=usage)


def prompt_tokens(request: Request) -> int:
    return (
        PER_REQUEST
        + _total(request.system)
        + sum(map(_tool_tokens, request.tools))
        + sum(map(_message_tokens, request.messages))
        + (count(request.output.parameters) if request.output else 0)
    )


def _tool_tokens(tool: ToolSpec) -> int:
    return PER_TOOL + count(tool.native or tool.name + tool.description + tool.parameters)


def _message_tokens(message: Message) -> int:
    return PER_MESSAGE + _total(message.parts)


def _total(parts: Iterable[Part]) -> int:
    return sum(map(_part_tokens, parts))


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return count(part.text)
        case ToolCall():
            return PER_CALL + count(part.name) + count(part.arguments)
        case ToolResult():
            return PER_MESSAGE + _total(part.parts)
        case Media():
            return PER_IMAGE if part.kind == "image" else PER_FILE
        case Opaque():
            return count(part.native)


def _shortened(parts: tuple[Part, ...], allowance: int) -> tuple[Part, ...]:
    """What fits.  Words are cut; half a call or half a signed thought is of no use and is left out."""
    kept: list[Part] = []
    for part in parts:
        size = _part_tokens(part)
        if size > allowance:
            if isinstance(part, Text) and allowance > 0:
                kept.append(replace(part, text=_first(part.text, allowance)))
            break
        kept.append(part)
        allowance -= size
    return tuple(kept)


def _first(text: str, pieces: int) -> str:
    end = 0
    for number, piece in enumerate(PIECE.finditer(text), start=1):
        if number > pieces:
            break
        end = piece.end()
    return text[:end]
