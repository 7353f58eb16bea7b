"""Prompt layout of the Responses API: tools, instructions, then the items of the input.

The provider caches prompts by itself up to the end of input that the model did not write: a user message, the
last of a group of tool outputs, the last of the developer messages at the start. A compaction item is as long
as its text.
"""

from collections.abc import Sequence

from bridle.sim.cache.prompt_layout import (
    Body,
    PromptBlock,
    PromptReader,
    PromptText,
    as_text,
    call_block,
    hash_value,
    to_json,
    tool_block,
)
from bridle.sim.cache.token_estimate import TOKENS_PER_MESSAGE
from bridle.sim.openai.prompt import (
    PromptSetting,
    changed_settings,
    find_account,
    make_prompt,
    part_block,
)
from bridle.sim.rules.raw_request import as_list, as_mapping
from bridle.values.model import Abilities

from .signatures import read_summary

COMPACTION = "compaction"
PROMPT_SETTINGS: dict[str, PromptSetting] = {
    "parallel_tool_calls": (lambda body: body.get("parallel_tool_calls"), True),
    "text.format": (lambda body: as_mapping(body.get("text")).get("format"), {"type": "text"}),
    "text.verbosity": (lambda body: as_mapping(body.get("text")).get("verbosity"), "medium"),
    "reasoning.effort": (lambda body: as_mapping(body.get("reasoning")).get("effort"), None),
    "context_management": (lambda body: body.get("context_management"), None),
    "service_tier": (lambda body: body.get("service_tier"), "auto"),
    "prompt_cache_key": (lambda body: body.get("prompt_cache_key"), None),
}


def lay_out_prompt(body: Body, abilities: Abilities) -> PromptText:
    given = body.get("input")
    items = (
        [{"role": "user", "content": given}]
        if isinstance(given, str)
        else _items_since_summary(as_list(given))
    )
    laid_out = (_lay_out_item(item, body) for item in map(as_mapping, items))
    messages = [(role, blocks) for role, blocks in laid_out if blocks]
    tools = [tool_block(tool) for tool in map(as_mapping, as_list(body.get("tools")))]
    instructions = as_text(body.get("instructions"))
    system = [PromptBlock(section="system", kind="text", text=instructions)] if instructions else []
    shape = as_mapping(as_mapping(body.get("text")).get("format")).get("schema")
    wanted = [PromptBlock(section="system", kind="shape", text=to_json(shape))] if shape is not None else []
    effort = {"effort": abilities.effort_default, **as_mapping(body.get("reasoning"))}
    settings = changed_settings({**body, "reasoning": effort}, PROMPT_SETTINGS)
    return make_prompt(body, [*tools, *wanted, *system], messages, settings)


PROMPT_READER = PromptReader(lay_out=lay_out_prompt, find_account=find_account)


def _items_since_summary(items: Sequence[object]) -> Sequence[object]:
    """Return the items from the latest summary on, and of the earlier ones only the user messages."""
    at = max(
        (place for place, item in enumerate(items) if as_mapping(item).get("type") == COMPACTION), default=0
    )
    return [*(item for item in items[:at] if as_mapping(item).get("role") == "user"), *items[at:]]


def _lay_out_item(item: Body, body: Body) -> tuple[str, list[PromptBlock]]:
    """Return the role and the blocks of an item."""
    kind = as_text(item.get("type")) or "message"
    if kind == "message":
        role, content = as_text(item.get("role")), item.get("content")
        parts = [{"text": content}] if isinstance(content, str) else as_list(content)
        return role, [part_block(role, as_mapping(part), body) for part in parts]
    if kind.endswith("_output"):
        return "tool", [_output_block(item, body)]
    if kind.endswith("_call"):
        arguments = item.get("arguments", item.get("input", ""))
        return "model", [call_block(kind, item.get("name"), arguments, key=item.get("call_id"))]
    if kind == "reasoning":
        words = [as_text(as_mapping(piece).get("text")) for piece in as_list(item.get("summary"))]
        key = hash_value(item.get("encrypted_content") or item.get("id"))
        return "model", [PromptBlock(section="messages", kind="thought", key=key, text="\n".join(words))]
    if said := read_summary(item):
        return "model", [PromptBlock(section="messages", kind="summary", text=said)]
    bare = {name: value for name, value in item.items() if name not in ("id", "status")}
    return "model", [PromptBlock(section="messages", kind="other", text=to_json(bare))]


def _output_block(item: Body, body: Body) -> PromptBlock:
    output = item.get("output")
    if not isinstance(output, list):
        text = output if isinstance(output, str) else to_json(output)
        key = as_text(item.get("call_id"))
        return PromptBlock(
            section="messages", kind="result", key=key, text=text, overhead_tokens=TOKENS_PER_MESSAGE
        )
    pieces = [part_block("tool", as_mapping(part), body) for part in output]
    return PromptBlock(
        section="messages",
        kind="result",
        key=" ".join(
            [as_text(item.get("call_id")), *(piece.key for piece in pieces if piece.overhead_tokens)]
        ),
        text="\n".join(piece.text for piece in pieces),
        overhead_tokens=TOKENS_PER_MESSAGE + sum(piece.overhead_tokens for piece in pieces),
        breakpoint_ttl=next((piece.breakpoint_ttl for piece in reversed(pieces) if piece.breakpoint_ttl), ""),
    )
