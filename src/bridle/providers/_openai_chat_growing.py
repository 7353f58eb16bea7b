"""A model's message while it is being said, put together from the deltas of a stream.

What comes out is the message as it would have stood in a whole reply, so both roads end in the same
reading of it.  Words are held in the pieces they came in and joined once, at the end.  Members nobody
knows are kept: objects are added to, lists are extended (entries of one index are one entry), and of
anything else the last word counts.
"""

from typing import Any

from ..values.delta import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.parts import ToolCall
from ._json import mended
from ._openai_chat_content import Block, word
from ._openai_chat_growing_calls import GrowingCalls
from ._openai_chat_thoughts import BLOCKS, DETAILS, FIELDS, ThinkTags, blocks_in, without_echo

_PIECEWISE = frozenset({"text", "summary", "data"})
"""Members of a detail that come in pieces."""
_KNOWN = frozenset(
    {"role", "content", "refusal", "audio", "tool_calls", "function_call", BLOCKS, DETAILS, *FIELDS}
)


class _Run:
    """Neighbouring pieces of content of one type."""

    __slots__ = ("kind", "members", "pieces")

    def __init__(self, kind: str, members: Block) -> None:
        self.kind = kind
        self.members = members
        self.pieces: list[str] = []

    def block(self) -> Block:
        said = "".join(self.pieces)
        if self.kind == "thinking":
            return {**self.members, "thinking": [{"type": "text", "text": said}]}
        return {**self.members, "text": said} if self.kind == "text" else self.members


