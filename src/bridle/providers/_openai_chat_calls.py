"""Calls of tools on Chat Completions and our `ToolCall`, both ways.

Arguments are text here, as they are in our calls, and go back to the letter.  Servers that render them
into a prompt parse them first, and fail for ever on what they cannot parse; so arguments that are no
object (cut off, a list, nonsense) go out inside one that says so, and are taken out again when read.

Two older or rarer forms are read too and go back as they came: a single `function_call`, and calls
of tools that take plain text.
"""

from typing import Any

from ..values.parts import ToolCall
from ._arguments import object_of, text_of, unwrap_text, wrap_text
from ._json import dumps, is_object, mended
from ._names import SHORT
from ._openai_chat_content import Block, native_in, native_of, said, word

_NOTHING = frozenset({"", "null"})
NO_ARGUMENTS = "{}"


def call_of(wire: object, *, cut: bool = False) -> ToolCall | None:
    """A call as it was told; None when it names nothing that could be called.

    No arguments are an empty object, unless the reply was `cut` off before they could come.
    """
    if not isinstance(wire, dict):
        return None
    function, custom = wire.get("function"), wire.get("custom")
    named = isinstance(function, dict) and bool(word(function.get("name")))
    inner = custom if isinstance(custom, dict) and not named else function
    if not isinstance(inner, dict) or not word(inner.get("name")):
        return None
    plain = inner is custom
    more = said({name: value for name, value in wire.items() if name not in _CALL_MEMBERS})
    if plain:
        more["type"] = "custom"
    rest = {name: value for name, value in inner.items() if name not in ("name", "arguments", "input")}
    given = wrap_text(word(inner.get("input")), cut=cut) if plain else arguments_in(inner, cut=cut)
    return ToolCall(
        id="",
        name=word(inner.get("name")),
        arguments=given,
        wire_id=word(wire.get("id")),
        native=native_of(call=more, function=said(rest)),
    )


def calls_listed(message: Block) -> list[object]:
    """All calls of a message as they were told, the older form included."""
    listed, legacy = message.get("tool_calls"), message.get("function_call")
    calls = listed if isinstance(listed, list) else []
    return [*calls, {"function": legacy}] if isinstance(legacy, dict) else calls


def is_nameless(wire: object) -> bool:
    """Whether something was called and its name is missing; an entry without a word is no call."""
    if not isinstance(wire, dict) or call_of(wire) is not None:
        return False
    inner = wire.get("function") or wire.get("custom")
    given = inner.get("arguments") or inner.get("input") if isinstance(inner, dict) else None
    return bool(word(wire.get("id"))) or given not in (None, "", {}, NO_ARGUMENTS)


_CALL_MEMBERS = frozenset({"id", "type", "index", "function", "custom"})


def legacy_call(wire: object, *, cut: bool = False) -> ToolCall | None:
    if not isinstance(wire, dict) or not word(wire.get("name")):
        return None
    return ToolCall(
        id="",
        name=word(wire.get("name")),
        arguments=arguments_in(wire, cut=cut),
        native=native_of(**{"in": "function_call"}),
    )


def is_legacy(call: ToolCall) -> bool:
    return native_in(call).get("in") == "function_call"


def arguments_in(function: Block, *, cut: bool = False) -> str:
    """Text, an object where text belongs, or nothing at all."""
    given: Any = function.get("arguments")
    text = mended(given) if isinstance(given, str) else "" if given is None else dumps(given).decode()
    if text.strip() in _NOTHING:
        return "" if cut else NO_ARGUMENTS
    return text_of(text)


def wire_call(call: ToolCall, sent_id: str, *, own: bool) -> Block:
    native = native_in(call) if own else {}
    more: Block = native.get("call", {})
    rest: Block = native.get("function", {})
    name = legal_name(call.name)
    if more.get("type") == "custom":
        return {
            "id": sent_id,
            **more,
            "custom": {"name": name, "input": mended(unwrap_text(call.arguments)), **rest},
        }
    function = {"name": name, "arguments": legal_arguments(call.arguments), **rest}
    return {"id": sent_id, "type": "function", "function": function, **more}


def wire_legacy(call: ToolCall) -> Block:
    return {"name": legal_name(call.name), "arguments": legal_arguments(call.arguments)}


def legal_name(name: str) -> str:
    return SHORT.on_wire(name)


def legal_arguments(arguments: str) -> str:
    arguments = mended(arguments)
    if is_object(arguments):
        return arguments
    return NO_ARGUMENTS if not arguments.strip() else dumps(object_of(arguments)).decode()
