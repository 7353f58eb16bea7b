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

A prompt is recounted at every step of a run, so texts are counted once: what was counted
is remembered by its digest.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b

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


REMEMBERED_MAX = 50_000
"""How many texts are remembered; a few megabytes."""
SHORT = 200
"""A text this short is counted faster than it is remembered."""
_remembered: dict[bytes, int] = {}


def count(text: str) -> int:
    return len(PIECE.findall(text))


def counted(text: str) -> int:
    """The same, for texts that come again and again."""
    if len(text) <= SHORT:
        return count(text)
    name = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    known = _remembered.get(name)
    if known is None:
        if len(_remembered) >= REMEMBERED_MAX:
            _remembered.clear()
        known = _remembered[name] = count(text)
    return known


def measured(request: Request, reply: Reply, prompt: Usage | None = None) -> Reply:
    """The reply as it would come: cut where the allowance or the window ends, with its usage on it.

    `prompt` is what the provider made of the prompt; without it the request is counted.
    """
    usage = prompt if prompt is not None else Usage(input=prompt_tokens(request))
    parts, stop, detail = reply.parts, reply.stop, reply.stop_detail
    room, why = _room(request, usage.prompt)
    if request.compacts:
        # It is as long as what it says, in whatever form; half of it stands for nothing.
        enough = room is None or reply.usage.output <= room
        usage = replace(usage, output=reply.usage.output)
        return replace(reply, usage=usage) if enough else replace(_silent(reply, why), usage=usage)
    if room is not None and _total(parts) > room:
        parts, stop, detail = _shortened(parts, room), why, ""
    reasoning = _total(part for part in parts if isinstance(part, Reasoning))
    usage = replace(usage, output=_total(parts), reasoning=reasoning)
    return replace(reply, parts=parts, stop=stop, stop_detail=detail, usage=usage)


def _silent(reply: Reply, stop: Stop) -> Reply:
    return replace(reply, parts=(), stop=stop, stop_detail="")


def _room(request: Request, prompt: int) -> tuple[int | None, Stop]:
    """How much may be said, and what it means when that ends.

    A prompt that is longer than the window was refused already, unless nobody wanted it refused.
    """
    window = request.model.abilities.context_tokens - prompt
    asked = request.max_tokens
    if window > 0 and (asked is None or window < asked):
        return window, Stop.CONTEXT
    return asked, Stop.LENGTH


def prompt_tokens(request: Request) -> int:
    return (
        PER_REQUEST
        + _total(request.system)
        + sum(map(_tool_tokens, request.tools))
        + sum(map(_message_tokens, request.messages))
        + (count(request.output.parameters) if request.output else 0)
    )


def _tool_tokens(tool: ToolSpec) -> int:
    return PER_TOOL + counted(tool.native or tool.name + tool.description + tool.parameters)


def _message_tokens(message: Message) -> int:
    return PER_MESSAGE + _total(message.parts)


def _total(parts: Iterable[Part]) -> int:
    return sum(map(_part_tokens, parts))


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return counted(part.text)
        case ToolCall():
            return PER_CALL + count(part.name) + counted(part.arguments)
        case ToolResult():
            return PER_MESSAGE + _total(part.parts)
        case Media():
            return PER_IMAGE if part.kind == "image" else PER_FILE
        case Opaque():
            return counted(part.text or part.native)


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
