"""How generateContent lays a prompt out: tools, system instruction, contents."""

from collections.abc import Mapping

from ..values.model import Abilities
from .prompt import (
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
from .tokens import PER_MESSAGE


def read(body: Body, abilities: Abilities) -> Prompt:
    config = _member(body, "generationConfig", "generation_config")
    tools = [
        tool_block(declaration)
        for tool in map(mapping, listed(body.get("tools")))
        for declaration in listed(_member(tool, "functionDeclarations", "function_declarations")) or (tool,)
    ]
    shapes = ("responseJsonSchema", "responseSchema", "response_json_schema", "response_schema")
    shape = _member(mapping(config), *shapes)
    wanted = [Block(section="system", kind="shape", text=shown(shape))] if shape is not None else []
    instruction = mapping(_member(body, "systemInstruction", "system_instruction"))
    said = [_part("system", "system", part) for part in map(mapping, listed(instruction.get("parts")))]
    contents = body.get("contents")
    turns = [contents] if isinstance(contents, dict) else listed(contents)
    messages = [
        [
            _part("messages", word(turn.get("role")) or "user", part)
            for part in map(mapping, listed(turn.get("parts")))
        ]
        for turn in map(mapping, turns)
    ]
    return Prompt(blocks=placed([[*tools, *wanted, *said], *messages]))


def account(headers: Mapping[str, str]) -> str:
    return headers.get("x-goog-api-key") or headers.get("authorization", "")


READER = Reader(read=read, account=account)


def _member(body: Body, *names: str) -> object:
    """A field may be written in either of two ways."""
    return next((body[name] for name in names if name in body), None)


def _part(section: Section, who: str, part: Body) -> Block:
    call = _member(part, "functionCall", "function_call")
    if isinstance(call, dict):
        return call_block(who, call.get("name"), call.get("args"), key=call.get("id"))
    brought = _member(part, "functionResponse", "function_response")
    if isinstance(brought, dict):
        text = f"{word(brought.get('name'))} {shown(brought.get('response'))}"
        media = [media_block(section, _kind(item), who, item) for item in _inside(brought)]
        key = " ".join([str(brought.get("id", "")), *(item.key for item in media)])
        lead = PER_MESSAGE + sum(item.lead for item in media)
        return Block(section=section, kind="result", key=key, text=text, lead=lead)
    if _member(part, "inlineData", "inline_data", "fileData", "file_data") is not None:
        return media_block(section, _kind(part), who, part)
    text = word(part.get("text"))
    signed = _member(part, "thoughtSignature", "thought_signature")
    key = f"{who} {digest(signed)}" if signed else who
    if "text" in part:
        kind = "thought" if part.get("thought") is True else "text"
        return Block(section=section, kind=kind, key=key, text=text)
    return Block(section=section, kind="other", key=key, text=shown(part))


def _inside(response: Body) -> list[Body]:
    return [mapping(item) for item in listed(response.get("parts"))]


def _kind(part: Body) -> str:
    data = mapping(_member(part, "inlineData", "inline_data", "fileData", "file_data"))
    return "image" if word(_member(data, "mimeType", "mime_type")).startswith("image/") else "file"
