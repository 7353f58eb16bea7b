"""How the Messages API lays a prompt out, and what makes a cached part of it worthless.

Tools, then system, then messages.  A search tool of the provider is no definition in that
order: it changes the system prompt, as citations and the speed do.  What is only about
this answer (forcing a tool, thinking, effort, whether there are pictures) changes the
messages.  Saying the default is saying nothing.

Models that remember the thoughts of the last turn only never see older ones, so those
take no room, and everything behind the first one dropped is new.

A mark inside a tool's result is read as a mark on the whole result.

A summary is as long as its words.  Before one that the provider made of its own accord nothing is read.

A deferred tool takes no room at all, until a result refers to it: its definition is read there.
"""

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

TTL_DEFAULT = "5m"
RUNS = ("call", "result")
"""A run of calls, or of results, is one position."""
MEDIA = {"image": PER_IMAGE, "document": PER_FILE}
THOUGHTS = ("thinking", "redacted_thinking")
UNMARKABLE, COMPACTION = "thought", "compaction"
SEARCH = "web_search"
BILLING = "x-anthropic-billing-header:"
"""A line of system text that starts so is for the accountants: recorded prompts were read from the cache
though it differed from one to the next."""


def read(body: Body, abilities: Abilities) -> Prompt:
    said = _since_summary([mapping(message) for message in listed(body.get("messages"))])
    roles = [word(message.get("role")) for message in said]
    later = {word(tool.get("name")): tool for tool in map(mapping, listed(body.get("tools"))) if _waits(tool)}
    messages = [
        [_block("messages", role, _let_in(block, later)) for block in _content(message.get("content"))]
        for role, message in zip(roles, said, strict=True)
    ]
    if abilities.thoughts_kept == "turn":
        messages = _without_old_thoughts(roles, messages)
    fixed = [*_tools(body), *_system(body)]
    blocks = placed([fixed, *messages], runs=RUNS)
    return Prompt(blocks=_marked_at_end(blocks, body.get("cache_control")), salts=_salts(body, abilities))


def _since_summary(said: list[Body]) -> list[Body]:
    """From the last summary on that came without being asked for; all of it, when there is none."""
    for at in range(len(said) - 1, -1, -1):
        content = _content(said[at].get("content"))
        for inner in range(len(content) - 1, -1, -1):
            block = content[inner]
            if block.get("type") == COMPACTION and not block.get("signature") and block.get("content"):
                return [{**said[at], "content": content[inner:]}, *said[at + 1 :]]
    return said


def account(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "")


READER = Reader(read=read, account=account)


def _tools(body: Body) -> list[Block]:
    return [
        tool_block(_bare(tool), mark=_ttl(tool))
        for tool in map(mapping, listed(body.get("tools")))
        if not word(tool.get("type")).startswith(SEARCH) and not _waits(tool)
    ]


def _waits(tool: Body) -> bool:
    return tool.get("defer_loading") is True


def _let_in(block: Body, later: Mapping[str, Body]) -> Body:
    """A result with the definitions it refers to in their places."""
    if not later or block.get("type") != "tool_result" or isinstance(block.get("content"), str):
        return block
    pieces = [mapping(piece) for piece in listed(block.get("content"))]
    named = [later.get(word(piece.get("tool_name"))) for piece in pieces]
    content = [
        piece if tool is None else {"type": "text", "text": shown(tool)}
        for piece, tool in zip(pieces, named, strict=True)
    ]
    return {**block, "content": content}


def _system(body: Body) -> list[Block]:
    shape = mapping(mapping(body.get("output_config")).get("format")).get("schema")
    wanted = [Block(section="system", kind="shape", text=shown(shape))] if shape is not None else []
    searches = [
        Block(section="system", kind="tool", text=shown(_bare(tool)), mark=_ttl(tool))
        for tool in map(mapping, listed(body.get("tools")))
        if word(tool.get("type")).startswith(SEARCH)
    ]
    said = [
        _block("system", "system", block)
        for block in _content(body.get("system"))
        if not word(block.get("text")).startswith(BILLING)
    ]
    return [*wanted, *searches, *said]


