"""Blocks of a reply as they arrive: piece by piece in a stream, or written out in a message.

Both roads end in `part_of`, with the same block in hand: that is why a reply told in pieces equals the
same reply told whole.  The provider writes the members of its objects in the order of the alphabet, so
blocks put together here do too.  The input of a call is kept as the text it arrived in.

Only calls, the results of the provider's own tools, and pictures are announced; words and thoughts begin
with their first piece.  A citation makes plain words cited ones, wherever it comes among them.
"""

from base64 import b64decode, b64encode
from typing import Any

from ..values.delta import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.parts import Part
from ._arguments import INVALID_JSON
from ._bedrock_converse_blocks import Block, part_of
from ._json import dumps, loads, members, mended

TEXT, THOUGHT, CALL = "text", "reasoningContent", "toolUse"
ANNOUNCED = (CALL, "toolResult", "image")


class OpenBlock:
    """A block of a streamed reply while it is being said."""

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
        """Which of the reply's calls this is."""

    def add(self, kind: str, value: Any) -> str:
        """Take a piece of this block; what it says, if it says something."""
        said = ""
        match self.kind, kind, value:
            case "text", "text", str(said):
                pass
            case "text", "citation", _:
                self.stub.setdefault("citations", []).append(value)
            case "toolUse", "toolUse", {"input": str(said)}:
                pass
            case "toolResult", "toolResult", list(content):
                self.stub = _grown(self.stub, {"content": content})
            case "reasoningContent", "reasoningContent", {"redactedContent": str(packed)}:
                self.packed.append(packed)
            case "reasoningContent", "reasoningContent", {**beside}:
                text = beside.pop("text", "")
                said = text if isinstance(text, str) else ""
                self.stub = _grown(self.stub, beside)
            case "image", "image", {"source": {"bytes": str(packed)}}:
                self.packed.append(packed)
            case "text" | "toolUse" | "toolResult" | "reasoningContent", _, _:
                pass  # nothing a block of this kind is made of
            case _ if kind == self.kind:
                self.stub = _grown(self.stub, value)
        if said:
            self.pieces.append(said)
        return said

    def part(self, *, last_and_cut: bool) -> Part:
        said = "".join(self.pieces)
        match self.kind:
            case "text":
                return part_of(_worded(said, self.stub.get("citations")), of_model=True)
            case "reasoningContent":
                return part_of({THOUGHT: self._thought(said)}, of_model=True)
            case "image" if self.packed:
                source = {"bytes": _unpacked(self.packed)}
                return part_of({"image": _sorted({**self.stub, "source": source})}, of_model=True)
            case "toolUse" if self.is_call:
                # Nothing said is an empty object, unless the reply broke off right here.
                whole = dumps(self.stub.get("input") or {}).decode()
                given = mended(said) or ("" if last_and_cut else whole)
                return part_of({CALL: self.stub}, given, of_model=True)
            case "toolUse":
                return part_of({CALL: _sorted({**self.stub, "input": _input(said)})}, of_model=True)
            case "toolResult":
                # A result without content has no delta, and goes back with its content all the same.
                return part_of({self.kind: _sorted({"content": [], **self.stub})}, of_model=True)
        return part_of({self.kind: _sorted(self.stub)}, of_model=True)

    def shown(self, said: str) -> Delta | None:
        match self.kind:
            case "text":
                return TextDelta(text=said)
            case "reasoningContent":
                return ReasoningDelta(reasoning=said)
            case "toolUse" if self.is_call:
                return ToolCallDelta(index=self.place, name=self.name, arguments=said)
        return None

    def _thought(self, said: str) -> Block:
        sealed = {"redactedContent": _unpacked(self.packed)} if self.packed else {}
        if sealed and not said and not self.stub:
            return sealed
        return {**sealed, "reasoningText": {**self.stub, "text": said}}


def part_in(block: bytes) -> Part:
    """A block given whole, the arguments of a call as they are written there."""
    value = loads(block)
    if not isinstance(value, dict):
        raise ValueError("a block is no object")
    used = value.get(CALL)
    given = None
    if isinstance(used, dict) and used.get("input"):
        given = members(members(block)[CALL])["input"].decode("utf-8", "replace")
    return part_of(value, given, of_model=True)


def _worded(said: str, citations: list[Any] | None) -> Block:
    if citations is None:
        return {TEXT: said}
    cited: Block = {"citations": citations}
    if said:
        cited["content"] = [{"text": said}]
    return {"citationsContent": cited}


def _unpacked(pieces: list[str]) -> str:
    """Bytes come in base64, each piece on its own: put together they are not the pieces in a row."""
    return pieces[0] if len(pieces) == 1 else b64encode(b"".join(map(b64decode, pieces))).decode()


def _input(said: str) -> Any:
    if not said:
        return {}
    try:
        return loads(said)
    except ValueError:
        return {INVALID_JSON: said}


def _grown(had: Any, more: Any) -> Any:
    """What there was and what came: text goes on, lists and objects gain, anything else is replaced."""
    if isinstance(had, str) and isinstance(more, str):
        return had + more
    if isinstance(had, list) and isinstance(more, list):
        had.extend(more)
        return had
    if isinstance(had, dict) and isinstance(more, dict):
        had.update((name, _grown(had.get(name), value)) for name, value in more.items())
        return had
    return more


def _sorted(block: Any) -> Any:
    return dict(sorted(block.items())) if isinstance(block, dict) else block
