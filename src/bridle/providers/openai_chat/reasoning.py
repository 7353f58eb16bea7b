"""Converts reasoning of Chat Completions, which has no standard field, to and from `Reasoning`.

Servers put it in five places, and expect it back in the same place:

  - a member of the message, `reasoning_content` or `reasoning` (some fill both with the same text)
  - `reasoning_details`, a list that also carries signatures and encrypted reasoning; usually one of the
    members above repeats its text
  - `thinking_blocks`, a list in which gateways pass on the signed blocks of another wire; in a stream they
    arrive in fragments, and a signature ends a block
  - parts of type `thinking` in a list of content
  - the start of the content, between tags; parsed only if the dialect says so, else it is text

The part's `native` records the place (`fields`, `detail`, `block`, `chunk`, `tag`); none means
`reasoning_content`. Text, signatures and encrypted data are stored in the part itself and nowhere else.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from bridle.providers.wire.json import repair_surrogates, text_or_empty
from bridle.values.message import Reasoning
from bridle.values.result import Delta, ReasoningDelta, TextDelta

from .content import Block, decode_native, encode_native

REASONING_FIELDS = ("reasoning_content", "reasoning")
DEFAULT_FIELD = REASONING_FIELDS[0]
DETAILS_FIELD = "reasoning_details"
BLOCKS_FIELD = "thinking_blocks"
ECHO_FIELD = "provider_specific_fields"
"""Member in which gateways repeat other members; some put the blocks only there."""
REASONING_MEMBERS = frozenset({*REASONING_FIELDS, DETAILS_FIELD, BLOCKS_FIELD, ECHO_FIELD})
_TEXT_MEMBERS = {"reasoning.text": "text", "reasoning.summary": "summary"}
_ENCRYPTED = "reasoning.encrypted"
_OPENING_TAG, _CLOSING_TAG = "<think>", "</think>"
_TAGGED = re.compile(rf"(\s*{_OPENING_TAG})(.*?)({_CLOSING_TAG}|\Z)", re.DOTALL)


def decode_reasoning(message: Block) -> list[Reasoning]:
    if REASONING_MEMBERS.isdisjoint(message):
        return []
    listed = message.get(DETAILS_FIELD)
    details = [each for each in listed if isinstance(each, dict) and each] if isinstance(listed, list) else []
    parts = [*map(_decode_detail, details), *map(_decode_block, list_blocks(message))]
    text = "".join(part.text for part in parts)
    fields_by_text: dict[str, list[str]] = {}
    for name in REASONING_FIELDS:
        if field_text := text_or_empty(message.get(name)):
            fields_by_text.setdefault(field_text, []).append(name)
    if parts and (repeated := fields_by_text.pop(text, None)):
        parts[0] = replace(parts[0], native=encode_native(**decode_native(parts[0]), fields=repeated))
    plain = [
        Reasoning(text=text, native=encode_native(fields=names) if names != [DEFAULT_FIELD] else None)
        for text, names in fields_by_text.items()
    ]
    return [*plain, *parts]


def encode_reasoning(message: Block, thoughts: Sequence[Reasoning]) -> None:
    """Encode reasoning into the members beside the content that it came from."""
    details, blocks = [], []
    repeated: list[str] = []
    for thought in thoughts:
        native = decode_native(thought)
        if "detail" in native:
            details.append(_encode_detail(thought, native["detail"]))
            repeated += native.get("fields", ())
        elif "block" in native:
            blocks.append(_encode_block(thought, native["block"]))
            repeated += native.get("fields", ())
        elif not is_in_content(thought):
            for name in native.get("fields", (DEFAULT_FIELD,)):
                message[name] = message.get(name, "") + repair_surrogates(thought.text)
    text = "".join(thought.text for thought in thoughts if _is_in_list(thought))
    message.update((name, repair_surrogates(text)) for name in repeated)
    message.update(
        (name, listed) for name, listed in ((DETAILS_FIELD, details), (BLOCKS_FIELD, blocks)) if listed
    )


def list_blocks(message: Block) -> list[Block]:
    """Return the blocks of another wire beside a message or a delta."""
    listed = message.get(BLOCKS_FIELD)
    if not isinstance(listed, list):
        echoed = message.get(ECHO_FIELD)
        listed = echoed.get(BLOCKS_FIELD) if isinstance(echoed, dict) else None
    return [each for each in listed if isinstance(each, dict) and each] if isinstance(listed, list) else []


def remove_echo(name: str, value: object) -> object:
    """Return a member without the parts that only repeat other members."""
    if name != ECHO_FIELD or not isinstance(value, dict):
        return value
    return {
        inner: each for inner, each in value.items() if inner != BLOCKS_FIELD and each is not None
    } or None


def _is_in_list(thought: Reasoning) -> bool:
    native = decode_native(thought)
    return "detail" in native or "block" in native


def is_in_content(thought: Reasoning) -> bool:
    native = decode_native(thought)
    return "chunk" in native or "tag" in native


def decode_chunk(block: Block) -> Reasoning:
    """Decode a part of type `thinking`. Its text is a list, nearly always of one text."""
    inner = block.get("thinking")
    pieces = inner if isinstance(inner, list) else [inner]
    texts = [_piece_text(piece) for piece in pieces]
    rest = {name: value for name, value in block.items() if name not in ("type", "thinking")}
    if len(texts) != 1 or pieces != [{"type": "text", "text": texts[0]}]:
        rest["thinking"] = inner
    return Reasoning(text="".join(texts), native=encode_native(chunk={"type": "thinking", **rest}))


def encode_chunk(thought: Reasoning) -> Block:
    chunk: Block = decode_native(thought)["chunk"]
    return {"thinking": [{"type": "text", "text": repair_surrogates(thought.text)}], **chunk}


def split_tagged(content: str) -> tuple[Reasoning, str] | None:
    """Split content that begins with a tagged section into reasoning and the rest."""
    found = _TAGGED.match(content)
    if found is None:
        return None
    opening, text, closing = found.groups()
    return Reasoning(text=text, native=encode_native(tag=[opening, closing])), content[found.end() :]


def encode_tagged(thought: Reasoning) -> str:
    opening, closing = decode_native(thought)["tag"]
    return f"{opening}{repair_surrogates(thought.text)}{closing}"


def _decode_detail(detail: Block) -> Reasoning:
    kind = text_or_empty(detail.get("type"))
    text = text_or_empty(detail.get(_TEXT_MEMBERS.get(kind, "")))
    signature_member = "data" if kind == _ENCRYPTED else "signature"
    signature = text_or_empty(detail.get(signature_member))
    # Servers that expect their list back unchanged distinguish an empty string from a missing one.
    held = {
        name for name, value in ((_TEXT_MEMBERS.get(kind, ""), text), (signature_member, signature)) if value
    }
    rest = {name: value for name, value in detail.items() if name not in held}
    return Reasoning(
        text=text, signature=signature, redacted=kind == _ENCRYPTED, native=encode_native(detail=rest)
    )


def _decode_block(block: Block) -> Reasoning:
    redacted = block.get("type") == "redacted_thinking"
    text, signature = (
        text_or_empty(block.get("thinking")),
        text_or_empty(block.get("data" if redacted else "signature")),
    )
    held = {"thinking", "data" if redacted else "signature"}
    rest = {name: value for name, value in block.items() if name not in held and value is not None}
    return Reasoning(text=text, signature=signature, redacted=redacted, native=encode_native(block=rest))


def _encode_block(thought: Reasoning, rest: Block) -> Block:
    if thought.redacted:
        return {**rest, "data": thought.signature}
    block = {**rest, "thinking": repair_surrogates(thought.text)}
    return {**block, "signature": thought.signature} if thought.signature else block


def _encode_detail(thought: Reasoning, rest: Block) -> Block:
    kind = text_or_empty(rest.get("type"))
    detail = dict(rest)
    if thought.text and kind in _TEXT_MEMBERS:
        detail[_TEXT_MEMBERS[kind]] = repair_surrogates(thought.text)
    if thought.signature:
        detail["data" if kind == _ENCRYPTED else "signature"] = thought.signature
    return detail


def _piece_text(piece: object) -> str:
    return text_or_empty(piece.get("text")) if isinstance(piece, dict) else text_or_empty(piece)


class ThinkTagParser:
    """Separates reasoning from text while content is streamed that may begin with tagged reasoning."""

    def __init__(self) -> None:
        self._held = ""
        self._seek: str | None = _OPENING_TAG

    def feed(self, text: str) -> list[Delta]:
        if self._seek is None:
            return [TextDelta(text=text)] if text else []
        self._held += text
        if self._seek == _OPENING_TAG:
            start = self._held.lstrip()
            if _OPENING_TAG.startswith(start):
                return []
            if not start.startswith(_OPENING_TAG):
                return self._switch_to_text(self._held)
            self._held, self._seek = start[len(_OPENING_TAG) :], _CLOSING_TAG
        thought, closing, text = self._held.partition(_CLOSING_TAG)
        if closing:
            return [*_reasoning_deltas(thought), *self._switch_to_text(text)]
        kept = max(at for at in range(len(_CLOSING_TAG)) if self._held.endswith(_CLOSING_TAG[:at]))
        thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return _reasoning_deltas(thought)

    def flush(self) -> list[Delta]:
        held, self._held = self._held, ""
        return _reasoning_deltas(held) if self._seek == _CLOSING_TAG else self._switch_to_text(held)

    def _switch_to_text(self, text: str) -> list[Delta]:
        self._held, self._seek = "", None
        return [TextDelta(text=text)] if text else []


def _reasoning_deltas(text: str) -> list[Delta]:
    return [ReasoningDelta(reasoning=text)] if text else []
