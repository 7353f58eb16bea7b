"""Compaction by the simulated provider: on request, or because the conversation is long.

The summary comes from `conversation_summary.py` and not from the responder, so a script does not lose a step.
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
"""The name that every wire with compaction uses."""


def answer_compaction_request(
    compaction: FamilyCompaction | None, raw: RawRequest, request: Request
) -> Reply:
    """Return the reply to a request for a summary."""
    assert compaction is not None, "only a family that shortens conversations reads a request for it"
    summary = summarize_conversation(request)
    return _summary_only_reply(request, compaction.make_requested_summary(raw, summary), summary)


def open_sealed_summaries(compaction: FamilyCompaction | None, request: Request) -> Request:
    """Return the request as the provider's own models read it, with the encrypted summaries opened."""
    sealed = compaction is not None and any(
        _is_sealed_summary(part) for each in request.messages for part in each.parts
    )
    if compaction is None or not sealed:
        return request

    def open_parts(message: Message) -> Message:
        parts = (
            replace(part, text=compaction.read_summary_text(part)) if _is_sealed_summary(part) else part
            for part in message.parts
        )
        return replace(message, parts=tuple(parts))

    return replace(request, messages=tuple(map(open_parts, request.messages)))


def measure_with_compaction(
    compaction: FamilyCompaction | None,
    raw: RawRequest,
    request: Request,
    reply: Reply,
    usage: Usage | None,
    prompt: PromptText | None,
) -> tuple[Reply, Usage | None]:
    """Return the measured reply, after a summary if one is due, and the usage of that summary."""
    due = None
    if compaction is not None and not request.asks_native_summary:
        due = compaction.find_due_compaction(raw)
    if compaction is None or due is None or usage is None or prompt is None:
        return measure_reply(request, reply, usage), None
    summary = summarize_conversation(request)
    parts = compaction.make_automatic_summary(raw, summary)
    summary_usage = replace(usage, output=count_tokens(summary))
    if due.pauses_after:
        return replace(_summary_only_reply(request, parts, summary), usage=summary_usage), summary_usage
    head = sum(block.tokens for block in prompt.blocks if block.section != "messages")
    short_usage = Usage(input=TOKENS_PER_REQUEST + head + TOKENS_PER_MESSAGE + count_tokens(summary))
    answer = measure_reply(request, reply, short_usage)
    return replace(answer, parts=(*parts, *answer.parts), usage=summary_usage + answer.usage), summary_usage


def _is_sealed_summary(part: Part) -> TypeGuard[Opaque]:
    return isinstance(part, Opaque) and part.kind == COMPACTION_KIND and not part.text


def _summary_only_reply(request: Request, parts: tuple[Opaque, ...], summary: str) -> Reply:
    reply = compose_reply(request, list(parts))
    return replace(
        reply, stop=Stop.PAUSED, stop_detail=COMPACTION_KIND, usage=Usage(output=count_tokens(summary))
    )
