"""Signed reasoning on the Converse wire: the signatures of the same models, after the service's prefix.

The rules of the models' vendor apply.
"""

from collections.abc import Iterator

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, messages
from bridle.sim.signatures import hide_reasoning_text, with_reasoning
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
    sign_reasoning,
)
from bridle.values.message import Reply

from .request import MODEL_ERROR_PREFIX, blocks, find_tool_loop, model_field, rule, thinking_config, tools

FAMILY = "bedrock_converse"


def sign_reply(request: RawRequest, reply: Reply) -> Reply:
    return sign_reasoning(read_conversation(request), reply)


def read_conversation(request: RawRequest) -> SentConversation:
    return SentConversation(
        family=FAMILY,
        model=_model_in_path(request),
        head=[as_list(field(request, "system")), tools(request)],
        blocks=tuple(_list_sent_blocks(request)),
        checks_prefix=request.abilities is not None and request.abilities.bound_thinking,
    )


def _model_in_path(request: RawRequest) -> str:
    """Return the model's name in the path, with one spelling of the colon."""
    return request.path.partition("/model/")[2].rpartition("/")[0].replace("%3A", ":").replace("%3a", ":")


def _list_sent_blocks(request: RawRequest) -> Iterator[SentBlock]:
    for index, message in enumerate(messages(request)):
        role = str(message.get("role"))
        for inner, block in enumerate(blocks(message)):
            if block.keys() == {"cachePoint"}:
                continue
            thought = _read_reasoning(as_mapping(block.get("reasoningContent")))
            yield SentBlock(
                place=f"messages.{index}.content.{inner}",
                message=index,
                role=role,
                value=None if thought else block,
                reasoning=thought,
            )


def _read_reasoning(content: JsonObject) -> SentReasoning | None:
    reasoning_text = content.get("reasoningText")
    if isinstance(reasoning_text, dict):
        return SentReasoning(
            kind=SHOWN_KIND,
            text=str(reasoning_text.get("text") or ""),
            signature=reasoning_text.get("signature"),
        )
    if "redactedContent" in content:
        return SentReasoning(kind=HIDDEN_KIND, text="", signature=content["redactedContent"])
    return None


def _check_sealed_thought(request: RawRequest) -> RuleFinding | None:
    """Check signatures only for models that sign: others return reasoning without one."""
    signs = request.abilities is not None and bool(request.abilities.thinking)
    return find_forged(read_conversation(request)) if signs else None


def _check_sealed_prefix(request: RawRequest) -> RuleFinding | None:
    dropping = model_field(request, "thinking").get("block_binding")
    return None if dropping else find_moved(read_conversation(request))


SIGNATURE_RULES: tuple[ProviderRule, ...] = (
    rule(
        "sealed-thought",
        _check_sealed_thought,
        MODEL_ERROR_PREFIX + FORGED_MESSAGE,
        evidence="S",
        models="that sign their thoughts",
    ),
    rule(
        "sealed-latest",
        lambda request: find_modified(read_conversation(request)),
        MODEL_ERROR_PREFIX + MODIFIED_MESSAGE,
        evidence="S",
    ),
    rule(
        "sealed-prefix",
        _check_sealed_prefix,
        MODEL_ERROR_PREFIX + MOVED_MESSAGE,
        evidence="D",
        models="that check what came before a thought",
    ),
)


DISPLAY_OMITTED = "omitted"


def complete_reasoning(raw: RawRequest, reply: Reply) -> Reply:
    begins = thinking_config(raw).get("type") == "enabled" and find_tool_loop(raw) is None
    return with_reasoning(reply) if begins else reply


def display_reasoning(raw: RawRequest, reply: Reply) -> Reply:
    usual = raw.abilities.display_default if raw.abilities else ""
    return (
        hide_reasoning_text(reply)
        if (thinking_config(raw).get("display") or usual) == DISPLAY_OMITTED
        else reply
    )
