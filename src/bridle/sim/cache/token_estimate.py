"""Estimates token counts.

No tokenizer is shipped: tokenizers are large, differ from model to model, and some are secret. A text is
split the way tokenizers tend to (word stems, short runs of digits, single signs) and the pieces are counted.
The same text always gives the same count.

Measured on recorded traffic, text replies are within 7 % of the provider's count half of the time and within
25 % nine times out of ten; calls within 17 % and 50 %. Prompts are underestimated, because providers add
hidden text: a few dozen tokens, or several hundred with tools. That is good enough for budgets and limits,
but not for an invoice.

A prompt is counted again at every step of a run, so the counts of long texts are cached by digest.
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
"""Number of cached counts; a few megabytes."""
SHORT_TEXT_LENGTH = 200
"""Texts up to this length are counted faster than looked up."""
_known_counts: dict[bytes, int] = {}


def count_tokens(text: str) -> int:
    return len(TOKEN_PATTERN.findall(text))


def count_tokens_cached(text: str) -> int:
    """Count tokens, with a cache for texts that repeat."""
    if len(text) <= SHORT_TEXT_LENGTH:
        return count_tokens(text)
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    known = _known_counts.get(digest)
    if known is None:
        if len(_known_counts) >= REMEMBERED_MAX:
            _known_counts.clear()
        known = _known_counts[digest] = count_tokens(text)
    return known


def measure_reply(request: Request, reply: Reply, prompt: Usage | None = None) -> Reply:
    """Return the reply as the provider would send it: cut at the output or context limit, with its usage.

    `prompt` is the usage of the prompt as the provider counts it; without it the request is counted.
    """
    usage = prompt if prompt is not None else Usage(input=count_prompt_tokens(request))
    parts, stop, detail = reply.parts, reply.stop, reply.stop_detail
    allowance, stop_at_limit = _output_allowance(request, usage.prompt)
    if request.asks_native_summary:
        # A summary is measured by its text, in whatever form it is; half of one is useless.
        enough = allowance is None or reply.usage.output <= allowance
        usage = replace(usage, output=reply.usage.output)
        return (
            replace(reply, usage=usage)
            if enough
            else replace(_empty_reply(reply, stop_at_limit), usage=usage)
        )
    if allowance is not None and _count_parts(parts) > allowance:
        parts, stop, detail = _cut_parts(parts, allowance), stop_at_limit, ""
    reasoning = _count_parts(part for part in parts if isinstance(part, Reasoning))
    usage = replace(usage, output=_count_parts(parts), reasoning=reasoning)
    return replace(reply, parts=parts, stop=stop, stop_detail=detail, usage=usage)


def _empty_reply(reply: Reply, stop: Stop) -> Reply:
    return replace(reply, parts=(), stop=stop, stop_detail="")


def _output_allowance(request: Request, prompt: int) -> tuple[int | None, Stop]:
    """Return the number of output tokens allowed, and the stop reason if they run out.

    A prompt longer than the context window was refused before, unless the simulator is not strict.
    """
    window = request.model.abilities.context_tokens - prompt
    requested = request.max_tokens
    if window > 0 and (requested is None or window < requested):
        return window, Stop.CONTEXT
    return requested, Stop.LENGTH


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
    """Keep the parts that fit. Text is cut; a call or a signed reasoning block that does not fit is
    dropped."""
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
