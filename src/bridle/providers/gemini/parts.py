"""Gemini's parts and ours, both ways.

`part_of` reads a part of theirs, `block_of` writes one; each undoes the other.  Everything that
carries parts uses these two: replies whole and streamed, requests read and requests written.

The signature on a part is proof that this endpoint's model thought, bound to the very part it came
on.  Of a thought it is the `signature`; of anything else it is a member beyond our view.  Those are
kept as the part's `native`: a JSON object of just the members we have no field for, so that a log
holds nothing twice.  Null members and `thought: false` say nothing and are not kept.  Parts we do not
interpret (code that was run, the provider's own tools) become `Opaque`, whole.

Names may be written in either of the two spellings the provider's JSON allows; ours are camelCase.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, cast

from msgspec import Raw

from bridle.providers.wire.call_arguments import decode_arguments, encode_arguments
from bridle.providers.wire.json import dumps, is_object, loads, repair_surrogates, text_or_empty
from bridle.providers.wire.tool_names import ToolNameRules
from bridle.values.errors import MisuseError
from bridle.values.message import Media, MediaKind, Opaque, Part, Reasoning, Text, ToolCall, ToolResult

FAMILY = "gemini"
Block = dict[str, Any]

SIGNATURE = "thoughtSignature"
CANDIDATE_FIELDS_KIND = "candidate.fields"
"""The kind of an `Opaque` that holds what was said beside the content: sources, citations."""
CONTINUATION_KIND = "continuation"
"""The kind of an `Opaque` that holds the token by which a paused reply is gone on with."""
CONTINUATION_TOKEN = "continuationToken"  # noqa: S105 - a field name
UNSENT_KINDS = frozenset({CANDIDATE_FIELDS_KIND, CONTINUATION_KIND})
"""Kinds that are no parts on the wire."""

TOOL_NAMES = ToolNameRules(length_max=128, letters="A-Za-z0-9_.:-", first="A-Za-z_")
_SNAKE_CASE = re.compile(r"_+([a-z0-9])")
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_SIBLING_MEMBERS = frozenset(
    {"thought", SIGNATURE, "videoMetadata", "mediaResolution", "mediaProcessing", "partMetadata"}
)
"""Members that stand beside what a part is, and do not say it."""
_MEDIA_TYPES: dict[MediaKind, str] = {
    "image": "image/png",
    "document": "application/pdf",
    "audio": "audio/wav",
    "video": "video/mp4",
}
"""What media without a type is taken for; the provider takes none without one."""
_DATA_MEMBERS = {"inlineData": "data", "fileData": "fileUri"}
"""Where each holder of media has what it holds."""
_STREAMING_MEMBERS = frozenset({"partialArgs", "willContinue"})
"""How a call was delivered, which says nothing once it is whole."""


_UNKNOWN_INSTRUCTION = "part of systemInstruction"
"""Where the `native` of a text in the system keeps a part that says more; nobody else's goes out here."""


class OriginMatch(IntEnum):
    """How near the maker of a part is to the endpoint it is written for."""

    FOREIGN = 0
    FAMILY = 1
    """The same wire: native members are understood, signatures are not."""
    OWN = 2
    """The same endpoint: everything goes back as it came."""


def decode_part(block: Mapping[str, Any], arguments: str | None = None) -> Part:
    """A part of theirs as ours.  `arguments` is the text of a call's arguments as it arrived.

    Ids of calls are left empty, and results name the provider's id: whoever numbers calls sets both.
    """
    said = _normalise_members(block)
    if isinstance(call := said.get("functionCall"), dict):
        return _decode_call(said, _normalise_members(call), arguments)
    if isinstance(answer := said.get("functionResponse"), dict):
        return _decode_result(said, _normalise_members(answer))
    # A thought that is taken for words is shown to somebody: a member of next year must not do that.
    if said.get("thought") is True and (
        isinstance(said.get("text"), str) or said.keys() - _SIBLING_MEMBERS <= {"text"}
    ):
        native = _extra_members(said, "text", "thought", SIGNATURE)
        return Reasoning(
            text=text_or_empty(said.get("text")), signature=text_or_empty(said.get(SIGNATURE)), native=native
        )
    if isinstance(said.get("text"), str) or said.keys() == {SIGNATURE}:
        return Text(text=text_or_empty(said.get("text")), native=_extra_members(said, "text"))
    return _decode_media(said) or make_opaque(said)


