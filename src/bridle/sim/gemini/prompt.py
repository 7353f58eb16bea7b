"""Prompt layout of generateContent: tools, system instruction, contents."""

from collections.abc import Mapping

from bridle.sim.cache.prompt_layout import (
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
from bridle.sim.cache.token_estimate import TOKENS_PER_MESSAGE
from bridle.sim.rules.raw_request import as_list, as_mapping
from bridle.values.model import Abilities


def lay_out_prompt(body: Body, abilities: Abilities) -> PromptText:
    config = _either_spelling(body, "generationConfig", "generation_config")
    tools = [
        tool_block(declaration)
        for tool in map(as_mapping, as_list(body.get("tools")))
        for declaration in as_list(_either_spelling(tool, "functionDeclarations", "function_declarations"))
        or (tool,)
    ]
    shapes = ("responseJsonSchema", "responseSchema", "response_json_schema", "response_schema")
    shape = _either_spelling(as_mapping(config), *shapes)
    wanted = [PromptBlock(section="system", kind="shape", text=to_json(shape))] if shape is not None else []
    instruction = as_mapping(_either_spelling(body, "systemInstruction", "system_instruction"))
    contents_read = [
        _lay_out_part("system", "system", part) for part in map(as_mapping, as_list(instruction.get("parts")))
    ]
    contents = body.get("contents")
    turns = [contents] if isinstance(contents, dict) else as_list(contents)
    messages = [
        [
            _lay_out_part("messages", as_text(turn.get("role")) or "user", part)
            for part in map(as_mapping, as_list(turn.get("parts")))
        ]
        for turn in map(as_mapping, turns)
    ]
    return PromptText(blocks=place_blocks([[*tools, *wanted, *contents_read], *messages]))


def find_account(headers: Mapping[str, str]) -> str:
    return headers.get("x-goog-api-key") or headers.get("authorization", "")


PROMPT_READER = PromptReader(lay_out=lay_out_prompt, find_account=find_account)


def _either_spelling(body: Body, *names: str) -> object:
    """Return a field in either of its two spellings."""
    return next((body[name] for name in names if name in body), None)


def _lay_out_part(section: Section, who: str, part: Body) -> PromptBlock:
    call = _either_spelling(part, "functionCall", "function_call")
    if isinstance(call, dict):
        return call_block(who, call.get("name"), call.get("args"), key=call.get("id"))
    brought = _either_spelling(part, "functionResponse", "function_response")
    if isinstance(brought, dict):
        text = f"{as_text(brought.get('name'))} {to_json(brought.get('response'))}"
        media = [media_block(section, _part_kind(item), who, item) for item in _response_parts(brought)]
        key = " ".join([str(brought.get("id", "")), *(item.key for item in media)])
        lead = TOKENS_PER_MESSAGE + sum(item.overhead_tokens for item in media)
        return PromptBlock(section=section, kind="result", key=key, text=text, overhead_tokens=lead)
    if _either_spelling(part, "inlineData", "inline_data", "fileData", "file_data") is not None:
        return media_block(section, _part_kind(part), who, part)
    text = as_text(part.get("text"))
    signed = _either_spelling(part, "thoughtSignature", "thought_signature")
    key = f"{who} {hash_value(signed)}" if signed else who
    if "text" in part:
        kind = "thought" if part.get("thought") is True else "text"
        return PromptBlock(section=section, kind=kind, key=key, text=text)
    return PromptBlock(section=section, kind="other", key=key, text=to_json(part))


def _response_parts(response: Body) -> list[Body]:
    return [as_mapping(item) for item in as_list(response.get("parts"))]


def _part_kind(part: Body) -> str:
    data = as_mapping(_either_spelling(part, "inlineData", "inline_data", "fileData", "file_data"))
    return (
        "image" if as_text(_either_spelling(data, "mimeType", "mime_type")).startswith("image/") else "file"
    )
