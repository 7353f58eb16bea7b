"""Requests as Anthropic understands them: the other end of `encode`, for simulating and importing.

Reading is tolerant: what our values have no place for is kept as native members, opaque parts or
extras, so that the request can be written again and still mean the same.  Only what is not a request
at all is refused, with the failure the provider would give.

A wire message that holds results and words becomes a tool message and a user message; writing joins
them again.  Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; results
find their calls by the provider's id, repeated ids in order.

The same body is also posted under other clouds' paths, which then name the model and the stream.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from ..ports.codec import HttpRequest
from ..values.errors import Failure, FailureKind, ProviderError
from ..values.message import Message, Role
from ..values.model import Abilities, Endpoint, Model, Origin
from ..values.parts import Opaque, Part, Text, ToolCall, ToolResult
from ..values.request import (
    Extra,
    Mark,
    OutputSpec,
    Request,
    Sampling,
    Thinking,
    ToolChoice,
    ToolSpec,
)
from ._anthropic_blocks import ANSWER_SCHEMA, FAMILY, KINDS, SCHEMA, Block, instruction_of, part_of
from ._anthropic_summary import BETA_HEADER, COMPACTS
from ._anthropic_write import MARKABLE, MESSAGE_FIELDS
from ._json import dumps, is_object, loads, members, whole
from ._tool_schema import goes_out_as_it_is

ABILITIES = Abilities(automatic_cache=True, cache_marks=4, system_messages=True, compaction=True)
"""A request tells nothing of its model but the name; what it asks for is taken to be allowed."""

_MESSAGES_PATH = re.compile(r".*/messages")
_ELSEWHERE = re.compile(
    r".*/model/(?P<invoked>[^/]+)/invoke(?P<streams>-with-response-stream)?"
    r"|.*/models/(?P<predicted>[^/:]+):(?P<streams_too>stream)?[rR]awPredict"
)
_CHOICES = frozenset({"auto", "any", "none", "tool"})
_CHOICE_MEMBERS = frozenset({"type", "name", "disable_parallel_tool_use"})
_HEADERS = ("anthropic-version", BETA_HEADER)


def read(request: HttpRequest) -> Request:
    model_in_path, streams = place_of(request.path)
    try:
        raw = members(request.body)
        body = {name: loads(value) for name, value in raw.items()}
    except ValueError as error:
        raise _refused("invalid", f"The request body is not valid JSON: {error}") from None
    body = {name: value for name, value in body.items() if value is not None}
    if not isinstance(body.get("messages"), list):
        raise _refused("invalid", "messages: Field required")
    model_id = body.get("model", model_in_path)
    if not isinstance(model_id, str) or not model_id:
        raise _refused("invalid", "model: Field required")
    line = _Line(model_id)
    for index, message in enumerate(body["messages"]):
        line.add(index, message)
    system, system_marks = _system(body.get("system", ()))
    tools, deferred, tool_marks = _tools(body.get("tools", ()))
    extras = {name: value for name, value in raw.items() if name in body and name not in _TAKEN}
    thinking, output = _thinking(body, extras), _output(raw, body, extras)
    compared_to = _compared_to(body.get("diagnostics"), extras)
    compacts, words = _compacts(body.get("compaction"), extras)
    choice = _tool_choice(body.get("tool_choice"))
    if choice is None:
        extras["tool_choice"] = raw["tool_choice"]
    return Request(
        model=Model(id=model_id, endpoint=_endpoint(request), abilities=ABILITIES),
        system=system,
        tools=tools,
        deferred=deferred,
        messages=tuple(line.messages),
        tool_choice=choice or ToolChoice(),
        max_tokens=whole(body.get("max_tokens")),
        output=output,
        thinking=thinking,
        sampling=_sampling(body),
        marks=(*tool_marks, *system_marks, *line.marks, *_end_mark(body.get("cache_control"), extras)),
        compared_to=compared_to,
        stream=body.get("stream") is True or streams,
        compacts=compacts,
        summary_words=words,
        extras=tuple(
            Extra(name=name, json=value.decode("utf-8", "replace")) for name, value in extras.items()
        ),
    )


_TAKEN = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "max_tokens", "thinking", "output_config"}
    | {"cache_control", "stream", "temperature", "top_p", "top_k", "stop_sequences"}
)
"""Fields our request has a place for; all others are extras."""


def _compared_to(diagnostics: object, extras: dict[str, bytes]) -> str:
    match diagnostics:
        case {"previous_message_id": str(earlier), **rest} if not rest and earlier:
            del extras["diagnostics"]
            return earlier
    return ""


def place_of(path: str) -> tuple[str, bool]:
    """The model a path names, if it does, and whether it asks for a stream."""
    path = path.partition("?")[0].rstrip("/")
    if _MESSAGES_PATH.fullmatch(path):
        return "", False
    if found := _ELSEWHERE.fullmatch(path):
        return unquote(found["invoked"] or found["predicted"]), bool(found["streams"] or found["streams_too"])
    raise _refused("not_found", f"Not found: {path} takes no messages")


class _Line:
    """The messages read so far, and the calls that wait for a result."""

    def __init__(self, model_id: str) -> None:
        self.messages: list[Message] = []
        self.marks: list[Mark] = []
        self._origin = Origin(family=FAMILY, endpoint=FAMILY, model=model_id)
        self._waiting: dict[str, deque[str]] = defaultdict(deque)
        self._known: dict[str, str] = {}

    def add(self, index: int, message: object) -> None:
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise _refused(
                "invalid", f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'"
            )
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise _refused("invalid", f"messages.{index}.content: Input should be a valid list")
        beside = {
            name: value
            for name, value in message.items()
            if name not in ("role", "content") and value is not None
        }
        role: Role = message["role"]
        # Results come first, as they are written: words before them would leave their calls unanswered.
        blocks = sorted(blocks, key=lambda block: not _is_result(block)) if role == "user" else blocks
        groups = [(holds_results, list(group)) for holds_results, group in groupby(blocks, _is_result)]
        for holds_results, group in groups or [(False, [])]:
            fields = [Opaque(kind=MESSAGE_FIELDS, native=dumps(beside).decode())] if beside else []
            self._place("tool" if holds_results and role == "user" else role, group, fields)

    def _place(self, role: Role, blocks: list[Block], fields: Sequence[Part]) -> None:
        place, number = len(self.messages), len(self.messages) + 1
        blocks, ttl = _unmarked(blocks)
        if ttl is not None:
            self.marks.append(Mark(place="message", message=place, ttl=ttl))
        parts: list[Part] = []
        calls = 0
        for block in blocks:
            part = part_of(block)
            if isinstance(part, ToolCall):
                part = replace(part, id=f"c{number}_{calls}")
                calls += 1
                self._waiting[part.wire_id].append(part.id)
                self._known[part.wire_id] = part.id
            elif isinstance(part, ToolResult):
                waiting = self._waiting[part.call_id]
                answered = waiting.popleft() if waiting else self._known.get(part.call_id, part.call_id)
                part = replace(part, call_id=answered)
            parts.append(part)
        self.messages.append(
            Message(
                role=role,
                parts=(*fields, *parts),
                id=f"m{number}",
                parent=f"m{place}" if place else "",
                origin=self._origin,
            )
        )


def _is_result(block: Block) -> bool:
    return _kind(block) == "tool_result"


def _kind(block: Block) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _unmarked(blocks: list[Block]) -> tuple[list[Block], Any]:
    """The blocks without the mark on the last one that can carry it, and how long that mark lasts."""
    for place in range(len(blocks) - 1, -1, -1):
        if _kind(blocks[place]) in MARKABLE and not isinstance(part_of(blocks[place]), Opaque):
            ttl = _ttl(blocks[place].get("cache_control"))
            if ttl is None:
                break
            bare = {name: value for name, value in blocks[place].items() if name != "cache_control"}
            return [*blocks[:place], bare, *blocks[place + 1 :]], ttl
    return blocks, None


def _ttl(control: object) -> Any:
    if isinstance(control, dict) and control.get("type") == "ephemeral" and control.keys() <= {"type", "ttl"}:
        ttl = control.get("ttl") or "5m"
        return ttl if ttl in ("5m", "1h") else None
    return None


def _end_mark(control: object, extras: dict[str, bytes]) -> Iterable[Mark]:
    if control is not None and (ttl := _ttl(control)) is not None:
        yield Mark(place="end", ttl=ttl)
    elif control is not None:
        extras["cache_control"] = dumps(control)


def _system(system: object) -> tuple[tuple[Text, ...], list[Mark]]:
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    if not isinstance(blocks, list | tuple) or not all(isinstance(block, dict) for block in blocks):
        raise _refused("invalid", "system: Input should be a valid string or list")
    if any(_kind(block) in KINDS - {"text"} for block in blocks):
        raise _refused("invalid", "system: only text blocks are allowed")
    worded = all(isinstance(part_of(block), Text) for block in blocks)
    bare, ttl = _unmarked(list(blocks)) if worded else (list(blocks), None)
    marks = [Mark(place="system", ttl=ttl)] if ttl is not None else []
    for at in range(len(bare) - 2, -1, -1) if worded else ():
        if bare[at].get("text") and (ttl := _ttl(bare[at].get("cache_control"))) is not None:
            marks.insert(0, Mark(place="system", block=at, ttl=ttl))
            bare[at] = {name: value for name, value in bare[at].items() if name != "cache_control"}
    return tuple(map(instruction_of, bare)), marks


def _tools(tools: object) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...], list[Mark]]:
    """Those in the prompt, those at the end that are kept out of it, and the marks."""
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise _refused("invalid", "tools: Input should be a valid list")
    bare = list(tools)
    marks = []
    for place in range(len(bare) - 1, -1, -1):
        if not bare[place].get("defer_loading"):
            if (ttl := _ttl(bare[place].get("cache_control"))) is not None:
                marks.append(Mark(place="tools", ttl=ttl))
                bare[place] = {name: value for name, value in bare[place].items() if name != "cache_control"}
            break
    inside = len(bare)
    while inside > 1 and bare[inside - 1].keys() - {"description"} == _DEFERRED:
        inside -= 1
    later = ({name: item for name, item in tool.items() if name != "defer_loading"} for tool in bare[inside:])
    return tuple(map(_tool, bare[:inside])), tuple(map(_tool, later)), marks


_DEFERRED = {"name", "input_schema", "defer_loading"}


def _tool(tool: Block) -> ToolSpec:
    said = {name: value for name, value in tool.items() if value is not None}
    custom = said.get("type", "custom") == "custom" and isinstance(said.get("input_schema"), dict)
    name, description = said.get("name"), said.get("description")
    spec = ToolSpec(
        name=name if isinstance(name, str) else "",
        description=description if isinstance(description, str) else "",
    )
    if custom:
        spec = replace(spec, parameters=dumps(said["input_schema"]).decode())
    plain = said.keys() <= {"type", "name", "description", "input_schema"}
    if not custom or not plain or not goes_out_as_it_is(spec.parameters, SCHEMA):
        spec = replace(spec, native=dumps(said).decode())
    return spec


def _tool_choice(choice: object) -> ToolChoice | None:
    if choice is None:
        return ToolChoice()
    if not isinstance(choice, dict) or _kind(choice) not in _CHOICES:
        return None
    if {name for name, value in choice.items() if value is not None} - _CHOICE_MEMBERS:
        return None
    name = choice.get("name")
    return ToolChoice(
        mode=choice["type"],
        name=name if isinstance(name, str) else "",
        parallel=choice.get("disable_parallel_tool_use") is not True,
    )


def _compacts(wanted: object, extras: dict[str, bytes]) -> tuple[bool, str]:
    """Whether a summary is asked for, and in which words; what else is said about it stays an extra."""
    if not isinstance(wanted, dict) or wanted.get("type") != COMPACTS["type"]:
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


def _thinking(body: dict[str, Any], extras: dict[str, bytes]) -> Thinking | None:
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
        budget_tokens=whole(thinking.get("budget_tokens")),
        display=display if isinstance(display, str) else "",
    )


def _output(raw: dict[str, bytes], body: dict[str, Any], extras: dict[str, bytes]) -> OutputSpec | None:
    config = body.get("output_config")
    if not isinstance(config, dict):
        return None
    rest = {name: value for name, value in config.items() if name != "effort" and value is not None}
    wanted, output = rest.get("format"), None
    if isinstance(wanted, dict) and wanted.keys() == {"type", "schema"} and wanted["type"] == "json_schema":
        schema = members(members(raw["output_config"])["format"])["schema"].decode()
        if is_object(schema) and goes_out_as_it_is(schema, ANSWER_SCHEMA):
            output = OutputSpec(name="output", parameters=schema)
            del rest["format"]
    if rest:
        extras["output_config"] = dumps(rest)
    return output


def _sampling(body: dict[str, Any]) -> Sampling:
    stops = body.get("stop_sequences")
    return Sampling(
        temperature=_float(body.get("temperature")),
        top_p=_float(body.get("top_p")),
        top_k=whole(body.get("top_k")),
        stop_sequences=tuple(map(str, stops)) if isinstance(stops, list) else (),
    )


def _endpoint(request: HttpRequest) -> Endpoint:
    named = {name.lower(): value for name, value in request.headers}
    headers = tuple((name, named[name]) for name in _HEADERS if name in named)
    return Endpoint(name=FAMILY, family=FAMILY, headers=headers)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _refused(kind: FailureKind, message: str) -> ProviderError:
    status, code = (404, "not_found_error") if kind == "not_found" else (400, "invalid_request_error")
    return ProviderError(Failure(kind=kind, message=message, status=status, code=code))
