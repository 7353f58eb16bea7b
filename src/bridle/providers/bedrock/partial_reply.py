"""Builds parts from the blocks of a reply, streamed or complete.

Both ways end in `decode_part` with the same block: that is why a streamed reply equals the same reply in one
body. The provider writes the members of its objects in alphabetical order, so blocks built here do too. The
input of a call is kept as the text it arrived in.

Only calls, results of the provider's own tools, and images have a start event; text and reasoning begin with
their first piece. A citation anywhere in a text block makes it a block with citations.
"""

from base64 import b64decode, b64encode
from typing import Any

from bridle.providers.wire.call_arguments import parse_arguments
from bridle.providers.wire.json import dumps, loads, repair_surrogates, split_object
from bridle.values.message import Part
from bridle.values.result import Delta, ReasoningDelta, TextDelta, ToolCallDelta

from .parts import Block, decode_part

TEXT, REASONING, CALL = "text", "reasoningContent", "toolUse"
STARTED_BLOCKS = (CALL, "toolResult", "image")


class PartialBedrockBlock:
    """A block of a streamed reply under construction."""

    __slots__ = ("call", "is_call", "kind", "name", "packed", "pieces", "place", "stub")

    def __init__(self, kind: str, stub: Block, place: int) -> None:
        self.kind = kind
        self.stub: Any = stub
        self.place = place
        self.pieces: list[str] = []
        self.packed: list[str] = []
        self.name = stub["name"] if isinstance(stub.get("name"), str) else ""
        self.is_call = kind == CALL and stub.get("type") in (None, "tool_use")
        self.call = -1
        """Index among the calls of the reply."""

    def append(self, kind: str, value: Any) -> str:
        """Append a piece to this block; return its text, if it has any."""
        said = ""
        match self.kind, kind, value:
            case "text", "text", str(said):
                pass
            case "text", "citation", _:
                self.stub.setdefault("citations", []).append(value)
            case "toolUse", "toolUse", {"input": str(said)}:
                pass
            case "toolResult", "toolResult", list(content):
                self.stub = _merge_values(self.stub, {"content": content})
            case "reasoningContent", "reasoningContent", {"redactedContent": str(packed)}:
                self.packed.append(packed)
            case "reasoningContent", "reasoningContent", {**beside}:
                text = beside.pop("text", "")
                said = text if isinstance(text, str) else ""
                self.stub = _merge_values(self.stub, beside)
            case "image", "image", {"source": {"bytes": str(packed)}}:
                self.packed.append(packed)
            case "text" | "toolUse" | "toolResult" | "reasoningContent", _, _:
                pass  # not content of a block of this kind
            case _ if kind == self.kind:
                self.stub = _merge_values(self.stub, value)
        if said:
            self.pieces.append(said)
        return said

    def build_part(self, *, last_and_cut: bool) -> Part:
        said = "".join(self.pieces)
        match self.kind:
            case "text":
                return decode_part(_text_block(said, self.stub.get("citations")), of_model=True)
            case "reasoningContent":
                return decode_part({REASONING: self._build_reasoning(said)}, of_model=True)
            case "image" if self.packed:
                source = {"bytes": _join_base64(self.packed)}
                return decode_part({"image": _sort_members({**self.stub, "source": source})}, of_model=True)
            case "toolUse" if self.is_call:
                # A call without fragments has empty arguments, unless the reply was cut off here.
                whole = dumps(self.stub.get("input") or {}).decode()
                given = repair_surrogates(said) or ("" if last_and_cut else whole)
                return decode_part({CALL: self.stub}, given, of_model=True)
            case "toolUse":
                return decode_part(
                    {CALL: _sort_members({**self.stub, "input": parse_arguments(said)})}, of_model=True
                )
            case "toolResult":
                # A result without content has no delta; sent back, it needs the empty list.
                return decode_part({self.kind: _sort_members({"content": [], **self.stub})}, of_model=True)
        return decode_part({self.kind: _sort_members(self.stub)}, of_model=True)

    def make_delta(self, said: str) -> Delta | None:
        match self.kind:
            case "text":
                return TextDelta(text=said)
            case "reasoningContent":
                return ReasoningDelta(reasoning=said)
            case "toolUse" if self.is_call:
                return ToolCallDelta(index=self.place, name=self.name, arguments=said)
        return None

    def _build_reasoning(self, said: str) -> Block:
        sealed = {"redactedContent": _join_base64(self.packed)} if self.packed else {}
        if sealed and not said and not self.stub:
            return sealed
        return {**sealed, "reasoningText": {**self.stub, "text": said}}


def decode_whole_block(block: bytes) -> Part:
    """Decode a complete block, keeping the original text of a call's arguments."""
    value = loads(block)
    if not isinstance(value, dict):
        raise ValueError("a block is not an object")
    used = value.get(CALL)
    given = None
    if isinstance(used, dict) and used.get("input"):
        given = split_object(split_object(block)[CALL])["input"].decode("utf-8", "replace")
    return decode_part(value, given, of_model=True)


def _text_block(said: str, citations: list[Any] | None) -> Block:
    if citations is None:
        return {TEXT: said}
    cited: Block = {"citations": citations}
    if said:
        cited["content"] = [{"text": said}]
    return {"citationsContent": cited}


def _join_base64(pieces: list[str]) -> str:
    """Join pieces that are base64 one by one; concatenating their text would not be valid base64."""
    return pieces[0] if len(pieces) == 1 else b64encode(b"".join(map(b64decode, pieces))).decode()


def _merge_values(had: Any, more: Any) -> Any:
    """Merge a new value: text is appended, lists and objects are extended, anything else is replaced."""
    if isinstance(had, str) and isinstance(more, str):
        return had + more
    if isinstance(had, list) and isinstance(more, list):
        had.extend(more)
        return had
    if isinstance(had, dict) and isinstance(more, dict):
        had.update((name, _merge_values(had.get(name), value)) for name, value in more.items())
        return had
    return more


def _sort_members(block: Any) -> Any:
    return dict(sorted(block.items())) if isinstance(block, dict) else block
