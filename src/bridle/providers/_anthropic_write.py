"""Messages on their way to Anthropic: which block stands where, and under which id.

The strictest reading of the wire is written.  Blank texts are left out, results come before words,
an assistant turn does not end in reasoning, no words follow its calls, and neighbours of one role become
one turn.  A message with nothing left to say gets no turn at all; its neighbours then
meet, and merge.  A conversation that ends with the model's words is continued in the user's name where the
model refuses to end like that.
Each call is answered once, in the turn that follows it: a call whose result is missing is answered with
an error as soon as anybody else speaks, a result without a call, or a second one, is left out.

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
from ..values.model import Endpoint, Model, Origin
from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.value import Value
from ._anthropic_blocks import (
    COMPACTION,
    FALLBACK,
    FAMILY,
    KINDS,
    Block,
    block_of,
    is_taken,
    left_out,
    switched_at,
    with_references,
)
from ._home import ECHOED_ID
from ._json import dumps, loads
from ._kept import CONTINUE, KeptMessages, Turn

MESSAGE_FIELDS = "message.fields"
"""The kind of an `Opaque` that holds what a message said beside its role and content."""

LOST = "No result: this call was interrupted, or what came of it was lost."
_ROLES = {"user": "user", "tool": "user", "assistant": "assistant", "system": "system"}
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in _ROLES.values()}
_GO_ON = b',%b{"type":"text","text":"%b"}]}' % (_OPENINGS["user"], CONTINUE.encode())
MARKABLE = {"text", "image", "document", "tool_use", "tool_result"}
_THOUGHTS = {"thinking", "redacted_thinking"}
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


class _Written(NamedTuple):
    kind: str
    data: bytes
    takes_mark: bool


class Manner(Value):
    """How messages are to be written, beside where they go."""

    prefill: bool = True
    """Whether they may end in words of the model."""
    deferred: frozenset[str] = frozenset()
    """Tools that results may refer to; a reference to any other is refused."""
    signed: bool = True
    """Whether a summary that was asked for is taken back as it came."""
    unsigned: bool = False
    """Whether one is that the provider made of its own accord."""


class KeptLine(KeptMessages):
    """The messages of one conversation, as they are written in one manner."""

    def __init__(self) -> None:
        self._manner = Manner()
        super().__init__(lambda endpoint: MessageWriter(endpoint, self._manner))

    def written_for(self, model: Model, manner: Manner) -> None:
        if manner != self._manner:
            self._manner = manner
            self._restart()
        self.on(model.endpoint)


class MessageWriter:
    def __init__(self, endpoint: Endpoint | None, manner: Manner) -> None:
        self._manner = manner
        self._endpoint = endpoint or Endpoint(name="", family=FAMILY)
        self._sent: dict[str, str] = {}
        self._used: set[str] = set()
        self._open: list[str] = []
        """Calls that wait for their result, in order."""
        self._role = ""
        """Who spoke last."""
        self._hosted = False
        """Whether the model's turn, so far, holds work of the provider's own tools."""

    def __call__(self, message: Message) -> Sequence[Turn]:
        own = self._is_own(message.origin)
        fields = _fields_beside(message.parts) if own else {}
        written = self._written(message, own=own)
        if not written and not fields:
            return ()
        role = _ROLES[message.role]
        opening = _OPENINGS[role]
        if fields:
            opening = dumps({"role": role, **fields})[:-1] + b',"content":['
        again = self._role == role
        self._role = role
        if role == "assistant":
            return (self._model_turn(message, opening, written, merges=not fields, again=again),)
        before: list[Turn] = []
        if self._open and any(block.kind != "tool_result" for block in written):
            lost = self._lost()
            self._open.clear()
            if role == "user":
                written = [lost, *written]
            else:
                before.append(Turn(_OPENINGS["user"], lost.data, b"]}", merges=True, pays=True))
        items = b",".join(block.data for block in written)
        closing = b"%b%b]}" % (b"," if items else b"", self._lost().data) if self._open else b"]}"
        turn = Turn(opening, items, closing, _mark_at(written), merges=not fields, pays=True)
        return (*before, turn)

    def _model_turn(
        self, message: Message, opening: bytes, written: list[_Written], *, merges: bool, again: bool
    ) -> Turn:
        """What is open is answered before it, unless it only goes on calling."""
        alone = again and bool(self._open) and any(block.kind != "tool_use" for block in written)
        before = self._open if again and not alone else []
        calls = [part.id for part in message.parts if isinstance(part, ToolCall) and part.id in self._sent]
        self._open = [*before, *calls]
        owed = b",%b%b]}" % (_OPENINGS["user"], self._lost().data) if self._open else b""
        items = b",".join(block.data for block in written)
        self._hosted = (self._hosted and again) or any(map(_is_hosted, written))
        # What the provider's own tools are in the middle of is continued by sending it back as it is.  A
        # reply that was paused in plain words ends like any other: only some models go on from there.
        paused = message.stop is Stop.PAUSED and self._hosted
        goes_on = paused or (bool(written) and _is_hosted(written[-1]))
        at_end = b"" if self._manner.prefill or goes_on else _GO_ON
        return Turn(
            opening,
            items,
            b"]}",
            _mark_at(written),
            merges=merges,
            owed=owed,
            pays=not alone,
            at_end=at_end,
            asked_on=at_end if message.stop is Stop.PAUSED else b"",
        )

    def _lost(self) -> _Written:
        """Answers to the calls that are open."""
        blocks = (
            block_of(
                ToolResult(call_id=call_id, parts=(Text(text=LOST),), outcome="unknown"),
                own=False,
                sent_id=self._sent[call_id],
            )
            for call_id in self._open
        )
        return _Written("tool_result", b",".join(map(dumps, blocks)), takes_mark=False)

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
            if isinstance(part, ToolResult):
                if part.call_id not in self._open:
                    continue
                self._open.remove(part.call_id)
            # Only users and tools may show anything on this wire.
            unshown = message.role == "assistant" and not own
            told = self._sayable(part, own=own)
            if isinstance(part, Media) and unshown:
                told = Text(text=left_out(part))
            if (block := block_of(told, own=own, sent_id=self._id(told, own=own))) is not None:
                if isinstance(part, ToolResult) and part.shows:
                    block = with_references(
                        block, [name for name in part.shows if name in self._manner.deferred]
                    )
                written.append(_encoded(told, block))
        if message.role == "assistant" and message.stop is not Stop.PAUSED:
            while written and written[-1].kind in _THOUGHTS:
                written.pop()
        written.sort(key=lambda block: block.kind != "tool_result")
        return _calls_last(written, bound=own and self._endpoint.reasoning != "must_echo")

    def _sayable(self, part: Part, *, own: bool) -> Part:
        """What is said instead of an item that is not taken here; a summary without words says nothing."""
        if not isinstance(part, Opaque) or not (part.text or part.kind == COMPACTION):
            return part
        taken = own and is_taken(part, signed=self._manner.signed, unsigned=self._manner.unsigned)
        return part if taken else Text(text=part.text)

    def _is_own(self, origin: Origin | None) -> bool:
        """Whether it came from here: what was sealed at one address goes back there, and nowhere else."""
        if origin is None or origin.family != FAMILY:
            return False
        return not self._endpoint.name or origin.endpoint == self._endpoint.home

    def _echoes(self, part: Reasoning, message: Message) -> bool:
        policy, origin = self._endpoint.reasoning, message.origin
        if policy == "strip" or origin is None or origin.family != FAMILY:
            return False
        at_home = self._is_own(origin)
        if policy == "signed":
            # A signature is checked by who gave it; anybody else refuses the whole request over it.
            return at_home and bool(part.signature)
        return at_home or (policy == "must_echo" and not part.signature)

    def _id(self, part: Part, *, own: bool) -> str:
        match part:
            case ToolResult(call_id=call_id):
                return self._sent.get(call_id) or _legal(call_id)
            case ToolCall(id=call_id, wire_id=wire_id):
                offered = wire_id if own and ECHOED_ID.fullmatch(wire_id) else ""
                chosen = offered if offered and offered not in self._used else _legal(call_id)
                while chosen in self._used:
                    chosen += "_"
                self._used.add(chosen)
                self._sent[call_id] = chosen
                return chosen
        return ""


def _first_call(written: Sequence[_Written]) -> int:
    """The place of the first call that is still open at the end of a reply.

    A call made by code that the provider runs is over where the result of that code stands.
    """
    over = max((at for at, block in enumerate(written) if block.kind.endswith("_tool_result")), default=0)
    calls = (at for at, block in enumerate(written) if at >= over and block.kind == "tool_use")
    return next(calls, len(written))


def _calls_last(written: list[_Written], *, bound: bool) -> list[_Written]:
    """Words before calls: words between a call and its result make the provider refuse the request.

    Reasoning that is `bound` to what stood before it does not stay after such a change.
    """
    kinds = [block.kind for block in written]
    if "tool_use" not in kinds or "text" not in kinds[kinds.index("tool_use") :]:
        return written
    first = _first_call(written)
    if all(block.kind != "text" for block in written[first:]):
        return written
    after = [block for block in written[first:] if not (bound and block.kind in _THOUGHTS)]
    return [*written[:first], *sorted(after, key=lambda block: block.kind == "tool_use")]


def _is_hosted(block: _Written) -> bool:
    """Whether a block is the provider's own doing; where it fell back to another model is a mark, no work."""
    return block.kind not in KINDS and block.kind != FALLBACK


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
        return _Written(part.kind, bytes(dumps(block)), takes_mark=part.kind == COMPACTION)
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
