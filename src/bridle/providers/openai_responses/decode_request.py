"""Decodes requests of the Responses wire: the reverse of `encode`, for simulation and import.

Decoding is tolerant: content that Bridle's values do not model is kept as native members, opaque parts or
extras, so that the request can be encoded again with the same meaning. Only a body that is not a request at
all is refused, with the failure the provider would give.

The flat list of items is divided into messages by role: adjacent items of the model are one turn, adjacent
outputs one answer to it, and every other message is separate. Messages are numbered m1, m2, … and the calls
of message n are cn_0, cn_1, …; outputs find their calls by the provider's id, repeated ids in order. An
output whose call is missing keeps the provider's id: the provider holds the call.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.ports.served_wire import ClientTool
from bridle.providers.openai.prompt_cache import NO_CACHE_OPTIONS, OPTIONS
from bridle.providers.schema.compiler import is_strict_ready
from bridle.providers.schema.tool_schema import is_sent_unchanged
from bridle.providers.wire.call_arguments import CUSTOM, FREE_TEXT_PARAMETERS, describe_free_text
from bridle.providers.wire.json import (
    drop_nulls,
    dumps,
    loads,
    parse_integer,
    parse_number,
    split_object,
    text_or_empty,
)
from bridle.providers.wire.request_reader import MessageReader, rejection_maker
from bridle.values.message import Opaque, Outcome, Part, Role, Stop, Text, ToolResult
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Extra, OutputSpec, Request, Sampling, Thinking, ToolChoice, ToolSpec

from .breakpoints import BreakpointReader
from .content import FAMILY, Block, decode_content, expand_content, extra_members
from .encode import ERROR_PREFIX, OUTPUT_ITEMS
from .parts import (
    CUSTOM_CALL,
    OUTPUT_DIALECT,
    TOOL_DIALECT,
    decode_parts,
    has_refusal,
    item_type,
    make_opaque,
)

MODES = ("standard", "pro")
SUMMARIES = {"auto": "auto", "concise": "concise", "detailed": "detailed", "summarized": "auto"}
"""Summary settings of reasoning, by the display names of this wire and others."""
STATEFUL_FIELDS = ("previous_response_id", "conversation")
"""Fields that refer to state held by the provider."""

_RESPONSES_PATH = re.compile(r"(.*/)?responses(?P<compacts>/compact)?")
_rejection = rejection_maker({"invalid": "invalid_request_error", "not_found": "invalid_request_error"})
_OUTPUT_SUFFIXES = ("_output", "_response")
_INPUT_ROLES = ("user", "system", "developer")
_DEVELOPER_ITEMS = {"additional_tools", "configuration_update", "compaction_trigger"}
_OUTCOMES = {"ok", "error", "retry", "invalid", "denied", "timeout", "cancelled", "unknown"}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_KNOWN_FIELDS = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens"}
    | {"temperature", "top_p", "stream", "store", "reasoning", "text"}
)
"""Fields that `Request` models; all others are extras."""


def decode_request(request: HttpRequest) -> Request:
    path = _RESPONSES_PATH.fullmatch(request.path.partition("?")[0].rstrip("/"))
    if path is None:
        raise _rejection("not_found", f"{request.path} takes no questions")
    try:
        raw = split_object(request.body)
        body = {name: loads(value) for name, value in raw.items()}
    except ValueError as error:
        raise _rejection("invalid", f"We could not parse the JSON body of your request: {error}") from None
    body = drop_nulls(body)
    model_id = body.get("model", "")
    if not isinstance(model_id, str) or not (model_id or "prompt" in body):
        raise _rejection("invalid", "Missing required parameter: 'model'.")
    extras = {name: value for name, value in body.items() if name not in _KNOWN_FIELDS}
    if path["compacts"] and extras.get(OPTIONS) == NO_CACHE_OPTIONS:
        del extras[OPTIONS]
    points = BreakpointReader(extras)
    system, items = _decode_system(
        body.get("instructions", ""), _normalise_input(body.get("input", [])), points
    )
    line = _ResponsesItemReader(model_id, points)
    line.read_items(items)
    marks = points.all_breakpoints()
    if not path["compacts"]:
        _decode_store(body, extras)
    thinking, output = _decode_thinking(body, extras), _decode_output(body, extras)
    tools = _decode_tools(body.get("tools", []))
    return Request(
        model=Model(
            id=model_id,
            endpoint=Endpoint(name=FAMILY, family=FAMILY),
            abilities=_implied_abilities(thinking, points),
        ),
        system=system,
        tools=tools,
        messages=tuple(line.messages),
        tool_choice=_decode_tool_choice(body, extras),
        max_tokens=parse_integer(body.get("max_output_tokens")),
        output=output,
        thinking=thinking,
        sampling=Sampling(
            temperature=parse_number(body.get("temperature")), top_p=parse_number(body.get("top_p"))
        ),
        breakpoints=marks,
        cache_key=points.key,
        compare_reply_id=points.compared_to,
        stream=body.get("stream") is True,
        asks_native_summary=path["compacts"] is not None,
        extras=tuple(Extra(name=name, json=dumps(value).decode()) for name, value in extras.items()),
    )


class _ResponsesItemReader(MessageReader):
    def __init__(self, model_id: str, points: BreakpointReader) -> None:
        super().__init__(FAMILY, model_id)
        self._points = points

    def read_items(self, items: list[Block]) -> None:
        for role, group in groupby(items, _item_role):
            if role == "assistant":
                turn = list(group)
                refused = has_refusal(turn)
                parts = self.link_calls(decode_parts(turn, refused=refused))
                self.append_message(role, parts, Stop.REFUSED if refused else None)
            elif role == "tool":
                *before, last = group
                last = self._points.remove_breakpoint(last, len(self.messages))
                self.append_message(role, map(self._decode_result, (*before, last)))
            else:
                for item in group:
                    bare = self._points.remove_breakpoint(item, len(self.messages))
                    self.append_message(role, _decode_input(bare, role))

    def _decode_result(self, item: Block) -> Part:
        kind = item_type(item)
        content = expand_content(item.get("output"), "input_text")
        if kind not in OUTPUT_ITEMS.values() or content is None:
            return make_opaque(kind, item)
        wire_id = text_or_empty(item.get("call_id"))
        shown = (
            {"call_id", "output"}
            if kind == OUTPUT_ITEMS["custom_tool_call"]
            else {"type", "call_id", "output"}
        )
        more = extra_members(shown, item)
        parts = [cast("Text", decode_content(piece, "tool")) for piece in content]
        parts, outcome = _split_outcome([part for part in parts if not isinstance(part, Text) or part.text])
        return ToolResult(
            call_id=self.take_call(wire_id) or wire_id,
            parts=tuple(parts),
            outcome=outcome,
            native=dumps(more).decode() if more else None,
        )


def _normalise_input(given: object) -> list[Block]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise _rejection("invalid", "Invalid type for 'input': expected a string or a list of objects.")
    return given


def _item_role(item: Block) -> Role:
    kind, role = item_type(item), item.get("role")
    if kind == "message" and role in ("user", "assistant"):
        return cast("Role", role)
    if role in ("system", "developer") or kind in _DEVELOPER_ITEMS:
        return "system"
    if kind == "message":
        return "user"
    return "tool" if kind.endswith(_OUTPUT_SUFFIXES) else "assistant"


def _decode_input(item: Block, role: str) -> tuple[Part, ...]:
    kind = item_type(item)
    content = expand_content(item.get("content"), "input_text")
    if kind != "message" or content is None or item.get("role") not in _INPUT_ROLES:
        return (make_opaque(kind, item),)
    parts = [decode_content(piece, role) for piece in content]
    fields = extra_members({"type", "content", "role"}, item)
    if item["role"] != role:
        fields["role"] = item["role"]
    for place, part in enumerate(parts):
        if fields and not isinstance(part, Opaque):
            native = loads(part.native) if part.native is not None else {}
            parts[place] = replace(part, native=dumps({"message": fields, **native}).decode())
            return tuple(parts)
    return (make_opaque(kind, item),) if fields and parts else tuple(parts)


def _split_outcome(parts: list[Text]) -> tuple[list[Text], Outcome]:
    """Return the outcome of a call from the prefix of failed results, and the remaining parts."""
    first = parts[0] if parts else None
    found = ERROR_PREFIX.match(first.text) if isinstance(first, Text) else None
    outcome = (found.group(1) or "error") if found else "ok"
    if first is None or found is None or outcome not in _OUTCOMES - {"ok"}:
        return parts, "ok"
    rest = first.text[found.end() :]
    return [*([replace(first, text=rest)] if rest else []), *parts[1:]], cast("Outcome", outcome)


def _decode_store(body: Block, extras: Block) -> None:
    """Decode `store`: the provider stores by default, Bridle only if a requested feature needs it."""
    stored = body.get("store") is not False
    if stored is not any(body.get(name) for name in (*STATEFUL_FIELDS, "background")):
        extras["store"] = stored


def _decode_system(
    instructions: object, items: list[Block], points: BreakpointReader
) -> tuple[tuple[Text, ...], list[Block]]:
    if not isinstance(instructions, str):
        raise _rejection("invalid", "Invalid type for 'instructions': expected a string.")
    texts, rest = points.split_system(items, text_or_empty(instructions))
    return tuple(Text(text=words) for words in texts), rest


def _decode_tools(tools: object) -> tuple[ToolSpec, ...]:
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _rejection("invalid", "Invalid type for 'tools': expected a list of objects.")
    return tuple(map(_decode_tool, tools))


def _decode_tool(tool: Block) -> ToolSpec:
    given = drop_nulls(tool)
    name, kind = text_or_empty(given.get("name")), text_or_empty(given.get("type"))
    spec = ToolSpec(name=name or kind, description=text_or_empty(given.get("description")))
    plain = kind == "function" and isinstance(given.get("parameters"), dict)
    if plain:
        spec = replace(spec, parameters=dumps(given["parameters"]).decode())
    usual = {
        "type": "function",
        "name": name,
        "parameters": given.get("parameters"),
        "strict": is_strict_ready(spec.parameters),
    }
    plain = plain and {**given, "description": ""} == {**usual, "description": ""}
    if not plain or not is_sent_unchanged(spec.parameters, TOOL_DIALECT):
        spec = replace(spec, native=dumps(given).decode())
    return spec


def _decode_tool_choice(body: Block, extras: Block) -> ToolChoice:
    parallel = body.get("parallel_tool_calls") is not False
    match body.get("tool_choice"):
        case None:
            return ToolChoice(parallel=parallel)
        case str(mode) if mode in _CHOICES:
            return ToolChoice(mode=cast("Any", _CHOICES[mode]), parallel=parallel)
        case {"type": "function" | "custom" as kind, "name": str(name), **rest} if not rest:
            kinds = [tool.get("type") for tool in body.get("tools", []) if tool.get("name") == name]
            if all(each == kind for each in kinds):
                return ToolChoice(mode="tool", name=name, parallel=parallel)
    extras["tool_choice"] = body["tool_choice"]
    return ToolChoice(parallel=parallel)


def _decode_thinking(body: Block, extras: Block) -> Thinking | None:
    reasoning = body.get("reasoning")
    if not isinstance(reasoning, dict):
        return None
    given = drop_nulls(reasoning)
    mode = given.pop("mode") if given.get("mode") in MODES else ""
    effort = given.pop("effort") if isinstance(given.get("effort"), str) else ""
    display = given.pop("summary") if given.get("summary") in tuple(SUMMARIES.values()) else ""
    if given:
        extras["reasoning"] = given
    return Thinking(mode=mode, effort=effort, display=display) if mode or effort or display else None


def _implied_abilities(thinking: Thinking | None, points: BreakpointReader) -> Abilities:
    """Assume that the model supports everything the request asks for: only its name is known."""
    effort = thinking.effort if thinking else ""
    return Abilities(thinking=MODES, efforts=(effort,) if effort else (), **points.required_abilities())


def _decode_output(body: Block, extras: Block) -> OutputSpec | None:
    text = body.get("text")
    if not isinstance(text, dict):
        return None
    rest = drop_nulls(text)
    output = None
    match rest.get("format"):
        case {"type": "json_schema", "name": str(name), "schema": dict(schema), "strict": strict, **more}:
            written = dumps(schema).decode()
            fits = strict is is_strict_ready(written) and is_sent_unchanged(written, OUTPUT_DIALECT)
            if more.keys() <= {"description"} and fits:
                output = OutputSpec(
                    name=name, parameters=written, description=text_or_empty(more.get("description"))
                )
                del rest["format"]
    if rest:
        extras["text"] = rest
    return output


ADDITIONAL_TOOLS = "additional_tools"
LATER_TOOL_ITEMS = (ADDITIONAL_TOOLS, "tool_search_output")
"""Items that add tools."""


def list_client_tools(request: Request) -> Iterator[ClientTool]:
    for spec in (*request.tools, *request.deferred_tools):
        native: Block = loads(spec.native) if spec.native else {}
        if native.get("type") in (CUSTOM, "namespace"):
            yield from _expand_tool(native)
        else:
            yield ClientTool(spec=spec)
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Opaque) and part.kind in LATER_TOOL_ITEMS:
                yield from _list_inner_tools(loads(part.native).get("tools"))


def _list_inner_tools(tools: object, namespace: str = "") -> Iterator[ClientTool]:
    for tool in tools if isinstance(tools, Sequence) else ():
        if isinstance(tool, dict):
            yield from _expand_tool(tool, namespace)


def _expand_tool(tool: Block, namespace: str = "") -> Iterator[ClientTool]:
    name, kind = text_or_empty(tool.get("name")), tool.get("type")
    description = text_or_empty(tool.get("description"))
    members: Block = {"namespace": namespace} if namespace else {}
    qualified = f"{namespace}.{name}" if namespace else ""
    if kind == "namespace":
        yield from _list_inner_tools(tool.get("tools"), name)
    elif kind == CUSTOM:
        noted = describe_free_text(description, tool.get("format"))
        spec = ToolSpec(name=name, description=noted, parameters=FREE_TEXT_PARAMETERS)
        called = dumps({"type": CUSTOM_CALL, **members}).decode()
        unread = tuple(tool.keys() - {"type", "name", "description", "format"}) if namespace else ()
        definition = "" if namespace else dumps(drop_nulls(tool)).decode()
        yield ClientTool(
            spec=spec, call_native=called, qualified_name=qualified, definition=definition, unread=unread
        )
    elif kind == "function":
        spec = ToolSpec(name=name, description=description)
        if isinstance(tool.get("parameters"), dict):
            spec = replace(spec, parameters=dumps(tool["parameters"]).decode())
        native = dumps(members).decode() if members else None
        unread = tuple(drop_nulls(tool).keys() - {"type", "name", "description", "parameters"})
        yield ClientTool(spec=spec, call_native=native, qualified_name=qualified, unread=unread)
    else:
        yield ClientTool(spec=ToolSpec(name=name or text_or_empty(kind), native=dumps(tool).decode()))
