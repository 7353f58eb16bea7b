"""Encodes messages for a server of Chat Completions: order, roles, and ids of calls.

The output follows the strictest reading of the wire. Blank texts are omitted. Each call is answered by one
`tool` message before any other message: a call without a result gets one that says so, a result without a
call is omitted, and of two results the first counts. Results cannot contain images, so those follow in a user
message after all results. There is no flag for a failed call; the first words of its result say so.

Reasoning is sent back to the server it came from, according to that server's policy; if a server routes
requests to many makers, to the maker it came from. Foreign reasoning is not sent, unless the server requires
some with every call.

A call is sent with the server's own id if that is legal and not used before, else with Bridle's, and its
result uses the same id. The encoder therefore has to see all messages, in order, once.

`RoleAlternation` serves servers that require alternating roles: some render a conversation by a template that
supports nothing else, and refuse other requests. Adjacent messages of one role become one message; a late
system message becomes a user message; and where two roles cannot follow each other (a user right after
results, a model that begins), a neutral message of the other role is inserted.
"""

import re
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b

from msgspec import Raw, Struct

from bridle.providers.wire.dialect import RETURNABLE_ID, is_from_same_origin, match_model_id
from bridle.providers.wire.encoded_history import RequiredBytes, WireTurn
from bridle.providers.wire.json import dumps, repair_surrogates
from bridle.providers.wire.media import describe_omitted_media
from bridle.values.message import (
    Media,
    Message,
    Opaque,
    Outcome,
    Part,
    Reasoning,
    Stop,
    Text,
    ToolCall,
    ToolResult,
    is_written_for,
)
from bridle.values.model import Endpoint

from .calls import encode_tool_name, is_legacy_call
from .content import Block, decode_native, encode_content, encode_native
from .dialect import FAMILY, ChatDialect
from .parts import encode_message, kept_members, simplify_content

NOTED_MESSAGE: Block = {"role": "assistant", "content": "(Noted.)"}
"""Inserted between results and a user message."""
_FILLER_MESSAGES: dict[tuple[str, str], Block] = {
    ("", "assistant"): {"role": "user", "content": "(The conversation begins here.)"},
    ("assistant", "assistant"): {"role": "user", "content": "(Go on.)"},
    ("tool", "user"): NOTED_MESSAGE,
}
_TEXT_SEPARATOR = dumps("\n\n")[1:-1]


class RoleAlternation:
    """Tracks the last role and inserts or merges messages so that roles alternate."""

    def __init__(self, dialect: ChatDialect) -> None:
        self._in_strings = dialect.content == "string"
        self._has_breakpoints = dialect.cache_marks
        self._last_role = ""
        self._can_merge = False

    def note_results(self) -> None:
        self._last_role = "tool"

    def place_message(self, message: Block, required: RequiredBytes) -> Sequence[WireTurn]:
        """Place a message. `required` are answers to its calls: a tool message follows it."""
        role = "assistant" if message["role"] == "assistant" else "user"
        turn = self._place_turn(role, message, required)
        between = (
            None
            if turn.merges_with_previous and self._can_merge and self._last_role == role
            else (self._last_role, role)
        )
        self._last_role, self._can_merge = "tool" if required else role, turn.merges_with_previous
        filler = _FILLER_MESSAGES.get(between) if between else None
        return (WireTurn(b"", dumps(filler), b""), turn) if filler else (turn,)

    def _place_turn(self, role: str, message: Block, required: RequiredBytes) -> WireTurn:
        content = message.get("content")
        rest = {name: value for name, value in message.items() if name not in ("role", "content")}
        beside = b"," + dumps(rest)[1:] if rest else b"}"
        if not content or required:
            return WireTurn(b"", dumps({**message, "role": role}), b"", required_next=required)
        opening = b'{"role":"%b","content":' % role.encode()
        if self._in_strings:
            text = dumps(content)[1:-1]
            return WireTurn(
                opening + b'"', text, b'"' + beside, merges_with_previous=True, separator=_TEXT_SEPARATOR
            )
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        items = b",".join(dumps(block) for block in blocks)
        mark_at = len(items) - 1 if self._has_breakpoints else -1
        return WireTurn(opening + b"[", items, b"]" + beside, mark_at, merges_with_previous=True)


_FIXED_ID = re.compile(r"[a-zA-Z0-9]+")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ID_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CONTENT_MEMBERS = frozenset({"content", "refusal", "audio", "tool_calls", "function_call"})

ERROR_PREFIX = re.compile(r"\[error(?:: (\w+))?\] ?")
"""Start of the result of a failed call."""
NO_OUTPUT_TEXT = "(no output)"
"""Some servers refuse an empty result; all accept this."""
NO_RESULT_TEXT = "[error: unknown] No result of this call was recorded."
BLANK_REASONING = " "
"""Enough for servers that refuse calls without reasoning, if there is none to send."""


