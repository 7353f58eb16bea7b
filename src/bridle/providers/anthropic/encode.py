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

from bridle.providers.wire.encoded_history import CONTINUE_TEXT, EncodedMessages, WireTurn, make_lost_result
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.origin import RETURNABLE_ID
from bridle.values.base import Value
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin

from .parts import (
    COMPACTION,
    FALLBACK,
    FAMILY,
    KNOWN_BLOCKS,
    Block,
    add_tool_references,
    can_send_back,
    describe_omitted_media,
    encode_part,
    find_model_switch,
)

MESSAGE_FIELDS_KIND = "message.fields"
"""The kind of an `Opaque` that holds what a message said beside its role and content."""

_ROLES = {"user": "user", "tool": "user", "assistant": "assistant", "system": "system"}
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in _ROLES.values()}
_CONTINUE_TURN = b',%b{"type":"text","text":"%b"}]}' % (_OPENINGS["user"], CONTINUE_TEXT.encode())
BREAKPOINT_BLOCKS = {"text", "image", "document", "tool_use", "tool_result"}
_REASONING_BLOCKS = {"thinking", "redacted_thinking"}
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


class _EncodedBlock(NamedTuple):
    kind: str
    data: bytes
    takes_breakpoint: bool


class AnthropicEncodeOptions(Value):
    """How messages are to be written, beside where they go."""

    prefill: bool = True
    """Whether they may end in words of the model."""
    deferred: frozenset[str] = frozenset()
    """Tools that results may refer to; a reference to any other is refused."""
    send_signed_summaries: bool = True
    """Whether a summary that was asked for is taken back as it came."""
    send_unsigned_summaries: bool = False
    """Whether one is that the provider made of its own accord."""


class AnthropicHistory(EncodedMessages):
    """The messages of one conversation, as they are written in one manner."""

    def __init__(self) -> None:
        self._manner = AnthropicEncodeOptions()
        super().__init__(lambda endpoint: AnthropicMessageEncoder(endpoint, self._manner))

    def configure(self, model: Model, manner: AnthropicEncodeOptions) -> None:
        if manner != self._manner:
            self._manner = manner
            self._restart()
        self.set_endpoint(model.endpoint)


class AnthropicMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, manner: AnthropicEncodeOptions) -> None:
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

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        own = self._is_from_here(message.origin)
        fields = _extra_message_fields(message.parts) if own else {}
        written = self._encode_parts(message, own=own)
        if not written and not fields:
            return ()
        role = _ROLES[message.role]
        opening = _OPENINGS[role]
        if fields:
            opening = dumps({"role": role, **fields})[:-1] + b',"content":['
        again = self._role == role
        self._role = role
        if role == "assistant":
            return (self._encode_model_turn(message, opening, written, merges=not fields, again=again),)
        before: list[WireTurn] = []
        if self._open and any(block.kind != "tool_result" for block in written):
            lost = self._lost_results()
            self._open.clear()
            if role == "user":
                written = [lost, *written]
            else:
                before.append(
                    WireTurn(
                        _OPENINGS["user"], lost.data, b"]}", merges_with_previous=True, answers_required=True
                    )
                )
        items = b",".join(block.data for block in written)
        closing = b"%b%b]}" % (b"," if items else b"", self._lost_results().data) if self._open else b"]}"
        turn = WireTurn(
            opening,
            items,
            closing,
            _breakpoint_offset(written),
            merges_with_previous=not fields,
            answers_required=True,
        )
        return (*before, turn)

    def _encode_model_turn(
        self, message: Message, opening: bytes, written: list[_EncodedBlock], *, merges: bool, again: bool
    ) -> WireTurn:
        """What is open is answered before it, unless it only goes on calling."""
        alone = again and bool(self._open) and any(block.kind != "tool_use" for block in written)
        before = self._open if again and not alone else []
        calls = [part.id for part in message.parts if isinstance(part, ToolCall) and part.id in self._sent]
        self._open = [*before, *calls]
        owed = b",%b%b]}" % (_OPENINGS["user"], self._lost_results().data) if self._open else b""
        items = b",".join(block.data for block in written)
        self._hosted = (self._hosted and again) or any(map(_is_hosted_block, written))
        # What the provider's own tools are in the middle of is continued by sending it back as it is.  A
        # reply that was paused in plain words ends like any other: only some models go on from there.
        paused = message.stop is Stop.PAUSED and self._hosted
        goes_on = paused or (bool(written) and _is_hosted_block(written[-1]))
        at_end = b"" if self._manner.prefill or goes_on else _CONTINUE_TURN
        return WireTurn(
            opening,
            items,
            b"]}",
            _breakpoint_offset(written),
            merges_with_previous=merges,
            required_next=owed,
            answers_required=not alone,
            required_at_end=at_end,
            kept_at_end=at_end if message.stop is Stop.PAUSED else b"",
        )

    def _lost_results(self) -> _EncodedBlock:
        """Answers to the calls that are open."""
        blocks = (
            encode_part(
                make_lost_result(call_id),
                own=False,
                sent_id=self._sent[call_id],
            )
            for call_id in self._open
        )
        return _EncodedBlock("tool_result", b",".join(map(dumps, blocks)), takes_breakpoint=False)

    def _encode_parts(self, message: Message, *, own: bool) -> list[_EncodedBlock]:
        switch = find_model_switch(message.parts) if own else 0
        written = []
        for place, part in enumerate(message.parts):
            if place < switch and _is_declined(part):
                continue
            if isinstance(part, Reasoning) and not self._sends_reasoning_back(part, message):
                continue
            if isinstance(part, Opaque) and part.kind == MESSAGE_FIELDS_KIND:
                continue
            if isinstance(part, ToolResult):
                if part.call_id not in self._open:
                    continue
                self._open.remove(part.call_id)
            # Only users and tools may show anything on this wire.
            unshown = message.role == "assistant" and not own
            told = self._substitute_part(part, own=own)
            if isinstance(part, Media) and unshown:
                told = Text(text=describe_omitted_media(part))
            if (block := encode_part(told, own=own, sent_id=self._choose_id(told, own=own))) is not None:
                if isinstance(part, ToolResult) and part.reveals_tools:
                    block = add_tool_references(
                        block, [name for name in part.reveals_tools if name in self._manner.deferred]
                    )
                written.append(_encode_block(told, block))
        if message.role == "assistant" and message.stop is not Stop.PAUSED:
            while written and written[-1].kind in _REASONING_BLOCKS:
                written.pop()
        written.sort(key=lambda block: block.kind != "tool_result")
        return _move_calls_last(written, bound=own and self._endpoint.reasoning != "must_echo")

    def _substitute_part(self, part: Part, *, own: bool) -> Part:
        """What is said instead of an item that is not taken here; a summary without words says nothing."""
        if not isinstance(part, Opaque) or not (part.text or part.kind == COMPACTION):
            return part
        taken = own and can_send_back(
            part, signed=self._manner.send_signed_summaries, unsigned=self._manner.send_unsigned_summaries
        )
        return part if taken else Text(text=part.text)

    def _is_from_here(self, origin: Origin | None) -> bool:
        """Whether it came from here: what was sealed at one address goes back there, and nowhere else."""
        if origin is None or origin.family != FAMILY:
            return False
        return not self._endpoint.name or origin.endpoint == self._endpoint.endpoint_id

    def _sends_reasoning_back(self, part: Reasoning, message: Message) -> bool:
        policy, origin = self._endpoint.reasoning, message.origin
        if policy == "strip" or origin is None or origin.family != FAMILY:
            return False
        at_home = self._is_from_here(origin)
        if policy == "signed":
            # A signature is checked by who gave it; anybody else refuses the whole request over it.
            return at_home and bool(part.signature)
        return at_home or (policy == "must_echo" and not part.signature)

    def _choose_id(self, part: Part, *, own: bool) -> str:
        match part:
            case ToolResult(call_id=call_id):
                return self._sent.get(call_id) or _legal_id(call_id)
            case ToolCall(id=call_id, wire_id=wire_id):
                offered = wire_id if own and RETURNABLE_ID.fullmatch(wire_id) else ""
                chosen = offered if offered and offered not in self._used else _legal_id(call_id)
                while chosen in self._used:
                    chosen += "_"
                self._used.add(chosen)
                self._sent[call_id] = chosen
                return chosen
        return ""


