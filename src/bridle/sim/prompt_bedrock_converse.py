"""How Converse lays a prompt out: tools, system, messages, with cache points between the blocks.

A cache point is a block of its own that marks the one before it.  Every block is a
position of its own here: runs of calls or results are not counted as one.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..values.model import Abilities
from .prompt import (
    SECTIONS,
    Block,
    Body,
    Prompt,
    Reader,
    Section,
    call_block,
    digest,
    listed,
    mapping,
    media_block,
    placed,
    shown,
    tool_block,
    word,
)
from .tokens import PER_FILE, PER_IMAGE, PER_MESSAGE

POINT = "cachePoint"
TTL_DEFAULT = "5m"
MEDIA = {"image": PER_IMAGE, "document": PER_FILE, "video": PER_FILE, "audio": PER_FILE}
SIGNER = re.compile(r"Credential=([^/,\s]+)")
"""A signature is another one every time; whose it is stays."""


def read(body: Body, abilities: Abilities) -> Prompt:
    tools = mapping(body.get("toolConfig")).get("tools")
    messages = [
        _blocks("messages", word(message.get("role")), message.get("content"))
        for message in map(mapping, listed(body.get("messages")))
    ]
    fixed = [*_blocks("tools", "", tools), *_blocks("system", "system", body.get("system"))]
    return Prompt(blocks=placed([fixed, *messages]), salts=_salts(body, abilities))


def account(headers: Mapping[str, str]) -> str:
    stated = headers.get("authorization", "")
    signer = SIGNER.search(stated)
    return signer[1] if signer else stated


READER = Reader(read=read, account=account)


def _blocks(section: Section, who: str, content: object) -> list[Block]:
    blocks: list[Block] = []
    for block in map(mapping, listed(content)):
        if POINT not in block:
            blocks.append(_block(section, who, block))
        elif blocks:
            ttl = word(mapping(block[POINT]).get("ttl")) or TTL_DEFAULT
            blocks[-1] = replace(blocks[-1], mark=ttl)
    return blocks


def _block(section: Section, who: str, block: Body) -> Block:
    kind = next(iter(block), "")
    content = mapping(block.get(kind))
    if section == "tools":
        return tool_block(block)
    if kind == "text":
        return Block(section=section, kind="text", key=who, text=word(block["text"]))
    if kind == "toolUse":
        return call_block(who, content.get("name"), content.get("input"), key=content.get("toolUseId"))
    if kind == "toolResult":
        return _result(section, content)
    if kind in MEDIA:
        return media_block(section, kind, who, block)
    if kind == "reasoningContent":
        thought = mapping(content.get("reasoningText"))
        return Block(section=section, kind="thought", key=digest(block), text=word(thought.get("text")))
    return Block(section=section, kind="other", key=who, text=shown(block))


def _result(section: Section, content: Body) -> Block:
    key, lead = f"{content.get('toolUseId')} {content.get('status')}", PER_MESSAGE
    texts = []
    for piece in map(mapping, listed(content.get("content"))):
        kind = next(iter(piece), "")
        if kind in MEDIA:
            key += f" {digest(piece)}"
            lead += MEDIA[kind]
        else:
            texts.append(word(piece["text"]) if kind == "text" else shown(piece.get(kind)))
    return Block(section=section, kind="result", key=key, text="\n".join(texts), lead=lead)


def _salts(body: Body, abilities: Abilities) -> Mapping[str, str]:
    choice = mapping(mapping(body.get("toolConfig")).get("toolChoice"))
    more = mapping(body.get("additionalModelRequestFields"))
    thinking = mapping(more.get("thinking"))
    changed: dict[Section, Sequence[object]] = {
        "messages": (
            {} if "auto" in choice else choice,
            {} if thinking.get("type") == abilities.thinking_default else thinking,
            mapping(body.get("outputConfig")).get("effort") or abilities.effort_default,
            any(
                "image" in block
                for message in map(mapping, listed(body.get("messages")))
                for block in map(mapping, listed(message.get("content")))
            ),
        )
    }
    return {section: digest(changed.get(section, ())) for section in SECTIONS}
