"""How the Responses API lays a prompt out: tools, instructions, then the items of the input.

The provider keeps the prompt of its own accord up to the end of what somebody else said:
a message of the user, the last of a group of tool outputs, the last of the developer's
messages at the front.  What stands for a conversation is as long as what it says.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from ..values.model import Abilities
from ._prompt_openai import Setting, account, kept, own, part_block, settings_of
from .prompt import (
    Block,
    Body,
    Prompt,
    Reader,
    call_block,
    digest,
    listed,
    mapping,
    placed,
    shown,
    tool_block,
    word,
)
from .seals_openai_responses import words_in
from .tokens import PER_MESSAGE

COMPACTION = "compaction"
DEVELOPERS = ("developer", "system")
SETTINGS: dict[str, Setting] = {
    "parallel_tool_calls": (lambda body: body.get("parallel_tool_calls"), True),
    "text.format": (lambda body: mapping(body.get("text")).get("format"), {"type": "text"}),
    "text.verbosity": (lambda body: mapping(body.get("text")).get("verbosity"), "medium"),
    "reasoning.effort": (lambda body: mapping(body.get("reasoning")).get("effort"), None),
    "context_management": (lambda body: body.get("context_management"), None),
    "service_tier": (lambda body: body.get("service_tier"), "auto"),
    "prompt_cache_key": (lambda body: body.get("prompt_cache_key"), None),
}


def read(body: Body, abilities: Abilities) -> Prompt:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _since_summary(listed(given))
    roles: list[str] = []
    messages: list[list[Block]] = []
    for item in map(mapping, items):
        role, blocks = _item(item, body)
        if blocks:
            roles.append(role)
            messages.append(blocks)
    for place in _ends(roles):
        messages[place][-1] = replace(messages[place][-1], ends=True)
    tools = [tool_block(tool) for tool in map(mapping, listed(body.get("tools")))]
    instructions = word(body.get("instructions"))
    system = [Block(section="system", kind="text", text=instructions)] if instructions else []
    shape = mapping(mapping(body.get("text")).get("format")).get("schema")
    wanted = [Block(section="system", kind="shape", text=shown(shape))] if shape is not None else []
    effort = {"effort": abilities.effort_default, **mapping(body.get("reasoning"))}
    settings = settings_of({**body, "reasoning": effort}, SETTINGS)
    return Prompt(
        blocks=placed([[*tools, *wanted, *system], *messages]),
        salts={"tools": digest(settings)},
        settings=settings,
        kept=kept(body),
        own=own(body),
    )


READER = Reader(read=read, account=account)


def _since_summary(items: Sequence[object]) -> Sequence[object]:
    """Of what came before the latest summary only what people said is read."""
    at = max(
        (place for place, item in enumerate(items) if mapping(item).get("type") == COMPACTION), default=0
    )
    return [*(item for item in items[:at] if mapping(item).get("role") == "user"), *items[at:]]


def _item(item: Body, body: Body) -> tuple[str, list[Block]]:
    """Who is speaking, and what."""
    kind = word(item.get("type")) or "message"
    if kind == "message":
        role, content = word(item.get("role")), item.get("content")
        parts = [{"text": content}] if isinstance(content, str) else listed(content)
        return role, [part_block("messages", role, mapping(part), body) for part in parts]
    if kind.endswith("_output"):
        return "tool", [_output(item, body)]
    if kind.endswith("_call"):
        arguments = item.get("arguments", item.get("input", ""))
        return "model", [call_block(kind, item.get("name"), arguments, key=item.get("call_id"))]
    if kind == "reasoning":
        words = [word(mapping(piece).get("text")) for piece in listed(item.get("summary"))]
        key = digest(item.get("encrypted_content") or item.get("id"))
        return "model", [Block(section="messages", kind="thought", key=key, text="\n".join(words))]
    if said := words_in(item):
        return "model", [Block(section="messages", kind="summary", text=said)]
    bare = {name: value for name, value in item.items() if name not in ("id", "status")}
    return "model", [Block(section="messages", kind="other", text=shown(bare))]


def _output(item: Body, body: Body) -> Block:
    output = item.get("output")
    if not isinstance(output, list):
        text = output if isinstance(output, str) else shown(output)
        key = word(item.get("call_id"))
        return Block(section="messages", kind="result", key=key, text=text, lead=PER_MESSAGE)
    pieces = [part_block("messages", "tool", mapping(part), body) for part in output]
    return Block(
        section="messages",
        kind="result",
        key=" ".join([word(item.get("call_id")), *(piece.key for piece in pieces if piece.lead)]),
        text="\n".join(piece.text for piece in pieces),
        lead=PER_MESSAGE + sum(piece.lead for piece in pieces),
        mark=next((piece.mark for piece in reversed(pieces) if piece.mark), ""),
    )


def _ends(roles: Sequence[str]) -> list[int]:
    ends = []
    for place, role in enumerate(roles):
        last = place + 1 == len(roles) or roles[place + 1] != role
        leading = role in DEVELOPERS and all(other in DEVELOPERS for other in roles[:place])
        leads_on = place + 1 < len(roles) and roles[place + 1] in DEVELOPERS
        if role == "user" or (role == "tool" and last) or (leading and not leads_on):
            ends.append(place)
    return ends
