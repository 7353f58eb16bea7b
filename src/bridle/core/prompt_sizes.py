"""Estimated sizes of what is in a prompt, by tool.

A conversation grows at its end, so each message is measured once and the sums are carried on from reply to
reply.  After an event that may have changed an earlier message, the sums are made again.
"""

from ..values.message import Message
from ..values.parts import ToolCall, ToolResult
from ..values.request import ToolSpec
from .context import offered_tools
from .saying import parts_tokens, text_tokens, tools_tokens
from .state import State

NO_TOOL = "(conversation)"
"""Name for results of calls that are not in the view."""


class PromptSizes:
    def __init__(self) -> None:
        self.schemas: dict[str, int] = {}
        """Tokens of the tools' definitions, by tool."""
        self.results: dict[str, int] = {}
        """Tokens of calls and their results, by tool."""
        self.rest = 0
        """Tokens of everything else."""
        self._measured = self._messages_rest = 0
        self._last: Message | None = None
        self._names: dict[str, str] = {}
        self._specs: tuple[ToolSpec, ...] = ()
        self._instructions: tuple[str, int] = ("", text_tokens(""))

    def forget_messages(self) -> None:
        """Measure every message again at the next look."""
        self._measured = self._messages_rest = 0
        self._last, self._names, self.results = None, {}, {}

    def measured(self, state: State) -> "PromptSizes":
        """The sizes of the prompt that this state would send."""
        specs = offered_tools(state)
        if specs != self._specs:
            self._specs, self.schemas = specs, {spec.name: tools_tokens((spec,)) for spec in specs}
        words = state.settings.instructions
        if words is not self._instructions[0]:
            self._instructions = words, text_tokens(words)
        view, known = state.view, self._measured
        if known and (len(view) < known or view[known - 1] is not self._last):
            self.forget_messages()
        new = view[self._measured :]
        self._names.update((call.id, call.name) for message in new for call in message.calls)
        for message in new:
            self._add(message)
        if new:
            self._measured, self._last = len(view), view[-1]
        self.rest = self._messages_rest + self._instructions[1]
        return self

    def _add(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._count(part.id, text_tokens(part.arguments))
            elif isinstance(part, ToolResult):
                self._count(part.call_id, parts_tokens((part,)))
            else:
                self._messages_rest += parts_tokens((part,))

    def _count(self, call_id: str, tokens: int) -> None:
        if not call_id:
            self._messages_rest += tokens
            return
        name = self._names.get(call_id, NO_TOOL)
        self.results[name] = self.results.get(name, 0) + tokens
