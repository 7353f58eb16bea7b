"""Messages on their way to Bedrock Converse: which block stands where, and under which id.

The strictest reading of the wire is written.  Two speakers alternate and the user begins; neighbours of
one role become one turn, and a message with nothing to say gets none.  Results come before words, and
each call is answered exactly once in the turn that follows it: a call whose result is missing is
answered with an error as soon as anybody else speaks, a result without a call, or a second one, is left
out.  Blank texts are left out, no turn of the model ends in reasoning, and no words follow its calls.
No two documents have the same name, and none comes without a word beside it.  A conversation that ends with
the model's words is continued in the user's name where the model refuses to end like that.

One endpoint serves the models of many makers.  What is native to one of them means nothing to the next,
so it goes back only to the model it came from: opaque parts, members beside the plain view, reasoning.
What a model wants done with its own reasoning that has no signature is a fact about the endpoint.

A call goes out under the provider's own id when that is legal and was not used before, else under ours,
and its result follows it.  The writer therefore sees the whole line, in order, once.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from ..values.message import Message, Stop
from ..values.model import Endpoint, Model
from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.request import ToolSpec
from ._bedrock_converse_blocks import CACHE_POINT, Block, block_of, kind_of
from ._bedrock_converse_dialect import FAMILY, dialect_of
from ._bedrock_converse_media import NAME_LENGTH_MAX, left_out, legal_name, renamed
from ._bedrock_converse_tools import tools_list
from ._home import is_own
from ._json import dumps
from ._kept import CONTINUE, UNSEEN, KeptMessages, Turn
from ._names import SHORT

LOST = "No result: this call was interrupted, or what came of it was lost."
SEE_DOCUMENT = "See the document."
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in ("user", "assistant", "system")}
_USER = _OPENINGS["user"]
_CLOSING = b"]}"
_GO_ON = b',%b{"text":"%b"}%b' % (_USER, CONTINUE.encode(), _CLOSING)
_CALL = "a call of a client's tool"
"""The kind of such a block here; the provider's own tools are called by blocks of the same name."""
_WORDS = {"text", "citationsContent", "guardContent"}
_UNMARKED = {"document", "video", "reasoningContent"}
"""Blocks a cache point may not follow directly."""
ID_LENGTH_MAX = 64
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


class KeptLine(KeptMessages):
    """The messages of one conversation, as they are written for one model."""

    def __init__(self) -> None:
        self._model_id, self._prefill = "", True
        self._tools: tuple[object, bytes] | None = None
        super().__init__(self._new_writer)

    def written_for(self, model: Model, messages: Sequence[Message]) -> tuple[str, ...]:
        """Write what is new; returns the names of the tools that were called, in order."""
        if (model.id, model.abilities.prefill) != (self._model_id, self._prefill):
            self._model_id, self._prefill = model.id, model.abilities.prefill
            self._restart()
        self.on(model.endpoint)
        self.writes(messages)
        return tuple(self._writer_in_use.called)

    def tools(self, specs: Sequence[ToolSpec], ttl: str | None) -> bytes:
        """The list of tools, written again only when it has changed."""
        made_of = (specs, ttl)
        if self._tools is None or self._tools[0] != made_of:
            self._tools = (made_of, tools_list(specs, ttl))
        return self._tools[1]

    def _new_writer(self, endpoint: Endpoint | None) -> "MessageWriter":
        self._writer_in_use = MessageWriter(endpoint, self._model_id, prefill=self._prefill)
        return self._writer_in_use


class _Written(NamedTuple):
    kind: str
    data: bytes


