"""Encodes call arguments for wires that carry them as an object instead of text.

Bridle stores arguments as the text they arrived in. Most are an object and are sent as written. The rest
(truncated arguments, a list, invalid JSON, objects nested too deeply to be run) must be sent as well, because
an answered call cannot be omitted: the text becomes the only member, `INVALID_JSON`, of an object, and is
extracted again when decoded.

A tool whose calls are free text is a function with one argument, `input`, to Bridle and to wires without such tools.
"""

from typing import Any

from msgspec.structs import replace

from bridle.ports.served_wire import ClientTool
from bridle.values.request import Request, ToolSpec
from bridle.values.text import is_too_deep

from .json import dumps, is_object, loads, raw_json, repair_surrogates, text_or_empty

INVALID_JSON_KEY = "INVALID_JSON"
FREE_TEXT_PARAMETERS = (
    '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],'
    '"additionalProperties":false}'
)
"""Parameters of a tool that takes free text, as Bridle's calls carry it."""
CUSTOM = "custom"
"""Type of a tool that takes free text."""
FREE_TEXT_NOTE = "`input` is free text, not JSON."
GRAMMAR_NOTE = "`input` is free text that this {syntax} grammar describes:\n{definition}"


def encode_arguments(arguments: str) -> Any:
    """Return the arguments as an object, with the original spelling if possible; empty text becomes {}."""
    if is_object(arguments) and not is_too_deep(arguments):
        return raw_json(arguments)
    if not arguments.strip():
        return {}
    try:
        value = None if is_too_deep(arguments) else loads(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON_KEY: repair_surrogates(arguments)}


def wrap_text(text: str, *, cut: bool = False) -> str:
    """Wrap the free text of a call in an object. Truncated text leaves it open, so that it never runs."""
    written = dumps({"input": text}).decode()
    return written.removesuffix("}") if cut else written


def unwrap_text(arguments: str) -> str:
    """Return the free text in the output of `wrap_text`; other arguments unchanged."""
    for written in (arguments, arguments + "}"):
        try:
            value = loads(written)
        except ValueError:
            continue
        given = value.get("input") if isinstance(value, dict) else None
        return given if isinstance(given, str) else arguments
    return arguments


def decode_arguments(written: str) -> str:
    """Return the arguments in an object written by `encode_arguments` or by others."""
    if INVALID_JSON_KEY not in written:
        return written
    try:
        value = loads(written)
    except ValueError:
        return written
    only = value[INVALID_JSON_KEY] if isinstance(value, dict) and list(value) == [INVALID_JSON_KEY] else None
    return only if isinstance(only, str) else written


def parse_arguments(written: str) -> Any:
    """The value of arguments that came in pieces; text that is not JSON is wrapped."""
    if not written:
        return {}
    try:
        return loads(written)
    except ValueError:
        return {INVALID_JSON_KEY: written}


def take_plain_tools(request: Request) -> tuple[Request, tuple[ClientTool, ...]]:
    """The request and its tools, for a wire whose tools are functions or the provider's."""
    return request, tuple(
        ClientTool(spec=read_function(spec), definition=spec.native or "")
        for spec in (*request.tools, *request.deferred_tools)
    )


def read_function(spec: ToolSpec) -> ToolSpec:
    """The tool as a plain function, however its wire spells it; unchanged if the provider would run it."""
    declared: dict[str, Any] = loads(spec.native or "{}")
    kind = declared.get("type")
    is_bare = kind is None and isinstance(declared.get("name"), str)
    is_function = kind == "function" or "input_schema" in declared or is_bare
    return replace(spec, native=None) if is_function else spec


def describe_free_text(description: str, form: object) -> str:
    """The description of a tool that takes free text in this format, for models that know only functions."""
    grammar = form.get("grammar", form) if isinstance(form, dict) else {}
    definition = text_or_empty(grammar.get("definition")) if isinstance(grammar, dict) else ""
    note = FREE_TEXT_NOTE
    if definition:
        note = GRAMMAR_NOTE.format(syntax=text_or_empty(grammar.get("syntax")), definition=definition)
    return f"{description}\n\n{note}".strip()
