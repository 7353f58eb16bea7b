"""Signed thinking, redacted thinking and compaction on the Messages wire.

A block with a different prefix is accepted if the request asks for such blocks to be dropped; that setting
requires a beta header. Reasoning stands at the start of a tool loop and is shown unless `display` says
otherwise.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping, field, messages, tools
from bridle.sim.signatures import (
    SignedNote,
    digest_value,
    hide_reasoning_text,
    open_signature,
    sign_note,
    with_reasoning,
)
from bridle.sim.signed_reasoning import (
    FORGED_MESSAGE,
    HIDDEN_KIND,
    MODIFIED_MESSAGE,
    MOVED_MESSAGE,
    SHOWN_KIND,
    SentBlock,
    SentConversation,
    SentReasoning,
    find_forged,
    find_modified,
    find_moved,
    prefix_chains,
    sign_reasoning,
    without_cache_marks,
)
from bridle.values.message import Opaque, Reply

from .request import blocks, find_tool_loop, list_blocks, rule, thinking_type
from .rules_compaction import COMPACTION, is_summary

FAMILY = "anthropic"
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_HEADER = f" That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header."


DELIVERY_FIELDS = ("eager_input_streaming",)
"""Members of a tool that say how its calls are streamed; reasoning is not bound to them."""


def sign_reply(request: RawRequest, reply: Reply) -> Reply:
    conversation, first = read_conversation(request), next(iter(reply.parts), None)
    if isinstance(first, Opaque) and first.kind == COMPACTION:
        # Reasoning after a summary has no other prefix.
        block = msgspec.json.decode(first.native, type=dict[str, object])
        conversation = replace(
            conversation,
            blocks=(SentBlock(place="", message=0, role="assistant", value=block),),
            summarized_prefixes=(),
        )
    return sign_reasoning(conversation, reply)


def make_summary_block(request: RawRequest, words: str) -> JsonObject:
    """Make a signed block that summarizes everything in the request.

    Reasoning that came after the summarized messages is accepted after it too: with the same system and
    tools, in the next turn, and if the model that made it checks prefixes.
    """
    conversation, sent = read_conversation(request), messages(request)
    ends = [chain[-1] for chain in prefix_chains(conversation)] if conversation.checks_prefix else []
    signature = sign_note(
        COMPACTION,
        FAMILY,
        conversation.model,
        words=digest_value(words),
        head=digest_value(without_cache_marks(conversation.head)),
        ends=" ".join(ends),
        role=str(sent[-1].get("role")) if sent else "",
    )
    return {"type": COMPACTION, "content": words, "signature": signature}


def read_conversation(request: RawRequest) -> SentConversation:
    visible = [
        {name: value for name, value in tool.items() if name not in DELIVERY_FIELDS}
        for tool in tools(request)
        if tool.get("defer_loading") is not True
    ]
    head = [blocks(request.body, "system"), visible]
    return SentConversation(
        family=FAMILY,
        model=str(field(request, "model")),
        head=head,
        blocks=_blocks_since_summary(tuple(_list_sent_blocks(request))),
        checks_prefix=request.abilities is not None and request.abilities.bound_thinking,
        summarized_prefixes=_summarized_prefixes(request, head),
    )


def _blocks_since_summary(blocks_sent: tuple[SentBlock, ...]) -> tuple[SentBlock, ...]:
    """Return the blocks from the last automatic summary on; nothing before it is read."""
    for at in range(len(blocks_sent) - 1, -1, -1):
        block = as_mapping(blocks_sent[at].value)
        if is_summary(block) and block.get("signature") is None:
            return blocks_sent[at:]
    return blocks_sent


def _summarized_prefixes(request: RawRequest, head: object) -> tuple[str, ...]:
    """Return the prefixes that a summary at the start stands for, if what follows may follow them."""
    sent = messages(request)
    first = next(iter(blocks(sent[0])), {}) if sent else {}
    note = open_signature(first.get("signature")) if first.get("type") == COMPACTION else None
    if (
        note is None
        or note.kind != COMPACTION
        or not note.has_claims(head=digest_value(without_cache_marks(head)))
    ):
        return ()
    # The block may share its message with the next content.
    follows = sent[0] if len(blocks(sent[0])) > 1 else sent[1] if len(sent) > 1 else {}
    if follows.get("role") in (note.bound["role"], "system"):
        return ()
    return tuple(str(note.bound["ends"]).split())


def _list_sent_blocks(request: RawRequest) -> Iterator[SentBlock]:
    for index, message in enumerate(messages(request)):
        role = str(message.get("role"))
        for inner, block in enumerate(blocks(message)):
            place = f"messages.{index}.content.{inner}"
            thought: SentReasoning | None = None
            if block.get("type") == SHOWN_KIND:
                thought = SentReasoning(
                    kind=SHOWN_KIND, text=str(block.get("thinking") or ""), signature=block.get("signature")
                )
            elif block.get("type") == HIDDEN_KIND:
                thought = SentReasoning(kind=HIDDEN_KIND, text="", signature=block.get("data"))
            value = None if thought else _flatten_result(block)
            yield SentBlock(place=place, message=index, role=role, value=value, reasoning=thought)


def _flatten_result(block: JsonObject) -> object:
    """Treat a result in text like a result of one text block."""
    return {**block, "content": blocks(block)} if block.get("type") == "tool_result" else block


def _block_binding(request: RawRequest) -> JsonObject:
    return as_mapping(as_mapping(field(request, "thinking")).get("block_binding"))


def _has_binding_beta(request: RawRequest) -> bool:
    return BINDING_BETA in request.headers.get("anthropic-beta", "")


def _check_sealed_controls(request: RawRequest) -> RuleFinding | None:
    return (
        {"mode": thinking_type(request)}
        if _block_binding(request) and not _has_binding_beta(request)
        else None
    )


def _check_sealed_prefix(request: RawRequest) -> RuleFinding | None:
    if _block_binding(request).get("prefix_mismatch_behavior") == "drop_block":
        return None
    found = find_moved(read_conversation(request))
    return found and {**found, "header": "" if _has_binding_beta(request) else _HEADER}


def _list_signed_summaries(request: RawRequest) -> Iterator[tuple[str, JsonObject, SignedNote | None]]:
    for place, block in list_blocks(request):
        if block.get("type") == COMPACTION and block.get("signature") is not None:
            note = open_signature(block.get("signature"))
            own = note is not None and (note.kind, note.family) == (COMPACTION, FAMILY)
            yield place, block, note if own else None


def _check_sealed_compaction(request: RawRequest) -> RuleFinding | None:
    return next(({"at": place} for place, _, note in _list_signed_summaries(request) if note is None), None)


def _check_sealed_summary(request: RawRequest) -> RuleFinding | None:
    for place, block, note in _list_signed_summaries(request):
        if note is not None and not note.has_claims(words=digest_value(block.get("content"))):
            return {"at": place}
    return None


SIGNATURE_RULES: tuple[ProviderRule, ...] = (
    rule(
        "sealed-controls",
        _check_sealed_controls,
        "thinking.{mode}.block_binding: Extra inputs are not permitted",
        evidence="D",
    ),
    rule(
        "sealed-thought",
        lambda request: find_forged(read_conversation(request)),
        FORGED_MESSAGE,
        evidence="S",
    ),
    rule(
        "sealed-latest",
        lambda request: find_modified(read_conversation(request)),
        MODIFIED_MESSAGE,
        evidence="S",
    ),
    rule(
        "sealed-prefix",
        _check_sealed_prefix,
        MOVED_MESSAGE + "{header}",
        evidence="D",
        models="that check what came before a thought",
    ),
    replace(
        rule(
            "sealed-compaction",
            _check_sealed_compaction,
            "{at}: Invalid `signature` in `compaction` block",
            evidence="K",
        ),
        type="compaction_signature_invalid",
    ),
    replace(
        rule(
            "sealed-summary",
            _check_sealed_summary,
            "{at}: `content` of the `compaction` block differs from the text its `signature` recorded",
            evidence="K",
        ),
        type="compaction_content_mismatch",
    ),
)


DISPLAY_OMITTED = "omitted"


def complete_reasoning(raw: RawRequest, reply: Reply) -> Reply:
    """Add reasoning to the first reply of a loop that has an allowance, because its results need it."""
    begins = thinking_type(raw) == "enabled" and find_tool_loop(raw) is None
    return with_reasoning(reply) if begins else reply


def display_reasoning(raw: RawRequest, reply: Reply) -> Reply:
    usual = raw.abilities.display_default if raw.abilities else ""
    chosen = as_mapping(field(raw, "thinking")).get("display") or usual
    return hide_reasoning_text(reply) if chosen == DISPLAY_OMITTED else reply
