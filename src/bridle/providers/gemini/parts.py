"""Converts between Gemini's parts and Bridle's.

`decode_part` reads a wire part, `encode_part` writes one; each reverses the other. All code that carries
parts uses these two: complete and streamed replies, decoded and encoded requests.

The signature of a part proves that this endpoint's model generated it, and is bound to that part. For
reasoning it is `signature`; for any other part it is one of the members that the part does not model. Those
are stored in `native`: a JSON object of just those members, so that a log holds nothing twice. Null members
and `thought: false` are dropped. Parts that are not modelled (executed code, the provider's own tools) become
`Opaque`.

Names may have either of the two spellings that the provider's JSON allows; Bridle writes camelCase.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, cast

from msgspec import Raw

from bridle.providers.wire.call_arguments import decode_arguments, encode_arguments
from bridle.providers.wire.hosted import describe_hosted_item
from bridle.providers.wire.json import dumps, is_object, loads, repair_surrogates, text_or_empty
from bridle.providers.wire.tool_names import ToolNameRules
from bridle.values.errors import MisuseError
from bridle.values.message import (
    Media,
    MediaKind,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    is_written_for,
)

FAMILY = "gemini"
Block = dict[str, Any]

SIGNATURE = "thoughtSignature"
CANDIDATE_FIELDS_KIND = "candidate.fields"
"""Kind of an `Opaque` that holds the candidate's members besides its content: sources, citations."""
CONTINUATION_KIND = "continuation"
"""Kind of an `Opaque` that holds the token to continue a paused reply."""
CONTINUATION_TOKEN = "continuationToken"  # noqa: S105 - a field name
UNSENT_KINDS = frozenset({CANDIDATE_FIELDS_KIND, CONTINUATION_KIND})
"""Kinds that are not parts on the wire."""

TOOL_NAMES = ToolNameRules(length_max=128, letters="A-Za-z0-9_.:-", first="A-Za-z_")
_SNAKE_CASE = re.compile(r"_+([a-z0-9])")
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_SIBLING_MEMBERS = frozenset(
    {"thought", SIGNATURE, "videoMetadata", "mediaResolution", "mediaProcessing", "partMetadata"}
)
"""Members that accompany the content of a part and do not determine its kind."""
_MEDIA_TYPES: dict[MediaKind, str] = {
    "image": "image/png",
    "document": "application/pdf",
    "audio": "audio/wav",
    "video": "video/mp4",
}
"""Default media types; the provider requires one."""
_STANDARD_ALPHABET = str.maketrans("-_", "+/")
_DATA_MEMBERS = {"inlineData": "data", "fileData": "fileUri"}
"""The member of each media holder that holds the data."""
_STREAMING_MEMBERS = frozenset({"partialArgs", "willContinue"})
"""Members about the delivery of a call, meaningless once it is complete."""


_HOSTED_KINDS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""Parts that the provider's own tools make."""
_UNKNOWN_INSTRUCTION = "part of systemInstruction"
"""Key in the `native` of a system text for a part with further members; sent only to this family."""


class OriginMatch(IntEnum):
    """Relation between the origin of a part and the endpoint it is encoded for."""

    FOREIGN = 0
    FAMILY = 1
    """The same wire: native members are understood, signatures are not."""
    OWN = 2
    """The same endpoint: everything is sent back unchanged."""


def decode_part(block: Mapping[str, Any], arguments: str | None = None) -> Part:
    """Convert a wire part to a part. `arguments` is the original text of a call's arguments.

    Call ids are left empty, and results have the provider's id: the caller that numbers the calls sets both.
    """
    members = _normalise_members(block)
    if isinstance(call := members.get("functionCall"), dict):
        return _decode_call(members, _normalise_members(call), arguments)
    if isinstance(answer := members.get("functionResponse"), dict):
        return _decode_result(members, _normalise_members(answer))
    # Reasoning must not become text that is shown to users because of an unknown member.
    if members.get("thought") is True and (
        isinstance(members.get("text"), str) or members.keys() - _SIBLING_MEMBERS <= {"text"}
    ):
        native = _extra_members(members, "text", "thought", SIGNATURE)
        return Reasoning(
            text=text_or_empty(members.get("text")),
            signature=text_or_empty(members.get(SIGNATURE)),
            native=native,
        )
    if isinstance(members.get("text"), str) or members.keys() == {SIGNATURE}:
        return Text(text=text_or_empty(members.get("text")), native=_extra_members(members, "text"))
    return _decode_media(members) or make_opaque(members)


