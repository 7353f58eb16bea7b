"""Prompt layout of Converse: tools, system, messages, with cache points between the blocks.

A cache point is a block that marks the one before it. Every block has its own position: runs of calls or
results are not counted as one.
"""

import re
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

CACHE_POINT = "cachePoint"
TTL_DEFAULT = "5m"
MEDIA_TOKENS = {
    "image": TOKENS_PER_IMAGE,
    "document": TOKENS_PER_FILE,
    "video": TOKENS_PER_FILE,
    "audio": TOKENS_PER_FILE,
}
SIGNING_KEY_ID = re.compile(r"Credential=([^/,\s]+)")
"""The key id identifies the account; the signature differs every time."""


def lay_out_prompt(body: Body, abilities: Abilities) -> PromptText:
    tools = as_mapping(body.get("toolConfig")).get("tools")
    messages = [
        _lay_out_blocks("messages", as_text(message.get("role")), message.get("content"))
        for message in map(as_mapping, as_list(body.get("messages")))
    ]
    fixed = [*_lay_out_blocks("tools", "", tools), *_lay_out_blocks("system", "system", body.get("system"))]
    return PromptText(blocks=place_blocks([fixed, *messages]), cache_salts=_cache_salts(body, abilities))


def find_account(headers: Mapping[str, str]) -> str:
    stated = headers.get("authorization", "")
    signer = SIGNING_KEY_ID.search(stated)
    return signer[1] if signer else stated


PROMPT_READER = PromptReader(lay_out=lay_out_prompt, find_account=find_account)


def _lay_out_blocks(section: Section, who: str, content: object) -> list[PromptBlock]:
    blocks: list[PromptBlock] = []
    for block in map(as_mapping, as_list(content)):
        if CACHE_POINT not in block:
            blocks.append(_lay_out_block(section, who, block))
        elif blocks:
            ttl = as_text(as_mapping(block[CACHE_POINT]).get("ttl")) or TTL_DEFAULT
            blocks[-1] = replace(blocks[-1], breakpoint_ttl=ttl)
    return blocks


def _lay_out_block(section: Section, who: str, block: Body) -> PromptBlock:
    kind = next(iter(block), "")
    content = as_mapping(block.get(kind))
    if section == "tools":
        return tool_block(block)
    if kind == "text":
        return PromptBlock(section=section, kind="text", key=who, text=as_text(block["text"]))
    if kind == "toolUse":
        return call_block(who, content.get("name"), content.get("input"), key=content.get("toolUseId"))
    if kind == "toolResult":
        return _result_block(section, content)
    if kind in MEDIA_TOKENS:
        return media_block(section, kind, who, block)
    if kind == "reasoningContent":
        thought = as_mapping(content.get("reasoningText"))
        return PromptBlock(
            section=section, kind="thought", key=hash_value(block), text=as_text(thought.get("text"))
        )
    return PromptBlock(section=section, kind="other", key=who, text=to_json(block))


def _result_block(section: Section, content: Body) -> PromptBlock:
    key, lead = f"{content.get('toolUseId')} {content.get('status')}", TOKENS_PER_MESSAGE
    texts = []
    for piece in map(as_mapping, as_list(content.get("content"))):
        kind = next(iter(piece), "")
        if kind in MEDIA_TOKENS:
            key += f" {hash_value(piece)}"
            lead += MEDIA_TOKENS[kind]
        else:
            texts.append(as_text(piece["text"]) if kind == "text" else to_json(piece.get(kind)))
    return PromptBlock(section=section, kind="result", key=key, text="\n".join(texts), overhead_tokens=lead)


def _cache_salts(body: Body, abilities: Abilities) -> Mapping[str, str]:
    choice = as_mapping(as_mapping(body.get("toolConfig")).get("toolChoice"))
    more = as_mapping(body.get("additionalModelRequestFields"))
    thinking = as_mapping(more.get("thinking"))
    changed: dict[Section, Sequence[object]] = {
        "messages": (
            {} if "auto" in choice else choice,
            {} if thinking.get("type") == abilities.thinking_default else thinking,
            as_mapping(body.get("outputConfig")).get("effort") or abilities.effort_default,
            any(
                "image" in block
                for message in map(as_mapping, as_list(body.get("messages")))
                for block in map(as_mapping, as_list(message.get("content")))
            ),
        )
    }
    return {section: hash_value(changed.get(section, ())) for section in SECTIONS}
