"""Reasoning on Chat Completions, which never got a place of its own, and our `Reasoning`, both ways.

Servers put it in five places, and want it back where it was:

  - a member of the message, `reasoning_content` or `reasoning` (some fill both with the same words)
  - `reasoning_details`, a list that also carries signatures and encrypted reasoning; usually one of the
    members above repeats its words
  - `thinking_blocks`, a list in which gateways hand on the signed blocks of another wire; in a stream they
    come in fragments, and a signature ends a block
  - parts of type `thinking` in a list of content
  - the beginning of the content, between tags; read only where the dialect says so, else it is text

Each place is told by the part's `native` (`fields`, `detail`, `block`, `chunk`, `tag`); none at all means
`reasoning_content`.  Words, signatures and encrypted data are in the part itself and nowhere else.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..values.delta import Delta, ReasoningDelta, TextDelta
from ..values.parts import Reasoning
from ._json import mended
from ._openai_chat_content import Block, native_in, native_of, word

FIELDS = ("reasoning_content", "reasoning")
FIELD_DEFAULT = FIELDS[0]
DETAILS = "reasoning_details"
BLOCKS = "thinking_blocks"
ECHOED_IN = "provider_specific_fields"
"""Where gateways repeat what they hand on; some put the blocks there alone."""
_WORDS_IN = {"reasoning.text": "text", "reasoning.summary": "summary"}
_ENCRYPTED = "reasoning.encrypted"
_OPENING, _CLOSING = "<think>", "</think>"
_TAGGED = re.compile(rf"(\s*{_OPENING})(.*?)({_CLOSING}|\Z)", re.DOTALL)


def thoughts_of(message: Block) -> list[Reasoning]:
    """The reasoning beside a message's content."""
    listed = message.get(DETAILS)
    details = [each for each in listed if isinstance(each, dict) and each] if isinstance(listed, list) else []
    parts = [*map(_of_detail, details), *map(_of_block, blocks_in(message))]
    told = "".join(part.text for part in parts)
    fields_by_text: dict[str, list[str]] = {}
    for name in FIELDS:
        if text := word(message.get(name)):
            fields_by_text.setdefault(text, []).append(name)
    if parts and (repeated := fields_by_text.pop(told, None)):
        parts[0] = replace(parts[0], native=native_of(**native_in(parts[0]), fields=repeated))
    plain = [
        Reasoning(text=text, native=native_of(fields=names) if names != [FIELD_DEFAULT] else None)
        for text, names in fields_by_text.items()
    ]
    return [*plain, *parts]


def put_thoughts(message: Block, thoughts: Sequence[Reasoning]) -> None:
    """The same reasoning, put back where it stood beside the content."""
    details, blocks = [], []
    repeated: list[str] = []
    for thought in thoughts:
        native = native_in(thought)
        if "detail" in native:
            details.append(_detail(thought, native["detail"]))
            repeated += native.get("fields", ())
        elif "block" in native:
            blocks.append(_block(thought, native["block"]))
            repeated += native.get("fields", ())
        elif not in_content(thought):
            for name in native.get("fields", (FIELD_DEFAULT,)):
                message[name] = message.get(name, "") + mended(thought.text)
    told = "".join(thought.text for thought in thoughts if _is_listed(thought))
    message.update((name, mended(told)) for name in repeated)
    message.update((name, listed) for name, listed in ((DETAILS, details), (BLOCKS, blocks)) if listed)


def blocks_in(message: Block) -> list[Block]:
    """The blocks of another wire that stand beside a message, or beside a piece of one."""
    listed = message.get(BLOCKS)
    if not isinstance(listed, list):
        echoed = message.get(ECHOED_IN)
        listed = echoed.get(BLOCKS) if isinstance(echoed, dict) else None
    return [each for each in listed if isinstance(each, dict) and each] if isinstance(listed, list) else []


def without_echo(name: str, value: object) -> object:
    """A member of a message; of what repeats other members, what is left."""
    if name != ECHOED_IN or not isinstance(value, dict):
        return value
    return {inner: each for inner, each in value.items() if inner != BLOCKS and each is not None} or None


def _is_listed(thought: Reasoning) -> bool:
    native = native_in(thought)
    return "detail" in native or "block" in native


def in_content(thought: Reasoning) -> bool:
    native = native_in(thought)
    return "chunk" in native or "tag" in native


