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

from bridle.values.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Reply,
    Stop,
    Text,
    ToolCall,
    ToolResult,
)
from bridle.values.request import Request, ToolSpec
from bridle.values.usage import Usage

TOKEN_PATTERN = re.compile(
    r"[A-Za-z]{1,7}"
    r"|[぀-ヿ㐀-鿿가-힯]"
    r"|[^\W\d_]{1,3}"
    r"|\d{1,3}"
    r"|[^\S ]+| {2,}"
    r"|[^\w\s]|_"
)
TOKENS_PER_REQUEST = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_TOOL = 8
TOKENS_PER_CALL = 30
TOKENS_PER_IMAGE = 1_500
TOKENS_PER_FILE = 3_000


REMEMBERED_MAX = 50_000
"""How many texts are remembered; a few megabytes."""
SHORT_TEXT_LENGTH = 200
"""A text this short is counted faster than it is remembered."""
_known_counts: dict[bytes, int] = {}


def count_tokens(text: str) -> int:
    return len(TOKEN_PATTERN.findall(text))


def count_tokens_cached(text: str) -> int:
    """The same, for texts that come again and again."""
    if len(text) <= SHORT_TEXT_LENGTH:
        return count_tokens(text)
    name = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    known = _known_counts.get(name)
    if known is None:
        if len(_known_counts) >= REMEMBERED_MAX:
            _known_counts.clear()
        known = _known_counts[name] = count_tokens(text)
    return known


def measure_reply(request: Request, reply: Reply, prompt: Usage | None = None) -> Reply:
    """The reply as it would come: cut where the allowance or the window ends, with its usage on it.

    `prompt` is what the provider made of the prompt; without it the request is counted.
    """
    usage = prompt if prompt is not None else Usage(input=count_prompt_tokens(request))
    parts, stop, detail = reply.parts, reply.stop, reply.stop_detail
    room, why = _output_allowance(request, usage.prompt)
    if request.asks_native_summary:
        # It is as long as what it says, in whatever form; half of it stands for nothing.
        enough = room is None or reply.usage.output <= room
        usage = replace(usage, output=reply.usage.output)
        return replace(reply, usage=usage) if enough else replace(_empty_reply(reply, why), usage=usage)
    if room is not None and _count_parts(parts) > room:
        parts, stop, detail = _cut_parts(parts, room), why, ""
    reasoning = _count_parts(part for part in parts if isinstance(part, Reasoning))
    usage = replace(usage, output=_count_parts(parts), reasoning=reasoning)
    return replace(reply, parts=parts, stop=stop, stop_detail=detail, usage=usage)


def _empty_reply(reply: Reply, stop: Stop) -> Reply:
    return replace(reply, parts=(), stop=stop, stop_detail="")


def _output_allowance(request: Request, prompt: int) -> tuple[int | None, Stop]:
    """How much may be said, and what it means when that ends.

    A prompt that is longer than the window was refused already, unless nobody wanted it refused.
    """
    window = request.model.abilities.context_tokens - prompt
    asked = request.max_tokens
    if window > 0 and (asked is None or window < asked):
        return window, Stop.CONTEXT
    return asked, Stop.LENGTH


def count_prompt_tokens(request: Request) -> int:
    return (
        TOKENS_PER_REQUEST
        + _count_parts(request.system)
        + sum(map(_tool_tokens, request.tools))
        + sum(map(_message_tokens, request.messages))
        + (count_tokens(request.output.parameters) if request.output else 0)
    )


def _tool_tokens(tool: ToolSpec) -> int:
    return TOKENS_PER_TOOL + count_tokens_cached(
        tool.native or tool.name + tool.description + tool.parameters
    )


def _message_tokens(message: Message) -> int:
    return TOKENS_PER_MESSAGE + _count_parts(message.parts)


def _count_parts(parts: Iterable[Part]) -> int:
    return sum(map(_part_tokens, parts))


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return count_tokens_cached(part.text)
        case ToolCall():
            return TOKENS_PER_CALL + count_tokens(part.name) + count_tokens_cached(part.arguments)
        case ToolResult():
            return TOKENS_PER_MESSAGE + _count_parts(part.parts)
        case Media():
            return TOKENS_PER_IMAGE if part.kind == "image" else TOKENS_PER_FILE
        case Opaque():
            return count_tokens_cached(part.text or part.native)


def _cut_parts(parts: tuple[Part, ...], allowance: int) -> tuple[Part, ...]:
    """What fits.  Words are cut; half a call or half a signed thought is of no use and is left out."""
    kept: list[Part] = []
    for part in parts:
        size = _part_tokens(part)
        if size > allowance:
            if isinstance(part, Text) and allowance > 0:
                kept.append(replace(part, text=_first_pieces(part.text, allowance)))
            break
        kept.append(part)
        allowance -= size
    return tuple(kept)


def _first_pieces(text: str, pieces: int) -> str:
    end = 0
    for number, piece in enumerate(TOKEN_PATTERN.finditer(text), start=1):
        if number > pieces:
            break
        end = piece.end()
    return text[:end]
