"""Decodes Anthropic requests: the reverse of `encode`, for simulation and import.

Decoding is tolerant: content that Bridle's values do not model is kept as native members, opaque parts or
extras, so that the request can be encoded again with the same meaning. Only a body that is not a request at
all is refused, with the failure the provider would give.

A wire message with results and text becomes a tool message and a user message; encoding joins them again.
Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; results find their calls by the
provider's id, repeated ids in order.

The same body is also posted to other clouds' paths, which then contain the model and the delivery.
"""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers.schema.tool_schema import is_sent_unchanged
from bridle.providers.wire.json import (
    drop_nulls,
    dumps,
    is_object,
    loads,
    parse_integer,
    parse_number,
    split_object,
)
from bridle.providers.wire.request_reader import MessageReader, make_extras, rejection_maker
from bridle.values.message import Opaque, Role, Text
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import (
    Breakpoint,
    OutputSpec,
    Request,
    Sampling,
    Thinking,
    ToolChoice,
    ToolSpec,
)

from .encode import BREAKPOINT_BLOCKS, MESSAGE_FIELDS_KIND
from .header_fields import BETA_HEADER
from .native_summary import SUMMARIZE
from .parts import FAMILY, KNOWN_BLOCKS, OUTPUT_DIALECT, TOOL_DIALECT, Block, decode_instruction, decode_part

ABILITIES = Abilities(automatic_cache=True, cache_marks=4, system_messages=True, compaction=True)
"""A request reveals only the name of its model; everything it asks for is assumed to be supported."""

_MESSAGES_PATH = re.compile(r".*/messages")
_CLOUD_PATH = re.compile(
    r".*/model/(?P<invoked>[^/]+)/invoke(?P<streams>-with-response-stream)?"
    r"|.*/models/(?P<predicted>[^/:]+):(?P<streams_too>stream)?[rR]awPredict"
)
_rejection = rejection_maker({"invalid": "invalid_request_error", "not_found": "not_found_error"})
_CHOICES = frozenset({"auto", "any", "none", "tool"})
_CHOICE_MEMBERS = frozenset({"type", "name", "disable_parallel_tool_use"})
_READ_HEADERS = ("anthropic-version", BETA_HEADER)


def decode_request(request: HttpRequest) -> Request:
    model_in_path, streams = parse_path(request.path)
    try:
        raw = split_object(request.body)
        body = {name: loads(value) for name, value in raw.items()}
    except ValueError as error:
        raise _rejection("invalid", f"The request body is not valid JSON: {error}") from None
    body = drop_nulls(body)
    if not isinstance(body.get("messages"), list):
        raise _rejection("invalid", "messages: Field required")
    model_id = body.get("model", model_in_path)
    if not isinstance(model_id, str) or not model_id:
        raise _rejection("invalid", "model: Field required")
    line = _AnthropicMessageReader(FAMILY, model_id)
    for index, message in enumerate(body["messages"]):
        line.add_message(index, message)
    system, system_marks = _decode_system(body.get("system", ()))
    tools, deferred, tool_marks = _decode_tools(body.get("tools", ()))
    extras = {name: value for name, value in raw.items() if name in body and name not in _KNOWN_FIELDS}
    thinking, output = _decode_thinking(body, extras), _decode_output(raw, body, extras)
    compared_to = _decode_comparison(body.get("diagnostics"), extras)
    compacts, words = _decode_summary_request(body.get("compaction"), extras)
    choice = _decode_tool_choice(body.get("tool_choice"))
    if choice is None:
        extras["tool_choice"] = raw["tool_choice"]
    return Request(
        model=Model(id=model_id, endpoint=_endpoint_from_headers(request), abilities=ABILITIES),
        system=system,
        tools=tools,
        deferred_tools=deferred,
        messages=tuple(line.messages),
        tool_choice=choice or ToolChoice(),
        max_tokens=parse_integer(body.get("max_tokens")),
        output=output,
        thinking=thinking,
        sampling=_decode_sampling(body),
        breakpoints=(
            *tool_marks,
            *system_marks,
            *line.marks,
            *_decode_end_breakpoint(body.get("cache_control"), extras),
        ),
        compare_reply_id=compared_to,
        stream=body.get("stream") is True or streams,
        asks_native_summary=compacts,
        summary_instructions=words,
        extras=make_extras(extras),
    )


_KNOWN_FIELDS = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "max_tokens", "thinking", "output_config"}
    | {"cache_control", "stream", "temperature", "top_p", "top_k", "stop_sequences"}
)
"""Fields that `Request` models; all others are extras."""


def _decode_comparison(diagnostics: object, extras: dict[str, bytes]) -> str:
    match diagnostics:
        case {"previous_message_id": str(earlier), **rest} if not rest and earlier:
            del extras["diagnostics"]
            return earlier
    return ""


