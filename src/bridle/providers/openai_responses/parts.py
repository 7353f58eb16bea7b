"""Converts between items of the Responses wire and Bridle's parts.

On this wire a turn is a flat list of items: reasoning, messages (which hold content parts), calls, and the
work of hosted tools. `decode_parts` reads the items of one turn, `encode_items` writes them; each reverses
the other. Complete and streamed replies, decoded and encoded requests all use these two, which is why a
streamed reply equals the same reply in JSON.

Members that a part does not model are stored in `native`, so that the item can be sent back as it came:
`{"message": …}` for the members of the message that a text starts, `{"part": …}` for those of the text
itself, and plain members for reasoning and calls. A text without `"message"` continues the message of the
text before it. Null members are dropped. Reasoning stores its text once, with the length of each piece if
there is more than one summary. Items that are not modelled become `Opaque`.

A call of a free-text tool is a call whose arguments have one member, `input`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from bridle.providers.wire.call_arguments import encode_arguments, unwrap_text, wrap_text
from bridle.providers.wire.hosted import describe_hosted_item
from bridle.providers.wire.json import dumps, is_object, loads, raw_json, repair_surrogates, text_or_empty
from bridle.providers.wire.tool_names import ToolNameRules
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, is_written_for

from .content import (
    CONTENT,
    FAMILY,
    OPAQUE_CONTENT_PREFIX,
    Block,
    decode_content,
    encode_content,
    expand_content,
    extra_members,
)
from .hosted import HOSTED_ITEMS
from .hosted_calls import HOSTED_CALLS, decode_hosted_call, needs_answer

TOOL_DIALECT, OUTPUT_DIALECT = "openai_loose", "openai_output"
"""The JSON Schema dialects of this wire, for tools and for answers."""
TOOL_NAMES = ToolNameRules(length_max=128)

CALL, CUSTOM_CALL, REASONING = "function_call", "custom_tool_call", "reasoning"
BETWEEN = "\n\n"
"""Separator between the pieces of one reasoning item."""
_REASONING_PIECES = (("summary", "summary_text"), ("content", "reasoning_text"))

_KNOWN_MEMBERS = {
    "message": {"type", "role", "content"},
    CALL: {"type", "call_id", "name", "arguments"},
    CUSTOM_CALL: {"call_id", "name", "input"},
    # A reasoning item's status is read-only: sent back, it is refused as an unknown parameter.
    REASONING: {"type", "summary", "content", "encrypted_content", "status"},
}
"""The members of each item that parts model, or that must not be sent back."""

_UNSENT_MEMBERS = {"created_by", "metadata", "internal_chat_message_metadata_passthrough"}
_UNSENT_MEMBERS_BY_ITEM = {
    "image_generation_call": _UNSENT_MEMBERS
    | {"action", "background", "output_format", "quality", "revised_prompt", "size"}
}
"""Members that the provider adds to its items and does not accept back."""
_ID_ONLY_ITEMS = {"item_reference", "mcp_approval_request"}
"""Items that consist of their id."""
NEEDS_ID = {
    "file_search_call", "web_search_call", "computer_call", "image_generation_call", "code_interpreter_call",
    "local_shell_call", "local_shell_call_output", "mcp_list_tools", "mcp_call", "program",
    "program_output",
}  # fmt: skip
"""Items that are refused without their id: `Missing required parameter: 'input[1].id'`."""


def has_refusal(items: Sequence[object]) -> bool:
    """Return True if a turn contains a refusal."""
    return any(
        isinstance(piece, dict) and piece.get("type") == "refusal"
        for item in items
        if isinstance(item, dict) and isinstance(item.get("content"), list)
        for piece in item["content"]
    )


def decode_parts(items: Sequence[object], *, refused: bool, surface: bool = False) -> tuple[Part, ...]:
    """Convert the items of one turn to parts.

    Call ids are left empty: the caller that numbers calls sets them. `refused`: the message has the stop
    reason of a refusal, so its text is one unless marked otherwise; in any other message a refusal keeps its
    type. `surface`: hosted calls that the client must answer become calls too; elsewhere they and their
    answers stay items.
    """
    parts: list[Part] = []
    follows = False
    for item in items:
        if not isinstance(item, dict):
            continue
        match item_type(item):
            case "message" if (texts := _decode_message(item, refused=refused, follows=follows)) is not None:
                follows = follows or bool(texts)
                parts += texts
                continue
            case "reasoning":
                parts.append(_decode_reasoning(item))
            case "function_call" | "custom_tool_call" as kind:
                parts.append(_decode_call(kind, item))
            case kind if surface and needs_answer(item, items):
                parts.append(decode_hosted_call(item))
            case kind:
                parts.append(make_opaque(kind, item))
        follows = False
    return tuple(parts)


def parse_native(part: Part, *, own: bool = True) -> Block:
    """Return the native members of a part; none if it did not come from where it is sent."""
    if part.native is None or not (own or is_written_for(part, FAMILY)):
        return {}
    native: Block = loads(part.native)
    return native


def encode_items(
    parts: Sequence[tuple[Part, Block]],
    *,
    own: bool,
    refused: bool = False,
    with_ids: bool = True,
    sent_id: Callable[[ToolCall, Block], str],
) -> list[Block | Raw]:
    """Convert the parts of one turn, each with its native members, to items.

    `own`: they came from the very endpoint they are sent to, so native members are sent again. `refused`:
    text is a refusal unless marked otherwise. Without ids no item can be taken for a stored one.
    """
    items: list[Block | Raw] = []
    names: set[str] = set()
    message: Block | None = None
    for part, native in parts:
        if isinstance(part, CONTENT):
            if message is None or "message" in native:
                message = {"type": "message", "role": "assistant", "content": []}
                if fields := native.get("message"):
                    message |= _sendable_members("message", fields, with_ids=with_ids)
                items.append(message)
            message["content"].append(
                encode_content(part, native.get("part", {}), "assistant", refused=refused)
            )
            continue
        message = None
        match part:
            case ToolCall():
                kind = native.get("type")
                if kind in HOSTED_CALLS:
                    items.append(_encode_hosted_call(native, sent_id(part, native), with_ids=with_ids))
                    continue
                item = _encode_call(part, own=own, custom=kind == CUSTOM_CALL, id_=sent_id(part, native))
                fields = _sendable_members(CALL, native, with_ids=with_ids)
                # A duplicated call, id included, is two calls, and no two items may have the same id.
                if (known := text_or_empty(fields.get("id"))) in names:
                    del fields["id"]
                elif known:
                    names.add(known)
                items.append(item | fields)
            case Reasoning():
                fields = _sendable_members(REASONING, native, with_ids=with_ids)
                items.append({**_encode_reasoning(part, fields, own=own), **fields})
            case Opaque() if own and (sent := encode_opaque(part, with_ids=with_ids)) is not None:
                items.append(sent)
    return items


def item_type(item: Block) -> str:
    if kind := text_or_empty(item.get("type")):
        return kind
    # Only a reference may omit its type.
    return "message" if "role" in item else "item_reference" if _is_reference(item) else ""


def _is_reference(item: Block) -> bool:
    return {name for name, value in item.items() if value is not None} == {"id"}


def make_opaque(kind: str, item: Block) -> Opaque:
    """Keep an item as it is; only a generated image is an answer without text."""
    text = describe_hosted_item(kind, item) if kind in HOSTED_ITEMS else ""
    return Opaque(kind=kind, native=dumps(item).decode(), text=text, answers=kind == "image_generation_call")


def encode_opaque(part: Opaque, *, with_ids: bool) -> Block | Raw | None:
    """Encode an item unchanged except for members the provider does not accept back; None if nothing is left."""
    if not is_object(part.native):
        raise MisuseError(f"an opaque part of kind {part.kind!r} holds no JSON object: it cannot be sent")
    if not part.kind or (not with_ids and (part.kind == "item_reference" or part.kind in NEEDS_ID)):
        return None
    if (
        with_ids
        and part.kind not in _UNSENT_MEMBERS_BY_ITEM
        and not any(name in part.native for name in _UNSENT_MEMBERS)
    ):
        return raw_json(part.native)
    return _sendable_members(part.kind, loads(part.native), with_ids=with_ids)


def list_unsent_members(message: Message) -> Iterator[str]:
    """Names of the members of a client's message that are left out on their way to the wire they came from."""
    for part in message.parts:
        if part.native is None or not (message.role == "assistant" or isinstance(part, Opaque)):
            continue
        native: Block = loads(part.native)
        match part:
            case Opaque(kind=kind):
                members = native
            case ToolCall():
                kind, members = native.get("type", CALL), native
            case Reasoning():
                kind, members = REASONING, native
            case _:
                kind, members = "message", native.get("message", {})
        if not kind.startswith(OPAQUE_CONTENT_PREFIX):
            kept = _sendable_members(kind, members, with_ids=True)
            yield from (f"{kind}.{name}" for name, value in members.items() if kept.get(name) != value)