def _content(content: object) -> Sequence[Body]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    return [mapping(block) for block in listed(content)]


def _block(section: Section, who: str, block: Body) -> Block:
    kind, mark = word(block.get("type")), _ttl(block)
    if kind == "text":
        return Block(section=section, kind="text", key=who, text=word(block.get("text")), mark=mark)
    if kind in MEDIA:
        return media_block(section, kind, who, _bare(block), mark=mark)
    if kind == "tool_use":
        return call_block(who, block.get("name"), block.get("input"), mark=mark, key=block.get("id"))
    if kind == "tool_result":
        return _result(section, block)
    if kind == COMPACTION:
        return Block(section=section, kind=kind, key=who, text=word(block.get("content")), mark=mark)
    if kind in THOUGHTS:
        key = digest(block.get("signature") or block.get("data"))
        return Block(section=section, kind=UNMARKABLE, key=key, text=word(block.get("thinking")))
    return Block(section=section, kind="other", key=who, text=shown(_bare(block)), mark=mark)


def _result(section: Section, block: Body) -> Block:
    inside = _content(block.get("content"))
    key = f"{block.get('tool_use_id')} {bool(block.get('is_error'))}"
    lead = PER_MESSAGE
    texts = []
    for piece in inside:
        kind = word(piece.get("type"))
        lead += MEDIA.get(kind, 0)
        texts.append(word(piece.get("text")) if kind == "text" else "")
        key += f" {kind} {digest(_bare(piece)) if kind != 'text' else ''}"
    mark = _ttl(block) or next(filter(None, map(_ttl, inside)), "")
    return Block(section=section, kind="result", key=key, text="\n".join(texts), lead=lead, mark=mark)


def _bare(block: Body) -> Body:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _ttl(marked: Body) -> str:
    control = mapping(marked.get("cache_control"))
    return word(control.get("ttl")) or TTL_DEFAULT if control else ""


def _marked_at_end(blocks: tuple[Block, ...], control: object) -> tuple[Block, ...]:
    """The mark the provider places itself, on the last block that can carry one."""
    ttl = _ttl({"cache_control": control})
    for place in range(len(blocks) - 1, -1, -1) if ttl else ():
        if blocks[place].kind != UNMARKABLE and (blocks[place].text or blocks[place].lead):
            marked = replace(blocks[place], mark=blocks[place].mark or ttl)
            return (*blocks[:place], marked, *blocks[place + 1 :])
    return blocks


def _without_old_thoughts(roles: list[str], messages: list[list[Block]]) -> list[list[Block]]:
    """A turn begins where a person speaks: with a message of theirs that brings no result."""
    begins = 0
    for number, (role, message) in enumerate(zip(roles, messages, strict=True)):
        if role == "user" and all(block.kind != "result" for block in message):
            begins = number
    return [
        [block for block in message if number >= begins or block.kind != UNMARKABLE]
        for number, message in enumerate(messages)
    ]


def _salts(body: Body, abilities: Abilities) -> Mapping[str, str]:
    output = mapping(body.get("output_config"))
    everything = _everything(body)
    kinds = {word(block.get("type")) for block in everything}
    citing = any(mapping(block.get("citations")).get("enabled") is True for block in everything)
    choice = {name: value for name, value in mapping(body.get("tool_choice")).items() if value is not False}
    thinking = {
        name: value
        for name, value in mapping(body.get("thinking")).items()
        if name in ("type", "budget_tokens")
    }
    changed: dict[Section, Sequence[object]] = {
        "system": (body.get("speed", "standard"), citing),
        "messages": (
            {} if choice == {"type": "auto"} else choice,
            {} if thinking.get("type") == abilities.thinking_default else thinking,
            output.get("effort") or abilities.effort_default,
            mapping(output.get("task_budget")).get("remaining"),
            "image" in kinds,
        ),
    }
    return {section: digest(changed.get(section, ())) for section in SECTIONS}


def _everything(body: Body) -> list[Body]:
    found: list[Body] = []
    for message in map(mapping, listed(body.get("messages"))):
        for block in _content(message.get("content")):
            found.append(block)
            found += _content(block.get("content"))
    return found