class _OpenCall(Struct, frozen=True):
    """A call without an answer so far."""

    call_id: str
    answer: Block
    """The first members of the message that answers it."""


class ChatMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, model_id: str, dialect: ChatDialect) -> None:
        self._endpoint, self._model_id = endpoint, model_id
        self._policy = endpoint.reasoning if endpoint else "may_echo"
        if match_model_id(dialect.must_echo_models, model_id):
            self._policy = "must_echo"
        self._dialect = dialect
        self._used: set[str] = set()
        self._open: list[_OpenCall] = []
        self._images: list[Block | Raw] = []
        self._alternation = RoleAlternation(dialect) if dialect.alternates else None

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        own = self._is_from_here(message)
        if message.role == "assistant":
            return self._encode_assistant(message, own=own)
        results = message.results
        turns = self._encode_results(results, own=own) if results else []
        if len(results) == len(message.parts):
            return turns
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        role = self._dialect.system_role if message.role == "system" else "user"
        return [*turns, *self._encode_plain(role, others, own=own)]

    def _is_from_here(self, message: Message) -> bool:
        sealed_by, model_id = self._dialect.sealed_by, self._model_id
        return is_from_same_origin(
            message.origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id
        )

    def _encode_assistant(self, message: Message, *, own: bool) -> Sequence[WireTurn]:
        calls = message.calls
        sent_ids = [self._choose_id(call, own=own) for call in calls]
        parts: Sequence[Part] = message.parts
        visible, refused = parts, message.stop is Stop.REFUSED
        if self._policy == "must_echo" or Reasoning in map(type, parts):
            parts = self._select_reasoning(parts, own=own, calls=bool(calls))
            visible = [part for part in parts if not isinstance(part, Reasoning)]
        sent = encode_message(visible, self._dialect, own=own, refused=refused, sent_ids=sent_ids)
        if _CONTENT_MEMBERS.isdisjoint([name for name, value in sent.items() if value]):
            return ()  # reasoning alone is not a message
        if len(visible) < len(parts):
            sent = encode_message(parts, self._dialect, own=own, refused=refused, sent_ids=sent_ids)
        self._close_open_calls()
        for call, sent_id in zip(calls, sent_ids, strict=True):
            answer: Block = {"role": "tool", "tool_call_id": sent_id}
            if own and call.native and is_legacy_call(call):
                answer = {"role": "function", "name": encode_tool_name(call.name)}
            self._open.append(_OpenCall(call.id, answer))
        return self._place_message(sent, required=self._encode_required_next())

    def _select_reasoning(self, parts: Sequence[Part], *, own: bool, calls: bool) -> list[Part]:
        """Select the reasoning that is sent to this server."""
        kept = [
            part
            for part in parts
            if not isinstance(part, Reasoning) or (own and self._sends_reasoning_back(part))
        ]
        if self._policy != "must_echo" or not calls or any(map(_has_reasoning, kept)):
            return kept
        texts = [part.text for part in parts if isinstance(part, Reasoning) and not part.redacted]
        text = "\n\n".join(filter(str.strip, texts)) or BLANK_REASONING
        substitute = Reasoning(text=text, native=encode_native(fields=[self._dialect.reasoning_field]))
        return [substitute, *(part for part in kept if not isinstance(part, Reasoning))]

    def _sends_reasoning_back(self, reasoning: Reasoning) -> bool:
        return self._policy != "strip" and (self._policy != "signed" or bool(reasoning.signature))

    def _encode_results(self, results: Sequence[ToolResult], *, own: bool) -> list[WireTurn]:
        written = [answer for result in results if (answer := self._encode_result(result, own=own))]
        if not written:
            return []
        if self._alternation is not None:
            self._alternation.note_results()
        items = b",".join(map(dumps, written))
        mark_at = self._breakpoint_offset(written[-1], items)
        return [
            WireTurn(
                b"", items, b"", mark_at, required_next=self._encode_required_next(), answers_required=True
            )
        ]

    def _encode_result(self, result: ToolResult, *, own: bool) -> Block:
        """Encode a result; empty if no call waits for it: it was answered already, or never made."""
        for pending in self._open:
            if pending.call_id == result.call_id:
                break
        else:
            return {}
        self._open.remove(pending)
        blocks = [
            block for part in result.parts if (block := self._encode_result_part(part, own=own)) is not None
        ]
        fields = kept_members([result], own=own) if result.native else {}
        return {
            **pending.answer,
            "content": self._encode_content(_mark_outcome(blocks, result.outcome)) or NO_OUTPUT_TEXT,
            **fields,
        }

    def _encode_result_part(self, part: Text | Media | Opaque, *, own: bool) -> Block | Raw | None:
        block = encode_content(part, self._dialect, own=own)
        if not isinstance(part, Media) or (
            (own or is_written_for(part, FAMILY)) and decode_native(part).get("in") == "result"
        ):
            return block
        if isinstance(block, dict) and block["type"] == "text":
            return block
        if self._dialect.result_images == "result":
            return block
        if self._dialect.result_images == "omit" or block is None:
            return {"type": "text", "text": describe_omitted_media(part)}
        self._images.append(block)
        return {"type": "text", "text": f"[{part.kind} {len(self._images)}: see the next message]"}

    def _encode_plain(self, role: str, parts: Sequence[Part], *, own: bool) -> Sequence[WireTurn]:
        blocks = [
            block
            for part in parts
            if isinstance(part, Text | Media | Opaque)
            if (block := encode_content(part, self._dialect, own=own)) is not None
        ]
        content = self._encode_content(blocks)
        if not content:
            return ()
        self._close_open_calls()
        fields = kept_members(parts, own=own)
        return self._place_message({"role": role, "content": content, **fields})

    def _place_message(self, message: Block, required: RequiredBytes = b"") -> Sequence[WireTurn]:
        if self._alternation is not None:
            return self._alternation.place_message(message, required)
        items = dumps(message)
        return (WireTurn(b"", items, b"", self._breakpoint_offset(message, items), required_next=required),)

    def _encode_content(self, blocks: list[Block | Raw]) -> object:
        """Encode content; breakpoints are set on parts, so with breakpoints it stays a list of parts."""
        return blocks if self._dialect.cache_marks else simplify_content(blocks, self._dialect)

    def _breakpoint_offset(self, message: Block, items: bytes) -> int:
        """Return the offset just inside the last part, if the message ends with a list of parts; else -1."""
        marked = self._dialect.cache_marks and list(message)[-1] == "content"
        return len(items) - len(b"}]}") if marked and items.endswith(b"}]}") else -1

    def _close_open_calls(self) -> None:
        """Forget open calls before a message that is not a result: their answers have been written."""
        self._open.clear()
        self._images.clear()

    def _encode_required_next(self) -> RequiredBytes:
        if not self._open and not self._images:
            return b""
        return partial(self._encode_missing, [pending.answer for pending in self._open], [*self._images])

    def _encode_missing(self, answers: Sequence[Block], images: Sequence[Block | Raw]) -> bytes:
        """Encode answers to calls that have none, and the images of the results so far."""
        required: list[Block] = [{**answer, "content": NO_RESULT_TEXT} for answer in answers]
        if images:
            if self._alternation is not None:
                required.append(
                    NOTED_MESSAGE
                )  # the images are in a user message, and the last message is the user's
            lead: Block = {"type": "text", "text": "What the results above refer to, in order:"}
            required.append({"role": "user", "content": [lead, *images]})
        return b"".join([b"," + dumps(message) for message in required])

    def _choose_id(self, call: ToolCall, *, own: bool) -> str:
        length = self._dialect.id_length
        offered = call.wire_id if own and RETURNABLE_ID.fullmatch(call.wire_id) else ""
        if length is not None and not (len(offered) == length and _FIXED_ID.fullmatch(offered)):
            offered = ""
        if offered and offered not in self._used:
            self._used.add(offered)
            return offered
        ours = _ILLEGAL_IN_ID.sub("_", call.id) or "_"
        chosen, more = _fit_id(ours, length), 1
        while chosen in self._used:
            more += 1
            chosen = _fit_id(f"{ours}_{more}", length)
        self._used.add(chosen)
        return chosen


def _has_reasoning(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.text.strip() or part.signature)


def _mark_outcome(blocks: list[Block | Raw], outcome: Outcome) -> list[Block | Raw]:
    """Prepend the outcome of a failed call to its result."""
    if outcome == "ok":
        return blocks or [{"type": "text", "text": NO_OUTPUT_TEXT}]
    lead = "[error]" if outcome == "error" else f"[error: {outcome}]"
    first = blocks[0] if blocks else None
    if isinstance(first, dict) and first.get("type") == "text":
        return [{**first, "text": f"{lead} {first['text']}"}, *blocks[1:]]
    return [{"type": "text", "text": lead}, *blocks]


def _fit_id(name: str, length: int | None) -> str:
    """Return the id, or, if ids have a fixed length, one derived from it."""
    if length is None or (len(name) == length and _FIXED_ID.fullmatch(name)):
        return repair_surrogates(name)
    number = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    return "".join(_ID_DIGITS[number // 62**place % 62] for place in range(length))