def encode_part(part: Part, kinship: OriginMatch, *, name: str = "", sent_id: str = "") -> Block | Raw | None:
    """A part as one of theirs, or None when it has nothing to say on this wire.

    `name` and `sent_id` are those a call and its result share.
    """
    if isinstance(part, Opaque):
        return _encode_opaque(part, kinship)
    native = native_members(part, kinship)
    block: Block
    match part:
        case Text(text=text):
            if not text.strip() and not native:
                return None
            block = {"text": repair_surrogates(text)}
        case Reasoning(text=text, signature=signature):
            block = {"text": repair_surrogates(text), "thought": True} if text else {"thought": True}
            if signature and kinship is OriginMatch.OWN:
                block[SIGNATURE] = signature
        case ToolCall(arguments=arguments):
            block = {"functionCall": {"name": name, "args": encode_arguments(arguments)}}
            if sent_id:
                block["functionCall"]["id"] = sent_id
        case ToolResult():
            block = {"functionResponse": _encode_result(part, kinship, name, sent_id)}
        case Media():
            block = _encode_media(part)
    return _merge_native(block, native)


def decode_instruction(block: Mapping[str, Any]) -> Text:
    """A part of the system.  Ours is made of texts: one of next year is carried by a text without words."""
    part = decode_part(block)
    if isinstance(part, Text) and part.native is None:
        return part
    words = part.text if isinstance(part, Text) else ""
    return Text(text=words, native=dumps({_UNKNOWN_INSTRUCTION: block}).decode())


def encode_instruction(text: Text) -> Block | Raw | None:
    if text.native is not None and _UNKNOWN_INSTRUCTION in text.native:
        kept: Block = loads(text.native)
        return cast("Block", kept[_UNKNOWN_INSTRUCTION])
    return encode_part(text, OriginMatch.FOREIGN)


def native_members(part: Text | Reasoning | ToolCall | ToolResult | Media, kinship: OriginMatch) -> Block:
    """The members beyond our view that may go to this endpoint."""
    if part.native is None or kinship is OriginMatch.FOREIGN:
        return {}
    members: Block = loads(part.native)
    if kinship is not OriginMatch.OWN:
        members.pop(SIGNATURE, None)
    return members


def encode_tool_name(name: str) -> str:
    """A tool's name as this wire allows it."""
    return TOOL_NAMES.encode_name(name)


def to_camel_case(name: str) -> str:
    return _SNAKE_CASE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def normalise_arguments(written: bytes) -> str:
    """Arguments as they are written, on one line: replies given whole are spread over many."""
    return _LINE_BREAKS.sub("", repair_surrogates(written.decode("utf-8", "replace")))


def make_opaque(said: Block) -> Opaque:
    kind = next((name for name in said if name not in _SIBLING_MEMBERS), "")
    return Opaque(kind=kind, native=dumps(said).decode())


def _normalise_members(block: Mapping[str, Any]) -> Block:
    return {
        to_camel_case(name): value
        for name, value in block.items()
        if value is not None and not (name == "thought" and value is False)
    }


def _decode_call(said: Block, call: Block, arguments: str | None) -> ToolCall:
    if arguments is None:
        arguments = dumps(call.get("args") or {}).decode()
    more = {
        name: value for name, value in call.items() if name not in {"id", "name", "args", *_STREAMING_MEMBERS}
    }
    rest = {name: value for name, value in said.items() if name != "functionCall"}
    return ToolCall(
        id="",
        name=text_or_empty(call.get("name")),
        arguments=decode_arguments(arguments),
        wire_id=text_or_empty(call.get("id")),
        native=_encode_members({"functionCall": more, **rest} if more else rest),
    )