def _find_first_call(written: Sequence[_EncodedBlock]) -> int:
    """The place of the first call that is still open at the end of a reply.

    A call made by code that the provider runs is over where the result of that code stands.
    """
    over = max((at for at, block in enumerate(written) if block.kind.endswith("_tool_result")), default=0)
    calls = (at for at, block in enumerate(written) if at >= over and block.kind == "tool_use")
    return next(calls, len(written))


def _move_calls_last(written: list[_EncodedBlock], *, bound: bool) -> list[_EncodedBlock]:
    """Words before calls: words between a call and its result make the provider refuse the request.

    Reasoning that is `bound` to what stood before it does not stay after such a change.
    """
    kinds = [block.kind for block in written]
    if "tool_use" not in kinds or "text" not in kinds[kinds.index("tool_use") :]:
        return written
    first = _find_first_call(written)
    if all(block.kind != "text" for block in written[first:]):
        return written
    after = [block for block in written[first:] if not (bound and block.kind in _REASONING_BLOCKS)]
    return [*written[:first], *sorted(after, key=lambda block: block.kind == "tool_use")]


def _is_hosted_block(block: _EncodedBlock) -> bool:
    """Whether a block is the provider's own doing; where it fell back to another model is a mark, no work."""
    return block.kind not in KNOWN_BLOCKS and block.kind != FALLBACK


def _is_declined(part: Part) -> bool:
    return isinstance(part, Reasoning | ToolCall) or (isinstance(part, Opaque) and part.kind == "tool_use")


def _extra_message_fields(parts: Sequence[Part]) -> dict[str, Any]:
    for part in parts:
        if isinstance(part, Opaque) and part.kind == MESSAGE_FIELDS_KIND:
            fields: dict[str, Any] = loads(part.native)
            return fields
    return {}


def _legal_id(name: str) -> str:
    return _ILLEGAL_IN_ID.sub("_", name) or "_"


def _encode_block(part: Part, block: Block | Raw) -> _EncodedBlock:
    if isinstance(part, Opaque):
        return _EncodedBlock(part.kind, bytes(dumps(block)), takes_breakpoint=part.kind == COMPACTION)
    assert isinstance(block, dict)
    kind = block["type"]
    return _EncodedBlock(
        kind, dumps(block), takes_breakpoint=kind in BREAKPOINT_BLOCKS and "cache_control" not in block
    )


def _breakpoint_offset(written: Sequence[_EncodedBlock]) -> int:
    """The offset of the closing brace of the last block that can carry a mark."""
    end = sum(len(block.data) for block in written) + len(written) - 1
    for block in reversed(written):
        if block.takes_breakpoint:
            return end - 1
        end -= len(block.data) + 1
    return -1
