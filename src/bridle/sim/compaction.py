"""What a simulated provider makes of a conversation that it shortens: asked to, or because it is long.

No brain is asked for it: what is short and true is enough (recap.py), and a script must not lose a step.
"""

from typing import TypeGuard

from msgspec.structs import replace

from bridle.sim.cache.prompt_layout import PromptText
from bridle.sim.cache.token_estimate import (
    TOKENS_PER_MESSAGE,
    TOKENS_PER_REQUEST,
    count_tokens,
    measure_reply,
)
from bridle.sim.responder.conversation_summary import summarize_conversation
from bridle.sim.responder.rule_based import compose_reply
from bridle.sim.rules.engine import RawRequest
from bridle.values.message import Message, Opaque, Part, Reply, Stop
from bridle.values.request import Request
from bridle.values.usage import Usage

from .family import FamilyCompaction

COMPACTION_KIND = "compaction"
"""What every wire that has such a thing calls it."""


def answer_compaction_request(
    compaction: FamilyCompaction | None, asked: RawRequest, request: Request
) -> Reply:
    """The answer to a request for a summary."""
    assert compaction is not None, "only a family that shortens conversations reads a request for it"
    words = summarize_conversation(request)
    return _summary_only_reply(request, compaction.make_requested_summary(asked, words), words)


def open_sealed_summaries(compaction: FamilyCompaction | None, request: Request) -> Request:
    """The request as the provider's own models read it: what was sealed for them is open to them."""
    sealed = compaction is not None and any(
        _is_sealed_summary(part) for each in request.messages for part in each.parts
    )
    if compaction is None or not sealed:
        return request

    def opened(message: Message) -> Message:
        parts = (
            replace(part, text=compaction.read_summary_text(part)) if _is_sealed_summary(part) else part
            for part in message.parts
        )
        return replace(message, parts=tuple(parts))

    return replace(request, messages=tuple(map(opened, request.messages)))


def measure_with_compaction(
    compaction: FamilyCompaction | None,
    asked: RawRequest,
    request: Request,
    reply: Reply,
    usage: Usage | None,
    prompt: PromptText | None,
) -> tuple[Reply, Usage | None]:
    """The reply with its counts, behind a summary where one is due; and what that took, if anything."""
    due = None
    if compaction is not None and not request.asks_native_summary:
        due = compaction.find_due_compaction(asked)
    if compaction is None or due is None or usage is None or prompt is None:
        return measure_reply(request, reply, usage), None
    words = summarize_conversation(request)
    parts = compaction.make_automatic_summary(asked, words)
    made = replace(usage, output=count_tokens(words))
    if due.pauses_after:
        return replace(_summary_only_reply(request, parts, words), usage=made), made
    head = sum(block.tokens for block in prompt.blocks if block.section != "messages")
    short = Usage(input=TOKENS_PER_REQUEST + head + TOKENS_PER_MESSAGE + count_tokens(words))
    answer = measure_reply(request, reply, short)
    return replace(answer, parts=(*parts, *answer.parts), usage=made + answer.usage), made


def _is_sealed_summary(part: Part) -> TypeGuard[Opaque]:
    return isinstance(part, Opaque) and part.kind == COMPACTION_KIND and not part.text


def _summary_only_reply(request: Request, parts: tuple[Opaque, ...], words: str) -> Reply:
    made = compose_reply(request, list(parts))
    return replace(
        made, stop=Stop.PAUSED, stop_detail=COMPACTION_KIND, usage=Usage(output=count_tokens(words))
    )
