"""Prompt layout of Chat Completions: tools, then the messages in order.

Many kinds of servers speak this wire. The model tables hold their differences; the layout is shared.
"""

from bridle.sim.cache.prompt_layout import (
    Body,
    PromptBlock,
    PromptReader,
    PromptText,
    as_text,
    call_block,
    to_json,
    tool_block,
)
from bridle.sim.openai.prompt import (
    PromptSetting,
    changed_settings,
    find_account,
    make_prompt,
    part_block,
)
from bridle.sim.rules.raw_request import as_list, as_mapping
from bridle.values.model import Abilities

PROMPT_SETTINGS: dict[str, PromptSetting] = {
    "parallel_tool_calls": (lambda body: body.get("parallel_tool_calls"), True),
    "response_format": (lambda body: body.get("response_format"), {"type": "text"}),
    "verbosity": (lambda body: body.get("verbosity"), "medium"),
    "reasoning_effort": (lambda body: body.get("reasoning_effort"), None),
    "service_tier": (lambda body: body.get("service_tier"), "auto"),
    "prompt_cache_key": (lambda body: body.get("prompt_cache_key"), None),
}


def lay_out_prompt(body: Body, abilities: Abilities) -> PromptText:
    said = [as_mapping(message) for message in as_list(body.get("messages"))]
    messages = [(as_text(message.get("role")), _lay_out_message(message, body)) for message in said]
    tools = [tool_block(tool) for tool in map(as_mapping, as_list(body.get("tools")))]
    schema = as_mapping(as_mapping(body.get("response_format")).get("json_schema")).get("schema")
    wanted = [PromptBlock(section="system", kind="shape", text=to_json(schema))] if schema is not None else []
    settings = changed_settings({"reasoning_effort": abilities.effort_default, **body}, PROMPT_SETTINGS)
    return make_prompt(body, [*tools, *wanted], messages, settings)


PROMPT_READER = PromptReader(lay_out=lay_out_prompt, find_account=find_account)


def _lay_out_message(message: Body, body: Body) -> list[PromptBlock]:
    role, content = as_text(message.get("role")), message.get("content")
    who = f"{role} {message.get('tool_call_id', '')}".strip()
    thought = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
    blocks = [PromptBlock(section="messages", kind="thought", key=role, text=thought)] if thought else []
    parts = [{"text": content}] if isinstance(content, str) else as_list(content)
    blocks += [part_block(who, as_mapping(part), body) for part in parts]
    for call in map(as_mapping, as_list(message.get("tool_calls"))):
        function = as_mapping(call.get("function") or call.get("custom"))
        arguments = function.get("arguments", function.get("input", ""))
        blocks.append(call_block(role, function.get("name"), arguments, key=call.get("id")))
    return blocks
