"""Encodes messages for Anthropic: order of blocks, and ids of calls.

The output follows the strictest reading of the wire. Blank texts are omitted, results come before text, an
assistant turn does not end in reasoning, no text follows its calls, and adjacent messages of one role become
one turn. A message without content gets no turn, and its neighbours merge. If a conversation ends with the
model's text and the model refuses that, a user turn asks it to continue. Each call is answered once, in the
turn that follows it: a call without a result gets an error result before the next turn; a result without a
call, or a second one, is omitted.

Reasoning is sent back only where it can be verified: signed reasoning of this family is sent unchanged,
foreign reasoning never. The endpoint's policy decides about reasoning without a signature.

A call is sent with the provider's id if that is legal and not used before, else with Bridle's, and its result
uses the same id. The encoder therefore has to see all messages, in order, once.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Raw, Struct

from bridle.providers.wire.dialect import RETURNABLE_ID
from bridle.providers.wire.encoded_history import (
    CONTINUE_TEXT,
    EncodedMessages,
    LostResults,
    RequiredBytes,
    WireTurn,
)
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.media import describe_omitted_media
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
    encode_part,
    find_model_switch,
)

MESSAGE_FIELDS_KIND = "message.fields"
"""Kind of an `Opaque` that holds the members of a message besides role and content."""

_ROLES = {"user": "user", "tool": "user", "assistant": "assistant", "system": "system"}
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in _ROLES.values()}
_CONTINUE_TURN = b',%b{"type":"text","text":"%b"}]}' % (_OPENINGS["user"], CONTINUE_TEXT.encode())
BREAKPOINT_BLOCKS = {"text", "image", "document", "tool_use", "tool_result"}
_REASONING_BLOCKS = {"thinking", "redacted_thinking"}
_OWN_BLOCKS = KNOWN_BLOCKS | {FALLBACK}
"""Every other block belongs to the provider's own tools."""
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_LOST_RESULTS = LostResults(lambda result, sent_id: dumps(encode_part(result, own=False, sent_id=sent_id)))


class _EncodedBlock(Struct, frozen=True, gc=False):
    kind: str
    data: bytes
    takes_breakpoint: bool


class AnthropicEncodeOptions(Value, kw_only=True):
    """Options of encoding besides the endpoint."""

    prefill: bool = True
    """True if messages may end with the model's text."""
    deferred: frozenset[str] = frozenset()
    """Tools that results may refer to; a reference to any other is refused."""
    send_signed_summaries: bool = True
    """True if a requested summary is sent back unchanged."""
    send_unsigned_summaries: bool = False
    """True if a summary that the provider made at a threshold is sent back unchanged."""


class AnthropicHistory(EncodedMessages):
    """Encoded messages of one conversation for one set of options."""

    def __init__(self) -> None:
        self._options = AnthropicEncodeOptions()
        super().__init__(lambda endpoint: AnthropicMessageEncoder(endpoint, self._options))

    def configure(self, model: Model, options: AnthropicEncodeOptions) -> None:
        if options != self._options:
            self._options = options
            self._restart()
        self.set_endpoint(model.endpoint)


class AnthropicMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, options: AnthropicEncodeOptions) -> None:
        self._options = options
        self._endpoint = endpoint or Endpoint(name="", family=FAMILY)
        self._sent: dict[str, str] = {}
        self._used: set[str] = set()
        self._open: list[str] = []
        """Calls without a result so far, in order."""
        self._role = ""
        """Role of the last turn."""
        self._hosted = False
        """True if the current assistant turn contains work of the provider's own tools."""

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        own = self._is_from_here(message.origin)
        has_items = Opaque in [type(part) for part in message.parts]
        fields = _extra_message_fields(message.parts, own=own) if has_items else {}
        switch = find_model_switch(message.parts) if own and has_items else 0
        written = self._encode_parts(message, switch, own=own)
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
        items = b",".join([block.data for block in written])
        closing = b"%b%b]}" % (b"," if items else b"", self._lost_results().data) if self._open else b"]}"
        turn = WireTurn(
            opening,
            items,
            closing,
            _breakpoint_offset(written, len(items)),
            merges_with_previous=not fields,
            answers_required=True,
        )
        return (*before, turn)

    def _encode_model_turn(
        self, message: Message, opening: bytes, written: list[_EncodedBlock], *, merges: bool, again: bool
    ) -> WireTurn:
        """Encode an assistant turn; open calls are answered before it unless it only adds calls."""
        was_paused = message.stop is Stop.PAUSED
        separate = again and bool(self._open) and any(block.kind != "tool_use" for block in written)
        before = self._open if again and not separate else []
        calls = [part.id for part in message.parts if type(part) is ToolCall and part.id in self._sent]
        self._open = [*before, *calls]
        required: RequiredBytes = b""
        if self._open:
            sent_ids = [self._sent[call_id] for call_id in self._open]
            required = partial(_encode_lost_turn, sent_ids)
        items = b",".join([block.data for block in written])
        is_hosted = not _OWN_BLOCKS.issuperset([block.kind for block in written])
        self._hosted = (self._hosted and again) or is_hosted
        # Work of the provider's own tools is continued by sending it back unchanged. A reply that was paused
        # in plain text ends like any other: only some models continue from there.
        paused = was_paused and self._hosted
        continues = paused or (is_hosted and written[-1].kind not in _OWN_BLOCKS)
        # No model continues after white space, which only a reply that paused in its text leaves at the end.
        blocked = was_paused and _ends_with_space(message)
        at_end = b"" if (self._options.prefill or continues) and not blocked else _CONTINUE_TURN
        return WireTurn(
            opening,
            items,
            b"]}",
            _breakpoint_offset(written, len(items)),
            merges_with_previous=merges,
            required_next=required,
            answers_required=not separate,
            required_at_end=at_end,
            kept_at_end=at_end if was_paused else b"",
        )

    def _lost_results(self) -> _EncodedBlock:
        data = _LOST_RESULTS.encode([self._sent[call_id] for call_id in self._open])
        return _EncodedBlock("tool_result", data, takes_breakpoint=False)

    def _encode_parts(self, message: Message, switch: int, *, own: bool) -> list[_EncodedBlock]:
        """Encode the parts. Those of a model that declined to continue, before `switch`, are left out."""
        written: list[_EncodedBlock] = []
        has_results = False
        for place, part in enumerate(message.parts):
            if place < switch and _is_declined(part):
                continue
            sent, sent_id = part, ""
            revealed: tuple[str, ...] = ()
            if type(part) is ToolCall:
                sent_id = self._choose_call_id(part, own=own)
            elif type(part) is ToolResult:
                call_id, revealed = part.call_id, part.reveals_tools
                if call_id not in self._open:
                    continue
                self._open.remove(call_id)
                has_results = True
                sent_id = self._sent.get(call_id) or _legal_id(call_id)
            elif type(part) is Reasoning:
                if not self._sends_reasoning_back(part, message):
                    continue
            elif type(part) is Opaque:
                if part.kind == MESSAGE_FIELDS_KIND:
                    continue
                sent = self._substitute_item(part, own=own)
            elif type(part) is Media and message.role == "assistant" and not own:
                # Only users and tools may send media on this wire.
                sent = Text(text=describe_omitted_media(part))
            block = encode_part(sent, own=own, sent_id=sent_id)
            if block is not None and revealed:
                names = [name for name in revealed if name in self._options.deferred]
                block = add_tool_references(block, names)
            if block is not None:
                written.append(_encode_block(sent, block))
        if message.role == "assistant" and message.stop is not Stop.PAUSED:
            while written and written[-1].kind in _REASONING_BLOCKS:
                written.pop()
        if len(written) > 1:
            if has_results:
                written.sort(key=_is_no_result)
            return _move_calls_last(written, bound=own and self._endpoint.reasoning != "must_echo")
        return written

    def _substitute_item(self, part: Opaque, *, own: bool) -> Part:
        """Replace an item that is not accepted here by its text; a summary without text is omitted."""
        if not (part.text or part.kind == COMPACTION):
            return part
        taken = part.wire == FAMILY or (
            own
            and can_send_back(
                part,
                signed=self._options.send_signed_summaries,
                unsigned=self._options.send_unsigned_summaries,
            )
        )
        return part if taken else Text(text=part.text)

    def _is_from_here(self, origin: Origin | None) -> bool:
        """Return True if the part came from this endpoint: signatures are valid only where they were issued."""
        if origin is None or origin.family != FAMILY:
            return False
        return not self._endpoint.name or origin.endpoint == self._endpoint.endpoint_id

    def _sends_reasoning_back(self, part: Reasoning, message: Message) -> bool:
        policy, origin = self._endpoint.reasoning, message.origin
        if policy == "strip" or origin is None or origin.family != FAMILY:
            return False
        from_here = self._is_from_here(origin)
        if policy == "signed":
            # Only the issuer of a signature can verify it; any other provider refuses the whole request.
            return from_here and bool(part.signature)
        return from_here or (policy == "must_echo" and not part.signature)

    def _choose_call_id(self, call: ToolCall, *, own: bool) -> str:
        offered = call.wire_id if own and RETURNABLE_ID.fullmatch(call.wire_id) else ""
        chosen = offered if offered and offered not in self._used else _legal_id(call.id)
        while chosen in self._used:
            chosen += "_"
        self._used.add(chosen)
        self._sent[call.id] = chosen
        return chosen