class GrowingMessage:
    def __init__(self, *, think_tags: bool) -> None:
        self._runs: list[_Run] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[tuple[Block, dict[str, list[str]]]] = []
        self._blocks: list[tuple[Block, list[str]]] = []
        """Blocks of another wire: their members, and their words in pieces."""
        self._refusal: list[str] = []
        self._sound: Block = {}
        self._spoken: dict[str, list[str]] = {"data": [], "transcript": []}
        self._calls = GrowingCalls()
        self._legacy = GrowingCalls()
        self._ready = 0
        self._more: Block = {}
        self._shown_from = ""
        self._half = ""
        self._tags = ThinkTags() if think_tags else None

    def take(self, delta: Block) -> list[Delta]:
        """Any delta at all; what it showed."""
        deltas: list[Delta] = []
        for name in FIELDS:
            if isinstance(thought := delta.get(name), str):
                deltas += self.think(name, thought)
        deltas += self._take_details(delta.get(DETAILS))
        for block in blocks_in(delta):
            deltas += self._take_thinking(block)
        content = delta.get("content")
        if isinstance(content, str):
            deltas += self.say(content)
        elif isinstance(content, list):
            for block in content:
                deltas += self._take_block(block)
        if refusal := delta.get("refusal"):
            deltas += self._say_into(self._refusal, refusal)
        deltas += self._take_sound(delta.get("audio"))
        listed, legacy = delta.get("tool_calls"), delta.get("function_call")
        for call, said in self._calls.take(listed if isinstance(listed, list) else []):
            deltas.append(ToolCallDelta(index=call.place, name=call.name, arguments=said))
        deltas += self._followed()
        if isinstance(legacy, dict):
            for call, said in self._legacy.take([{"index": 0, "function": legacy}]):
                deltas.append(ToolCallDelta(index=call.place, name=call.name, arguments=said))
        for name, value in delta.items():
            if name not in _KNOWN and (kept := without_echo(name, value)) is not None:
                self._more[name] = _folded(self._more.get(name), kept)
        return deltas

    def _followed(self) -> list[Delta]:
        """Calls that another came after: this wire has no other word for the end of one."""
        calls, ready = self._calls.calls, []
        while self._ready < len(calls) - 1:
            call = calls[self._ready]
            if call.is_complete:
                said = ToolCall(id="", name=call.name, arguments=mended(call.arguments))
                ready.append(CallReady(index=call.place, call=said))
            self._ready += 1
        return list(ready)

    def say(self, text: str) -> list[Delta]:
        """The shortest road: a piece of plain words."""
        if not text:
            return []
        if not self._runs or self._runs[-1].kind != "text":
            self._runs.append(_Run("text", {"type": "text"}))
        self._runs[-1].pieces.append(text)
        if self._half or not text.isascii():
            text = self._joined(text)
        if self._tags is not None:
            return self._tags.feed(text)
        return [TextDelta(text=text)] if text else []

    def think(self, field: str, thought: str) -> list[Delta]:
        if not thought:
            return []
        self._thoughts.setdefault(field, []).append(thought)
        return self._show_thought(field, thought)

    def argue(self, index: int, arguments: str) -> Delta | None:
        """A further piece of arguments; None when it is not known of which call."""
        call = self._calls.at(index)
        if call is None:
            return None
        call.say(arguments)
        return ToolCallDelta(index=call.place, name=call.name, arguments=mended(arguments))

    def rest(self) -> list[Delta]:
        """What was held back in case it was the beginning of a tag, or of a character."""
        half = mended(self._half)
        self._half = ""
        if self._tags is not None:
            return [*self._tags.feed(half), *self._tags.rest()]
        return [TextDelta(text=half)] if half else []

    @property
    def content(self) -> Any:
        if all(run.kind == "text" and len(run.members) == 1 for run in self._runs):
            return "".join(piece for run in self._runs for piece in run.pieces)
        return [run.block() for run in self._runs]

    @property
    def is_empty(self) -> bool:
        thoughts = self._thoughts or self._details or self._blocks
        return not (self._runs or thoughts or self._refusal or self._calls.calls)

    @property
    def is_whole(self) -> bool:
        """Whether nothing shows that more was to come: every call has complete arguments, or none."""
        calls = [*self._calls.calls, *self._legacy.calls]
        return all(call.is_complete or call.is_custom or not call.arguments.strip() for call in calls)

    def message(self) -> Block:
        message: Block = {**self._more, "role": "assistant", "content": self.content}
        message.update((field, "".join(pieces)) for field, pieces in self._thoughts.items())
        if self._details:
            message[DETAILS] = [
                {**members, **{name: "".join(said) for name, said in pieces.items()}}
                for members, pieces in self._details
            ]
        if self._blocks:
            message[BLOCKS] = [
                {**members, "thinking": "".join(pieces)} if members.get("type") == "thinking" else members
                for members, pieces in self._blocks
            ]
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._sound or any(self._spoken.values()):
            spoken = {name: "".join(pieces) for name, pieces in self._spoken.items() if pieces}
            message["audio"] = {**self._sound, **spoken}
        if self._calls.calls:
            message["tool_calls"] = [call.wire() for call in self._calls.calls]
        if self._legacy.calls:
            message["function_call"] = self._legacy.calls[0].wire()["function"]
        return message

    def _joined(self, text: str) -> str:
        """The text to show, without half a character at its end: the other half is in the next piece."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return mended(text[:-1] if self._half else text)

    def _take_block(self, block: object) -> list[Delta]:
        if isinstance(block, str):
            return self.say(block)
        if not isinstance(block, dict):
            return []
        kind = word(block.get("type"))
        members = {name: value for name, value in block.items() if name not in ("text", "thinking")}
        if kind not in ("text", "thinking"):
            self._runs.append(_Run("", block))
            return []
        if not self._runs or self._runs[-1].kind != kind:
            self._runs.append(_Run(kind, {}))
        run = self._runs[-1]
        run.members = {**run.members, **members}
        if kind == "text":
            return self.say(word(block.get("text")))
        inner = block.get("thinking")
        thought = "".join(
            word(each.get("text")) if isinstance(each, dict) else word(each)
            for each in (inner if isinstance(inner, list) else [inner])
        )
        run.pieces.append(thought)
        return self._show_thought("chunk", thought)

    def _take_details(self, listed: object) -> list[Delta]:
        deltas: list[Delta] = []
        for detail in listed if isinstance(listed, list) else ():
            if not isinstance(detail, dict) or not detail:
                continue
            members, pieces = self._detail_for(detail)
            for name, value in detail.items():
                if name in _PIECEWISE and isinstance(value, str):
                    pieces.setdefault(name, []).append(value)
                    if name != "data":
                        deltas += self._show_thought(DETAILS, value)
                elif value or name not in members:
                    members[name] = value
        return deltas

    def _take_thinking(self, block: Block) -> list[Delta]:
        """A fragment belongs to the block before it, unless that has its signature or another index."""
        fragment = {name: value for name, value in block.items() if name != "thinking" and value is not None}
        members = self._blocks[-1][0] if self._blocks else {}
        kinds = {members.get("type"), block.get("type")}
        ended = members.get("signature") or members.get("index") != block.get("index")
        if kinds != {"thinking"} or ended:
            self._blocks.append(({}, []))
        members, pieces = self._blocks[-1]
        members.update(fragment)
        thought = word(block.get("thinking"))
        pieces.append(thought)
        return self._show_thought(BLOCKS, thought)

    def _detail_for(self, detail: Block) -> tuple[Block, dict[str, list[str]]]:
        """Pieces of one detail share its type and index; only some servers give each an id."""
        for members, pieces in reversed(self._details):
            ids = {word(members.get("id")), word(detail.get("id"))} - {""}
            if len(ids) < 2 and all(members.get(name) == detail.get(name) for name in ("type", "index")):
                return members, pieces
        self._details.append(({}, {}))
        return self._details[-1]

    def _take_sound(self, audio: object) -> list[Delta]:
        if not isinstance(audio, dict):
            return []
        self._sound.update((n, v) for n, v in audio.items() if n not in self._spoken and v is not None)
        self._spoken["data"].append(word(audio.get("data")))
        return self._say_into(self._spoken["transcript"], audio.get("transcript"))

    def _say_into(self, pieces: list[str], said: object) -> list[Delta]:
        if not isinstance(said, str) or not said:
            return []
        pieces.append(said)
        return [TextDelta(text=mended(said))]

    def _show_thought(self, place: str, thought: str) -> list[Delta]:
        """Some servers say every thought in two places; it is shown from the first."""
        self._shown_from = self._shown_from or place
        return [ReasoningDelta(reasoning=mended(thought))] if thought and place == self._shown_from else []


def _folded(had: Any, value: Any) -> Any:
    """What was there, added to where it stands."""
    if isinstance(had, dict) and isinstance(value, dict):
        had.update(value)
        return had
    if not isinstance(had, list) or not isinstance(value, list):
        return value
    for entry in value:
        index = entry.get("index") if isinstance(entry, dict) else None
        same = None
        if index is not None:
            same = next((one for one in had if isinstance(one, dict) and one.get("index") == index), None)
        if same is None:
            had.append(entry)
        else:
            same.update(entry)
    return had
