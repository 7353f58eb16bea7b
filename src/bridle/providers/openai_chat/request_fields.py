"""Encodes the fields of a Chat Completions request besides its messages.

They all follow the messages, in a fixed order, because they may differ between requests. A field the model or
the server would refuse is not sent: abilities and dialect decide, never a name. Extras come last; they may
extend a field and never change it.
"""

from typing import Any

import msgspec
from msgspec import Raw

from bridle.providers.openai.prompt_cache import cache_fields
from bridle.providers.schema.compiler import is_strict_ready
from bridle.providers.schema.tool_schema import compile_for_wire, compile_output_schema, native_definition
from bridle.providers.wire.dialect import match_model_id
from bridle.providers.wire.extras import conflicting_extra, parse_extra
from bridle.providers.wire.json import loads, raw_json, repair_surrogates, set_at_path
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.errors import MisuseError
from bridle.values.model import Abilities
from bridle.values.request import Extra, OutputSpec, Request, Thinking, ToolSpec

from .calls import encode_tool_name
from .content import Block
from .dialect import OUTPUT_DIALECT, TOOL_DIALECT, ChatDialect

DELIVERY_FIELDS = frozenset({"stream", "stream_options"})
"""Fields about the delivery of the answer, which are not part of the request's content."""
_RESERVED_FIELDS = frozenset({"model", "tools", "messages", "stream"})


def check_tools_allowed(request: Request, dialect: ChatDialect) -> None:
    """Raise `MisuseError` if the model refuses tools here: the caller has to decide what to give up."""
    model = request.model
    if request.tools and match_model_id(dialect.toolless_models, model.id):
        other = f"write `{dialect.tools_at}:{model.id}`" if dialect.tools_at else "choose another model"
        raise MisuseError(f"{model.name} takes no tools on this wire: {other}, or ask without tools")


def encode_tool(spec: ToolSpec) -> Block | Raw:
    if (native := native_definition(spec)) is not None:
        return native
    function: Block = {"name": encode_tool_name(spec.name)}
    if spec.description:
        function["description"] = repair_surrogates(spec.description)
    function["parameters"] = compile_for_wire(spec.parameters, TOOL_DIALECT)
    return {"type": "function", "function": function}


def encode_fields(request: Request, dialect: ChatDialect) -> Block:
    abilities, sampling = request.model.abilities, request.sampling
    fields: Block = {}
    if request.max_tokens is not None:
        fields[dialect.max_tokens] = request.max_tokens
    if sampling.stop_sequences:
        fields["stop"] = sampling.stop_sequences
    if abilities.sampling:
        top_k = sampling.top_k if dialect.top_k else None
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": top_k}
        fields.update((name, value) for name, value in chosen.items() if value is not None)
    if request.tools:
        fields.update(_encode_tool_choice(request, abilities, dialect))
    if request.output and request.output.mode == "native":
        fields["response_format"] = _encode_response_format(request.output)
    if request.thinking:
        _add_thinking(fields, request.thinking, abilities, dialect, tools=bool(request.tools))
    own = {extra.name for extra in request.extras}
    fields |= {name: value for name, value in cache_fields(request).items() if name not in own}
    for extra in request.extras:
        if extra.name not in DELIVERY_FIELDS:
            _add_extra(fields, extra)
    for extra in dialect.always:
        fields[extra.name] = _apply_defaults(parse_extra(extra), fields.get(extra.name))
    if request.output and request.output.mode == "native" and dialect.strict:
        _set_strict(fields["response_format"])
    return fields


def encode_delivery(request: Request, dialect: ChatDialect) -> Block:
    """Encode the fields about delivery: whether to stream, and the request for token counts at its end."""
    options: Any = {"include_usage": True} if request.stream and dialect.stream_usage else None
    for extra in request.extras:
        if extra.name in DELIVERY_FIELDS:
            options = parse_extra(extra, _RESERVED_FIELDS)
    delivery: Block = {"stream": True} if request.stream else {}
    return {**delivery, "stream_options": options} if options is not None else delivery


def merge_objects(present: Any, more: Any, name: str) -> Any:
    """Merge two objects that may not overwrite each other."""
    if isinstance(present, dict) and isinstance(more, dict):
        both = dict(present)
        for inner, value in more.items():
            both[inner] = merge_objects(both[inner], value, f"{name}.{inner}") if inner in both else value
        return both
    raise conflicting_extra(name)


def _encode_tool_choice(request: Request, abilities: Abilities, dialect: ChatDialect) -> Block:
    fields: Block = {}
    choice = request.tool_choice
    forced = abilities.forced_tools
    match choice.mode:
        case "none":
            fields["tool_choice"] = "none"
        case "any" if forced:
            fields["tool_choice"] = dialect.tool_required
        case "tool" if forced:
            natives = (spec.native for spec in request.tools if spec.name == choice.name and spec.native)
            kind = (
                "custom" if any(loads(native).get("type") == "custom" for native in natives) else "function"
            )
            fields["tool_choice"] = {"type": kind, kind: {"name": encode_tool_name(choice.name)}}
    if not choice.parallel and choice.mode != "none" and dialect.parallel_switch:
        fields["parallel_tool_calls"] = False
    return fields


def _encode_response_format(output: OutputSpec) -> Block:
    shape: Block = {"name": NAMES_64.clean_name(output.name)} if output.name else {}
    if output.description:
        shape["description"] = repair_surrogates(output.description)
    schema = compile_output_schema(output, OUTPUT_DIALECT)
    return {"type": "json_schema", "json_schema": {**shape, "schema": schema}}


def _set_strict(response_format: Block) -> None:
    shape: Block = response_format["json_schema"]
    if "strict" not in shape and is_strict_ready(bytes(shape["schema"]).decode()):
        response_format["json_schema"] = {**shape, "strict": True}


def _add_thinking(
    fields: Block, thinking: Thinking, abilities: Abilities, dialect: ChatDialect, *, tools: bool
) -> None:
    """Add thinking settings. Empty abilities mean that the model is unknown, not that it accepts nothing."""
    able = abilities.effort_with_tools or not tools
    if thinking.effort and able and (not abilities.efforts or abilities.takes_effort(thinking.effort)):
        set_at_path(fields, dialect.effort_at, thinking.effort)
    if thinking.mode and (not abilities.thinking or thinking.mode in abilities.thinking):
        wire = dict(dialect.modes).get(thinking.mode)
        set_at_path(fields, dialect.mode_at, thinking.mode if wire is None else msgspec.json.decode(wire))
    if thinking.budget_tokens is not None:
        set_at_path(fields, dialect.budget_at, thinking.budget_tokens)


def _add_extra(fields: Block, extra: Extra) -> None:
    value = parse_extra(extra, _RESERVED_FIELDS)
    if extra.name in fields:
        fields[extra.name] = merge_objects(fields[extra.name], value, extra.name)
    else:
        fields[extra.name] = value if isinstance(value, dict) else raw_json(extra.json)


def _apply_defaults(usual: Any, asked: Any) -> Any:
    """Apply the defaults of the dialect to a requested value, recursively."""
    if isinstance(usual, dict) and isinstance(asked, dict):
        return {**usual, **{name: _apply_defaults(usual.get(name), value) for name, value in asked.items()}}
    return usual if asked is None else asked