def encode_part(
    part: Part, origin_match: OriginMatch, *, name: str = "", sent_id: str = ""
) -> Block | Raw | None:
    """Convert a part to a wire part; None for blank text. A call and its result share `name` and `sent_id`."""
    if origin_match is OriginMatch.FOREIGN and is_written_for(part, FAMILY):
        origin_match = OriginMatch.FAMILY
    if isinstance(part, Opaque):
        return _encode_opaque(part, origin_match)
    native = native_members(part, origin_match)
    block: Block
    match part:
        case Text(text=text):
            if not text.strip() and not native:
                return None
            block = {"text": repair_surrogates(text)}
        case Reasoning(text=text, signature=signature):
            block = {"text": repair_surrogates(text), "thought": True} if text else {"thought": True}
            # defect: signature-sent-back
            if signature and origin_match is OriginMatch.OWN:
                block[SIGNATURE] = signature
        case ToolCall(arguments=arguments):
            block = {"functionCall": {"name": name, "args": encode_arguments(arguments)}}
            if sent_id:
                block["functionCall"]["id"] = sent_id
        case ToolResult():
            block = {"functionResponse": _encode_result(part, origin_match, name, sent_id)}
        case Media():
            block = _encode_media(part)
    return _merge_native(block, native)


def decode_instruction(block: Mapping[str, Any]) -> Text:
    """Convert a system part to a text. A part of an unknown kind is stored in an empty text."""
    part = decode_part(block)
    if isinstance(part, Text) and part.native is None:
        return part
    text = part.text if isinstance(part, Text) else ""
    return Text(text=text, native=dumps({_UNKNOWN_INSTRUCTION: block}).decode())


def encode_instruction(text: Text) -> Block | Raw | None:
    if text.native is not None and _UNKNOWN_INSTRUCTION in text.native:
        kept: Block = loads(text.native)
        return cast("Block", kept[_UNKNOWN_INSTRUCTION])
    return encode_part(text, OriginMatch.FOREIGN)


def native_members(
    part: Text | Reasoning | ToolCall | ToolResult | Media, origin_match: OriginMatch
) -> Block:
    """Return the members that parts do not model and that may be sent to this endpoint."""
    if part.native is None or origin_match is OriginMatch.FOREIGN:
        return {}
    members: Block = loads(part.native)
    if origin_match is not OriginMatch.OWN:
        members.pop(SIGNATURE, None)
    return members


def encode_tool_name(name: str) -> str:
    return TOOL_NAMES.encode_name(name)


def to_camel_case(name: str) -> str:
    return _SNAKE_CASE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def normalise_arguments(written: bytes) -> str:
    """Return arguments as written, on one line: complete replies spread them over many."""
    return _LINE_BREAKS.sub("", repair_surrogates(written.decode("utf-8", "replace")))


def make_opaque(members: Block) -> Opaque:
    kind = next((name for name in members if name not in _SIBLING_MEMBERS), "")
    text = describe_hosted_item(kind, members.get(kind)) if kind in _HOSTED_KINDS else ""
    return Opaque(kind=kind, native=dumps(members).decode(), text=text)


def make_candidate_fields(fields: Block) -> Opaque:
    """Keep the members of a candidate besides its content; as text they are the queries and the sources."""
    grounding = fields.get("groundingMetadata")
    named = grounding if isinstance(grounding, dict) else {}
    sources = {name: named.get(name) for name in ("webSearchQueries", "groundingChunks")}
    text = describe_hosted_item("search", sources)
    return Opaque(kind=CANDIDATE_FIELDS_KIND, native=dumps(fields).decode(), text=text)


def _normalise_members(block: Mapping[str, Any]) -> Block:
    return {
        to_camel_case(name): value
        for name, value in block.items()
        if value is not None and not (name == "thought" and value is False)
    }