class MessageWriter:
    def __init__(self, endpoint: Endpoint | None, model_id: str, *, prefill: bool) -> None:
        self._endpoint, self._model_id, self._prefill = endpoint, model_id, prefill
        self._dialect = dialect_of(endpoint)
        self._policy = endpoint.reasoning if endpoint else "may_echo"
        self._used: set[str] = set()
        self._documents: set[str] = set()
        self._open: list[tuple[str, str]] = []
        """Calls that wait for their result, in order, with the ids they went out under."""
        self._begun = False
        self.called: dict[str, None] = {}

    def __call__(self, message: Message) -> Sequence[Turn]:
        write = self._model_turns if message.role == "assistant" else self._turns
        return write(message, own=self._is_own(message))

    def _is_own(self, message: Message) -> bool:
        sealed_by, model_id = self._dialect.sealed_by, self._model_id
        return is_own(message.origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id)

    def _model_turns(self, message: Message, *, own: bool) -> Sequence[Turn]:
        lost, before, self._open = self._lost(), self._open, []
        written = []
        for part in message.parts:
            if isinstance(part, ToolResult) or (
                isinstance(part, Reasoning) and not self._echoes(part, own=own)
            ):
                continue
            if (block := self._block(part if own else _retold(part), own=own)) is not None:
                kind, data = _encoded(block)
                written.append(_Written(_CALL if isinstance(part, ToolCall) else kind, data))
        while written and written[-1].kind == "reasoningContent":
            written.pop()
        if _says_more(written):
            written = _calls_last(written, bound=own and self._policy != "must_echo")
        if not written:
            self._open = before
            return ()
        at_end = b"" if self._prefill else _GO_ON
        turn = Turn(
            _OPENINGS["assistant"],
            b",".join(block.data for block in written),
            _CLOSING,
            _mark_at(written),
            merges=True,
            owed=b",%b%b%b" % (_USER, self._lost(), _CLOSING) if self._open else b"",
            at_end=at_end,
            asked_on=at_end if message.stop is Stop.PAUSED else b"",
        )
        begun, self._begun = self._begun, True
        if before:
            return Turn(_USER, lost, _CLOSING, merges=True, pays=True), turn
        return (turn,) if begun else (_said(UNSEEN), turn)

    def _turns(self, message: Message, *, own: bool) -> Sequence[Turn]:
        role = "system" if message.role == "system" else "user"
        written = [
            _encoded(block)
            for part in message.parts
            if not isinstance(part, ToolCall | Reasoning)
            if not isinstance(part, ToolResult) or self._waits(part)
            if (block := self._block(part, own=own)) is not None
        ]
        written = _answers_first(written)
        if not written:
            return ()
        if not own and _bare_document(written):
            written.append(_encoded({"text": SEE_DOCUMENT}))
        before: list[Turn] = []
        speaks = role == "system" or any(block.kind not in ("toolResult", CACHE_POINT) for block in written)
        if self._open and speaks:
            lost = _Written("toolResult", self._lost())
            self._open.clear()
            if role == "user":
                written = _answers_first([*written, lost])
            else:
                before.append(Turn(_USER, lost.data, _CLOSING, merges=True, pays=True))
        items = b",".join(block.data for block in written)
        closing = b",%b%b" % (self._lost(), _CLOSING) if self._open else _CLOSING
        self._begun = self._begun or role == "user"
        turn = Turn(_OPENINGS[role], items, closing, _mark_at(written), merges=True, pays=True)
        return (*before, turn)

    def _block(self, part: Part, *, own: bool) -> Block | Raw | None:
        sent_id = ""
        if isinstance(part, ToolCall):
            sent_id = self._id(part, own=own)
            self._open.append((part.id, sent_id))
            self.called[SHORT.on_wire(part.name)] = None
        elif isinstance(part, ToolResult):
            asked = next(asked for asked in self._open if asked[0] == part.call_id)
            self._open.remove(asked)
            sent_id = asked[1]
            part = replace(part, parts=tuple(self._named(inner, own=own) for inner in part.parts))
        elif isinstance(part, Text | Media | Opaque):
            part = self._named(part, own=own)
        return block_of(part, own=own, sent_id=sent_id, dialect=self._dialect)

    def _waits(self, result: ToolResult) -> bool:
        return any(call_id == result.call_id for call_id, _ in self._open)

    def _named(self, part: Text | Media | Opaque, *, own: bool) -> Text | Media | Opaque:
        """A document under a name that is legal and its own."""
        if not isinstance(part, Media) or part.kind != "document":
            return part
        plain = part.name if own and part.name else legal_name(part.name)
        chosen, number = plain, 1
        while chosen in self._documents:
            number += 1
            end = f" ({number})"
            chosen = plain[: NAME_LENGTH_MAX - len(end)] + end
        self._documents.add(chosen)
        return part if chosen == part.name else renamed(part, chosen)

    def _echoes(self, thought: Reasoning, *, own: bool) -> bool:
        match self._policy:
            case "strip":
                return False
            case "must_echo":
                return own or bool(thought.text.strip())
            case "signed":
                return own and bool(thought.signature)
        return own

    def _id(self, call: ToolCall, *, own: bool) -> str:
        offered = call.wire_id if own and _LEGAL_ID.fullmatch(call.wire_id) else ""
        ours = _ILLEGAL_IN_ID.sub("_", call.id)[:ID_LENGTH_MAX] or "_"
        chosen, number = offered if offered and offered not in self._used else ours, 1
        while chosen in self._used:
            number += 1
            end = f"_{number}"
            chosen = ours[: ID_LENGTH_MAX - len(end)] + end
        self._used.add(chosen)
        return chosen

    def _lost(self) -> bytes:
        """Answers to the calls that are open."""
        lost = ToolResult(call_id="", parts=(Text(text=LOST),), outcome="unknown")
        blocks = (
            block_of(lost, own=False, sent_id=sent_id, dialect=self._dialect) for _, sent_id in self._open
        )
        return b",".join(dumps(block) for block in blocks)


