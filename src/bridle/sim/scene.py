"""What a brain sees of a request.

A brain has no memory.  Whatever it knows it reads off the transcript, every time
anew: the last thing a person asked, what has been called since, and what came back.
Two brains given the same request therefore do the same, also after a restart.

A brain makes one of two moves: it answers in words, or it calls tools.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..core.judging import UNUSABLE
from ..values.json_text import parse_json
from ..values.message import Message
from ..values.parts import Opaque, Text, ToolCall, ToolResult
from ..values.request import Request, ToolSpec
from ..values.value import Value
from .directives import script_of
from .place import is_reply, script_at, since, told_in
from .preambles import strip_preambles


class Answer(Value):
    text: str


class Call(Value):
    name: str
    arguments: Mapping[str, object]


Calls = tuple[Call, ...]
Move = Answer | Calls


class Exchange(Value):
    """A call and what came of it."""

    name: str
    arguments: Mapping[str, object]
    result: ToolResult
    reply: int
    """In which of the replies since the prompt it was called."""

    @property
    def text(self) -> str:
        return self.result.text.strip()

    @property
    def is_error(self) -> bool:
        return self.result.is_error


class Scene(Value):
    prompt: str
    """The last thing a person asked."""
    history: str
    """Everything people asked and tools brought, oldest first."""
    tools: tuple[ToolSpec, ...]
    """The tools that may be called now."""
    exchanges: tuple[Exchange, ...]
    """Calls since the prompt, with their results."""
    replies: int
    """How often the model has spoken since the prompt."""

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def last_exchanges(self) -> tuple[Exchange, ...]:
        return tuple(item for item in self.exchanges if item.reply == self.replies)

    def of(self, tool: ToolSpec) -> tuple[Exchange, ...]:
        return tuple(exchange for exchange in self.exchanges if exchange.name == tool.name)


def look(request: Request) -> Scene:
    at = _prompt_at(request.messages)
    prompt, given, after = "", 0, tuple(request.messages[at + 1 :] if at >= 0 else ())
    if at >= 0:
        prompt = _words(request.messages[at])
        place = told_in(request.messages[at:])
        script, begun = script_at(place, prompt) if place is not None else ("", False)
        if script:
            prompt = script
        if place is not None and begun:
            given, after = place.given, tuple(since(place, after))
    may_call = request.tool_choice.mode != "none"
    return Scene(
        prompt=prompt,
        history=_history(request.messages),
        tools=tuple(tool for tool in request.tools if _ours(tool)) if may_call else (),
        exchanges=tuple(_exchanges(after)),
        replies=given + sum(map(is_reply, _without_open_turn(after))),
    )


def _without_open_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages without a last turn that hosted tools are in the middle of: a reply continues it."""
    is_open = (
        bool(messages) and messages[-1].role == "assistant" and isinstance(messages[-1].parts[-1], Opaque)
    )
    return messages[:-1] if is_open else messages


def _ours(tool: ToolSpec) -> bool:
    """Whether the caller runs this tool; what the provider runs itself has no parameters to fill."""
    return tool.native is None or tool.parameters != ToolSpec(name="").parameters


def _prompt_at(messages: Sequence[Message]) -> int:
    """Where a person spoke last; results that a person's message only carries are not a person speaking."""
    spoken = [at for at, each in enumerate(messages) if each.role == "user" and _words(each).strip()]
    if not spoken:
        return -1
    asked = [at for at in spoken if not _words(messages[at]).startswith(UNUSABLE)]
    return asked[-1] if asked and _is_unfinished(messages[asked[-1] :]) else spoken[-1]


def _is_unfinished(messages: Sequence[Message]) -> bool:
    """Whether the first message is a script with replies left; a refused answer does not end it."""
    script = script_of(_words(messages[0]))
    return script is not None and sum(map(is_reply, messages[1:])) < len(script.replies)


def _words(message: Message) -> str:
    """What a person said in a message, without what the client put around it."""
    return strip_preambles("\n".join(part.text for part in message.parts if isinstance(part, Text)))


def _history(messages: Sequence[Message]) -> str:
    said: list[str] = []
    for message in messages:
        if message.role == "user":
            said.append(_words(message))
        said.extend(result.text for result in message.results)
    return "\n".join(text for text in said if text)


def _exchanges(messages: Iterable[Message]) -> Iterable[Exchange]:
    calls: dict[str, ToolCall] = {}
    replies = 0
    for message in messages:
        replies += message.role == "assistant"
        calls.update({call.id: call for call in message.calls})
        for result in message.results:
            call = calls.get(result.call_id)
            if call is not None:
                yield Exchange(name=call.name, arguments=_arguments(call), result=result, reply=replies)


def _arguments(call: ToolCall) -> Mapping[str, object]:
    try:
        given = parse_json(call.arguments or "{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
