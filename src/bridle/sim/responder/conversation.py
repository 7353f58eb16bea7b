"""The facts of a conversation that a responder reads from a request.

A responder has no memory: it derives everything from the transcript, namely the last user prompt, the calls
since then, and their results. So equal requests get equal replies, even after a restart.

A responder makes one of two moves: text, or tool calls. Blocks that clients add around a prompt (reminders,
facts about the machine, project instructions) are ignored, and scripts in them are not played.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from bridle.values.base import Value
from bridle.values.message import Message, Opaque, Text, ToolCall, ToolResult
from bridle.values.request import Request, ToolSpec
from bridle.values.text import parse_json

from .harness_notices import is_harness_notice
from .script import parse_script
from .script_position import is_reply, messages_since, read_position, remaining_script

PREAMBLE_TAGS = (
    "system-reminder", "system_reminder", "environment_context", "environment_details", "env",
    "user_instructions", "INSTRUCTIONS", "session_context", "skills_instructions", "apps_instructions",
    "plugins_instructions", "permissions instructions", "collaboration_mode", "available_skills",
    "local-command-caveat", "local-command-stdout", "command-name", "command-message", "command-args",
)  # fmt: skip
"""Blocks that coding agents add to a prompt, or send as separate messages."""
_TAG_NAMES = "|".join(map(re.escape, PREAMBLE_TAGS))
PREAMBLE = re.compile(rf"(?ms)(?:^#[^\n]*\binstructions for\b[^\n]*\n\s*)?<({_TAG_NAMES})>.*?</\1>\s*")
"""A block, with the heading that some clients put before it."""


def strip_preambles(text: str) -> str:
    """Remove the blocks that clients add to a prompt."""
    return PREAMBLE.sub("", text) if "</" in text else text


class TextMove(Value, kw_only=True):
    text: str


class CallMove(Value, kw_only=True, gc=True):
    name: str
    arguments: Mapping[str, object]


CallMoves = tuple[CallMove, ...]
ResponderMove = TextMove | CallMoves


class ToolExchange(Value, kw_only=True, gc=True):
    """A call and its result."""

    name: str
    arguments: Mapping[str, object]
    result: ToolResult
    reply_index: int
    """Number of the reply, since the prompt, that made the call."""

    @property
    def text(self) -> str:
        return self.result.text.strip()

    @property
    def is_error(self) -> bool:
        return self.result.is_error


class ConversationFacts(Value, kw_only=True, gc=True):
    prompt: str
    """Text of the last user prompt."""
    history: str
    """All user texts and tool results, oldest first."""
    tools: tuple[ToolSpec, ...]
    """The tools that may be called now."""
    exchanges: tuple[ToolExchange, ...]
    """Calls since the prompt, with their results."""
    reply_count: int
    """Number of model replies since the prompt."""
    system: str = ""
    """Instructions, and the notes of the memory."""

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def last_exchanges(self) -> tuple[ToolExchange, ...]:
        return tuple(item for item in self.exchanges if item.reply_index == self.reply_count)

    def exchanges_with(self, tool: ToolSpec) -> tuple[ToolExchange, ...]:
        return tuple(exchange for exchange in self.exchanges if exchange.name == tool.name)


def read_conversation(request: Request) -> ConversationFacts:
    at = _find_prompt(request.messages)
    prompt, reply_count, after = "", 0, tuple(request.messages[at + 1 :] if at >= 0 else ())
    if at >= 0:
        prompt = _user_text(request.messages[at])
        position = read_position(request.messages[at:])
        script, is_begun = remaining_script(position, prompt) if position is not None else ("", False)
        if script:
            prompt = script
        if position is not None and is_begun:
            reply_count, after = position.replies_given, tuple(messages_since(position, after))
    may_call = request.tool_choice.mode != "none"
    return ConversationFacts(
        prompt=prompt,
        history=_collect_history(request.messages),
        tools=tuple(tool for tool in request.tools if _is_client_tool(tool)) if may_call else (),
        exchanges=tuple(_pair_calls_with_results(after)),
        reply_count=reply_count + sum(map(is_reply, _drop_open_turn(after))),
        system="\n".join(part.text for part in request.system),
    )


def _drop_open_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Drop a last turn that ends with a hosted tool's item: the next reply continues it."""
    is_open = (
        bool(messages) and messages[-1].role == "assistant" and isinstance(messages[-1].parts[-1], Opaque)
    )
    return messages[:-1] if is_open else messages


def _is_client_tool(tool: ToolSpec) -> bool:
    """True if the client runs this tool; tools that the provider runs have no parameters."""
    return tool.native is None or tool.parameters != ToolSpec(name="").parameters


def _find_prompt(messages: Sequence[Message]) -> int:
    """Index of the last message with user text, ignoring notices of an agent harness during a script."""
    user_messages = [
        at for at, each in enumerate(messages) if each.role == "user" and _user_text(each).strip()
    ]
    if not user_messages:
        return -1
    prompts = [at for at in user_messages if not is_harness_notice(_user_text(messages[at]))]
    return prompts[-1] if prompts and _is_unfinished_script(messages[prompts[-1] :]) else user_messages[-1]


def _is_unfinished_script(messages: Sequence[Message]) -> bool:
    """True if the first message is a script with replies left; a rejected answer does not end it."""
    script = parse_script(_user_text(messages[0]))
    return script is not None and sum(map(is_reply, messages[1:])) < len(script.replies)


def _user_text(message: Message) -> str:
    """Return the user text of a message, without the blocks that the client added."""
    return strip_preambles("\n".join(part.text for part in message.parts if isinstance(part, Text)))


def _collect_history(messages: Sequence[Message]) -> str:
    texts: list[str] = []
    for message in messages:
        if message.role == "user":
            texts.append(_user_text(message))
        texts.extend(result.text for result in message.results)
    return "\n".join(text for text in texts if text)


def _pair_calls_with_results(messages: Iterable[Message]) -> Iterable[ToolExchange]:
    calls: dict[str, ToolCall] = {}
    replies = 0
    for message in messages:
        replies += message.role == "assistant"
        calls.update({call.id: call for call in message.calls})
        for result in message.results:
            call = calls.get(result.call_id)
            if call is not None:
                yield ToolExchange(
                    name=call.name, arguments=_parse_arguments(call), result=result, reply_index=replies
                )


def _parse_arguments(call: ToolCall) -> Mapping[str, object]:
    try:
        given = parse_json(call.arguments or "{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
