"""A conversation with a responder, without a wire: prompt, calls, results, answer."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bridle.sim.responder.rule_based import respond
from bridle.values.message import Message, Part, Reply, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Request, ToolSpec

MODEL = Model(
    id="some-model",
    endpoint=Endpoint(name="sim", family="scripted", base_url="sim://scripted", simulated=True),
    abilities=Abilities(),
)
TURNS_MAX = 20
Run = Callable[..., Any]


def spec(
    name: str, properties: Mapping[str, Any], description: str = "", required: list[str] | None = None
) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=msgspec.json.encode(schema).decode())


class Conversation:
    """Everything said so far; `ask` goes on until the brain answers in words."""

    def __init__(self, tools: Mapping[ToolSpec, Run] | None = None, **fields: Any) -> None:
        self.tools = {tool.name: run for tool, run in (tools or {}).items()}
        self.fields = {"model": MODEL, "tools": tuple(tools or {}), **fields}
        self.messages: list[Message] = []
        self.replies: list[Reply] = []

    def request(self) -> Request:
        return Request(messages=tuple(self.messages), **self.fields)

    def add(self, role: str, *parts: Part) -> None:
        self.messages.append(Message(role=role, parts=parts))  # type: ignore[arg-type]

    def ask(self, prompt: str) -> str:
        self.add("user", Text(text=prompt))
        for _ in range(TURNS_MAX):
            reply = respond(self.request()).reply
            self.replies.append(reply)
            self.add("assistant", *reply.parts)
            if not reply.calls:
                return reply.text
            self.add("tool", *(self._result(call) for call in reply.calls))
        raise AssertionError(f"no answer in {TURNS_MAX} turns")

    def _result(self, call: ToolCall) -> ToolResult:
        try:
            brought = self.tools[call.name](**msgspec.json.decode(call.arguments))
        except Exception as error:
            return ToolResult(call_id=call.id, parts=(Text(text=str(error)),), outcome="error")
        return ToolResult(call_id=call.id, parts=(Text(text=str(brought)),))

    @property
    def calls(self) -> list[list[tuple[str, Any]]]:
        """What was called, reply by reply."""
        return [
            [(call.name, msgspec.json.decode(call.arguments)) for call in reply.calls]
            for reply in self.replies
            if reply.calls
        ]
