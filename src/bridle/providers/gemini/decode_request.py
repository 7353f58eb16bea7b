"""Decodes Gemini requests: the reverse of `encode`, for simulation and import.

Decoding is tolerant: names may have either spelling, one object may replace a list of one, and content that
Bridle's values do not model is kept as native members, opaque parts or extras, so that the request can be
encoded again with the same meaning. Only a body that is not a request at all is refused, with the failure the
provider would give.

A content with responses and text becomes a tool message and a user message; encoding joins them again.
Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; a response finds its call in the
contents before it by id, then by name, then by position.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers.schema.tool_schema import is_sent_unchanged
from bridle.providers.wire.json import (
    drop_nulls,
    dumps,
    loads,
    parse_integer,
    parse_number,
    split_object,
    text_or_empty,
)
from bridle.providers.wire.request_reader import MessageReader, make_extras, rejection_maker
from bridle.values.message import Opaque, Part, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.request import OutputSpec, Request, Sampling, Thinking, ToolChoice, ToolSpec

from .parts import FAMILY, Block, decode_instruction, decode_part, to_camel_case
from .tools import INCLUDE_HOSTED_CALLS, OUTPUT_DIALECT, decode_tool_choice, decode_tools, has_both_tool_kinds

_PATH = re.compile(
    r"(?!.*models/.*models/).*?/?(?P<collection>\w+)/(?P<model>[^/:]+):(?P<streams>g|streamG)enerateContent"
)
make_rejection = rejection_maker({"invalid": "INVALID_ARGUMENT", "not_found": "NOT_FOUND"})
_ROLES = {"user": "user", "function": "user", "tool": "user", "model": "model"}
_KNOWN_FIELDS = frozenset(
    {"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
)
"""Fields that `Request` models; all others are extras."""
PLAIN_JSON_TYPE = "application/json"


def decode_request(request: HttpRequest) -> Request:
    model_id, streams = parse_path(request.path)
    try:
        fields = {to_camel_case(name): value for name, value in split_object(request.body).items()}
        body = {name: loads(value) for name, value in fields.items()}
    except ValueError as error:
        raise make_rejection("invalid", f"Invalid JSON payload received. {error}") from None
    body = drop_nulls(body)
    contents = body.get("contents", [])
    if isinstance(contents, dict):
        contents = [contents]
    if not isinstance(contents, list):
        raise make_rejection("invalid", "Invalid value at 'contents': it is not a list")
    line = _GeminiContentReader(model_id)
    for index, content in enumerate(contents):
        line.add_content(index, content)
    extras = {name: value for name, value in fields.items() if name in body and name not in _KNOWN_FIELDS}
    kept_as = body.get("cachedContent")
    if isinstance(kept_as, str):
        del extras["cachedContent"]
    config = _GenerationConfigReader(body.get("generationConfig"), fields.get("generationConfig", b"{}"))
    tools = _decode_tools(body.get("tools", []))
    choice = _decode_tool_choice(body.get("toolConfig"), tools, extras)
    request_read = Request(
        model=Model(id=model_id, endpoint=Endpoint(name=FAMILY, family=FAMILY)),
        system=_decode_system(body.get("systemInstruction")),
        tools=tools,
        messages=tuple(line.messages),
        tool_choice=choice,
        max_tokens=config.take_integer("maxOutputTokens"),
        output=config.take_output(),
        thinking=config.take_thinking(),
        sampling=Sampling(
            temperature=config.take_number("temperature"),
            top_p=config.take_number("topP"),
            top_k=config.take_integer("topK"),
            stop_sequences=config.take_strings("stopSequences"),
        ),
        stored_prompt=kept_as if isinstance(kept_as, str) else "",
        stream=streams,
    )
    if config.rest:
        extras["generationConfig"] = dumps(config.rest)
    return replace(
        request_read,
        extras=make_extras(extras),
    )


def parse_path(path: str) -> tuple[str, bool]:
    """Return the model named in a path, and True if the path requests a stream."""
    found = _PATH.fullmatch(path.partition("?")[0])
    if found is None:
        raise make_rejection("not_found", f"Not found: {path} generates no content")
    name = unquote(found["model"])
    model = name if found["collection"] == "models" else f"{found['collection']}/{name}"
    return model, found["streams"] == "streamG"


class _WaitingCall(NamedTuple):
    """A call without a response so far."""

    wire_id: str
    name: str
    id: str


class _GeminiContentReader(MessageReader):
    def __init__(self, model_id: str) -> None:
        super().__init__(FAMILY, model_id)
        self._waiting: list[_WaitingCall] = []

    def add_content(self, index: int, content: object) -> None:
        if not isinstance(content, dict):
            raise make_rejection("invalid", f"Invalid value at 'contents[{index}]': it is not an object")
        role = _ROLES.get(text_or_empty(content.get("role") or "user"))
        if role is None:
            raise make_rejection("invalid", "Please use a valid role: user, model.")
        parts = content.get("parts") or []
        blocks = [parts] if isinstance(parts, dict) else parts
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise make_rejection(
                "invalid", f"Invalid value at 'contents[{index}].parts': it is not a list of parts"
            )
        said = [{to_camel_case(name): value for name, value in block.items()} for block in blocks]
        if role == "model":
            self.append_message(
                "assistant", [self._register_call(decode_part(block), at) for at, block in enumerate(said)]
            )
            return
        results = [
            self._decode_result(block) for block in said if isinstance(block.get("functionResponse"), dict)
        ]
        words = [
            self._register_call(decode_part(block), at)
            for at, block in enumerate(said)
            if not isinstance(block.get("functionResponse"), dict)
        ]
        if results:
            self.append_message("tool", results)
        if words or not results:
            self.append_message("user", words)

    def _register_call(self, part: Part, at: int) -> Part:
        if not isinstance(part, ToolCall):
            return part
        call = replace(part, id=f"c{len(self.messages) + 1}_{at}")
        self._waiting.append(_WaitingCall(call.wire_id, call.name, call.id))
        return call

    def _decode_result(self, block: Block) -> ToolResult:
        result = decode_part(block)
        assert isinstance(result, ToolResult)
        name, wire_id = text_or_empty(block["functionResponse"].get("name")), result.call_id
        call = self._find_call(wire_id, name)
        if call is None:
            return replace(result, call_id=wire_id or name or "unknown")
        self._waiting.remove(call)
        # An id or name that differs from the call's is stored with the result and sent back.
        own = {
            key: value
            for key, value in (("id", wire_id), ("name", name))
            if value != getattr(call, _CALL_FIELDS[key])
        }
        if own:
            native = loads(result.native) if result.native else {}
            native["functionResponse"] = {**native.get("functionResponse", {}), **own}
            result = replace(result, native=dumps(native).decode())
        return replace(result, call_id=call.id)

    def _find_call(self, wire_id: str, name: str) -> _WaitingCall | None:
        waiting = self._waiting
        by_id = (call for call in waiting if wire_id and call.wire_id == wire_id)
        by_name = (call for call in waiting if call.name == name and not (wire_id and call.wire_id))
        return next(by_id, None) or next(by_name, None) or next(iter(waiting), None)


_CALL_FIELDS = {"id": "wire_id", "name": "name"}
"""Field of a waiting call for each member of a response."""


class _GenerationConfigReader:
    """Reads the generation config; members that are not taken remain in `rest`."""

    def __init__(self, config: object, written: bytes) -> None:
        given = config if isinstance(config, dict) else {}
        self.rest = {to_camel_case(name): value for name, value in given.items() if value is not None}
        self._written = (
            {to_camel_case(name): value for name, value in split_object(written).items()} if given else {}
        )

    def take_integer(self, name: str) -> int | None:
        value = parse_integer(self.rest.get(name))
        if value is not None:
            del self.rest[name]
        return value

    def take_number(self, name: str) -> float | None:
        value = parse_number(self.rest.get(name))
        if value is not None:
            del self.rest[name]
        return value

    def take_strings(self, name: str) -> tuple[str, ...]:
        value = self.rest.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return ()
        del self.rest[name]
        return tuple(value)

    def take_output(self) -> OutputSpec | None:
        schema = self.rest.get("responseJsonSchema")
        if self.rest.get("responseMimeType") != PLAIN_JSON_TYPE or not isinstance(schema, dict):
            return None
        written = self._written["responseJsonSchema"].decode()
        if not is_sent_unchanged(written, OUTPUT_DIALECT):
            return None
        del self.rest["responseMimeType"], self.rest["responseJsonSchema"]
        return OutputSpec(name="output", parameters=written)

    def take_thinking(self) -> Thinking | None:
        config = self.rest.get("thinkingConfig")
        if not isinstance(config, dict):
            return None
        said = {to_camel_case(name): value for name, value in config.items() if value is not None}
        level, budget, shown = (said.pop(name, None) for name in _THINKING_FIELDS)
        if level == UNSPECIFIED_LEVEL:
            level = None
        both = level is not None and budget is not None
        if said or both or not isinstance(level, str | None) or not isinstance(budget, int | None):
            return None
        del self.rest["thinkingConfig"]
        display = {True: "summarized", False: "omitted"}.get(shown, "") if isinstance(shown, bool) else ""
        return Thinking(effort=level.lower() if level else "", budget_tokens=budget, display=display)


UNSPECIFIED_LEVEL = "THINKING_LEVEL_UNSPECIFIED"
_THINKING_FIELDS = ("thinkingLevel", "thinkingBudget", "includeThoughts")


def _decode_system(system: object) -> tuple[Text, ...]:
    if system is None:
        return ()
    if isinstance(system, str):
        return (Text(text=system),)
    parts = system.get("parts", []) if isinstance(system, dict) else None
    blocks = [parts] if isinstance(parts, dict) else parts
    if not isinstance(blocks, list):
        raise make_rejection("invalid", "Invalid value at 'system_instruction': it has no parts")
    blocks = [block for block in blocks if isinstance(block, dict)]
    if not all(isinstance(decode_part(block), Text | Opaque) for block in blocks):
        raise make_rejection("invalid", "system_instruction: only text parts are allowed")
    return tuple(map(decode_instruction, blocks))


def _decode_tools(tools: object) -> tuple[ToolSpec, ...]:
    try:
        return decode_tools(
            [tools] if isinstance(tools, dict) else tools if isinstance(tools, list) else [None]
        )
    except ValueError as error:
        raise make_rejection("invalid", f"Invalid value at 'tools': {error}") from None


def _decode_tool_choice(config: object, tools: Sequence[ToolSpec], extras: dict[str, bytes]) -> ToolChoice:
    """Decode the tool choice of a tool configuration; all other members become an extra."""
    if not isinstance(config, dict):
        return ToolChoice()
    rest: dict[str, Any] = {to_camel_case(name): value for name, value in config.items() if value is not None}
    choice = decode_tool_choice(rest.get("functionCallingConfig", {}))
    if choice is not None:
        rest.pop("functionCallingConfig", None)
    if rest.get(INCLUDE_HOSTED_CALLS) is True and has_both_tool_kinds(tools):
        del rest[INCLUDE_HOSTED_CALLS]
    if rest:
        extras["toolConfig"] = dumps(rest)
    return choice or ToolChoice()
