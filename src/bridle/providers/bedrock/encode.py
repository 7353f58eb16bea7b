"""Encodes messages for Bedrock Converse: order of blocks, and ids of calls.

The output follows the strictest reading of the wire. Roles alternate and the user begins; adjacent messages
of one role become one turn, and a message without content gets none. Results come before text, and each call
is answered exactly once in the turn that follows it: a call without a result gets an error result before the
next turn; a result without a call, or a second one, is omitted. Blank texts are omitted, no assistant turn
ends in reasoning, and no text follows its calls. No two documents have the same name, and a document is
always accompanied by text. If a conversation ends with the model's text and the model refuses that, a user
turn asks it to continue.

One endpoint serves models of many makers. Native content of one model means nothing to another, so it is sent
back only to the model it came from: opaque parts, native members, reasoning. The endpoint's policy decides
about the model's own reasoning without a signature.

A call is sent with the provider's id if that is legal and not used before, else with Bridle's, and its result
uses the same id. The encoder therefore has to see all messages, in order, once.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.wire.dialect import is_from_same_origin
from bridle.providers.wire.encoded_history import (
    CONTINUE_TEXT,
    HIDDEN_BEGINNING_TEXT,
    EncodedMessages,
    LostResults,
    WireTurn,
)
from bridle.providers.wire.json import dumps
from bridle.providers.wire.media import describe_omitted_media
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.request import ToolSpec

from .dialect import FAMILY, dialect_for
from .media import NAME_LENGTH_MAX, legal_document_name, rename_media
from .parts import CACHE_POINT, Block, block_type, encode_part
from .tools import encode_tools

SEE_DOCUMENT_TEXT = "See the document."
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in ("user", "assistant", "system")}
_USER = _OPENINGS["user"]
_CLOSING = b"]}"
_CONTINUE_TURN = b',%b{"text":"%b"}%b' % (_USER, CONTINUE_TEXT.encode(), _CLOSING)
_CLIENT_CALL = "a call of a client's tool"
"""Kind of such a block here; calls of the provider's own tools have the same block name."""
_TEXT_BLOCKS = {"text", "citationsContent", "guardContent"}
_NO_BREAKPOINT_AFTER = {"document", "video", "reasoningContent"}
"""Blocks that a cache point may not follow directly."""
# not from outside: names and requests that we make
ID_LENGTH_MAX = 64
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


class BedrockHistory(EncodedMessages):
    """Encoded messages of one conversation for one model."""

    def __init__(self) -> None:
        self._model_id, self._prefill = "", True
        self._tools: tuple[object, bytes] | None = None
        super().__init__(self._new_writer)

    def encode_messages(self, model: Model, messages: Sequence[Message]) -> tuple[str, ...]:
        """Encode new messages; return the names of the tools that were called, in order."""
        if (model.id, model.abilities.prefill) != (self._model_id, self._prefill):
            self._model_id, self._prefill = model.id, model.abilities.prefill
            self._restart()
        self.set_endpoint(model.endpoint)
        self.has_content(messages)
        return tuple(self._writer_in_use.called)

    def encode_tools_once(self, specs: Sequence[ToolSpec], ttl: str | None) -> bytes:
        """Encode the list of tools, again only if it changed."""
        made_of = (specs, ttl)
        if self._tools is None or self._tools[0] != made_of:
            self._tools = (made_of, encode_tools(specs, ttl))
        return self._tools[1]

    def _new_writer(self, endpoint: Endpoint | None) -> "BedrockMessageEncoder":
        self._writer_in_use = BedrockMessageEncoder(endpoint, self._model_id, prefill=self._prefill)
        return self._writer_in_use


class _EncodedBedrockBlock(NamedTuple):
    kind: str
    data: bytes


class BedrockMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, model_id: str, *, prefill: bool) -> None:
        self._endpoint, self._model_id, self._prefill = endpoint, model_id, prefill
        self._dialect = dialect_for(endpoint)
        self._policy = endpoint.reasoning if endpoint else "may_echo"
        self._lost = LostResults(
            lambda result, sent_id: dumps(
                encode_part(result, own=False, sent_id=sent_id, dialect=self._dialect)
            )
        )
        self._used: set[str] = set()
        self._documents: set[str] = set()
        self._open: list[tuple[str, str]] = []
        """Calls without a result so far, in order, with the ids they were sent with."""
        self._begun = False
        self.called: dict[str, None] = {}

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        write = self._encode_model_turns if message.role == "assistant" else self._encode_turns
        return write(message, own=self._is_from_here(message))

    def _is_from_here(self, message: Message) -> bool:
        sealed_by, model_id = self._dialect.sealed_by, self._model_id
        return is_from_same_origin(
            message.origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id
        )

    def _encode_model_turns(self, message: Message, *, own: bool) -> Sequence[WireTurn]:
        lost, before, self._open = self._lost_results(), self._open, []
        written = []
        for part in message.parts:
            if isinstance(part, ToolResult) or (
                isinstance(part, Reasoning) and not self._sends_reasoning_back(part, own=own)
            ):
                continue
            if (
                block := self._encode_block(part if own else _convert_foreign_part(part), own=own)
            ) is not None:
                kind, data = _encode_item(block)
                written.append(
                    _EncodedBedrockBlock(_CLIENT_CALL if isinstance(part, ToolCall) else kind, data)
                )
        while written and written[-1].kind == "reasoningContent":
            written.pop()
        if _has_text_after_call(written):
            written = _move_calls_last(written, bound=own and self._policy != "must_echo")
        if not written:
            self._open = before
            return ()
        at_end = b"" if self._prefill else _CONTINUE_TURN
        turn = WireTurn(
            _OPENINGS["assistant"],
            b",".join(block.data for block in written),
            _CLOSING,
            _breakpoint_offset(written),
            merges_with_previous=True,
            required_next=b",%b%b%b" % (_USER, self._lost_results(), _CLOSING) if self._open else b"",
            required_at_end=at_end,
            kept_at_end=at_end if message.stop is Stop.PAUSED else b"",
        )
        begun, self._begun = self._begun, True
        if before:
            return WireTurn(_USER, lost, _CLOSING, merges_with_previous=True, answers_required=True), turn
        return (turn,) if begun else (_user_turn(HIDDEN_BEGINNING_TEXT), turn)

    def _encode_turns(self, message: Message, *, own: bool) -> Sequence[WireTurn]:
        role = "system" if message.role == "system" else "user"
        written = [
            _encode_item(block)
            for part in message.parts
            if not isinstance(part, ToolCall | Reasoning)
            if not isinstance(part, ToolResult) or self._is_waiting_for(part)
            if (block := self._encode_block(part, own=own)) is not None
        ]
        written = _move_results_first(written)
        if not written:
            return ()
        if not own and _has_only_documents(written):
            written.append(_encode_item({"text": SEE_DOCUMENT_TEXT}))
        before: list[WireTurn] = []
        speaks = role == "system" or any(block.kind not in ("toolResult", CACHE_POINT) for block in written)
        if self._open and speaks:
            lost = _EncodedBedrockBlock("toolResult", self._lost_results())
            self._open.clear()
            if role == "user":
                written = _move_results_first([*written, lost])
            else:
                before.append(
                    WireTurn(_USER, lost.data, _CLOSING, merges_with_previous=True, answers_required=True)
                )
        items = b",".join(block.data for block in written)
        closing = b",%b%b" % (self._lost_results(), _CLOSING) if self._open else _CLOSING
        self._begun = self._begun or role == "user"
        turn = WireTurn(
            _OPENINGS[role],
            items,
            closing,
            _breakpoint_offset(written),
            merges_with_previous=True,
            answers_required=True,
        )
        return (*before, turn)

    def _encode_block(self, part: Part, *, own: bool) -> Block | Raw | None:
        sent_id = ""
        if isinstance(part, ToolCall):
            sent_id = self._choose_id(part, own=own)
            self._open.append((part.id, sent_id))
            self.called[NAMES_64.encode_name(part.name)] = None
        elif isinstance(part, ToolResult):
            asked = next(asked for asked in self._open if asked[0] == part.call_id)
            self._open.remove(asked)
            sent_id = asked[1]
            part = replace(part, parts=tuple(self._name_document(inner, own=own) for inner in part.parts))
        elif isinstance(part, Text | Media | Opaque):
            part = self._name_document(part, own=own)
        return encode_part(part, own=own, sent_id=sent_id, dialect=self._dialect)

    def _is_waiting_for(self, result: ToolResult) -> bool:
        return any(call_id == result.call_id for call_id, _ in self._open)

    def _name_document(self, part: Text | Media | Opaque, *, own: bool) -> Text | Media | Opaque:
        """Give a document a legal and unique name."""
        if not isinstance(part, Media) or part.kind != "document":
            return part
        plain = part.name if own and part.name else legal_document_name(part.name)
        chosen, number = plain, 1
        while chosen in self._documents:
            number += 1
            end = f" ({number})"
            chosen = plain[: NAME_LENGTH_MAX - len(end)] + end
        self._documents.add(chosen)
        return part if chosen == part.name else rename_media(part, chosen)

    def _sends_reasoning_back(self, thought: Reasoning, *, own: bool) -> bool:
        match self._policy:
            case "strip":
                return False
            case "must_echo":
                return own or bool(thought.text.strip())
            case "signed":
                return own and bool(thought.signature)
        return own

    def _choose_id(self, call: ToolCall, *, own: bool) -> str:
        offered = call.wire_id if own and _LEGAL_ID.fullmatch(call.wire_id) else ""
        ours = _ILLEGAL_IN_ID.sub("_", call.id)[:ID_LENGTH_MAX] or "_"
        chosen, number = offered if offered and offered not in self._used else ours, 1
        while chosen in self._used:
            number += 1
            end = f"_{number}"
            chosen = ours[: ID_LENGTH_MAX - len(end)] + end
        self._used.add(chosen)
        return chosen

    def _lost_results(self) -> bytes:
        """Answers to the calls that are open."""
        return self._lost.encode([sent_id for _, sent_id in self._open])