def _decode_call(members: Block, call: Block, arguments: str | None) -> ToolCall:
    if arguments is None:
        arguments = dumps(call.get("args") or {}).decode()
    more = {
        name: value for name, value in call.items() if name not in {"id", "name", "args", *_STREAMING_MEMBERS}
    }
    rest = {name: value for name, value in members.items() if name != "functionCall"}
    return ToolCall(
        id="",
        name=text_or_empty(call.get("name")),
        arguments=decode_arguments(arguments),
        wire_id=text_or_empty(call.get("id")),
        native=_encode_members({"functionCall": more, **rest} if more else rest),
    )


def _decode_result(block: Block, answer: Block) -> ToolResult:
    """Decode a result to text; a response that text cannot reproduce is kept in `native`."""
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
    rest = {member: value for member, value in block.items() if member != "functionResponse"}
    return ToolResult(
        call_id=call_id,
        parts=tuple(parts),
        outcome="error" if "error" in members else "ok",
        native=_encode_members({"functionResponse": answer, **rest} if answer else rest),
    )


def _is_reproducible(response: Block) -> bool:
    """Return True if encoding the result again gives this response."""
    if len(response) != 1:
        return False
    ((key, text),) = response.items()
    return isinstance(text, str) and (
        (key in ("output", "error") and bool(text.strip())) or (key, text) == ("output", "")
    )


def _encode_result(result: ToolResult, origin_match: OriginMatch, name: str, sent_id: str) -> Block:
    texts = [
        repair_surrogates(part.text) for part in result.parts if isinstance(part, Text) and part.text.strip()
    ]
    text = "\n".join(texts)
    if result.is_error and not text:
        text = f"The call ended without a word: {result.outcome}."
    answer: Block = {"id": sent_id} if sent_id else {}
    answer |= {"name": name, "response": {"error" if result.is_error else "output": text}}
    beside = [
        block
        for part in result.parts
        if not isinstance(part, Text) and (block := encode_part(part, origin_match)) is not None
    ]
    if beside:
        answer["parts"] = beside
    return answer


def _decode_media(members: Block) -> Media | None:
    """Decode media; None if it is not media, or `Media` cannot represent it."""
    content = members.keys() - _SIBLING_MEMBERS
    holder = next((name for name in _DATA_MEMBERS if content == {name}), "")
    source = members.get(holder)
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
    rest = {name: value for name, value in members.items() if name != holder}
    return Media.from_wire(
        kind=_media_kind(media_type),
        media_type=media_type,
        data=_to_standard_base64(place) if inline else "",
        url="" if inline else place,
        name=text_or_empty(source.get("displayName")),
        native=_encode_members({holder: more, **rest} if more else rest),
    )


def _to_standard_base64(data: str) -> str:
    """The data in the alphabet of every other wire; this one takes that for URLs too, which Google's SDK writes."""
    if "-" not in data and "_" not in data:
        return data
    return data.translate(_STANDARD_ALPHABET) + "=" * (-len(data) % 4)


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


def _encode_opaque(part: Opaque, origin_match: OriginMatch) -> Raw | Block | None:
    if origin_match is OriginMatch.FOREIGN and part.text.strip():
        return {"text": repair_surrogates(part.text)}
    if origin_match is OriginMatch.FOREIGN or part.kind in UNSENT_KINDS:
        return None
    if not is_object(part.native):
        raise MisuseError(f"an opaque part of kind {part.kind!r} holds no JSON object: it cannot be sent")
    if origin_match is OriginMatch.OWN:
        return Raw(repair_surrogates(part.native))
    return {name: value for name, value in loads(part.native).items() if name != SIGNATURE}


def _merge_native(block: Block, native: Block) -> Block:
    """Merge native members into a block: they take precedence."""
    for name, value in native.items():
        under = block.get(name)
        block[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return block


def _extra_members(members: Block, *modelled: str) -> str | None:
    return _encode_members({name: value for name, value in members.items() if name not in modelled})


def _encode_members(members: Block) -> str | None:
    return dumps(members).decode() if members else None