def _decode_result(said: Block, answer: Block) -> ToolResult:
    """The result in words; what no words of ours would give back is kept as the provider's own."""
    response = answer.pop("response", None)
    members = response if isinstance(response, dict) else {}
    only = next(iter(members.values())) if len(members) == 1 else None
    parts: list[Text | Media | Opaque] = []
    if isinstance(only, str):
        parts += [Text(text=repair_surrogates(only))] if only.strip() else []
    elif members:
        parts.append(Text(text=dumps(members).decode()))
    beside = answer.pop("parts", None)
    for inner in beside if isinstance(beside, list) else ():
        if isinstance(inner, dict):
            parts.append(_decode_media(_normalise_members(inner)) or make_opaque(_normalise_members(inner)))
    call_id = text_or_empty(answer.pop("id", ""))
    answer.pop("name", None)
    if response is not None and not _is_reproducible(members):
        answer["response"] = response
    rest = {member: value for member, value in said.items() if member != "functionResponse"}
    return ToolResult(
        call_id=call_id,
        parts=tuple(parts),
        outcome="error" if "error" in members else "ok",
        native=_encode_members({"functionResponse": answer, **rest} if answer else rest),
    )


def _is_reproducible(response: Block) -> bool:
    """Whether writing the result anew gives this very response."""
    if len(response) != 1:
        return False
    ((key, said),) = response.items()
    return isinstance(said, str) and (
        (key in ("output", "error") and bool(said.strip())) or (key, said) == ("output", "")
    )


def _encode_result(result: ToolResult, kinship: OriginMatch, name: str, sent_id: str) -> Block:
    texts = [
        repair_surrogates(part.text) for part in result.parts if isinstance(part, Text) and part.text.strip()
    ]
    said = "\n".join(texts)
    if result.is_error and not said:
        said = f"The call ended without a word: {result.outcome}."
    answer: Block = {"id": sent_id} if sent_id else {}
    answer |= {"name": name, "response": {"error" if result.is_error else "output": said}}
    beside = [
        block
        for part in result.parts
        if not isinstance(part, Text) and (block := encode_part(part, kinship)) is not None
    ]
    if beside:
        answer["parts"] = beside
    return answer


def _decode_media(said: Block) -> Media | None:
    """None when it is no media, or of a kind ours cannot hold."""
    kept = said.keys() - _SIBLING_MEMBERS
    holder = next((name for name in _DATA_MEMBERS if kept == {name}), "")
    source = said.get(holder)
    if not holder or not isinstance(source, dict):
        return None
    source = _normalise_members(source)
    media_type, place = source.get("mimeType", ""), source.get(_DATA_MEMBERS[holder])
    inline = holder == "inlineData"
    if not isinstance(media_type, str) or not isinstance(place, str) or not place:
        return None
    if inline and not media_type:
        return None
    more = {name: value for name, value in source.items() if name not in ("mimeType", _DATA_MEMBERS[holder])}
    rest = {name: value for name, value in said.items() if name != holder}
    return Media.from_wire(
        kind=_media_kind(media_type),
        media_type=media_type,
        data=place if inline else "",
        url="" if inline else place,
        name=text_or_empty(source.get("displayName")),
        native=_encode_members({holder: more, **rest} if more else rest),
    )


def _media_kind(media_type: str) -> MediaKind:
    match media_type.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
    return "document"


def _encode_media(media: Media) -> Block:
    if place := media.url or media.file_id:
        linked = {"mimeType": media.media_type} if media.media_type else {}
        return {"fileData": {**linked, "fileUri": repair_surrogates(place)}}
    media_type = media.media_type or _MEDIA_TYPES[media.kind]
    return {"inlineData": {"mimeType": media_type, "data": media.data}}


def _encode_opaque(part: Opaque, kinship: OriginMatch) -> Raw | Block | None:
    if kinship is OriginMatch.FOREIGN and part.text.strip():
        return {"text": repair_surrogates(part.text)}
    if kinship is OriginMatch.FOREIGN or part.kind in UNSENT_KINDS:
        return None
    if not is_object(part.native):
        raise MisuseError(f"an opaque part of kind {part.kind!r} holds no JSON object: it cannot be sent")
    if kinship is OriginMatch.OWN:
        return Raw(repair_surrogates(part.native))
    return {name: value for name, value in loads(part.native).items() if name != SIGNATURE}


def _merge_native(block: Block, native: Block) -> Block:
    """The block with its native members: they say more exactly what we wrote ourselves."""
    for name, value in native.items():
        under = block.get(name)
        block[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return block


def _extra_members(said: Block, *shown: str) -> str | None:
    return _encode_members({name: value for name, value in said.items() if name not in shown})


def _encode_members(members: Block) -> str | None:
    return dumps(members).decode() if members else None