def parse_path(path: str) -> tuple[str, bool]:
    """Return the model named in a path, if any, and True if the path requests a stream."""
    path = path.partition("?")[0].rstrip("/")
    if _MESSAGES_PATH.fullmatch(path):
        return "", False
    if found := _CLOUD_PATH.fullmatch(path):
        return unquote(found["invoked"] or found["predicted"]), bool(found["streams"] or found["streams_too"])
    raise _rejection("not_found", f"Not found: {path} takes no messages")


class _AnthropicMessageReader(MessageReader):
    def add_message(self, index: int, message: object) -> None:
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise _rejection(
                "invalid", f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'"
            )
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise _rejection("invalid", f"messages.{index}.content: Input should be a valid list")
        beside = drop_nulls({**message, "role": None, "content": None})
        role: Role = message["role"]
        # Results come first, as in encoded requests: text before them would leave their calls unanswered.
        blocks = sorted(blocks, key=lambda block: not _is_result(block)) if role == "user" else blocks
        groups = [(holds_results, list(group)) for holds_results, group in groupby(blocks, _is_result)]
        for holds_results, group in groups or [(False, [])]:
            fields = [Opaque(kind=MESSAGE_FIELDS_KIND, native=dumps(beside).decode())] if beside else []
            bare, ttl = _split_breakpoint(group)
            if ttl is not None:
                self.marks.append(Breakpoint(position="message", message=len(self.messages), ttl=ttl))
            kind: Role = "tool" if holds_results and role == "user" else role
            self.append_message(kind, (*fields, *self.link_calls(map(decode_part, bare))))


def _is_result(block: Block) -> bool:
    return _block_type(block) == "tool_result"


def _block_type(block: Block) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _split_breakpoint(blocks: list[Block]) -> tuple[list[Block], Any]:
    """Remove the breakpoint on the last block that can carry one; return the blocks and its TTL."""
    for place in range(len(blocks) - 1, -1, -1):
        if _block_type(blocks[place]) in BREAKPOINT_BLOCKS and not isinstance(
            decode_part(blocks[place]), Opaque
        ):
            ttl = _breakpoint_ttl(blocks[place].get("cache_control"))
            if ttl is None:
                break
            bare = {name: value for name, value in blocks[place].items() if name != "cache_control"}
            return [*blocks[:place], bare, *blocks[place + 1 :]], ttl
    return blocks, None


def _breakpoint_ttl(control: object) -> Any:
    if isinstance(control, dict) and control.get("type") == "ephemeral" and control.keys() <= {"type", "ttl"}:
        ttl = control.get("ttl") or "5m"
        return ttl if ttl in ("5m", "1h") else None
    return None


def _decode_end_breakpoint(control: object, extras: dict[str, bytes]) -> Iterable[Breakpoint]:
    if control is not None and (ttl := _breakpoint_ttl(control)) is not None:
        yield Breakpoint(position="end", ttl=ttl)
    elif control is not None:
        extras["cache_control"] = dumps(control)


def _decode_system(system: object) -> tuple[tuple[Text, ...], list[Breakpoint]]:
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    if not isinstance(blocks, list | tuple) or not all(isinstance(block, dict) for block in blocks):
        raise _rejection("invalid", "system: Input should be a valid string or list")
    if any(_block_type(block) in KNOWN_BLOCKS - {"text"} for block in blocks):
        raise _rejection("invalid", "system: only text blocks are allowed")
    worded = all(isinstance(decode_part(block), Text) for block in blocks)
    bare, ttl = _split_breakpoint(list(blocks)) if worded else (list(blocks), None)
    marks = [Breakpoint(position="system", ttl=ttl)] if ttl is not None else []
    for at in range(len(bare) - 2, -1, -1) if worded else ():
        if bare[at].get("text") and (ttl := _breakpoint_ttl(bare[at].get("cache_control"))) is not None:
            marks.insert(0, Breakpoint(position="system", block=at, ttl=ttl))
            bare[at] = {name: value for name, value in bare[at].items() if name != "cache_control"}
    return tuple(map(decode_instruction, bare)), marks


def _decode_tools(tools: object) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...], list[Breakpoint]]:
    """Return the tools in the prompt, the deferred tools at the end, and the breakpoints."""
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise _rejection("invalid", "tools: Input should be a valid list")
    bare = list(tools)
    marks = []
    for place in range(len(bare) - 1, -1, -1):
        if not bare[place].get("defer_loading"):
            if (ttl := _breakpoint_ttl(bare[place].get("cache_control"))) is not None:
                marks.append(Breakpoint(position="tools", ttl=ttl))
                bare[place] = {name: value for name, value in bare[place].items() if name != "cache_control"}
            break
    inside = len(bare)
    while inside > 1 and bare[inside - 1].keys() - {"description"} == _DEFERRED_MEMBERS:
        inside -= 1
    later = ({name: item for name, item in tool.items() if name != "defer_loading"} for tool in bare[inside:])
    return tuple(map(_decode_tool, bare[:inside])), tuple(map(_decode_tool, later)), marks


