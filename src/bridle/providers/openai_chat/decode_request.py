"""Decodes requests of Chat Completions: the reverse of `encode`, for simulation and import.

Decoding is tolerant: content that Bridle's values do not model is kept as native members, opaque parts or
extras, so that the request can be encoded again with the same meaning. Only a body that is not a request at
all is refused, with the failure a server would give.

A first message with a system role is the instructions; every other message stays a message. Messages are
numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; results find their calls by id, repeated ids
in order, and a result without an id answers the first waiting call.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.ports.served_wire import ClientTool
from bridle.providers.openai.prompt_cache import KEY
from bridle.providers.schema.compiler import is_strict_ready
from bridle.providers.schema.tool_schema import is_sent_unchanged
from bridle.providers.wire.call_arguments import CUSTOM, FREE_TEXT_PARAMETERS, describe_free_text
from bridle.providers.wire.json import drop_nulls, dumps, loads, parse_number, split_object, text_or_empty
from bridle.providers.wire.request_reader import MessageReader, make_extras, rejection_maker
from bridle.values.message import (
    Media,
    Opaque,
    Outcome,
    Part,
    Role,
    Stop,
    Text,
    ToolCall,
    ToolResult,
)
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import OutputSpec, Request, Sampling, Thinking, ToolChoice, ToolSpec

from .calls import is_legacy_call
from .content import Block, decode_native, encode_native
from .dialect import FAMILY, OUTPUT_DIALECT, TOOL_DIALECT, ChatDialect
from .encode import ERROR_PREFIX, NO_OUTPUT_TEXT
from .parts import decode_content_parts, decode_parts, extra_members, is_refusal, keep_members

_PATH = re.compile(r".*?(?:/deployments/(?P<model>[^/]+))?/chat/completions")
_DEFAULT_DIALECT = ChatDialect()
_rejection = rejection_maker({"invalid": "invalid_request_error", "not_found": "invalid_request_error"})
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_OUTCOMES: dict[str, Outcome] = {
    "error": "error",
    "retry": "retry",
    "invalid": "invalid",
    "denied": "denied",
    "timeout": "timeout",
    "cancelled": "cancelled",
    "unknown": "unknown",
}
_KNOWN_FIELDS = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "temperature"}
    | {"max_completion_tokens", "top_p", "stop", "stream", "stream_options", "response_format"}
    | {"reasoning_effort"}
)
"""Fields that `Request` models; all others are extras."""


def decode_request(request: HttpRequest) -> Request:
    try:
        return _decode_body(request)
    except (ValueError, RecursionError) as error:
        raise _rejection("invalid", f"We could not parse the JSON body of your request: {error}") from None


def _decode_body(request: HttpRequest) -> Request:
    model_in_path = parse_path(request.path)
    raw = {name: value for name, value in split_object(request.body).items() if value != b"null"}
    body = {name: loads(value) for name, value in raw.items()}
    if not isinstance(body.get("messages"), list):
        raise _rejection("invalid", "Missing required parameter: 'messages'.")
    model_id = body.get("model", model_in_path)
    if not isinstance(model_id, str):
        raise _rejection("invalid", "Invalid type for 'model': expected a string.")
    line = _ChatMessageReader(model_id)
    for index, message in enumerate(body["messages"]):
        line.add_message(index, message)
    extras = {name: value for name, value in raw.items() if name not in _KNOWN_FIELDS}
    key = text_or_empty(loads(extras.pop(KEY))) if isinstance(body.get(KEY), str) else ""
    output = _decode_output(raw, body.get("response_format"), extras)
    choice = _decode_tool_choice(body, raw, extras)
    streams = body.get("stream") is True
    if streams and body.get("stream_options") != {"include_usage": True}:
        extras["stream_options"] = raw.get("stream_options", b"null")
    elif not streams and "stream_options" in raw:
        extras["stream_options"] = raw["stream_options"]
    return Request(
        model=Model(id=model_id, endpoint=Endpoint(name=FAMILY, family=FAMILY), abilities=Abilities()),
        system=line.system,
        tools=_decode_tools(body.get("tools", ())),
        messages=tuple(line.messages),
        tool_choice=choice,
        max_tokens=_decode_max_tokens(body, raw, extras),
        output=output,
        thinking=_decode_thinking(body.get("reasoning_effort"), raw, extras),
        sampling=_decode_sampling(body, raw, extras),
        cache_key=key,
        stream=streams,
        extras=make_extras(extras),
    )


def parse_path(path: str) -> str:
    """Return the model named in a path, if any."""
    found = _PATH.fullmatch(path.partition("?")[0].rstrip("/"))
    if found is None:
        raise _rejection("not_found", f"Invalid URL (POST {path})")
    return unquote(found["model"] or "")


class _ChatMessageReader(MessageReader):
    def __init__(self, model_id: str) -> None:
        super().__init__(FAMILY, model_id)
        self.system: tuple[Text, ...] = ()
        self._waiting: list[ToolCall] = []

    def add_message(self, index: int, message: object) -> None:
        if not isinstance(message, dict) or _ROLES.get(text_or_empty(message.get("role"))) is None:
            raise _rejection("invalid", f"Invalid value for 'messages[{index}].role'.")
        content = message.get("content")
        if not isinstance(content, str | list | None):
            raise _rejection("invalid", f"Invalid type for 'messages[{index}].content'.")
        role = _ROLES[message["role"]]
        stop = None
        if role == "assistant":
            parts, stop = self._decode_model_parts(message), Stop.REFUSED if is_refusal(message) else None
        elif role == "tool":
            parts = [self._decode_result(message)]
        else:
            parts = decode_content_parts(content, _DEFAULT_DIALECT)
            named = {"role": "developer"} if message["role"] == "developer" else {}
            parts = keep_members(parts, {**named, **extra_members(message, {"role", "content"})})
        texts = [part for part in parts if isinstance(part, Text)]
        if role == "system" and index == 0 and len(texts) == len(parts):
            self.system = tuple(texts)
        else:
            self.append_message(role, parts, stop)

    def _decode_model_parts(self, message: Block) -> list[Part]:
        parts = self.link_calls(decode_parts(message, _DEFAULT_DIALECT))
        self._waiting += [part for part in parts if isinstance(part, ToolCall)]
        return parts

    def _decode_result(self, message: Block) -> Part:
        named = text_or_empty(message.get("tool_call_id"))
        call = next((call for call in self._waiting if self._is_answered_by(call, message, named)), None)
        if call is not None:
            self._waiting.remove(call)
        outcome, parts = _decode_result_content(message.get("content"))
        taken = {"role", "content", "tool_call_id", *({"name"} if message["role"] == "function" else ())}
        call_id = call.id if call is not None else self.find_newest_call(named)
        result = ToolResult(call_id=call_id, parts=parts, outcome=outcome)
        return keep_members([result], extra_members(message, taken))[0]

    def _is_answered_by(self, call: ToolCall, message: Block, named: str) -> bool:
        if message["role"] == "function":
            return is_legacy_call(call) and call.name == message.get("name")
        return call.wire_id == named or not named


def _decode_result_content(content: object) -> tuple[Outcome, tuple[Text | Media | Opaque, ...]]:
    read = decode_content_parts(content, _DEFAULT_DIALECT)
    parts = [_mark_result_media(part) for part in read if isinstance(part, Text | Media | Opaque)]
    first = parts[0] if parts else None
    if len(parts) == 1 and isinstance(first, Text) and first.text == NO_OUTPUT_TEXT:
        return "ok", ()
    found = ERROR_PREFIX.match(first.text) if isinstance(first, Text) else None
    if found is None or not isinstance(first, Text):
        return "ok", tuple(parts)
    outcome = _OUTCOMES.get(found.group(1) or "error")
    if outcome is None:
        return "ok", tuple(parts)
    rest = Text(text=first.text[found.end() :], native=first.native)
    return outcome, (*((rest,) if rest.text else ()), *parts[1:])


def _mark_result_media(part: Text | Media | Opaque) -> Text | Media | Opaque:
    """Mark an image in a result so that it is sent back there, though most servers accept none."""
    if isinstance(part, Media):
        return replace(part, native=encode_native(**{**decode_native(part), "in": "result"}))
    return part


def _decode_tools(tools: object) -> tuple[ToolSpec, ...]:
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise _rejection("invalid", "Invalid type for 'tools': expected an array of objects.")
    return tuple(map(_decode_tool, tools))


def _decode_tool(tool: Block) -> ToolSpec:
    kept = drop_nulls(tool)
    inner = kept.get("function")
    function = drop_nulls(inner) if isinstance(inner, dict) else {}
    custom = kept.get("custom")
    told = custom if isinstance(custom, dict) and not function else function
    spec = ToolSpec(name=text_or_empty(told.get("name")), description=text_or_empty(told.get("description")))
    if isinstance(function.get("parameters"), dict):
        spec = replace(spec, parameters=dumps(function["parameters"]).decode())
        plain = kept.keys() == {"type", "function"} and kept["type"] == "function"
        plain = plain and function.keys() <= {"name", "description", "parameters"}
        if plain and is_sent_unchanged(spec.parameters, TOOL_DIALECT):
            return spec
    return replace(spec, native=dumps(kept).decode())


def _decode_tool_choice(body: Block, raw: dict[str, bytes], extras: dict[str, bytes]) -> ToolChoice:
    parallel = body.get("parallel_tool_calls") is not False
    match body.get("tool_choice"):
        case None | "auto":
            return ToolChoice(parallel=parallel)
        case "none":
            return ToolChoice(mode="none", parallel=parallel)
        case "required" | "any":  # the second is Mistral's word
            return ToolChoice(mode="any", parallel=parallel)
        case {"type": "function", "function": {"name": str(name), **more}, **rest} if not more and not rest:
            return ToolChoice(mode="tool", name=name, parallel=parallel)
        case {"type": "custom", "custom": {"name": str(name), **more}, **rest} if not more and not rest:
            if _is_custom_tool(body, name):
                return ToolChoice(mode="tool", name=name, parallel=parallel)
    extras["tool_choice"] = raw["tool_choice"]
    return ToolChoice(parallel=parallel)


def _is_custom_tool(body: Block, name: str) -> bool:
    tools: list[Block] = body.get("tools", [])
    kinds = [tool.get("type") for tool in tools if _decode_tool(tool).name == name]
    return kinds == ["custom"]


def _decode_output(raw: dict[str, bytes], wanted: object, extras: dict[str, bytes]) -> OutputSpec | None:
    if wanted is None:
        return None
    shape = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if (
        not isinstance(wanted, dict)
        or wanted.keys() != {"type", "json_schema"}
        or not isinstance(shape, dict)
        or not (shape := drop_nulls(shape)).keys() <= {"name", "schema", "strict", "description"}
        or not isinstance(shape.get("schema"), dict)
    ):
        extras["response_format"] = raw["response_format"]
        return None
    schema = split_object(split_object(raw["response_format"])["json_schema"])["schema"].decode()
    if not is_sent_unchanged(schema, OUTPUT_DIALECT):
        extras["response_format"] = raw["response_format"]
        return None
    strict = shape.get("strict") is True
    if strict is not is_strict_ready(schema):
        extras["response_format"] = dumps({"json_schema": {"strict": strict}})
    return OutputSpec(
        name=text_or_empty(shape.get("name")),
        parameters=schema,
        description=text_or_empty(shape.get("description")),
    )


def _decode_max_tokens(body: Block, raw: dict[str, bytes], extras: dict[str, bytes]) -> int | None:
    """Return the output limit, which has two names; if both are set, the newer one counts."""
    used = [name for name in ("max_completion_tokens", "max_tokens") if name in raw]
    limit = body[used[0]] if used else None
    if isinstance(limit, bool) or not isinstance(limit, int):
        limit = None
    extras.update((name, raw[name]) for name in (used if limit is None else used[1:]))
    return limit


def _decode_thinking(effort: object, raw: dict[str, bytes], extras: dict[str, bytes]) -> Thinking | None:
    if isinstance(effort, str) and effort:
        return Thinking(effort=effort)
    if effort is not None:
        extras["reasoning_effort"] = raw["reasoning_effort"]
    return None


def _decode_sampling(body: Block, raw: dict[str, bytes], extras: dict[str, bytes]) -> Sampling:
    stops: Any = body.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        extras["stop"], stops = raw["stop"], []
    chosen = {name: parse_number(body.get(name)) for name in ("temperature", "top_p")}
    extras.update((name, raw[name]) for name, value in chosen.items() if value is None and name in raw)
    return Sampling(
        temperature=chosen["temperature"],
        top_p=chosen["top_p"],
        stop_sequences=tuple(map(text_or_empty, stops)),
    )


CUSTOM_CALL = dumps({"call": {"type": CUSTOM}}).decode()


def list_client_tools(request: Request) -> Iterator[ClientTool]:
    for spec in (*request.tools, *request.deferred_tools):
        native: Block = loads(spec.native) if spec.native else {}
        if native.get("type") != CUSTOM:
            yield ClientTool(spec=spec)
            continue
        inner = native.get(CUSTOM)
        noted = describe_free_text(spec.description, inner.get("format") if isinstance(inner, dict) else None)
        function = replace(spec, description=noted, parameters=FREE_TEXT_PARAMETERS, native=None)
        yield ClientTool(spec=function, call_native=CUSTOM_CALL, definition=spec.native or "")
