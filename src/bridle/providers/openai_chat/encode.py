"""Turns for servers that insist on them: a user, a model, a user, and so on.

Some servers render a conversation by a template that knows nothing else, and refuse whatever does not
fit it.  Neighbours of one speaker become one message, which grows while its turn lasts; what a system
says late is said by the user; and where two speakers cannot meet (a user right after results, a model
that begins), the missing one says a few words that mean nothing.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Raw

from bridle.providers.wire.encoded_history import WireTurn
from bridle.providers.wire.json import dumps, repair_surrogates
from bridle.providers.wire.origin import RETURNABLE_ID, is_from_same_origin, match_model_id
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
)
from bridle.values.model import Endpoint

from .calls import encode_tool_name, is_legacy_call
from .content import Block, decode_native, describe_omitted_media, encode_content, encode_native
from .dialect import FAMILY, ChatDialect
from .parts import encode_message, kept_members, simplify_content

NOTED_MESSAGE: Block = {"role": "assistant", "content": "(Noted.)"}
"""What stands between results and a user."""
_FILLER_MESSAGES: dict[tuple[str, str], Block] = {
    ("", "assistant"): {"role": "user", "content": "(The conversation begins here.)"},
    ("assistant", "assistant"): {"role": "user", "content": "(Go on.)"},
    ("tool", "user"): NOTED_MESSAGE,
}
_TEXT_SEPARATOR = dumps("\n\n")[1:-1]


class RoleAlternation:
    """Who spoke last, and what may come next."""

    def __init__(self, dialect: ChatDialect) -> None:
        self._in_strings = dialect.content == "string"
        self._marked = dialect.cache_marks
        self._spoke = ""
        self._grows = False

    def note_results(self) -> None:
        """Results were written."""
        self._spoke = "tool"

    def place_message(self, message: Block, owed: bytes) -> Sequence[WireTurn]:
        """A message in its place.  What it is owed are answers to its calls: a tool speaks after it."""
        role = "assistant" if message["role"] == "assistant" else "user"
        turn = self._place_turn(role, message, owed)
        between = (
            None if turn.merges_with_previous and self._grows and self._spoke == role else (self._spoke, role)
        )
        self._spoke, self._grows = "tool" if owed else role, turn.merges_with_previous
        needed = _FILLER_MESSAGES.get(between) if between else None
        return (WireTurn(b"", dumps(needed), b""), turn) if needed else (turn,)

    def _place_turn(self, role: str, message: Block, owed: bytes) -> WireTurn:
        content = message.get("content")
        rest = {name: value for name, value in message.items() if name not in ("role", "content")}
        beside = b"," + dumps(rest)[1:] if rest else b"}"
        if not content or owed:
            return WireTurn(b"", dumps({**message, "role": role}), b"", required_next=owed)
        opening = b'{"role":"%b","content":' % role.encode()
        if self._in_strings:
            said = dumps(content)[1:-1]
            return WireTurn(
                opening + b'"', said, b'"' + beside, merges_with_previous=True, separator=_TEXT_SEPARATOR
            )
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        items = b",".join(dumps(block) for block in blocks)
        mark_at = len(items) - 1 if self._marked else -1
        return WireTurn(opening + b"[", items, b"]" + beside, mark_at, merges_with_previous=True)


# Messages on their way to a server of Chat Completions: who says what, in which order, under which id.
#
# The strictest reading of the wire is written.  Blank texts are left out.  Each call is answered by one
# `tool` message before anybody else speaks: a call nobody answered gets an answer that says so, a result
# nobody asked for is left out, and of two results the first counts.  Results cannot hold pictures, so
# those follow in a message of the user's, after all results.  There is no flag for a failed call; the
# first words of its result say so.
#
# Reasoning goes back to the server it came from, as that server's policy says; where one server passes
# questions on to many makers, to the maker it came from.  Foreign reasoning stays here, unless the server
# insists on having some with every call.
#
# A call goes out under the server's own id when that is legal and was not used before, else under ours,
# and its result follows it.  The writer therefore sees the whole line, in order, once.


_FIXED_ID = re.compile(r"[a-zA-Z0-9]+")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ID_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CONTENT_MEMBERS = ("content", "refusal", "audio", "tool_calls", "function_call")

ERROR_PREFIX = re.compile(r"\[error(?:: (\w+))?\] ?")
"""How a result begins whose call failed."""
NO_OUTPUT_TEXT = "(no output)"
"""Servers differ on whether a result may be empty; none objects to this."""
NO_RESULT_TEXT = "[error: unknown] No result of this call was recorded."
BLANK_REASONING = " "
"""Enough for servers that refuse calls without reasoning, when there is none to give."""


class _OpenCall(NamedTuple):
    """A call that waits for its answer."""

    call_id: str
    answer: Block
    """How the message that answers it begins."""


class ChatMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, model_id: str, dialect: ChatDialect) -> None:
        self._endpoint, self._model_id = endpoint, model_id
        self._policy = endpoint.reasoning if endpoint else "may_echo"
        if match_model_id(dialect.must_echo_models, model_id):
            self._policy = "must_echo"
        self._dialect = dialect
        self._used: set[str] = set()
        self._open: list[_OpenCall] = []
        self._pictures: list[Block | Raw] = []
        self._alternation = RoleAlternation(dialect) if dialect.alternates else None

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        own = self._is_from_here(message)
        if message.role == "assistant":
            return self._encode_assistant(message, own=own)
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        turns = self._encode_results(results, own=own)
        role = self._dialect.system_role if message.role == "system" else "user"
        return [*turns, *self._encode_plain(role, others, own=own)]

    def _is_from_here(self, message: Message) -> bool:
        sealed_by, model_id = self._dialect.sealed_by, self._model_id
        return is_from_same_origin(
            message.origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id
        )

    def _encode_assistant(self, message: Message, *, own: bool) -> Sequence[WireTurn]:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        sent_ids = [self._choose_id(call, own=own) for call in calls]
        parts = self._select_reasoning(message.parts, own=own, calls=bool(calls))
        refused = message.stop is Stop.REFUSED

        def wire(said: Sequence[Part]) -> Block:
            return encode_message(said, self._dialect, own=own, refused=refused, sent_ids=sent_ids)

        spoken = wire([part for part in parts if not isinstance(part, Reasoning)])
        if not any(spoken.get(name) for name in _CONTENT_MEMBERS):
            return ()  # thoughts alone are no message
        self._close_open_calls()
        for call, sent_id in zip(calls, sent_ids, strict=True):
            answer: Block = {"role": "tool", "tool_call_id": sent_id}
            if own and is_legacy_call(call):
                answer = {"role": "function", "name": encode_tool_name(call.name)}
            self._open.append(_OpenCall(call.id, answer))
        return self._place_message(wire(parts), owed=self._encode_required_next())

    def _select_reasoning(self, parts: Sequence[Part], *, own: bool, calls: bool) -> list[Part]:
        """The parts with the reasoning this server is to have, and no other."""
        kept = [
            part
            for part in parts
            if not isinstance(part, Reasoning) or (own and self._sends_reasoning_back(part))
        ]
        if self._policy != "must_echo" or not calls or any(map(_has_reasoning, kept)):
            return kept
        shown = [part.text for part in parts if isinstance(part, Reasoning) and not part.redacted]
        text = "\n\n".join(filter(str.strip, shown)) or BLANK_REASONING
        stand_in = Reasoning(text=text, native=encode_native(fields=[self._dialect.reasoning_field]))
        return [stand_in, *(part for part in kept if not isinstance(part, Reasoning))]

    def _sends_reasoning_back(self, thought: Reasoning) -> bool:
        return self._policy != "strip" and (self._policy != "signed" or bool(thought.signature))

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
        """Nothing, when no call waits for it: it was answered already, or never made."""
        asked = next((asked for asked in self._open if asked.call_id == result.call_id), None)
        if asked is None:
            return {}
        self._open.remove(asked)
        blocks = [
            block for part in result.parts if (block := self._encode_result_part(part, own=own)) is not None
        ]
        fields = kept_members([result]) if own else {}
        return {
            **asked.answer,
            "content": self._encode_content(_mark_outcome(blocks, result.outcome)) or NO_OUTPUT_TEXT,
            **fields,
        }

    def _encode_result_part(self, part: Text | Media | Opaque, *, own: bool) -> Block | Raw | None:
        block = encode_content(part, self._dialect, own=own)
        if not isinstance(part, Media) or (own and decode_native(part).get("in") == "result"):
            return block
        if isinstance(block, dict) and block["type"] == "text":
            return block
        if self._dialect.result_images == "result":
            return block
        if self._dialect.result_images == "omit" or block is None:
            return {"type": "text", "text": describe_omitted_media(part)}
        self._pictures.append(block)
        return {"type": "text", "text": f"[{part.kind} {len(self._pictures)}: see the next message]"}

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
        fields = kept_members(parts) if own else {}
        return self._place_message({"role": role, "content": content, **fields})

    def _place_message(self, message: Block, owed: bytes = b"") -> Sequence[WireTurn]:
        if self._alternation is not None:
            return self._alternation.place_message(message, owed)
        items = dumps(message)
        return (WireTurn(b"", items, b"", self._breakpoint_offset(message, items), required_next=owed),)

    def _encode_content(self, blocks: list[Block | Raw]) -> object:
        """Marks go on parts, so where there are marks there are parts."""
        return blocks if self._dialect.cache_marks else simplify_content(blocks, self._dialect)

    def _breakpoint_offset(self, message: Block, items: bytes) -> int:
        """Just inside the last part, where content is parts and the last member of its message."""
        marked = self._dialect.cache_marks and list(message)[-1] == "content"
        return len(items) - len(b"}]}") if marked and items.endswith(b"}]}") else -1

    def _close_open_calls(self) -> None:
        """Somebody speaks who is no tool: what was owed is written by now."""
        self._open.clear()
        self._pictures.clear()

    def _encode_required_next(self) -> bytes:
        owed: list[Block] = [{**asked.answer, "content": NO_RESULT_TEXT} for asked in self._open]
        if self._pictures:
            if self._alternation is not None:
                owed.append(NOTED_MESSAGE)  # the pictures are the user's, who has just spoken
            lead: Block = {"type": "text", "text": "What the results above refer to, in order:"}
            owed.append({"role": "user", "content": [lead, *self._pictures]})
        return b"".join(b"," + dumps(message) for message in owed)

    def _choose_id(self, call: ToolCall, *, own: bool) -> str:
        length = self._dialect.id_length
        offered = call.wire_id if own and RETURNABLE_ID.fullmatch(call.wire_id) else ""
        if length is not None and not (len(offered) == length and _FIXED_ID.fullmatch(offered)):
            offered = ""
        ours = _ILLEGAL_IN_ID.sub("_", call.id) or "_"
        chosen = offered if offered and offered not in self._used else _fit_id(ours, length)
        more = 1
        while chosen in self._used:
            more += 1
            chosen = _fit_id(f"{ours}_{more}", length)
        self._used.add(chosen)
        return chosen


def _has_reasoning(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.text.strip() or part.signature)


def _mark_outcome(blocks: list[Block | Raw], outcome: Outcome) -> list[Block | Raw]:
    """What came of a call, beginning with the fact that it failed."""
    if outcome == "ok":
        return blocks or [{"type": "text", "text": NO_OUTPUT_TEXT}]
    lead = "[error]" if outcome == "error" else f"[error: {outcome}]"
    first = blocks[0] if blocks else None
    if isinstance(first, dict) and first.get("type") == "text":
        return [{**first, "text": f"{lead} {first['text']}"}, *blocks[1:]]
    return [{"type": "text", "text": lead}, *blocks]


def _fit_id(name: str, length: int | None) -> str:
    """The id itself, or, where ids have one length, one made of it."""
    if length is None or (len(name) == length and _FIXED_ID.fullmatch(name)):
        return repair_surrogates(name)
    number = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    return "".join(_ID_DIGITS[number // 62**place % 62] for place in range(length))