def _convert_foreign_part(part: Part) -> Part:
    """Convert a part of another model: without media and without signatures."""
    match part:
        case Media():
            return Text(text=describe_omitted_media(part))
        case Reasoning(text=text):
            return Reasoning(text=text)
    return part


def _user_turn(words: str) -> WireTurn:
    return WireTurn(_USER, dumps({"text": words}), _CLOSING, merges_with_previous=True)


def _encode_item(block: Block | Raw) -> _EncodedBedrockBlock:
    return _EncodedBedrockBlock(block_type(block), dumps(block))


def _has_text_after_call(written: Sequence[_EncodedBedrockBlock]) -> bool:
    """Return True if there is text between a call and its result; the provider refuses such a request."""
    kinds = [block.kind for block in written]
    return _CLIENT_CALL in kinds and not _TEXT_BLOCKS.isdisjoint(kinds[kinds.index(_CLIENT_CALL) :])


def _move_calls_last(written: Sequence[_EncodedBedrockBlock], *, bound: bool) -> list[_EncodedBedrockBlock]:
    """Move text before calls; reasoning `bound` to the preceding blocks is dropped after such a change."""
    first = next(at for at, block in enumerate(written) if block.kind == _CLIENT_CALL)
    after = [block for block in written[first:] if not (bound and block.kind == "reasoningContent")]
    return [*written[:first], *sorted(after, key=lambda block: block.kind == _CLIENT_CALL)]


def _move_results_first(written: list[_EncodedBedrockBlock]) -> list[_EncodedBedrockBlock]:
    """Move results before text; cache points stay in place unless text has to move."""
    last = max((at for at, block in enumerate(written) if block.kind == "toolResult"), default=-1)
    if all(block.kind in ("toolResult", CACHE_POINT) for block in written[: last + 1]):
        return written
    return sorted(written, key=lambda block: block.kind != "toolResult")


def _has_only_documents(written: Sequence[_EncodedBedrockBlock]) -> bool:
    kinds = {block.kind for block in written}
    return "document" in kinds and "text" not in kinds


def _breakpoint_offset(written: Sequence[_EncodedBedrockBlock]) -> int:
    """Return the offset after the last block a cache point may follow; -1 if there is none, or one is there."""
    end = sum(len(block.data) for block in written) + len(written) - 1
    for block in reversed(written):
        if block.kind not in _NO_BREAKPOINT_AFTER:
            return -1 if block.kind == CACHE_POINT else end
        end -= len(block.data) + 1
    return -1
