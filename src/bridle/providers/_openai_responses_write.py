"""Messages on their way out as Responses items: what goes back as it came, and under which ids.

A turn of this very endpoint goes back whole: every item in its place, reasoning with its encrypted
content right before the item it led to, ids and phases included.  The provider checks such a turn as a
whole ("… was provided without its required reasoning item", "… without its required following item",
"Duplicate item …", "Item with id … not found"), so there are only two safe forms: everything, or no ids
and no reasoning at all.  A turn of which anything cannot be sent takes the second form.  Reasoning that
led to nothing (a reply cut short) is left out.

Everything else is re-expressed: words, calls, results.  Encrypted content, ids and items of other
endpoints are never sent; what an endpoint wants done with plain reasoning is a fact about the endpoint.

A call goes out under the provider's own id when that is legal and was not used before, else under ours,
and its result follows it.  A call that never got a result is answered by a stand-in as soon as the
conversation goes on; a result whose call is nowhere is left out, unless the provider holds items we do
not see.  The stand-ins are the closing of the last turn, so that a result still to come replaces them.
The writer therefore sees the whole line, in order, once.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from ..values.message import Message, Stop
from ..values.model import Endpoint, ReasoningPolicy
from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.value import Value
from ._json import dumps, loads, raw
from ._kept import KeptMessages, Turn
from ._openai_responses_content import OPAQUE_CONTENT, Block, content_of, is_blank
from ._openai_responses_items import CALL, CUSTOM_CALL, FAMILY, id_in, items_of, opaque_item

OUTPUTS = {CALL: "function_call_output", CUSTOM_CALL: "custom_tool_call_output"}
ID_LENGTH_MAX = 64
_LEGAL_ID = re.compile(rf"[!-~]{{1,{ID_LENGTH_MAX}}}")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_HOLDS_MORE = {"item_reference", "compaction"}
"""Items that stand for others we do not see."""

NEVER_ANSWERED = "[tool error: unknown] no result of this call was recorded"
ERROR_MARK = re.compile(r"\[tool error(?:: (\w+))?\] ?")
"""This wire has no place to say that a call failed, so the words begin with it."""


class Manner(Value):
    """How items are to be written, beside where they go."""

    reasoning: ReasoningPolicy = "may_echo"
    with_ids: bool = True
    held: bool = False
    """The provider holds earlier items itself, which are not in this line."""


class KeptItems(KeptMessages):
    """Kept messages that can also be sent from one of them on, the provider holding the rest."""

    def __init__(self) -> None:
        self._manner = Manner()
        self._starts: list[int] = []
        super().__init__(lambda endpoint: ItemWriter(endpoint, self._manner))

    def going(self, endpoint: Endpoint, manner: Manner) -> None:
        self.on(endpoint)
        if manner != self._manner:
            self._manner = manner
            self._restart()

    def body_since(
        self, start: int, messages: Sequence[Message], tail: bytes, *, ending: bytes
    ) -> tuple[bytes, str]:
        """Like `body`, without the first `start` messages; the digest is of the whole line all the same."""
        whole, digest = self.body(messages, tail, ending=ending)
        if not start:
            return whole, digest
        head = len(self._head[1]) if self._head else 0
        place = head + (self._starts[start] if start < len(self._starts) else len(self._buffer))
        return whole[:head] + whole[place:].removeprefix(b","), digest

    def _restart(self) -> None:
        self._starts = []
        super()._restart()

    def _add(self, message: Message) -> None:
        self._starts.append(len(self._buffer))
        super()._add(message)


class ItemWriter:
    def __init__(self, endpoint: Endpoint | None, manner: Manner) -> None:
        self._endpoint, self._manner = endpoint, manner
        self._holds_more = manner.held
        self._sent: dict[str, tuple[str, str]] = {}
        """The id each call went out with, and what its result is called."""
        self._open: dict[str, None] = {}
        self._used: set[str] = set()
        self._item_ids: set[str] = set()

    def __call__(self, message: Message) -> Sequence[Turn]:
        own = self.is_own(message)
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        items = [item for result in results if (item := self._result(result, own=own)) is not None]
        unanswered = dict(self._open)
        if message.role == "assistant":
            items += self._said(message, own=own)
        else:
            items += self._told(message, own=own)
        if not items:
            return ()
        if len(results) < len(message.parts):
            items = [*map(self._stand_in, unanswered), *items] if not results else items
            for call_id in unanswered:
                self._open.pop(call_id, None)
        closing = b"".join(b"," + dumps(self._stand_in(call_id)) for call_id in self._open)
        return (Turn(b"", b",".join(map(dumps, items)), closing, merges=True),)
