"""Converts between content blocks of Bedrock Converse and Bridle's parts.

`decode_part` reads a block, `encode_part` writes one; each reverses the other. All code that carries blocks
uses these two: replies in JSON, streamed replies, decoded and encoded requests. That is why a streamed reply
equals the same reply in JSON.

A block is an object with one member, which names its kind. Text has several kinds: plain, with citations,
guarded, a search result, JSON in a result. All of them become `Text`, so that any other family can read them;
`native` then holds the kind and the block's other members. For other parts `native` holds the members that
the part does not model. Null members are dropped. Blocks that are not modelled become `Opaque`; so do calls
and results of the provider's own tools inside a reply, because they must not run again.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.wire.call_arguments import decode_arguments, encode_arguments
from bridle.providers.wire.json import (
    drop_nulls,
    dumps,
    is_object,
    loads,
    raw_json,
    repair_surrogates,
    text_or_empty,
)
from bridle.providers.wire.media import describe_omitted_media, lighten_media
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult

from .dialect import DEFAULT_DIALECT, BedrockDialect
from .media import MEDIA_BLOCKS, decode_media, encode_media, is_text_piece

Block = dict[str, Any]

CACHE_POINT = "cachePoint"
NO_OUTPUT_TEXT = "(no output)"
"""Some models refuse a result without content; all accept this."""
_PLAIN_CALL_TYPE = "tool_use"
"""A call type that only replies name: it is the default, and it may not be sent back."""
_PIECE_SEPARATORS = {"citationsContent": "", "searchResult": "\n\n"}
"""Kinds whose text is a list of pieces, and the separator to join them."""
_TEXT_BLOCKS = {*_PIECE_SEPARATORS, "guardContent", "json"}
_KNOWN_BLOCKS = {"text", "toolUse", "toolResult", "reasoningContent", *_TEXT_BLOCKS, *MEDIA_BLOCKS}
_BESIDE_KEY = "beside the block"
"""Key in `native` for members beside the one that names the kind."""
_AROUND_KEY = "around the thought"


def decode_part(block: Block, arguments: str | None = None, *, of_model: bool) -> Part:
    """Convert a block to a part. `arguments` is the original text of a call's input, if available.

    `of_model`: the block is from a model. Only a model makes calls, and only others answer them. Call ids are
    left empty, and results have the provider's id: the caller that numbers the calls sets both.
    """
    said = drop_nulls(block)
    if len(said) > 1 and isinstance(said.get("type"), str):
        del said["type"]
    known = [name for name in said if name in _KNOWN_BLOCKS]
    if len(said) > 1 and len(known) == 1:
        # An unknown additional member must not hide a call or an answer.
        part = decode_part({known[0]: said[known[0]]}, arguments, of_model=of_model)
        if isinstance(part, Opaque):
            return replace(part, native=dumps(said).decode())
        beside = {name: value for name, value in said.items() if name != known[0]}
        return replace(part, native=dumps({**loads(part.native or "{}"), _BESIDE_KEY: beside}).decode())
    kind, inner = next(iter(said.items()), ("", None))
    found: Part | None = None
    if len(said) == 1:
        if kind == "text" and isinstance(inner, str):
            found = Text(text=repair_surrogates(inner))
        elif kind in _TEXT_BLOCKS:
            found = _decode_text_block(kind, inner)
        elif isinstance(inner, dict):
            found = _decode_structured(kind, inner, arguments, of_model=of_model)
    return found or Opaque(kind=kind, native=dumps(said or block).decode())


def encode_part(
    part: Part,
    *,
    own: bool,
    sent_id: str = "",
    blank: bool = False,
    dialect: BedrockDialect = DEFAULT_DIALECT,
) -> Block | Raw | None:
    """Convert a part to a block; None if it has no content on this wire.

    `own`: the part came from this very model, so its native members are sent again, and an opaque part is
    sent unchanged. `sent_id` is the id that a call and its result share. `blank`: blank texts are written
    too, as models do and others may not.
    """
    if own and part.native is not None and _BESIDE_KEY in part.native and not isinstance(part, Opaque):
        kept: Block = loads(part.native)
        beside = kept.pop(_BESIDE_KEY, {})
        bare = replace(part, native=dumps(kept).decode() if kept else None)
        block = encode_part(bare, own=True, sent_id=sent_id, blank=blank, dialect=dialect)
        return {**block, **beside} if isinstance(block, dict) else block
    match part:
        case Text():
            return _encode_text(part, own=own, blank=blank)
        case Media(kind=kind):
            inner = encode_media(part, own=own)
            return {"text": describe_omitted_media(part)} if inner is None else {kind: inner}
        case Reasoning():
            return {"reasoningContent": _encode_reasoning(part, own=own)}
        case ToolCall(arguments=arguments):
            used = {
                "toolUseId": sent_id,
                "name": NAMES_64.encode_name(part.name),
                "input": encode_arguments(arguments),
            }
            return {"toolUse": {**used, **_native_members(part, own=own)}}
        case ToolResult():
            return {"toolResult": _encode_result(part, own=own, sent_id=sent_id, dialect=dialect)}
        case Opaque(text=text) if text and not own:
            return _encode_text(Text(text=text), own=own, blank=blank)
        case Opaque(kind=kind, native=native):
            if own and not is_object(native):
                raise MisuseError(f"an opaque part of kind {kind!r} holds no JSON object: it cannot be sent")
            return raw_json(native) if own else None


def block_type(block: Block | Raw) -> str:
    return next(iter(block if isinstance(block, dict) else loads(bytes(block))), "")


def _decode_structured(kind: str, inner: Block, arguments: str | None, *, of_model: bool) -> Part | None:
    match kind:
        case "toolUse" if of_model and inner.get("type") in (None, _PLAIN_CALL_TYPE):
            return _decode_call(inner, arguments)
        case "toolResult" if not of_model:
            return _decode_result(inner)
        case "reasoningContent":
            return _decode_reasoning(inner)
        case _ if kind in MEDIA_BLOCKS:
            return decode_media(MEDIA_BLOCKS[kind], inner)
    return None


def _decode_text_block(kind: str, inner: Any) -> Text | None:
    match kind, inner:
        case "json", _:
            return Text(text=dumps(inner).decode(), native='{"json":null}')
        case "guardContent", {"text": {"text": str(words), **beside}, **rest} if not rest:
            return Text(text=repair_surrogates(words), native=dumps({kind: {"text": beside}}).decode())
        case _, {"content": [_, *_] as pieces, **beside} if any(map(is_text_piece, pieces)):
            # An unknown piece must not hide the text of the others.
            words = _PIECE_SEPARATORS[kind].join(piece["text"] for piece in pieces if is_text_piece(piece))
            kept = beside if len(pieces) == 1 else inner
            return Text(text=repair_surrogates(words), native=dumps({kind: kept}).decode())
    return None


def _encode_text(text: Text, *, own: bool, blank: bool) -> Block | None:
    words = repair_surrogates(text.text)
    native = loads(text.native) if own and text.native else None
    kept: Block = native if isinstance(native, dict) else {}
    kind = next(iter(kept), "text")
    beside: Any = kept.get(kind)
    if kind != "text" and kind not in _TEXT_BLOCKS and not words:
        return kept  # a block without text, stored in an empty text
    if not words.strip() and not blank:
        return None
    match kind:
        case "json":
            return {"json": raw_json(words)}
        case "guardContent":
            return {kind: {"text": {"text": words, **beside["text"]}}}
        case "citationsContent" | "searchResult":
            return {kind: {"content": [{"text": words}], **beside}}
    return {"text": words}


def _decode_call(inner: Block, arguments: str | None) -> ToolCall:
    if arguments is None:
        arguments = dumps(inner.get("input") or {}).decode()
    return ToolCall(
        id="",
        name=text_or_empty(inner.get("name")),
        arguments=decode_arguments(arguments),
        wire_id=text_or_empty(inner.get("toolUseId")),
        native=_extra_members(inner, "toolUseId", "name", "input", "type"),
    )


def _decode_result(inner: Block) -> ToolResult:
    content, status = inner.get("content"), inner.get("status")
    shown = ("toolUseId", "content", "status") if status in ("success", "error") else ("toolUseId", "content")
    return ToolResult(
        call_id=text_or_empty(inner.get("toolUseId")),
        parts=tuple(_decode_inner_part(block) for block in content if isinstance(block, dict))
        if isinstance(content, list)
        else (),
        outcome="error" if status == "error" else "ok",
        native=_extra_members(inner, *shown),
    )


def _decode_inner_part(block: Block) -> Text | Media | Opaque:
    part = decode_part(block, of_model=True)
    if isinstance(part, Text | Media | Opaque):
        return part
    return Opaque(kind=block_type(block), native=dumps(block).decode())


def _encode_result(result: ToolResult, *, own: bool, sent_id: str, dialect: BedrockDialect) -> Block:
    content = [inner for part in result.parts if (inner := _encode_result_part(part, own=own)) is not None]
    if not content and result.is_error:
        content = [{"text": f"The call ended without a word: {result.outcome}."}]
    elif not content and not own:
        content = [{"text": NO_OUTPUT_TEXT}]
    block: Block = {"toolUseId": sent_id, "content": content}
    if result.is_error and dialect.result_status:
        block["status"] = "error"
    elif result.is_error:
        block["content"] = [{"text": f"[error: {result.outcome}]"}, *content]
    return {**block, **_native_members(result, own=own)}


def has_media_form(media: Media, *, in_result: bool) -> bool:
    """False if a text is sent in place of this media."""
    return (
        not (in_result and media.kind == "audio")
        and encode_media(lighten_media(media), own=False) is not None
    )


def _encode_result_part(part: Text | Media | Opaque, *, own: bool) -> Block | Raw | None:
    if isinstance(part, Media) and part.kind == "audio" and not own:
        return {"text": describe_omitted_media(part)}
    return encode_part(part, own=own)


def _decode_reasoning(inner: Block) -> Reasoning | None:
    match drop_nulls(inner):
        case {"redactedContent": str(sealed), **rest} if not rest:
            return Reasoning(signature=sealed, redacted=True)
        case {"reasoningText": {"text": str(text)} as thought, **rest}:
            more = drop_nulls(thought)
            signature = text_or_empty(more.pop("signature", ""))
            del more["text"]
            kept = {**more, **({_AROUND_KEY: rest} if rest else {})}
            native = dumps(kept).decode() if kept else None
            return Reasoning(text=repair_surrogates(text), signature=signature, native=native)
    return None


def _encode_reasoning(thought: Reasoning, *, own: bool) -> Block:
    if thought.redacted:
        return {"redactedContent": thought.signature}
    text = {"text": repair_surrogates(thought.text)}
    if thought.signature:
        text["signature"] = thought.signature
    more = _native_members(thought, own=own)
    around = more.pop(_AROUND_KEY, {})
    return {"reasoningText": {**text, **more}, **around}


def _native_members(part: ToolCall | ToolResult | Reasoning, *, own: bool) -> Block:
    more: Block = loads(part.native) if own and part.native is not None else {}
    return more


def _extra_members(inner: Mapping[str, Any], *shown: str) -> str | None:
    """Return the members that parts do not model, as JSON; None if there are none."""
    more = {name: value for name, value in inner.items() if name not in shown and value is not None}
    return dumps(more).decode() if more else None
