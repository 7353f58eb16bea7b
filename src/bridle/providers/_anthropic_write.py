"""Messages on their way to Anthropic: which block stands where, and under which id.

The strictest reading of the wire is written.  Blank texts are left out, results come before words,
an assistant turn does not end in reasoning, and neighbours of one role become one turn.  A message
with nothing left to say gets no turn at all; its neighbours then meet, and merge.

Reasoning goes back only where it can be read.  It is proof bound to its maker: signed reasoning of
this family is sent as it came, foreign reasoning never.  What an endpoint wants done with reasoning
that has no signature is a fact about the endpoint.

A call goes out under the provider's own id when that is legal and was not used before, else under
ours, and its result follows it.  The writer therefore sees the whole line, in order, once.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Raw

from ..values.message import Message, Stop
from ..values.model import Endpoint
from ..values.parts import Opaque, Part, Reasoning, ToolCall, ToolResult
from ._anthropic_blocks import FAMILY, Block, block_of, switched_at
from ._json import dumps, loads
from ._kept import Turn

MESSAGE_FIELDS = "message.fields"
"""The kind of an `Opaque` that holds what a message said beside its role and content."""

_ROLES = {"user": "user", "tool": "user", "assistant": "assistant", "system": "system"}
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in _ROLES.values()}
MARKABLE = {"text", "image", "document", "tool_use", "tool_result"}
_THOUGHTS = {"thinking", "redacted_thinking"}
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


class _Written(NamedTuple):
    kind: str
    data: bytes
    takes_mark: bool


class MessageWriter:
    def __init__(self, endpoint: Endpoint | None) -> None:
        self._endpoint = endpoint or Endpoint(name="", family=FAMILY)
        self._sent: dict[str, str] = {}
        self._used: set[str] = set()

    def __call__(self, message: Message) -> Sequence[Turn]:
        own = message.origin is not None and message.origin.family == FAMILY
        fields = _fields_beside(message.parts) if own else {}
        written = self._written(message, own=own)
        if not written and not fields:
            return ()
        role = _ROLES[message.role]
        opening = _OPENINGS[role]
        if fields:
            opening = dumps({"role": role, **fields})[:-1] + b',"content":['
        items = b",".join(block.data for block in written)
        return (Turn(opening, items, b"]}", _mark_at(written), merges=not fields),)

    def _written(self, message: Message, *, own: bool) -> list[_Written]:
        switch = switched_at(message.parts) if own else 0
        written = []
        for place, part in enumerate(message.parts):
            if place < switch and _declined(part):
                continue
            if isinstance(part, Reasoning) and not self._echoes(part, message):
                continue
            if isinstance(part, Opaque) and part.kind == MESSAGE_FIELDS:
                continue
            if (block := block_of(part, own=own, sent_id=self._id(part, own=own))) is not None:
                written.append(_encoded(part, block))
        if message.role == "assistant" and message.stop is not Stop.PAUSED:
            while written and written[-1].kind in _THOUGHTS:
                written.pop()
        return sorted(written, key=lambda block: block.kind != "tool_result")

    def _echoes(self, part: Reasoning, message: Message) -> bool:
        policy, origin = self._endpoint.reasoning, message.origin
        if policy == "strip" or origin is None or origin.family != FAMILY:
            return False
        at_home = origin.endpoint == self._endpoint.name
        if policy == "signed":
            # A signature is checked by who gave it; anybody else refuses the whole request over it.
            return at_home and bool(part.signature)
        return bool(part.signature) or policy == "must_echo" or at_home

    def _id(self, part: Part, *, own: bool) -> str:
        match part:
            case ToolResult(call_id=call_id):
                return self._sent.get(call_id) or _legal(call_id)
            case ToolCall(id=call_id, wire_id=wire_id):
                offered = wire_id if own and _LEGAL_ID.fullmatch(wire_id) else ""
                chosen = offered if offered and offered not in self._used else _legal(call_id)
                while chosen in self._used:
                    chosen += "_"
                self._used.add(chosen)
                self._sent[call_id] = chosen
                return chosen
        return ""


def _declined(part: Part) -> bool:
    return isinstance(part, Reasoning | ToolCall) or (isinstance(part, Opaque) and part.kind == "tool_use")


def _fields_beside(parts: Sequence[Part]) -> dict[str, Any]:
    for part in parts:
        if isinstance(part, Opaque) and part.kind == MESSAGE_FIELDS:
            fields: dict[str, Any] = loads(part.native)
            return fields
    return {}


def _legal(name: str) -> str:
    return _ILLEGAL_IN_ID.sub("_", name) or "_"


def _encoded(part: Part, block: Block | Raw) -> _Written:
    if isinstance(part, Opaque):
        return _Written(part.kind, bytes(dumps(block)), takes_mark=part.kind == "compaction")
    assert isinstance(block, dict)
    kind = block["type"]
    return _Written(kind, dumps(block), takes_mark=kind in MARKABLE and "cache_control" not in block)


def _mark_at(written: Sequence[_Written]) -> int:
    """The offset of the closing brace of the last block that can carry a mark."""
    end = sum(len(block.data) for block in written) + len(written) - 1
    for block in reversed(written):
        if block.takes_mark:
            return end - 1
        end -= len(block.data) + 1
    return -1
