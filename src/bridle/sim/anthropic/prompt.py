"""Prompt layout of the Messages API, and the settings that invalidate its cache.

Tools, then system, then messages. A search tool of the provider is not a definition in that order: it changes
the system prompt, as citations and the speed do. Settings of one answer (a forced tool, thinking, effort, the
presence of images) change the messages. A default value counts like an absent one.

Models that keep only the reasoning of the last turn never see older reasoning, so it takes no tokens, and
everything after the first dropped block is new. A cache mark inside a tool result marks the whole result. A
summary is as long as its text. Nothing before an automatic summary is read. A deferred tool takes no tokens
until a result refers to it: its definition is read there.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bridle.sim.cache.prompt_layout import (
    SECTIONS,
    Body,
    PromptBlock,
    PromptReader,
    PromptText,
    Section,
    as_text,
    call_block,
    hash_value,
    media_block,
    place_blocks,
    to_json,
    tool_block,
)
from bridle.sim.cache.token_estimate import TOKENS_PER_FILE, TOKENS_PER_IMAGE, TOKENS_PER_MESSAGE
from bridle.sim.rules.raw_request import as_list, as_mapping
from bridle.values.model import Abilities

TTL_DEFAULT = "5m"
SHARED_POSITIONS = ("call", "result")
"""A run of calls, or of results, shares one position."""
MEDIA_TOKENS = {"image": TOKENS_PER_IMAGE, "document": TOKENS_PER_FILE}
REASONING_TYPES = ("thinking", "redacted_thinking")
UNMARKABLE, COMPACTION = "thought", "compaction"
SEARCH_PREFIX = "web_search"
BILLING_PREFIX = "x-anthropic-billing-header:"
"""Prefix of billing lines in system text, which do not count: recorded prompts hit the cache although these
lines differed."""


def lay_out_prompt(body: Body, abilities: Abilities) -> PromptText:
    messages_read = _messages_since_summary(
        [as_mapping(message) for message in as_list(body.get("messages"))]
    )
    roles = [as_text(message.get("role")) for message in messages_read]
    later = {
        as_text(tool.get("name")): tool
        for tool in map(as_mapping, as_list(body.get("tools")))
        if _is_deferred(tool)
    }
    messages = [
        [
            _lay_out_block("messages", role, _resolve_references(block, later))
            for block in _content_blocks(message.get("content"))
        ]
        for role, message in zip(roles, messages_read, strict=True)
    ]
    if abilities.thoughts_kept == "turn":
        messages = _drop_old_reasoning(roles, messages)
    fixed = [*_tool_blocks(body), *_system_blocks(body)]
    blocks = place_blocks([fixed, *messages], runs=SHARED_POSITIONS)
    return PromptText(
        blocks=_mark_last_block(blocks, body.get("cache_control")), cache_salts=_cache_salts(body, abilities)
    )


def _messages_since_summary(messages_read: list[Body]) -> list[Body]:
    """Return the messages from the last automatic summary on, or all of them."""
    for at in range(len(messages_read) - 1, -1, -1):
        content = _content_blocks(messages_read[at].get("content"))
        for inner in range(len(content) - 1, -1, -1):
            block = content[inner]
            if block.get("type") == COMPACTION and not block.get("signature") and block.get("content"):
                return [{**messages_read[at], "content": content[inner:]}, *messages_read[at + 1 :]]
    return messages_read


def find_account(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "")


PROMPT_READER = PromptReader(lay_out=lay_out_prompt, find_account=find_account)


def _tool_blocks(body: Body) -> list[PromptBlock]:
    return [
        tool_block(_without_cache_control(tool), mark=_breakpoint_ttl(tool))
        for tool in map(as_mapping, as_list(body.get("tools")))
        if not as_text(tool.get("type")).startswith(SEARCH_PREFIX) and not _is_deferred(tool)
    ]


def _is_deferred(tool: Body) -> bool:
    return tool.get("defer_loading") is True


def _resolve_references(block: Body, later: Mapping[str, Body]) -> Body:
    """Replace the tool references in a result with the definitions."""
    if not later or block.get("type") != "tool_result" or isinstance(block.get("content"), str):
        return block
    pieces = [as_mapping(piece) for piece in as_list(block.get("content"))]
    named = [later.get(as_text(piece.get("tool_name"))) for piece in pieces]
    content = [
        piece if tool is None else {"type": "text", "text": to_json(tool)}
        for piece, tool in zip(pieces, named, strict=True)
    ]
    return {**block, "content": content}


def _system_blocks(body: Body) -> list[PromptBlock]:
    shape = as_mapping(as_mapping(body.get("output_config")).get("format")).get("schema")
    wanted = [PromptBlock(section="system", kind="shape", text=to_json(shape))] if shape is not None else []
    searches = [
        PromptBlock(
            section="system",
            kind="tool",
            text=to_json(_without_cache_control(tool)),
            breakpoint_ttl=_breakpoint_ttl(tool),
        )
        for tool in map(as_mapping, as_list(body.get("tools")))
        if as_text(tool.get("type")).startswith(SEARCH_PREFIX)
    ]
    contents = [
        _lay_out_block("system", "system", block)
        for block in _content_blocks(body.get("system"))
        if not as_text(block.get("text")).startswith(BILLING_PREFIX)
    ]
    return [*wanted, *searches, *contents]


def _content_blocks(content: object) -> Sequence[Body]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    return [as_mapping(block) for block in as_list(content)]


def _lay_out_block(section: Section, who: str, block: Body) -> PromptBlock:
    kind, mark = as_text(block.get("type")), _breakpoint_ttl(block)
    if kind == "text":
        return PromptBlock(
            section=section, kind="text", key=who, text=as_text(block.get("text")), breakpoint_ttl=mark
        )
    if kind in MEDIA_TOKENS:
        return media_block(section, kind, who, _without_cache_control(block), mark=mark)
    if kind == "tool_use":
        return call_block(who, block.get("name"), block.get("input"), mark=mark, key=block.get("id"))
    if kind == "tool_result":
        return _result_block(section, block)
    if kind == COMPACTION:
        return PromptBlock(
            section=section, kind=kind, key=who, text=as_text(block.get("content")), breakpoint_ttl=mark
        )
    if kind in REASONING_TYPES:
        key = hash_value(block.get("signature") or block.get("data"))
        return PromptBlock(section=section, kind=UNMARKABLE, key=key, text=as_text(block.get("thinking")))
    return PromptBlock(
        section=section,
        kind="other",
        key=who,
        text=to_json(_without_cache_control(block)),
        breakpoint_ttl=mark,
    )


def _result_block(section: Section, block: Body) -> PromptBlock:
    inside = _content_blocks(block.get("content"))
    key = f"{block.get('tool_use_id')} {bool(block.get('is_error'))}"
    lead = TOKENS_PER_MESSAGE
    texts = []
    for piece in inside:
        kind = as_text(piece.get("type"))
        lead += MEDIA_TOKENS.get(kind, 0)
        texts.append(as_text(piece.get("text")) if kind == "text" else "")
        key += f" {kind} {hash_value(_without_cache_control(piece)) if kind != 'text' else ''}"
    mark = _breakpoint_ttl(block) or next(filter(None, map(_breakpoint_ttl, inside)), "")
    return PromptBlock(
        section=section,
        kind="result",
        key=key,
        text="\n".join(texts),
        overhead_tokens=lead,
        breakpoint_ttl=mark,
    )


def _without_cache_control(block: Body) -> Body:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _breakpoint_ttl(marked: Body) -> str:
    control = as_mapping(marked.get("cache_control"))
    return as_text(control.get("ttl")) or TTL_DEFAULT if control else ""


def _mark_last_block(blocks: tuple[PromptBlock, ...], control: object) -> tuple[PromptBlock, ...]:
    """Add the automatic cache mark, on the last block that can carry one."""
    ttl = _breakpoint_ttl({"cache_control": control})
    for place in range(len(blocks) - 1, -1, -1) if ttl else ():
        if blocks[place].kind != UNMARKABLE and (blocks[place].text or blocks[place].overhead_tokens):
            marked = replace(blocks[place], breakpoint_ttl=blocks[place].breakpoint_ttl or ttl)
            return (*blocks[:place], marked, *blocks[place + 1 :])
    return blocks


def _drop_old_reasoning(roles: list[str], messages: list[list[PromptBlock]]) -> list[list[PromptBlock]]:
    """Drop reasoning of earlier turns. A turn begins with a user message that has no tool result."""
    begins = 0
    for number, (role, message) in enumerate(zip(roles, messages, strict=True)):
        if role == "user" and all(block.kind != "result" for block in message):
            begins = number
    return [
        [block for block in message if number >= begins or block.kind != UNMARKABLE]
        for number, message in enumerate(messages)
    ]


def _cache_salts(body: Body, abilities: Abilities) -> Mapping[str, str]:
    output = as_mapping(body.get("output_config"))
    everything = _all_blocks(body)
    kinds = {as_text(block.get("type")) for block in everything}
    citing = any(as_mapping(block.get("citations")).get("enabled") is True for block in everything)
    choice = {
        name: value for name, value in as_mapping(body.get("tool_choice")).items() if value is not False
    }
    thinking = {
        name: value
        for name, value in as_mapping(body.get("thinking")).items()
        if name in ("type", "budget_tokens")
    }
    changed: dict[Section, Sequence[object]] = {
        "system": (body.get("speed", "standard"), citing),
        "messages": (
            {} if choice == {"type": "auto"} else choice,
            {} if thinking.get("type") == abilities.thinking_default else thinking,
            output.get("effort") or abilities.effort_default,
            as_mapping(output.get("task_budget")).get("remaining"),
            "image" in kinds,
        ),
    }
    return {section: hash_value(changed.get(section, ())) for section in SECTIONS}


def _all_blocks(body: Body) -> list[Body]:
    found: list[Body] = []
    for message in map(as_mapping, as_list(body.get("messages"))):
        for block in _content_blocks(message.get("content")):
            found.append(block)
            found += _content_blocks(block.get("content"))
    return found
