"""Messages on their way to a server of Chat Completions: who says what, in which order, under which id.

The strictest reading of the wire is written.  Blank texts are left out.  Each call is answered by one
`tool` message before anybody else speaks: a call nobody answered gets an answer that says so, a result
nobody asked for is left out, and of two results the first counts.  Results cannot hold pictures, so
those follow in a message of the user's, after all results.  There is no flag for a failed call; the
first words of its result say so.

Reasoning goes back to the server it came from, as that server's policy says; where one server passes
questions on to many makers, to the maker it came from.  Foreign reasoning stays here, unless the server
insists on having some with every call.

A call goes out under the server's own id when that is legal and was not used before, else under ours,
and its result follows it.  The writer therefore sees the whole line, in order, once.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Raw

from ..values.message import Message, Stop
from ..values.model import Endpoint
from ..values.parts import Media, Opaque, Outcome, Part, Reasoning, Text, ToolCall, ToolResult
from ._home import ECHOED_ID, fits, is_own
from ._json import dumps, mended
from ._kept import Turn
from ._openai_chat_alternate import NOTED, Alternation
from ._openai_chat_calls import is_legacy, legal_name
from ._openai_chat_content import Block, block_of, left_out, native_in, native_of
from ._openai_chat_dialect import FAMILY, Dialect
from ._openai_chat_message import joined, members_of, message_of

_FIXED_ID = re.compile(r"[a-zA-Z0-9]+")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SPOKEN = ("content", "refusal", "audio", "tool_calls", "function_call")

FAILED = re.compile(r"\[error(?:: (\w+))?\] ?")
"""How a result begins whose call failed."""
NO_OUTPUT = "(no output)"
"""Servers differ on whether a result may be empty; none objects to this."""
UNANSWERED = "[error: unknown] No result of this call was recorded."
BLANK_THOUGHT = " "
"""Enough for servers that refuse calls without reasoning, when there is none to give."""


class _Asked(NamedTuple):
    """A call that waits for its answer."""

    call_id: str
    answer: Block
    """How the message that answers it begins."""


class MessageWriter:
    def __init__(self, endpoint: Endpoint | None, model_id: str, dialect: Dialect) -> None:
        self._endpoint, self._model_id = endpoint, model_id
        self._policy = endpoint.reasoning if endpoint else "may_echo"
        if fits(dialect.must_echo_models, model_id):
            self._policy = "must_echo"
        self._dialect = dialect
        self._used: set[str] = set()
        self._open: list[_Asked] = []
        self._pictures: list[Block | Raw] = []
        self._alternation = Alternation(dialect) if dialect.alternates else None

    def __call__(self, message: Message) -> Sequence[Turn]:
        own = self._is_own(message)
        if message.role == "assistant":
            return self._assistant(message, own=own)
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        turns = self._results(results, own=own)
        role = self._dialect.system_role if message.role == "system" else "user"
        return [*turns, *self._plain(role, others, own=own)]

    def _is_own(self, message: Message) -> bool:
        sealed_by, model_id = self._dialect.sealed_by, self._model_id
        return is_own(message.origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id)

    def _assistant(self, message: Message, *, own: bool) -> Sequence[Turn]:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        sent_ids = [self._id(call, own=own) for call in calls]
        parts = self._with_thoughts(message.parts, own=own, calls=bool(calls))
        refused = message.stop is Stop.REFUSED

        def wire(said: Sequence[Part]) -> Block:
            return message_of(said, self._dialect, own=own, refused=refused, sent_ids=sent_ids)

        spoken = wire([part for part in parts if not isinstance(part, Reasoning)])
        if not any(spoken.get(name) for name in _SPOKEN):
            return ()  # thoughts alone are no message
        self._settle()
        for call, sent_id in zip(calls, sent_ids, strict=True):
            answer: Block = {"role": "tool", "tool_call_id": sent_id}
            if own and is_legacy(call):
                answer = {"role": "function", "name": legal_name(call.name)}
            self._open.append(_Asked(call.id, answer))
        return self._in_turn(wire(parts), owed=self._owed())

    def _with_thoughts(self, parts: Sequence[Part], *, own: bool, calls: bool) -> list[Part]:
        """The parts with the reasoning this server is to have, and no other."""
        kept = [part for part in parts if not isinstance(part, Reasoning) or (own and self._echoes(part))]
        if self._policy != "must_echo" or not calls or any(map(_tells, kept)):
            return kept
        shown = [part.text for part in parts if isinstance(part, Reasoning) and not part.redacted]
        text = "\n\n".join(filter(str.strip, shown)) or BLANK_THOUGHT
        stand_in = Reasoning(text=text, native=native_of(fields=[self._dialect.reasoning_field]))
        return [stand_in, *(part for part in kept if not isinstance(part, Reasoning))]

    def _echoes(self, thought: Reasoning) -> bool:
        return self._policy != "strip" and (self._policy != "signed" or bool(thought.signature))

    def _results(self, results: Sequence[ToolResult], *, own: bool) -> list[Turn]:
        written = [answer for result in results if (answer := self._result(result, own=own))]
        if not written:
            return []
        if self._alternation is not None:
            self._alternation.answered()
        items = b",".join(map(dumps, written))
        mark_at = self._mark_at(written[-1], items)
        return [Turn(b"", items, b"", mark_at, owed=self._owed(), pays=True)]

    def _result(self, result: ToolResult, *, own: bool) -> Block:
        """Nothing, when no call waits for it: it was answered already, or never made."""
        asked = next((asked for asked in self._open if asked.call_id == result.call_id), None)
        if asked is None:
            return {}
        self._open.remove(asked)
        blocks = [block for part in result.parts if (block := self._inside(part, own=own)) is not None]
        fields = members_of([result]) if own else {}
        return {**asked.answer, "content": self._form(_told(blocks, result.outcome)) or NO_OUTPUT, **fields}

    def _inside(self, part: Text | Media | Opaque, *, own: bool) -> Block | Raw | None:
        block = block_of(part, self._dialect, own=own)
        if not isinstance(part, Media) or (own and native_in(part).get("in") == "result"):
            return block
        if isinstance(block, dict) and block["type"] == "text":
            return block
        if self._dialect.result_images == "result":
            return block
        if self._dialect.result_images == "omit" or block is None:
            return {"type": "text", "text": left_out(part)}
        self._pictures.append(block)
        return {"type": "text", "text": f"[{part.kind} {len(self._pictures)}: see the next message]"}

    def _plain(self, role: str, parts: Sequence[Part], *, own: bool) -> Sequence[Turn]:
        blocks = [
            block
            for part in parts
            if isinstance(part, Text | Media | Opaque)
            if (block := block_of(part, self._dialect, own=own)) is not None
        ]
        content = self._form(blocks)
        if not content:
            return ()
        self._settle()
        fields = members_of(parts) if own else {}
        return self._in_turn({"role": role, "content": content, **fields})

    def _in_turn(self, message: Block, owed: bytes = b"") -> Sequence[Turn]:
        if self._alternation is not None:
            return self._alternation.turns(message, owed)
        items = dumps(message)
        return (Turn(b"", items, b"", self._mark_at(message, items), owed=owed),)

    def _form(self, blocks: list[Block | Raw]) -> object:
        """Marks go on parts, so where there are marks there are parts."""
        return blocks if self._dialect.cache_marks else joined(blocks, self._dialect)

    def _mark_at(self, message: Block, items: bytes) -> int:
        """Just inside the last part, where content is parts and the last member of its message."""
        marked = self._dialect.cache_marks and list(message)[-1] == "content"
        return len(items) - len(b"}]}") if marked and items.endswith(b"}]}") else -1

    def _settle(self) -> None:
        """Somebody speaks who is no tool: what was owed is written by now."""
        self._open.clear()
        self._pictures.clear()

    def _owed(self) -> bytes:
        owed: list[Block] = [{**asked.answer, "content": UNANSWERED} for asked in self._open]
        if self._pictures:
            if self._alternation is not None:
                owed.append(NOTED)  # the pictures are the user's, who has just spoken
            lead: Block = {"type": "text", "text": "What the results above refer to, in order:"}
            owed.append({"role": "user", "content": [lead, *self._pictures]})
        return b"".join(b"," + dumps(message) for message in owed)

    def _id(self, call: ToolCall, *, own: bool) -> str:
        length = self._dialect.id_length
        offered = call.wire_id if own and ECHOED_ID.fullmatch(call.wire_id) else ""
        if length is not None and not (len(offered) == length and _FIXED_ID.fullmatch(offered)):
            offered = ""
        ours = _ILLEGAL_IN_ID.sub("_", call.id) or "_"
        chosen = offered if offered and offered not in self._used else _fitted(ours, length)
        more = 1
        while chosen in self._used:
            more += 1
            chosen = _fitted(f"{ours}_{more}", length)
        self._used.add(chosen)
        return chosen


def _tells(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.text.strip() or part.signature)


def _told(blocks: list[Block | Raw], outcome: Outcome) -> list[Block | Raw]:
    """What came of a call, beginning with the fact that it failed."""
    if outcome == "ok":
        return blocks or [{"type": "text", "text": NO_OUTPUT}]
    lead = "[error]" if outcome == "error" else f"[error: {outcome}]"
    first = blocks[0] if blocks else None
    if isinstance(first, dict) and first.get("type") == "text":
        return [{**first, "text": f"{lead} {first['text']}"}, *blocks[1:]]
    return [{"type": "text", "text": lead}, *blocks]


def _fitted(name: str, length: int | None) -> str:
    """The id itself, or, where ids have one length, one made of it."""
    if length is None or (len(name) == length and _FIXED_ID.fullmatch(name)):
        return mended(name)
    number = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    return "".join(_DIGITS[number // 62**place % 62] for place in range(length))