def chunk_part(block: Block) -> Reasoning:
    """A part of type `thinking`.  Its words come in a list of texts, which is nearly always one text."""
    inner = block.get("thinking")
    pieces = inner if isinstance(inner, list) else [inner]
    texts = [_piece(piece) for piece in pieces]
    rest = {name: value for name, value in block.items() if name not in ("type", "thinking")}
    if len(texts) != 1 or pieces != [{"type": "text", "text": texts[0]}]:
        rest["thinking"] = inner
    return Reasoning(text="".join(texts), native=native_of(chunk={"type": "thinking", **rest}))


def chunk_of(thought: Reasoning) -> Block:
    chunk: Block = native_in(thought)["chunk"]
    return {"thinking": [{"type": "text", "text": mended(thought.text)}], **chunk}


def untagged(content: str) -> tuple[Reasoning, str] | None:
    """What stands between the tags a content begins with, and what follows them."""
    found = _TAGGED.match(content)
    if found is None:
        return None
    opening, text, closing = found.groups()
    return Reasoning(text=text, native=native_of(tag=[opening, closing])), content[found.end() :]


def tagged(thought: Reasoning) -> str:
    opening, closing = native_in(thought)["tag"]
    return f"{opening}{mended(thought.text)}{closing}"


def _of_detail(detail: Block) -> Reasoning:
    kind = word(detail.get("type"))
    text = word(detail.get(_WORDS_IN.get(kind, "")))
    sealed = "data" if kind == _ENCRYPTED else "signature"
    signature = word(detail.get(sealed))
    # An empty string is not the same as none to a server that wants its list back unchanged.
    held = {name for name, value in ((_WORDS_IN.get(kind, ""), text), (sealed, signature)) if value}
    rest = {name: value for name, value in detail.items() if name not in held}
    return Reasoning(
        text=text, signature=signature, redacted=kind == _ENCRYPTED, native=native_of(detail=rest)
    )


def _of_block(block: Block) -> Reasoning:
    redacted = block.get("type") == "redacted_thinking"
    text, signature = word(block.get("thinking")), word(block.get("data" if redacted else "signature"))
    held = {"thinking", "data" if redacted else "signature"}
    rest = {name: value for name, value in block.items() if name not in held and value is not None}
    return Reasoning(text=text, signature=signature, redacted=redacted, native=native_of(block=rest))


def _block(thought: Reasoning, rest: Block) -> Block:
    if thought.redacted:
        return {**rest, "data": thought.signature}
    block = {**rest, "thinking": mended(thought.text)}
    return {**block, "signature": thought.signature} if thought.signature else block


def _detail(thought: Reasoning, rest: Block) -> Block:
    kind = word(rest.get("type"))
    detail = dict(rest)
    if thought.text and kind in _WORDS_IN:
        detail[_WORDS_IN[kind]] = mended(thought.text)
    if thought.signature:
        detail["data" if kind == _ENCRYPTED else "signature"] = thought.signature
    return detail


def _piece(piece: object) -> str:
    return word(piece.get("text")) if isinstance(piece, dict) else word(piece)


class ThinkTags:
    """Tells thoughts from words while a content is streamed that may begin with thoughts in tags."""

    def __init__(self) -> None:
        self._held = ""
        self._seek: str | None = _OPENING

    def feed(self, text: str) -> list[Delta]:
        if self._seek is None:
            return [TextDelta(text=text)] if text else []
        self._held += text
        if self._seek == _OPENING:
            begun = self._held.lstrip()
            if _OPENING.startswith(begun):
                return []
            if not begun.startswith(_OPENING):
                return self._words_from(self._held)
            self._held, self._seek = begun[len(_OPENING) :], _CLOSING
        thought, closing, words = self._held.partition(_CLOSING)
        if closing:
            return [*_thought(thought), *self._words_from(words)]
        kept = max(at for at in range(len(_CLOSING)) if self._held.endswith(_CLOSING[:at]))
        thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return _thought(thought)

    def rest(self) -> list[Delta]:
        held, self._held = self._held, ""
        return _thought(held) if self._seek == _CLOSING else self._words_from(held)

    def _words_from(self, words: str) -> list[Delta]:
        self._held, self._seek = "", None
        return [TextDelta(text=words)] if words else []


def _thought(text: str) -> list[Delta]:
    return [ReasoningDelta(reasoning=text)] if text else []
