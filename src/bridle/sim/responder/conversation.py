"""What a brain sees of a request.

A brain has no memory.  Whatever it knows it reads off the transcript, every time
anew: the last thing a person asked, what has been called since, and what came back.
Two brains given the same request therefore do the same, also after a restart.

A brain makes one of two moves: it answers in words, or it calls tools.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from bridle.core.evaluate_reply import ANSWER_UNUSABLE
from bridle.values.base import Value
from bridle.values.message import Message, Opaque, Text, ToolCall, ToolResult
from bridle.values.request import Request, ToolSpec
from bridle.values.text import parse_json

from .script import parse_script
from .script_position import is_reply, messages_since, read_position, remaining_script

# Blocks that clients put around a prompt: reminders, facts about the machine, instructions of a project.
#
# The responder answers the person.  A model would read these blocks too, but they are not what was asked, and
# scripts in them are not meant to be played.


PREAMBLE_TAGS = (
    "system-reminder", "system_reminder", "environment_context", "environment_details", "env",
    "user_instructions", "INSTRUCTIONS", "session_context", "skills_instructions", "apps_instructions",
    "plugins_instructions", "permissions instructions", "collaboration_mode", "available_skills",
    "local-command-caveat", "local-command-stdout", "command-name", "command-message", "command-args",
)  # fmt: skip
"""Blocks that coding agents add to a prompt, or send as a message of their own."""
_TAG_NAMES = "|".join(map(re.escape, PREAMBLE_TAGS))
PREAMBLE = re.compile(rf"(?ms)(?:^#[^\n]*\binstructions for\b[^\n]*\n\s*)?<({_TAG_NAMES})>.*?</\1>\s*")
"""A block, with the heading that some put before it."""


def strip_preambles(text: str) -> str:
    """The text without the blocks that clients add; the very same when there are none."""
    return PREAMBLE.sub("", text) if "</" in text else text


class TextMove(Value):
    text: str


class CallMove(Value):
    name: str
    arguments: Mapping[str, object]


CallMoves = tuple[CallMove, ...]
ResponderMove = TextMove | CallMoves


class ToolExchange(Value):
    """A call and what came of it."""

    name: str
    arguments: Mapping[str, object]
    result: ToolResult
    reply_index: int
    """In which of the replies since the prompt it was called."""

    @property
    def text(self) -> str:
        return self.result.text.strip()

    @property
    def is_error(self) -> bool:
        return self.result.is_error


class ConversationFacts(Value):
    prompt: str
    """The last thing a person asked."""
    history: str
    """Everything people asked and tools brought, oldest first."""
    tools: tuple[ToolSpec, ...]
    """The tools that may be called now."""
    exchanges: tuple[ToolExchange, ...]
    """Calls since the prompt, with their results."""
    reply_count: int
    """How often the model has spoken since the prompt."""

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def last_exchanges(self) -> tuple[ToolExchange, ...]:
        return tuple(item for item in self.exchanges if item.reply_index == self.reply_count)

    def exchanges_with(self, tool: ToolSpec) -> tuple[ToolExchange, ...]:
        return tuple(exchange for exchange in self.exchanges if exchange.name == tool.name)


def read_conversation(request: Request) -> ConversationFacts:
    at = _find_prompt(request.messages)
    prompt, given, after = "", 0, tuple(request.messages[at + 1 :] if at >= 0 else ())
    if at >= 0:
        prompt = _user_text(request.messages[at])
        place = read_position(request.messages[at:])
        script, begun = remaining_script(place, prompt) if place is not None else ("", False)
        if script:
            prompt = script
        if place is not None and begun:
            given, after = place.replies_given, tuple(messages_since(place, after))
    may_call = request.tool_choice.mode != "none"
    return ConversationFacts(
        prompt=prompt,
        history=_collect_history(request.messages),
        tools=tuple(tool for tool in request.tools if _is_client_tool(tool)) if may_call else (),
        exchanges=tuple(_pair_calls_with_results(after)),
        reply_count=given + sum(map(is_reply, _drop_open_turn(after))),
    )


def _drop_open_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages without a last turn that hosted tools are in the middle of: a reply continues it."""
    is_open = (
        bool(messages) and messages[-1].role == "assistant" and isinstance(messages[-1].parts[-1], Opaque)
    )
    return messages[:-1] if is_open else messages


def _is_client_tool(tool: ToolSpec) -> bool:
    """Whether the caller runs this tool; what the provider runs itself has no parameters to fill."""
    return tool.native is None or tool.parameters != ToolSpec(name="").parameters


def _find_prompt(messages: Sequence[Message]) -> int:
    """Where a person spoke last; results that a person's message only carries are not a person speaking."""
    spoken = [at for at, each in enumerate(messages) if each.role == "user" and _user_text(each).strip()]
    if not spoken:
        return -1
    asked = [at for at in spoken if not _user_text(messages[at]).startswith(ANSWER_UNUSABLE)]
    return asked[-1] if asked and _is_unfinished_script(messages[asked[-1] :]) else spoken[-1]


def _is_unfinished_script(messages: Sequence[Message]) -> bool:
    """Whether the first message is a script with replies left; a refused answer does not end it."""
    script = parse_script(_user_text(messages[0]))
    return script is not None and sum(map(is_reply, messages[1:])) < len(script.replies)


def _user_text(message: Message) -> str:
    """What a person said in a message, without what the client put around it."""
    return strip_preambles("\n".join(part.text for part in message.parts if isinstance(part, Text)))


def _collect_history(messages: Sequence[Message]) -> str:
    said: list[str] = []
    for message in messages:
        if message.role == "user":
            said.append(_user_text(message))
        said.extend(result.text for result in message.results)
    return "\n".join(text for text in said if text)


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
