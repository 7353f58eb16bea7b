"""Builds parts from the blocks of a reply, streamed or complete.

Both ways end in `decode_part` with the same block: that is why a streamed reply equals the same reply in one
body. The input of a call is kept as the text it arrived in, never parsed and written again.
"""

from typing import Any

import msgspec

from bridle.providers.wire.call_arguments import parse_arguments
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.values.message import Part, ToolCall
from bridle.values.result import Delta, ReasoningDelta, TextDelta, ToolCallDelta

from .parts import Block, decode_part, find_model_switch, make_call_opaque

DELTA_MEMBERS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""The member of each delta type that holds its text."""
EMPTY_INPUT = "{}"


class _BlockInput(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw(b"null")


class _BlockInputs(msgspec.Struct, gc=False):
    content: list[_BlockInput]


_decode_inputs = msgspec.json.Decoder(_BlockInputs).decode


class PartialAnthropicBlock:
    """A block of a streamed reply under construction."""

    __slots__ = ("call", "delta_type", "ended", "input_text", "is_call", "name", "pieces", "place", "stub")

    def __init__(self, stub: Block, place: int, input_text: str) -> None:
        self.stub = stub
        self.place = place
        self.input_text = input_text
        self.pieces: list[str] = []
        self.name = stub["name"] if isinstance(stub.get("name"), str) else ""
        self.is_call = stub.get("type") == "tool_use"
        self.call = -1
        """Index among the calls of the reply; -1 after the call was reported as complete."""
        self.ended: Part | None = None
        """The call as it was reported, if it was built of pieces and nothing followed."""
        self.delta_type: str | None
        match stub.get("type"):
            case "text":
                self.delta_type = "text_delta"
            case "thinking":
                self.delta_type = "thinking_delta"
            case _:
                # Some servers omit `input` at the start and still send it in deltas.
                self.delta_type = "input_json_delta" if self.is_call or "input" in stub else None

    def build_part(self, *, last_and_cut: bool) -> Part:
        if self.ended is not None:
            return self.ended
        said = "".join(self.pieces)
        match self.delta_type:
            case "text_delta":
                return decode_part({**self.stub, "text": said})
            case "thinking_delta":
                return decode_part({**self.stub, "thinking": said})
            case "input_json_delta" if self.is_call:
                self._check_same_arguments(said)
                # A call without fragments has empty arguments, unless the reply was cut off here.
                return decode_part(
                    self.stub, repair_surrogates(said) or ("" if last_and_cut else self.input_text)
                )
            case "input_json_delta" if said:
                return decode_part({**self.stub, "input": parse_arguments(said)})
        return decode_part(self.stub)

    def _check_same_arguments(self, said: str) -> None:
        """Raise `ValueError` if the start of a call and its deltas give different arguments."""
        if said and self.input_text != EMPTY_INPUT and parse_arguments(said) != loads(self.input_text):
            raise ValueError(f"the arguments of {self.name!r} were given twice, and differently")


def check_block_type(block: Block) -> None:
    """Raise `ValueError` for a block without a type: it may have been a call."""
    kind = block.get("type")
    if not kind or type(kind) is not str:
        raise ValueError("a block has no type")


def find_delta_type(delta: Block) -> str:
    """Return the type of a delta, inferred from its members if missing; raise `ValueError` if unknown."""
    kind = delta.get("type")
    if isinstance(kind, str) and kind:
        return kind
    for kind, inside in DELTA_MEMBERS.items():
        if isinstance(delta.get(inside), str):
            return kind
    raise ValueError("a delta has no type")


def decode_whole_blocks(blocks: list[Any], message: bytes) -> list[Part]:
    """Decode complete blocks. `message` is the JSON around them: a call keeps the text of its arguments."""
    inputs: list[str] = []
    parts = []
    for place, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise ValueError("a block is not an object")
        check_block_type(block)
        given = None
        if block.get("input"):
            inputs = inputs or _read_inputs(blocks, message)
            given = inputs[place]
        parts.append(decode_part(block, given))
    return parts


def _read_inputs(blocks: list[Any], message: bytes) -> list[str]:
    """The original text of the input of every block."""
    try:
        given = [bytes(block.input) for block in _decode_inputs(message).content]
    except (ValueError, RecursionError):
        given = [dumps(block.get("input")) for block in blocks]
    return [each.decode("utf-8", "replace") for each in given]


def disarm_declined_calls(parts: list[Part]) -> list[Part]:
    """Make calls opaque that a model made before it declined to continue."""
    switch = find_model_switch(parts)
    if not switch:
        return parts
    return [
        make_call_opaque(part) if place < switch and isinstance(part, ToolCall) else part
        for place, part in enumerate(parts)
    ]


def make_delta(block: PartialAnthropicBlock, said: str) -> Delta | None:
    match block.delta_type:
        case "text_delta":
            return TextDelta(text=said)
        case "thinking_delta":
            return ReasoningDelta(reasoning=said)
        case "input_json_delta" if block.is_call:
            return ToolCallDelta(index=block.place, name=block.name, arguments=said)
    return None