def item_id(part: Part, native: Block) -> str:
    """Return the id by which the provider knows this part's item; empty if there is none."""
    fields = native.get("message") if isinstance(part, CONTENT) else native
    return text_or_empty(fields.get("id")) if isinstance(fields, dict) else ""


def _decode_message(item: Block, *, refused: bool, follows: bool) -> list[Text] | None:
    """Decode a message; None if parts cannot represent it. `follows`: the part before is of another message."""
    if item.get("role", "assistant") != "assistant":
        return None
    content = expand_content(item.get("content"), "output_text")
    if content is None:
        return None
    texts: list[Text] = []
    has_text = not content
    start: Block | None = extra_members(_KNOWN_MEMBERS["message"], item) or ({} if follows else None)
    for piece in content:
        part = decode_content(piece, "assistant", refused=refused, message=start)
        has_text = has_text or isinstance(part, Text)
        # A piece of an unknown kind must not hide the text beside it.
        texts.append(part if isinstance(part, Text) else _placeholder_text(part, start))
        start = None
    return texts if has_text else None


def _placeholder_text(piece: Media | Opaque, message: Block | None) -> Text:
    native: Block = {} if message is None else {"message": message}
    return Text(text="", native=dumps({**native, "part": loads(piece.native or "{}")}).decode())


