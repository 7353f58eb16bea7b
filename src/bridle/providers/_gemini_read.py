"""Requests as Gemini understands them: the other end of `encode`, for simulating and importing.

Reading is tolerant: names in either spelling, one object where a list of one belongs, and what our
values have no place for kept as native members, opaque parts or extras, so that the request can be
written again and still mean the same.  Only what is not a request at all is refused, with the failure
the provider would give.

A content that holds responses and words becomes a tool message and a user message; writing joins
them again.  Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; a response
finds its call in the contents before it by its id, then by its name, then by its place.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from ..ports.codec import HttpRequest
from ..values.errors import Failure, FailureKind, ProviderError
from ..values.message import Message, Role
from ..values.model import Endpoint, Model, Origin
from ..values.parts import Opaque, Part, Text, ToolCall, ToolResult
from ..values.request import Extra, OutputSpec, Request, Sampling, Thinking, ToolChoice, ToolSpec
from ._gemini_parts import FAMILY, Block, camel, instruction_of, part_of, word
from ._gemini_tools import ANSWER_SCHEMA, SHOWS_HOSTED, choice_in, is_mixed, specs_of
from ._json import dumps, loads, members
from ._tool_schema import goes_out_as_it_is

_PLACE = re.compile(r".*?/?(?P<collection>\w+)/(?P<model>[^/:]+):(?P<streams>g|streamG)enerateContent")
_ROLES = {"user": "user", "function": "user", "tool": "user", "model": "model"}
_TAKEN = frozenset({"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
"""Fields our request has a place for; all others are extras."""
_JSON_TYPE = "application/json"


def read(request: HttpRequest) -> Request:
    model_id, streams = place_of(request.path)
    try:
        fields = {camel(name): value for name, value in members(request.body).items()}
        body = {name: loads(value) for name, value in fields.items()}
    except ValueError as error:
        raise refused("invalid", f"Invalid JSON payload received. {error}") from None
    body = {name: value for name, value in body.items() if value is not None}
    contents = body.get("contents", [])
    if isinstance(contents, dict):
        contents = [contents]
    if not isinstance(contents, list):
        raise refused("invalid", "Invalid value at 'contents': it is no list")
    line = _Line(model_id)
    for index, content in enumerate(contents):
        line.add(index, content)
    extras = {name: value for name, value in fields.items() if name in body and name not in _TAKEN}
    kept_as = body.get("cachedContent")
    if isinstance(kept_as, str):
        del extras["cachedContent"]
    config = _Config(body.get("generationConfig"), fields.get("generationConfig", b"{}"))
    tools = _tools(body.get("tools", []))
    choice = _choice(body.get("toolConfig"), tools, extras)
    request_read = Request(
        model=Model(id=model_id, endpoint=Endpoint(name=FAMILY, family=FAMILY)),
        system=_system(body.get("systemInstruction")),
        tools=tools,
        messages=tuple(line.messages),
        tool_choice=choice,
        max_tokens=config.whole("maxOutputTokens"),
        output=config.output(),
        thinking=config.thinking(),
        sampling=Sampling(
            temperature=config.number("temperature"),
            top_p=config.number("topP"),
            top_k=config.whole("topK"),
            stop_sequences=config.words("stopSequences"),
        ),
        kept_as=kept_as if isinstance(kept_as, str) else "",
        stream=streams,
    )
    if config.rest:
        extras["generationConfig"] = dumps(config.rest)
    return replace(
        request_read,
        extras=tuple(
            Extra(name=name, json=value.decode("utf-8", "replace")) for name, value in extras.items()
        ),
    )


def place_of(path: str) -> tuple[str, bool]:
    """The model a path names, and whether it asks for a stream."""
    found = _PLACE.fullmatch(path.partition("?")[0])
    if found is None:
        raise refused("not_found", f"Not found: {path} generates no content")
    name = unquote(found["model"])
    model = name if found["collection"] == "models" else f"{found['collection']}/{name}"
    return model, found["streams"] == "streamG"


def refused(kind: FailureKind, message: str) -> ProviderError:
    status, code = (404, "NOT_FOUND") if kind == "not_found" else (400, "INVALID_ARGUMENT")
    return ProviderError(Failure(kind=kind, message=message, status=status, code=code))


class _Waiting(NamedTuple):
    """A call that has no response yet."""

    wire_id: str
    name: str
    id: str


class _Line:
    """The messages read so far, and the calls that wait for a response."""

    def __init__(self, model_id: str) -> None:
        self.messages: list[Message] = []
        self._origin = Origin(family=FAMILY, endpoint=FAMILY, model=model_id)
        self._waiting: list[_Waiting] = []

    def add(self, index: int, content: object) -> None:
        if not isinstance(content, dict):
            raise refused("invalid", f"Invalid value at 'contents[{index}]': it is no object")
        role = _ROLES.get(word(content.get("role") or "user"))
        if role is None:
            raise refused("invalid", "Please use a valid role: user, model.")
        parts = content.get("parts") or []
        blocks = [parts] if isinstance(parts, dict) else parts
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise refused("invalid", f"Invalid value at 'contents[{index}].parts': it is no list of parts")
        said = [{camel(name): value for name, value in block.items()} for block in blocks]
        if role == "model":
            self._place("assistant", [self._numbered(part_of(block), at) for at, block in enumerate(said)])
            return
        results = [self._answer(block) for block in said if isinstance(block.get("functionResponse"), dict)]
        words = [part_of(block) for block in said if not isinstance(block.get("functionResponse"), dict)]
        if results:
            self._place("tool", results)
        if words or not results:
            self._place("user", words)

    def _place(self, role: Role, parts: Sequence[Part]) -> None:
        place = len(self.messages)
        parent = f"m{place}" if place else ""
        self.messages.append(
            Message(role=role, parts=tuple(parts), id=f"m{place + 1}", parent=parent, origin=self._origin)
        )

    def _numbered(self, part: Part, at: int) -> Part:
        if not isinstance(part, ToolCall):
            return part
        call = replace(part, id=f"c{len(self.messages) + 1}_{at}")
        self._waiting.append(_Waiting(call.wire_id, call.name, call.id))
        return call

    def _answer(self, block: Block) -> ToolResult:
        result = part_of(block)
        assert isinstance(result, ToolResult)
        name, wire_id = word(block["functionResponse"].get("name")), result.call_id
        call = self._called(wire_id, name)
        if call is None:
            return replace(result, call_id=wire_id or name or "unknown")
        self._waiting.remove(call)
        # What a response says otherwise than its call did is its own, and goes out again.
        own = {
            key: value
            for key, value in (("id", wire_id), ("name", name))
            if value != getattr(call, _HERE[key])
        }
        if own:
            native = loads(result.native) if result.native else {}
            native["functionResponse"] = {**native.get("functionResponse", {}), **own}
            result = replace(result, native=dumps(native).decode())
        return replace(result, call_id=call.id)

    def _called(self, wire_id: str, name: str) -> _Waiting | None:
        waiting = self._waiting
        by_id = (call for call in waiting if wire_id and call.wire_id == wire_id)
        by_name = (call for call in waiting if call.name == name and not (wire_id and call.wire_id))
        return next(by_id, None) or next(by_name, None) or next(iter(waiting), None)


_HERE = {"id": "wire_id", "name": "name"}
"""What a response calls by one name and a call that waits by another."""


class _Config:
    """What is asked of the generation; whatever is not taken from it remains in `rest`."""

    def __init__(self, config: object, written: bytes) -> None:
        given = config if isinstance(config, dict) else {}
        self.rest = {camel(name): value for name, value in given.items() if value is not None}
        self._written = {camel(name): value for name, value in members(written).items()} if given else {}

    def whole(self, name: str) -> int | None:
        value = self.rest.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        del self.rest[name]
        return value

    def number(self, name: str) -> float | None:
        value = self.rest.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        del self.rest[name]
        return float(value)

    def words(self, name: str) -> tuple[str, ...]:
        value = self.rest.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return ()
        del self.rest[name]
        return tuple(value)

    def output(self) -> OutputSpec | None:
        schema = self.rest.get("responseJsonSchema")
        if self.rest.get("responseMimeType") != _JSON_TYPE or not isinstance(schema, dict):
            return None
        written = self._written["responseJsonSchema"].decode()
        if not goes_out_as_it_is(written, ANSWER_SCHEMA):
            return None
        del self.rest["responseMimeType"], self.rest["responseJsonSchema"]
        return OutputSpec(name="output", parameters=written)

    def thinking(self) -> Thinking | None:
        config = self.rest.get("thinkingConfig")
        if not isinstance(config, dict):
            return None
        said = {camel(name): value for name, value in config.items() if value is not None}
        level, budget, shown = (said.pop(name, None) for name in _THINKING)
        both = level is not None and budget is not None
        if said or both or not isinstance(level, str | None) or not isinstance(budget, int | None):
            return None
        del self.rest["thinkingConfig"]
        display = {True: "summarized", False: "omitted"}.get(shown, "") if isinstance(shown, bool) else ""
        return Thinking(effort=level.lower() if level else "", budget_tokens=budget, display=display)


_THINKING = ("thinkingLevel", "thinkingBudget", "includeThoughts")


def _system(system: object) -> tuple[Text, ...]:
    if system is None:
        return ()
    if isinstance(system, str):
        return (Text(text=system),)
    parts = system.get("parts", []) if isinstance(system, dict) else None
    blocks = [parts] if isinstance(parts, dict) else parts
    if not isinstance(blocks, list):
        raise refused("invalid", "Invalid value at 'system_instruction': it has no parts")
    blocks = [block for block in blocks if isinstance(block, dict)]
    if not all(isinstance(part_of(block), Text | Opaque) for block in blocks):
        raise refused("invalid", "system_instruction: only text parts are allowed")
    return tuple(map(instruction_of, blocks))


def _tools(tools: object) -> tuple[ToolSpec, ...]:
    try:
        return specs_of([tools] if isinstance(tools, dict) else tools if isinstance(tools, list) else [None])
    except ValueError as error:
        raise refused("invalid", f"Invalid value at 'tools': {error}") from None


def _choice(config: object, tools: Sequence[ToolSpec], extras: dict[str, bytes]) -> ToolChoice:
    """The choice in a tool configuration; whatever else it says, or says otherwise, is an extra."""
    if not isinstance(config, dict):
        return ToolChoice()
    rest: dict[str, Any] = {camel(name): value for name, value in config.items() if value is not None}
    choice = choice_in(rest.get("functionCallingConfig", {}))
    if choice is not None:
        rest.pop("functionCallingConfig", None)
    if rest.get(SHOWS_HOSTED) is True and is_mixed(tools):
        del rest[SHOWS_HOSTED]
    if rest:
        extras["toolConfig"] = dumps(rest)
    return choice or ToolChoice()
