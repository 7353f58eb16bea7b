"""Content blocks of Bedrock Converse and our parts, both ways.

`part_of` reads a block, `block_of` writes one; each undoes the other.  Everything that carries blocks
uses these two: replies in JSON, replies put together from a stream, requests read and requests written.
That is why a streamed reply equals the same reply in JSON.

A block is an object with one member, which says its kind.  Words come in several kinds of it: plain, with
citations, guarded, found by a search, as JSON in a result.  All of them are texts to us, so that any other
family can read them; `native` then holds the kind, and what the block says beside the words.  For other
parts `native` holds the members our view leaves out.  Null says nothing and is not kept.  Blocks we do not
interpret become `Opaque`, whole: so does what the provider's own tools asked and answered inside a reply,
because nobody here may run it again.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..values.errors import MisuseError
from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ._arguments import object_of, text_of
from ._bedrock_converse_dialect import DIALECT, Dialect
from ._bedrock_converse_media import KINDS, inner_of, left_out, media_of
from ._json import dumps, is_object, loads, mended, raw
from ._names import SHORT

Block = dict[str, Any]

CACHE_POINT = "cachePoint"
NO_OUTPUT = "(no output)"
"""Not every model takes a result without content; none objects to this."""
_PLAIN_CALL = "tool_use"
"""A type of call that only replies name: it is the one to expect, and it may not be sent back."""
_BETWEEN_PIECES = {"citationsContent": "", "searchResult": "\n\n"}
"""Kinds whose words are a list of pieces, and what stands between those when they are read as one."""
_WORDED = {*_BETWEEN_PIECES, "guardContent", "json"}
_KNOWN = {"text", "toolUse", "toolResult", "reasoningContent", *_WORDED, *KINDS}
_BESIDE = "beside the block"
"""Where `native` keeps members that stand beside the one that says the kind."""
_AROUND = "around the thought"


def part_of(block: Block, arguments: str | None = None, *, of_model: bool) -> Part:
    """A block as a part.  `arguments` is the text of a call's input as it arrived, where it is at hand.

    `of_model`: whether a model said it.  Only a model calls, and only others answer.
    Ids of calls are left empty, and results name the provider's id: whoever numbers calls sets both.
    """
    said = {name: value for name, value in block.items() if value is not None}
    if len(said) > 1 and isinstance(said.get("type"), str):
        del said["type"]
    known = [name for name in said if name in _KNOWN]
    if len(said) > 1 and len(known) == 1:
        # A member of next year beside the one we know must not hide a call or an answer.
        part = part_of({known[0]: said[known[0]]}, arguments, of_model=of_model)
        if isinstance(part, Opaque):
            return replace(part, native=dumps(said).decode())
        beside = {name: value for name, value in said.items() if name != known[0]}
        return replace(part, native=dumps({**loads(part.native or "{}"), _BESIDE: beside}).decode())
    kind, inner = next(iter(said.items()), ("", None))
    found: Part | None = None
    if len(said) == 1:
        if kind == "text" and isinstance(inner, str):
            found = Text(text=mended(inner))
        elif kind in _WORDED:
            found = _words(kind, inner)
        elif isinstance(inner, dict):
            found = _structured(kind, inner, arguments, of_model=of_model)
    return found or Opaque(kind=kind, native=dumps(said or block).decode())


def block_of(
    part: Part, *, own: bool, sent_id: str = "", blank: bool = False, dialect: Dialect = DIALECT
) -> Block | Raw | None:
    """A part as a block, or None when it has nothing to say on this wire.

    `own`: the part came from this very model, so its native members go out again, and an opaque part
    does so to the letter.  `sent_id` is the id a call and its result share.  `blank`: whether texts
    that say nothing are written too, as models do and nobody else may.
    """
    if own and part.native is not None and _BESIDE in part.native and not isinstance(part, Opaque):
        kept: Block = loads(part.native)
        beside = kept.pop(_BESIDE, {})
        bare = replace(part, native=dumps(kept).decode() if kept else None)
        block = block_of(bare, own=True, sent_id=sent_id, blank=blank, dialect=dialect)
        return {**block, **beside} if isinstance(block, dict) else block
    match part:
        case Text():
            return _text_block(part, own=own, blank=blank)
        case Media(kind=kind):
            inner = inner_of(part, own=own)
            return {"text": left_out(part)} if inner is None else {kind: inner}
        case Reasoning():
            return {"reasoningContent": _thought(part, own=own)}
        case ToolCall(arguments=arguments):
            used = {"toolUseId": sent_id, "name": SHORT.on_wire(part.name), "input": object_of(arguments)}
            return {"toolUse": {**used, **_native(part, own=own)}}
        case ToolResult():
            return {"toolResult": _result(part, own=own, sent_id=sent_id, dialect=dialect)}
        case Opaque(text=text) if text and not own:
            return _text_block(Text(text=text), own=own, blank=blank)
        case Opaque(kind=kind, native=native):
            if own and not is_object(native):
                raise MisuseError(f"an opaque part of kind {kind!r} holds no JSON object: it cannot be sent")
            return raw(native) if own else None


def kind_of(block: Block | Raw) -> str:
    return next(iter(block if isinstance(block, dict) else loads(bytes(block))), "")


def _structured(kind: str, inner: Block, arguments: str | None, *, of_model: bool) -> Part | None:
    match kind:
        case "toolUse" if of_model and inner.get("type") in (None, _PLAIN_CALL):
            return _call(inner, arguments)
        case "toolResult" if not of_model:
            return _answer(inner)
        case "reasoningContent":
            return _reasoning(inner)
        case _ if kind in KINDS:
            return media_of(KINDS[kind], inner)
    return None


def _words(kind: str, inner: Any) -> Text | None:
    match kind, inner:
        case "json", _:
            return Text(text=dumps(inner).decode(), native='{"json":null}')
        case "guardContent", {"text": {"text": str(words), **beside}, **rest} if not rest:
            return Text(text=mended(words), native=dumps({kind: {"text": beside}}).decode())
        case _, {"content": [_, *_] as pieces, **beside} if any(map(_is_piece, pieces)):
            # A piece of next year must not hide the words beside it.
            words = _BETWEEN_PIECES[kind].join(piece["text"] for piece in pieces if _is_piece(piece))
            kept = beside if len(pieces) == 1 else inner
            return Text(text=mended(words), native=dumps({kind: kept}).decode())
    return None


def _text_block(text: Text, *, own: bool, blank: bool) -> Block | None:
    words = mended(text.text)
    native = loads(text.native) if own and text.native else None
    kept: Block = native if isinstance(native, dict) else {}
    kind = next(iter(kept), "text")
    beside: Any = kept.get(kind)
    if kind != "text" and kind not in _WORDED and not words:
        return kept  # carried by a text because there was no other place for it
    if not words.strip() and not blank:
        return None
    match kind:
        case "json":
            return {"json": raw(words)}
        case "guardContent":
            return {kind: {"text": {"text": words, **beside["text"]}}}
        case "citationsContent" | "searchResult":
            return {kind: {"content": [{"text": words}], **beside}}
    return {"text": words}


def _call(inner: Block, arguments: str | None) -> ToolCall:
    if arguments is None:
        arguments = dumps(inner.get("input") or {}).decode()
    return ToolCall(
        id="",
        name=_word(inner.get("name")),
        arguments=text_of(arguments),
        wire_id=_word(inner.get("toolUseId")),
        native=_beyond(inner, "toolUseId", "name", "input", "type"),
    )


def _answer(inner: Block) -> ToolResult:
    content, status = inner.get("content"), inner.get("status")
    shown = ("toolUseId", "content", "status") if status in ("success", "error") else ("toolUseId", "content")
    return ToolResult(
        call_id=_word(inner.get("toolUseId")),
        parts=tuple(_inside(block) for block in content if isinstance(block, dict))
        if isinstance(content, list)
        else (),
        outcome="error" if status == "error" else "ok",
        native=_beyond(inner, *shown),
    )


def _inside(block: Block) -> Text | Media | Opaque:
    part = part_of(block, of_model=True)
    if isinstance(part, Text | Media | Opaque):
        return part
    return Opaque(kind=kind_of(block), native=dumps(block).decode())


def _result(result: ToolResult, *, own: bool, sent_id: str, dialect: Dialect) -> Block:
    content = [inner for part in result.parts if (inner := _result_block(part, own=own)) is not None]
    if not content and result.is_error:
        content = [{"text": f"The call ended without a word: {result.outcome}."}]
    elif not content and not own:
        content = [{"text": NO_OUTPUT}]
    block: Block = {"toolUseId": sent_id, "content": content}
    if result.is_error and dialect.result_status:
        block["status"] = "error"
    elif result.is_error:
        block["content"] = [{"text": f"[error: {result.outcome}]"}, *content]
    return {**block, **_native(result, own=own)}


def _result_block(part: Text | Media | Opaque, *, own: bool) -> Block | Raw | None:
    if isinstance(part, Media) and part.kind == "audio" and not own:
        return {"text": left_out(part)}
    return block_of(part, own=own)


def _reasoning(inner: Block) -> Reasoning | None:
    match {name: value for name, value in inner.items() if value is not None}:
        case {"redactedContent": str(sealed), **rest} if not rest:
            return Reasoning(signature=sealed, redacted=True)
        case {"reasoningText": {"text": str(text)} as thought, **rest}:
            more = {name: value for name, value in thought.items() if value is not None}
            signature = _word(more.pop("signature", ""))
            del more["text"]
            kept = {**more, **({_AROUND: rest} if rest else {})}
            native = dumps(kept).decode() if kept else None
            return Reasoning(text=mended(text), signature=signature, native=native)
    return None


def _thought(thought: Reasoning, *, own: bool) -> Block:
    if thought.redacted:
        return {"redactedContent": thought.signature}
    text = {"text": mended(thought.text)}
    if thought.signature:
        text["signature"] = thought.signature
    more = _native(thought, own=own)
    around = more.pop(_AROUND, {})
    return {"reasoningText": {**text, **more}, **around}


def _native(part: ToolCall | ToolResult | Reasoning, *, own: bool) -> Block:
    more: Block = loads(part.native) if own and part.native is not None else {}
    return more


def _beyond(inner: Mapping[str, Any], *shown: str) -> str | None:
    """The members our view leaves out, as JSON; None when there are none."""
    more = {name: value for name, value in inner.items() if name not in shown and value is not None}
    return dumps(more).decode() if more else None


def _is_piece(piece: object) -> bool:
    return isinstance(piece, dict) and piece.keys() == {"text"} and isinstance(piece["text"], str)


def _word(value: object) -> str:
    return mended(value) if isinstance(value, str) else ""