def _decode_call(kind: str, item: Block) -> ToolCall:
    if kind == CUSTOM_CALL:
        arguments = wrap_text(
            text_or_empty(item.get("input")), cut=item.get("status") in ("incomplete", "in_progress")
        )
    else:
        arguments = _decode_arguments(item)
    more = extra_members(_KNOWN_MEMBERS[kind], item)
    return ToolCall(
        id="",
        name=text_or_empty(item.get("name")),
        arguments=arguments,
        wire_id=text_or_empty(item.get("call_id")),
        native=dumps(more).decode() if more else None,
    )


def _decode_arguments(item: Block) -> str:
    """Return the original arguments; missing ones are an empty object unless the reply was truncated here."""
    given = item.get("arguments")
    if isinstance(given, dict):
        return dumps(given).decode()
    arguments = text_or_empty(given)
    return arguments if arguments.strip() or item.get("status") in ("incomplete", "in_progress") else "{}"


def _encode_call(call: ToolCall, *, own: bool, custom: bool, id_: str) -> Block:
    name, arguments = TOOL_NAMES.encode_name(call.name), repair_surrogates(call.arguments)
    if own and custom:
        return {"type": CUSTOM_CALL, "call_id": id_, "name": name, "input": unwrap_text(arguments)}
    if not own and not is_object(arguments):
        # Some servers parse the arguments of every earlier call, and refuse the request if one is truncated.
        arguments = dumps(encode_arguments(arguments)).decode() if arguments.strip() else "{}"
    return {"type": CALL, "call_id": id_, "name": name, "arguments": arguments}


def _encode_hosted_call(item: Block, id_: str, *, with_ids: bool) -> Block:
    return {
        **_sendable_members(item["type"], item, with_ids=with_ids),
        HOSTED_CALLS[item["type"]].id_member: id_,
    }


def _decode_reasoning(item: Block) -> Reasoning:
    more = extra_members(_KNOWN_MEMBERS[REASONING], item)
    texts: list[str] = []
    lengths: dict[str, list[int]] = {}
    plain = True
    for where, kind in _REASONING_PIECES:
        pieces = item.get(where)
        if not isinstance(pieces, list):
            continue
        piece_texts = [
            text_or_empty(piece.get("text")) if isinstance(piece, dict) else "" for piece in pieces
        ]
        plain = plain and pieces == [{"type": kind, "text": text} for text in piece_texts]
        lengths[where] = list(map(len, piece_texts))
        texts += piece_texts
    text = BETWEEN.join(texts)
    if not plain:
        more |= {where: item[where] for where in lengths}
    elif lengths != {"summary": [len(text)] if text else []}:
        more["lengths"] = lengths
    return Reasoning(
        text=text,
        signature=text_or_empty(item.get("encrypted_content")),
        native=dumps(more).decode() if more else None,
    )


def _encode_reasoning(part: Reasoning, native: Block, *, own: bool) -> Block:
    item: Block = {"type": REASONING}
    lengths = native.pop("lengths", None)
    text = repair_surrogates(part.text)
    if not isinstance(lengths, dict):
        lengths = {"summary": [len(text)] if text else []}
    if not own:
        # Reasoning text of another model was never a summary of this one's reasoning.
        lengths = {"summary": [], "content": [len(text)]}
    at = 0
    for where, kind in _REASONING_PIECES:
        if where in lengths:
            item[where] = []
            for length in lengths[where]:
                item[where].append({"type": kind, "text": text[at : at + length]})
                at += length + len(BETWEEN)
    if own and part.signature:
        item["encrypted_content"] = part.signature
    return item


def _sendable_members(kind: str, members: Mapping[str, Any], *, with_ids: bool) -> Block:
    unwanted = _UNSENT_MEMBERS_BY_ITEM.get(kind, _UNSENT_MEMBERS)
    if (not with_ids and kind not in _ID_ONLY_ITEMS) or not isinstance(members.get("id", ""), str):
        unwanted = unwanted | {"id"}
    kept = _drop_members(members, unwanted)
    if kind == "shell_call_output" and isinstance(pieces := kept.get("output"), list):
        kept["output"] = [
            _drop_members(piece, _UNSENT_MEMBERS) if isinstance(piece, dict) else piece for piece in pieces
        ]
    return kept


def _drop_members(block: Mapping[str, Any], unwanted: set[str]) -> Block:
    if unwanted.isdisjoint(block):
        return dict(block)
    return {name: value for name, value in block.items() if name not in unwanted}
