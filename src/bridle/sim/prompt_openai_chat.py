"""How Chat Completions lays a prompt out: tools, then the messages as they come.

Servers of many makes speak this wire.  What differs between them is in the model tables;
here is the layout they share.
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

DEVELOPERS = ("developer", "system")
SETTINGS: dict[str, Setting] = {
    "parallel_tool_calls": (lambda body: body.get("parallel_tool_calls"), True),
    "response_format": (lambda body: body.get("response_format"), {"type": "text"}),
    "verbosity": (lambda body: body.get("verbosity"), "medium"),
    "reasoning_effort": (lambda body: body.get("reasoning_effort"), None),
    "service_tier": (lambda body: body.get("service_tier"), "auto"),
    "prompt_cache_key": (lambda body: body.get("prompt_cache_key"), None),
}


def read(body: Body, abilities: Abilities) -> Prompt:
    said = [mapping(message) for message in listed(body.get("messages"))]
    messages = [_message(message, body) for message in said]
    for place in _ends([word(message.get("role")) for message in said]):
        if messages[place]:
            messages[place][-1] = replace(messages[place][-1], ends=True)
    tools = [tool_block(tool) for tool in map(mapping, listed(body.get("tools")))]
    schema = mapping(mapping(body.get("response_format")).get("json_schema")).get("schema")
    wanted = [Block(section="system", kind="shape", text=shown(schema))] if schema is not None else []
    settings = settings_of({"reasoning_effort": abilities.effort_default, **body}, SETTINGS)
    return Prompt(
        blocks=placed([[*tools, *wanted], *messages]),
        salts={"tools": digest(settings)},
        settings=settings,
        kept=kept(body),
        own=own(body),
    )


READER = Reader(read=read, account=account)


def _message(message: Body, body: Body) -> list[Block]:
    role, content = word(message.get("role")), message.get("content")
    who = f"{role} {message.get('tool_call_id', '')}".strip()
    thought = word(message.get("reasoning_content")) or word(message.get("reasoning"))
    blocks = [Block(section="messages", kind="thought", key=role, text=thought)] if thought else []
    parts = [{"text": content}] if isinstance(content, str) else listed(content)
    blocks += [part_block("messages", who, mapping(part), body) for part in parts]
    for call in map(mapping, listed(message.get("tool_calls"))):
        function = mapping(call.get("function") or call.get("custom"))
        arguments = function.get("arguments", function.get("input", ""))
        blocks.append(call_block(role, function.get("name"), arguments, key=call.get("id")))
    return blocks


def _ends(roles: Sequence[str]) -> list[int]:
    ends = []
    for place, role in enumerate(roles):
        following = roles[place + 1] if place + 1 < len(roles) else ""
        leading = role in DEVELOPERS and all(other in DEVELOPERS for other in roles[:place])
        ends_group = (role == "tool" and following != "tool") or (leading and following not in DEVELOPERS)
        if role == "user" or ends_group:
            ends.append(place)
    return ends