def _encode_lost_turn(sent_ids: Sequence[str]) -> bytes:
    return b",%b%b]}" % (_OPENINGS["user"], _LOST_RESULTS.encode(sent_ids))


def _is_no_result(block: _EncodedBlock) -> bool:
    return block.kind != "tool_result"


def _find_first_call(written: Sequence[_EncodedBlock]) -> int:
    """Return the position of the first call still open at the end of a reply.

    A call made by code that the provider runs ends where the result of that code is.
    """
    finished_at = max(
        (at for at, block in enumerate(written) if block.kind.endswith("_tool_result")), default=0
    )
    calls = (at for at, block in enumerate(written) if at >= finished_at and block.kind == "tool_use")
    return next(calls, len(written))


def _move_calls_last(written: list[_EncodedBlock], *, bound: bool) -> list[_EncodedBlock]:
    """Move text before calls: text between a call and its result makes the provider refuse the request.

    Reasoning that is `bound` to the preceding blocks is dropped after such a change.
    """
    kinds = [block.kind for block in written]
    if "tool_use" not in kinds or "text" not in kinds[kinds.index("tool_use") :]:
        return written
    first = _find_first_call(written)
    if all(block.kind != "text" for block in written[first:]):
        return written
    after = [block for block in written[first:] if not (bound and block.kind in _REASONING_BLOCKS)]
    return [*written[:first], *sorted(after, key=lambda block: block.kind == "tool_use")]


def _is_declined(part: Part) -> bool:
    return isinstance(part, Reasoning | ToolCall) or (isinstance(part, Opaque) and part.kind == "tool_use")


def _extra_message_fields(parts: Sequence[Part], *, own: bool) -> dict[str, Any]:
    for part in parts:
        if not isinstance(part, Opaque) or part.kind != MESSAGE_FIELDS_KIND:
            continue
        if own or part.wire == FAMILY:
            fields: dict[str, Any] = loads(part.native)
            return fields
    return {}


def _legal_id(name: str) -> str:
    return _ILLEGAL_IN_ID.sub("_", name) or "_"


def _encode_block(part: Part, block: Block | Raw) -> _EncodedBlock:
    if type(part) is Opaque:
        return _EncodedBlock(part.kind, bytes(dumps(block)), takes_breakpoint=part.kind == COMPACTION)
    assert type(block) is dict
    kind = block["type"]
    return _EncodedBlock(
        kind, dumps(block), takes_breakpoint=kind in BREAKPOINT_BLOCKS and "cache_control" not in block
    )


def _ends_with_space(message: Message) -> bool:
    last = message.parts[-1]
    return isinstance(last, Text) and last.text[-1:].isspace()


def _breakpoint_offset(written: Sequence[_EncodedBlock], end: int) -> int:
    """Return the offset of the closing brace of the last block that can carry a breakpoint; `end` is their length."""
    for block in reversed(written):
        if block.takes_breakpoint:
            return end - 1
        end -= len(block.data) + 1
    return -1
