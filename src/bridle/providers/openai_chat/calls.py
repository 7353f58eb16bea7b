"""Converts between tool calls of Chat Completions and `ToolCall`.

Arguments are text here, as in `ToolCall`, and are sent back unchanged. Servers that render them into a prompt
parse them first, and keep failing on invalid ones; so arguments that are not an object (truncated, a list,
invalid) are sent inside an object that says so, and are extracted again when decoded.

Two older or rarer forms are decoded too and sent back as they came: a single `function_call`, and calls of
tools that take plain text.
"""

from typing import Any

from bridle.providers.wire.call_arguments import decode_arguments, encode_arguments, unwrap_text, wrap_text
from bridle.providers.wire.json import drop_nulls, dumps, is_object, repair_surrogates, text_or_empty
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.message import ToolCall

from .content import Block, decode_native, encode_native

EMPTY_ARGUMENTS = frozenset({"", "null"})
EMPTY_OBJECT = "{}"


def decode_call(wire: object, *, cut: bool = False) -> ToolCall | None:
    """Decode a call; None if it names nothing that could be called.

    Missing arguments are an empty object, unless the reply was `cut` before they could arrive.
    """
    if not isinstance(wire, dict):
        return None
    function, custom = wire.get("function"), wire.get("custom")
    named = isinstance(function, dict) and bool(text_or_empty(function.get("name")))
    inner = custom if isinstance(custom, dict) and not named else function
    if not isinstance(inner, dict) or not text_or_empty(inner.get("name")):
        return None
    plain = inner is custom
    more: Block = {}
    if not wire.keys() <= _CALL_MEMBERS:
        more = drop_nulls({name: value for name, value in wire.items() if name not in _CALL_MEMBERS})
    if plain:
        more["type"] = "custom"
    rest: Block = {}
    if not inner.keys() <= _FUNCTION_MEMBERS:
        rest = {name: value for name, value in inner.items() if name not in _FUNCTION_MEMBERS}
    given = wrap_text(text_or_empty(inner.get("input")), cut=cut) if plain else read_arguments(inner, cut=cut)
    return ToolCall(
        id="",
        name=text_or_empty(inner.get("name")),
        arguments=given,
        wire_id=text_or_empty(wire.get("id")),
        native=encode_native(call=more, function=drop_nulls(rest)) if more or rest else None,
    )


def list_calls(message: Block) -> list[object]:
    """Return all calls of a message on the wire, including the older form."""
    listed, legacy = message.get("tool_calls"), message.get("function_call")
    calls = listed if isinstance(listed, list) else []
    return [*calls, {"function": legacy}] if isinstance(legacy, dict) else calls


def is_nameless_call(wire: object) -> bool:
    """Return True for a call without a name; an entry without any content is not a call."""
    if not isinstance(wire, dict):
        return False
    function = wire.get("function")
    if isinstance(function, dict) and text_or_empty(function.get("name")):
        return False
    if decode_call(wire) is not None:
        return False
    inner = wire.get("function") or wire.get("custom")
    given = inner.get("arguments") or inner.get("input") if isinstance(inner, dict) else None
    return bool(text_or_empty(wire.get("id"))) or given not in (None, "", {}, EMPTY_OBJECT)


_CALL_MEMBERS = frozenset({"id", "type", "index", "function", "custom"})
_FUNCTION_MEMBERS = frozenset({"name", "arguments", "input"})


def decode_legacy_call(wire: object, *, cut: bool = False) -> ToolCall | None:
    if not isinstance(wire, dict) or not text_or_empty(wire.get("name")):
        return None
    return ToolCall(
        id="",
        name=text_or_empty(wire.get("name")),
        arguments=read_arguments(wire, cut=cut),
        native=encode_native(**{"in": "function_call"}),
    )


def is_legacy_call(call: ToolCall) -> bool:
    return call.native is not None and decode_native(call).get("in") == "function_call"


def read_arguments(function: Block, *, cut: bool = False) -> str:
    """Return the arguments, given as text, as an object in place of text, or missing."""
    given: Any = function.get("arguments")
    text = (
        repair_surrogates(given) if isinstance(given, str) else "" if given is None else dumps(given).decode()
    )
    if text.strip() in EMPTY_ARGUMENTS:
        return "" if cut else EMPTY_OBJECT
    return decode_arguments(text)


def encode_call(call: ToolCall, sent_id: str, *, own: bool) -> Block:
    native = decode_native(call) if own and call.native else {}
    more: Block = native.get("call", {})
    rest: Block = native.get("function", {})
    name = encode_tool_name(call.name)
    if more.get("type") == "custom":
        return {
            "id": sent_id,
            **more,
            "custom": {"name": name, "input": repair_surrogates(unwrap_text(call.arguments)), **rest},
        }
    function = {"name": name, "arguments": encode_call_arguments(call.arguments), **rest}
    return {"id": sent_id, "type": "function", "function": function, **more}


def encode_legacy_call(call: ToolCall) -> Block:
    return {"name": encode_tool_name(call.name), "arguments": encode_call_arguments(call.arguments)}


def encode_tool_name(name: str) -> str:
    return NAMES_64.encode_name(name)


def encode_call_arguments(arguments: str) -> str:
    arguments = repair_surrogates(arguments)
    if is_object(arguments):
        return arguments
    return EMPTY_OBJECT if not arguments.strip() else dumps(encode_arguments(arguments)).decode()