def _retold(part: Part) -> Part:
    """What another model said, as this one could have said it: without pictures, and without proof."""
    match part:
        case Media():
            return Text(text=left_out(part))
        case Reasoning(text=text):
            return Reasoning(text=text)
    return part


def _said(words: str) -> Turn:
    return Turn(_USER, dumps({"text": words}), _CLOSING, merges=True)


def _encoded(block: Block | Raw) -> _Written:
    return _Written(kind_of(block), dumps(block))


def _says_more(written: Sequence[_Written]) -> bool:
    """Whether words stand after a call, between it and its result: such a request is refused."""
    kinds = [block.kind for block in written]
    return _CALL in kinds and not _WORDS.isdisjoint(kinds[kinds.index(_CALL) :])


def _calls_last(written: Sequence[_Written], *, bound: bool) -> list[_Written]:
    """Words before calls.  Reasoning that is `bound` to what stood before it does not stay after a change."""
    first = next(at for at, block in enumerate(written) if block.kind == _CALL)
    after = [block for block in written[first:] if not (bound and block.kind == "reasoningContent")]
    return [*written[:first], *sorted(after, key=lambda block: block.kind == _CALL)]


def _answers_first(written: list[_Written]) -> list[_Written]:
    """Results before words; cache points stay where they are as long as no words have to move."""
    last = max((at for at, block in enumerate(written) if block.kind == "toolResult"), default=-1)
    if all(block.kind in ("toolResult", CACHE_POINT) for block in written[: last + 1]):
        return written
    return sorted(written, key=lambda block: block.kind != "toolResult")


def _bare_document(written: Sequence[_Written]) -> bool:
    kinds = {block.kind for block in written}
    return "document" in kinds and "text" not in kinds


def _mark_at(written: Sequence[_Written]) -> int:
    """The offset behind the last block a cache point may follow; -1 when there is none, or one is there."""
    end = sum(len(block.data) for block in written) + len(written) - 1
    for block in reversed(written):
        if block.kind not in _UNMARKED:
            return -1 if block.kind == CACHE_POINT else end
        end -= len(block.data) + 1
    return -1