_DEFERRED_MEMBERS = {"name", "input_schema", "defer_loading"}


def _decode_tool(tool: Block) -> ToolSpec:
    said = drop_nulls(tool)
    custom = said.get("type", "custom") == "custom" and isinstance(said.get("input_schema"), dict)
    name, description = said.get("name"), said.get("description")
    spec = ToolSpec(
        name=name if isinstance(name, str) else "",
        description=description if isinstance(description, str) else "",
    )
    if custom:
        spec = replace(spec, parameters=dumps(said["input_schema"]).decode())
    plain = said.keys() <= {"type", "name", "description", "input_schema"}
    if not custom or not plain or not is_sent_unchanged(spec.parameters, TOOL_DIALECT):
        spec = replace(spec, native=dumps(said).decode())
    return spec


def _decode_tool_choice(choice: object) -> ToolChoice | None:
    if choice is None:
        return ToolChoice()
    if not isinstance(choice, dict) or _block_type(choice) not in _CHOICES:
        return None
    if {name for name, value in choice.items() if value is not None} - _CHOICE_MEMBERS:
        return None
    name = choice.get("name")
    return ToolChoice(
        mode=choice["type"],
        name=name if isinstance(name, str) else "",
        parallel=choice.get("disable_parallel_tool_use") is not True,
    )


def _decode_summary_request(wanted: object, extras: dict[str, bytes]) -> tuple[bool, str]:
    """Return if a summary is requested, and its instructions; other members stay an extra."""
    if not isinstance(wanted, dict) or wanted.get("type") != SUMMARIZE["type"]:
        return False, ""
    told = wanted.get("instructions")
    words = told.strip() if isinstance(told, str) else ""
    rest = {
        name: value
        for name, value in wanted.items()
        if name != "type" and value is not None and not (name == "instructions" and isinstance(told, str))
    }
    extras.pop("compaction", None)
    if rest:
        extras["compaction"] = dumps(rest)
    return True, words


def _decode_thinking(body: dict[str, Any], extras: dict[str, bytes]) -> Thinking | None:
    thinking = body.get("thinking")
    effort = body["output_config"].get("effort") if isinstance(body.get("output_config"), dict) else None
    effort = effort if isinstance(effort, str) else ""
    if not isinstance(thinking, dict):
        return Thinking(effort=effort) if effort else None
    rest = {
        name: value
        for name, value in thinking.items()
        if name not in ("type", "budget_tokens", "display") and value is not None
    }
    if rest:
        extras["thinking"] = dumps(rest)
    mode, display = thinking.get("type"), thinking.get("display")
    return Thinking(
        mode=mode if isinstance(mode, str) else "",
        effort=effort,
        budget_tokens=parse_integer(thinking.get("budget_tokens")),
        display=display if isinstance(display, str) else "",
    )


def _decode_output(
    raw: dict[str, bytes], body: dict[str, Any], extras: dict[str, bytes]
) -> OutputSpec | None:
    config = body.get("output_config")
    if not isinstance(config, dict):
        return None
    rest = {name: value for name, value in config.items() if name != "effort" and value is not None}
    wanted, output = rest.get("format"), None
    if isinstance(wanted, dict) and wanted.keys() == {"type", "schema"} and wanted["type"] == "json_schema":
        schema = split_object(split_object(raw["output_config"])["format"])["schema"].decode()
        if is_object(schema) and is_sent_unchanged(schema, OUTPUT_DIALECT):
            output = OutputSpec(name="output", parameters=schema)
            del rest["format"]
    if rest:
        extras["output_config"] = dumps(rest)
    return output


def _decode_sampling(body: dict[str, Any]) -> Sampling:
    stops = body.get("stop_sequences")
    return Sampling(
        temperature=parse_number(body.get("temperature")),
        top_p=parse_number(body.get("top_p")),
        top_k=parse_integer(body.get("top_k")),
        stop_sequences=tuple(map(str, stops)) if isinstance(stops, list) else (),
    )


def _endpoint_from_headers(request: HttpRequest) -> Endpoint:
    named = {name.lower(): value for name, value in request.headers}
    headers = tuple((name, named[name]) for name in _READ_HEADERS if name in named)
    return Endpoint(name=FAMILY, family=FAMILY, headers=headers)
