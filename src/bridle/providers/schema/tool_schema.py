"""Compiles the schemas of a request and restores the arguments of replies.

A codec requests a schema by the name of a dialect and sends the result. `list_schema_losses` reports what
rewriting lost, once per tool, for the log. A field that was sent under another name is restored in the reply.
Arguments are always checked against the source schema, never against what was sent.

A decoded request keeps schemas that would not be sent again unchanged as the provider's own JSON.
"""

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace

from bridle.ports.codec import Decoder
from bridle.providers.wire.decoder import MappedDecoder
from bridle.providers.wire.extras import describe_hidden_tool
from bridle.providers.wire.json import is_object, raw_json
from bridle.providers.wire.tool_names import ToolNameRules
from bridle.values.errors import BadTool, MisuseError
from bridle.values.message import Part, ToolCall
from bridle.values.request import OutputSpec, Request, ToolSpec, find_wire_form

from .compiler import compile_schema, find_dialect, restore_arguments


def compile_for_wire(schema: str, wire: str) -> Raw:
    """Compile a schema for a wire; the text is unchanged if the wire accepts it."""
    return raw_json(compile_schema(schema, find_dialect(wire)).text)


def native_definition(spec: ToolSpec, family: str) -> Raw | None:
    """The tool's definition in the provider's own form, or as a client of this wire family wrote it.

    None for a tool that a schema describes.

    Raises `BadTool` when neither the definition nor the schema is a JSON object, and for hidden values.
    """
    if spec.hosted is not None:
        raise BadTool(f"this wire has no hosted {spec.hosted.concept}; use {spec.hosted.alternative}")
    if spec.native is not None:
        # guard: hidden-definition-refused
        if spec.native_digest:
            raise BadTool(describe_hidden_tool(spec))
        if not is_object(spec.native):
            raise BadTool(f"the native definition of tool {spec.name!r} is not a JSON object: correct it")
        return raw_json(spec.native)
    if spec.wire_form is not None and (written := find_wire_form(spec, family)):
        return raw_json(written)
    if not is_object(spec.parameters):
        raise BadTool(f"the parameters of tool {spec.name!r} are not a JSON Schema object: correct them")
    return None


def compile_output_schema(output: OutputSpec, wire: str) -> Raw:
    if not is_object(output.parameters):
        raise MisuseError(f"the schema of output {output.name!r} is not a JSON object: correct it")
    return compile_for_wire(output.parameters, wire)


def is_sent_unchanged(schema: str, wire: str) -> bool:
    return compile_schema(schema, find_dialect(wire)).text == schema


def list_schema_losses(request: Request, tools: str, answers: str) -> tuple[str, ...]:
    """List what schemas lose when sent, given the dialects of tools and of answers."""
    specs = (*request.tools, *request.deferred_tools)
    family = request.model.endpoint.family
    sent = [(f"tool `{spec.name}`", spec.parameters, tools) for spec in specs if _is_compiled(spec, family)]
    if request.output and request.output.mode == "native":
        sent.append(("the answer", request.output.parameters, answers))
    return tuple(
        f"schema of {subject}: {loss}"
        for subject, schema, wire in sent
        for loss in compile_schema(schema, find_dialect(wire)).losses
    )


def _is_compiled(spec: ToolSpec, family: str) -> bool:
    return spec.native is None and (spec.wire_form is None or not find_wire_form(spec, family))


def explain_unsupported_output(output: OutputSpec, answers: str) -> str:
    """Return why an enforced dialect cannot express the schema of an answer; empty if it can."""
    return compile_schema(output.parameters, find_dialect(answers)).unfit


RENAMED_MAX = 32
"""Lists of tools whose changed names are kept."""
Renamed = tuple[dict[str, str], dict[str, str]]
_RENAMED: dict[tuple[int, ToolNameRules | None, str], tuple[tuple[ToolSpec, ...], Renamed]] = {}


def find_renamed(tools: tuple[ToolSpec, ...], names: ToolNameRules | None, wire: str, family: str) -> Renamed:
    """The tools whose name differs on the wire (sent name to own), and those with renamed fields (name to schema).

    The requests of a run have the same tools, so the answer is kept, by the identity of the list.
    """
    found = _RENAMED.get((id(tools), names, wire))
    if found is not None and found[0] is tools:
        return found[1]
    renamed = {
        spec.name: spec.parameters
        for spec in tools
        if _is_compiled(spec, family) and compile_schema(spec.parameters, find_dialect(wire)).renamed
    }
    if len(_RENAMED) >= RENAMED_MAX:
        _RENAMED.clear()
    result = names.renamed_tools(tools) if names is not None else {}, renamed
    _RENAMED[id(tools), names, wire] = tools, result
    return result


def restore_fields(decoder: Decoder, schemas: Mapping[str, str], wire: str) -> Decoder:
    """Wrap a decoder to restore renamed fields of the tools with these schemas."""

    def restore_part(part: Part) -> Part:
        if not isinstance(part, ToolCall) or part.name not in schemas:
            return part
        return replace(
            part, arguments=restore_arguments(part.arguments, schemas[part.name], find_dialect(wire))
        )

    return MappedDecoder(decoder, restore_part)
